package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Rejected implements shard.Machine. A leader's assignment that could not be
// written is as good as not made: the members join again.
func (s *Shard) Rejected(nowMs int64, fx *shard.Effects, code kafka.Code) {
	for i := range fx.Replies {
		Refuse(fx.Replies[i].Response, code)
	}
	g := s.groups[fx.Subject]
	if g == nil {
		return
	}
	if g.state == CompletingRebalance && len(fx.Replies) > 0 {
		if _, ok := fx.Replies[0].Response.(*kmsg.SyncGroupResponse); ok {
			s.prepareRebalance(g, nowMs, fx)
		}
	}
	s.dropIfVoid(g)
}

// Late implements shard.Machine.
func (s *Shard) Late(fx *shard.Effects, code kafka.Code) {
	for i := range fx.Replies {
		Refuse(fx.Replies[i].Response, code)
	}
}

// Unloaded implements shard.Machine.
func (s *Shard) Unloaded(fx *shard.Effects, code kafka.Code) {
	s.Late(fx, code)
	for _, g := range s.groups {
		for _, m := range g.members {
			m.answerJoin(code, fx)
			m.answerSync(code, fx)
		}
	}
	s.groups, s.timers, s.pending = map[string]*group{}, nil, 0
	s.transactions = transactions{}
}

// Refuse turns a response of this package into a refusal with code. Errors that
// are in the response already stay.
func Refuse(response any, code kafka.Code) {
	c := int16(code)
	switch r := response.(type) {
	case *shard.Outcome:
		r.Code = code
	case *kmsg.JoinGroupResponse:
		if r.ErrorCode == 0 {
			*r = *joinRefusal(r.Version, code, r.MemberID)
		}
	case *kmsg.SyncGroupResponse:
		setCode(&r.ErrorCode, c)
		r.MemberAssignment = nil
	case *kmsg.HeartbeatResponse:
		setCode(&r.ErrorCode, c)
	case *kmsg.LeaveGroupResponse:
		setCode(&r.ErrorCode, c)
	case *kmsg.OffsetCommitResponse:
		for i := range r.Topics {
			for k := range r.Topics[i].Partitions {
				setCode(&r.Topics[i].Partitions[k].ErrorCode, c)
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		for i := range r.Topics {
			for k := range r.Topics[i].Partitions {
				setCode(&r.Topics[i].Partitions[k].ErrorCode, c)
			}
		}
	case *kmsg.OffsetFetchResponse:
		refuseFetch(r, c)
	case *kmsg.OffsetDeleteResponse:
		setCode(&r.ErrorCode, c)
		r.Topics = nil
	case *kmsg.DeleteGroupsResponse:
		for i := range r.Groups {
			setCode(&r.Groups[i].ErrorCode, c)
		}
	}
}

// refuseFetch takes the offsets out as well: they may not be committed.
func refuseFetch(r *kmsg.OffsetFetchResponse, code int16) {
	none := int64(kafka.NoOffset)
	r.ErrorCode = code // Version 2-7; others leave it out.
	for i := range r.Topics {
		for k := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[k]
			p.Offset, p.LeaderEpoch, p.ErrorCode = none, -1, code
		}
	}
	for i := range r.Groups {
		r.Groups[i].ErrorCode = code
		r.Groups[i].Topics = nil
	}
}

func setCode(dst *int16, code int16) {
	if *dst == 0 {
		*dst = code
	}
}
