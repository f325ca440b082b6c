package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// leaveBatched is the first version of LeaveGroup with a list of members
// (KIP-345).
const leaveBatched = 3

// LeaveGroup answers versions 0-5 of the request. Dynamic members leave by
// member id; an administrator removes static ones by instance id alone.
func (s *Shard) LeaveGroup(c *Context, req *kmsg.LeaveGroupRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	fx.Reply(c.Caller, resp)
	if !validGroupID(req.Group) {
		resp.ErrorCode = int16(kafka.ErrInvalidGroupID)
		return
	}
	g := s.groups[req.Group]
	if req.Version < leaveBatched {
		resp.ErrorCode = int16(s.leave(g, req.MemberID, nil, c.NowMs, fx))
	}
	for i := range req.Members {
		m := &req.Members[i]
		code := s.leave(g, m.MemberID, m.InstanceID, c.NowMs, fx)
		resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{
			MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: int16(code),
		})
	}
	if g != nil {
		s.dropIfVoid(g)
	}
}

func (s *Shard) leave(
	g *group, memberID string, instanceID *string, nowMs int64, fx *shard.Effects,
) kafka.Code {
	if g == nil {
		return kafka.ErrUnknownMemberID
	}
	if memberID == "" && instanceID != nil {
		m := g.static[*instanceID]
		if m == nil {
			return kafka.ErrUnknownMemberID
		}
		s.removeMember(g, m, nowMs, fx)
		return kafka.ErrNone
	}
	if _, ok := g.pending[memberID]; ok && instanceID == nil {
		s.forgetPending(g, memberID)
		s.maybeCompleteJoin(g, nowMs, fx)
		return kafka.ErrNone
	}
	m, code := g.find(memberID, instanceID)
	if code == kafka.ErrNone {
		s.removeMember(g, m, nowMs, fx)
	}
	return code
}
