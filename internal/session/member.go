package session

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/assignor"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// The versions of requests that sessions use.
const (
	joinVersion      = 9
	syncVersion      = 5
	heartbeatVersion = 4
	leaveVersion     = 5
	fetchVersion     = 8
	commitVersion    = 8
)

// membership is what run knows beyond what callers see.
type membership struct {
	// counts are the partitions of each topic of the group as they were when the
	// session assigned them; nil if it does not lead the group.
	counts map[string]int32
	// owes: there must be another rebalance, because the leader could not hand on
	// before what a member had to give up first (KIP-429).
	owes bool
	// joined: the session has been part of its group before.
	joined bool
}

// run is the session's own goroutine: it joins the group, heartbeats, joins
// again when the group rebalances, and leaves when nobody has called for the
// session's timeout. It returns when it has left or ctx ends.
func (s *session) run(ctx context.Context) {
	defer close(s.done)
	defer s.home.forget(s)
	defer s.stopWatching()
	var m membership
	for ctx.Err() == nil {
		err := s.join(ctx, &m)
		switch {
		case err == nil:
			if m.owes {
				continue
			}
			err = s.keep(ctx, &m)
		case refusal.CodeOf(err) == kafka.ErrUnknownMemberID:
			s.lapse(true)
			continue
		case transient(err):
			if outdated(err) {
				err = nil // The group moved on meanwhile, which is no trouble.
			}
			s.trouble(err)
			pause(ctx)
			err = nil
		}
		if err != nil {
			s.home.counts.ended(err)
			s.end(err)
			return
		}
		if s.retireIfUnused(s.home.o.Now()) {
			s.leave(ctx)
			s.end(errEnded)
			return
		}
	}
	s.end(stopping())
}

// end tells callers that the session is over, and why.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired, s.ready, s.err = true, false, err
	s.wakeAllLocked()
}

// pause waits before something is tried again.
func pause(ctx context.Context) {
	timer := time.NewTimer(retryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// keep heartbeats until there is a reason to join again, which is no error, or
// to end.
func (s *session) keep(ctx context.Context, m *membership) error {
	timer := time.NewTicker(heartbeatEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.poke:
		}
		if s.retireIfUnused(s.home.o.Now()) || !s.state().ready || s.behind(m.counts) {
			return nil
		}
		code, err := s.heartbeat(ctx, groups.Ask)
		switch {
		case err != nil:
			pause(ctx) // The coordinator is not there just now; it may be soon.
		case code == kafka.ErrUnknownMemberID:
			s.lapse(true)
			return nil
		case code == kafka.ErrFencedInstanceID:
			return errFenced // Somebody else goes on under this name.
		case code == kafka.ErrRebalanceInProgress:
			return nil
		case code == kafka.ErrIllegalGeneration:
			s.lapse(false)
			return nil
		}
	}
}

// heartbeat tells the coordinator that the member is alive, and returns what it
// says of the member's generation.
func (s *session) heartbeat(ctx context.Context, by asking) (kafka.Code, error) {
	st := s.state()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = heartbeatVersion, s.key.group, st.memberID, st.generation
	instance := s.key.instanceID()
	req.InstanceID = &instance
	resp, err := s.home.askBy(ctx, by, s.key, req)
	if err != nil {
		return kafka.ErrNone, err
	}
	return kafka.Code(resp.(*kmsg.HeartbeatResponse).ErrorCode), nil
}

// leave tells the coordinator that the member is gone. If it cannot be told the
// member's session in the group ends by itself.
func (s *session) leave(ctx context.Context) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = leaveVersion, s.key.group
	m := kmsg.NewLeaveGroupRequestMember()
	instance := s.key.instanceID()
	m.MemberID, m.InstanceID = s.state().memberID, &instance
	req.Members = append(req.Members, m)
	if _, err := s.home.ask(ctx, s.key, req); err != nil {
		s.home.o.Logger.Debug("session left without a word", "group", s.key.group, "error", err)
	}
}

// join takes part in a rebalance from the join to the point where the session
// knows what it owns and where to read there.
func (s *session) join(ctx context.Context, m *membership) error {
	resp, err := s.joinGroup(ctx)
	if err != nil {
		return err
	}
	// What the session owned may be given away from here on.
	s.lapse(false)
	assignment, err := s.syncGroup(ctx, resp, m)
	if err != nil {
		return err
	}
	owned, err := s.hold(ctx, assignedOf(s.key.topic, assignment))
	if err != nil {
		return err
	}
	gaveUp := s.settle(resp.MemberID, resp.Generation, owned)
	m.owes = false
	if resp.Protocol != nil && *resp.Protocol == assignor.Cooperative {
		// A session that takes the place of one that was lost does not know what that
		// one owed.
		m.owes = gaveUp || !m.joined && s.home.leftOver(s.key)
	}
	s.home.counts.joined(m.joined)
	m.joined = true
	s.home.o.Logger.Debug("session joined", "group", s.key.group, "topic", s.key.topic,
		"generation", resp.Generation, "partitions", len(owned))
	return nil
}

func (s *session) joinGroup(ctx context.Context) (*kmsg.JoinGroupResponse, error) {
	if err := s.home.o.EnsureOffsets(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	req := kmsg.NewPtrJoinGroupRequest()
	req.MemberID = s.memberID
	req.Protocols = offers(s.key.topic, numbers(s.owned), s.generation)
	req.SessionTimeoutMillis = int32(s.terms.Timeout.Milliseconds())
	s.mu.Unlock()
	instance := s.key.instanceID()
	req.Version, req.Group, req.InstanceID, req.ProtocolType = joinVersion, s.key.group, &instance, protocolType
	req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
	resp, err := s.home.ask(ctx, s.key, req)
	if err != nil {
		return nil, err
	}
	joined := resp.(*kmsg.JoinGroupResponse)
	if code := kafka.Code(joined.ErrorCode); code == kafka.ErrFencedInstanceID {
		return nil, errFenced
	}
	return joined, refused(s.key.group, joined.ErrorCode)
}

// syncGroup learns the session's assignment and, as the leader, makes
// everybody's.
func (s *session) syncGroup(ctx context.Context, j *kmsg.JoinGroupResponse, m *membership) ([]byte, error) {
	m.counts = nil
	req := kmsg.NewPtrSyncGroupRequest()
	instance := s.key.instanceID()
	req.Version, req.Group, req.MemberID, req.InstanceID = syncVersion, s.key.group, j.MemberID, &instance
	req.Generation, req.Protocol, req.ProtocolType = j.Generation, j.Protocol, j.ProtocolType
	if j.LeaderID == j.MemberID && j.Protocol != nil {
		var members []assignor.Member
		m.counts = map[string]int32{}
		for i := range j.Members {
			x := readMember(*j.Protocol, &j.Members[i])
			members = append(members, x)
			for _, topic := range x.Topics {
				m.counts[topic] = s.home.count(topic)
			}
		}
		if !j.SkipAssignment {
			req.GroupAssignment = assignments(assignor.New(*j.Protocol, members, m.counts))
		}
	}
	resp, err := s.home.ask(ctx, s.key, req)
	if err != nil {
		return nil, err
	}
	synced := resp.(*kmsg.SyncGroupResponse)
	if kafka.Code(synced.ErrorCode) == kafka.ErrFencedInstanceID {
		return nil, errFenced
	}
	return synced.MemberAssignment, refused(s.key.group, synced.ErrorCode)
}

// leftOver reports whether a partition of the topic has no owner in the group.
func (x *Sessions) leftOver(k key) bool {
	d, err := x.describe(k.group)
	if err != nil || d.State != group.Stable {
		return false // There will be another rebalance anyway.
	}
	for number := range x.count(k.topic) {
		if ownerIn(d, k.topic, number) == nil {
			return true
		}
	}
	return false
}

// behind reports whether a topic of the group has other partitions than when
// they were assigned.
func (s *session) behind(counts map[string]int32) bool {
	for topic, n := range counts {
		if s.home.count(topic) != n {
			return true
		}
	}
	return false
}

// hold finds the partitions that were assigned and where to read in them.
func (s *session) hold(ctx context.Context, assigned []int32) ([]*holding, error) {
	if len(assigned) == 0 {
		return nil, nil
	}
	committed, err := s.home.committed(ctx, s.key, assigned)
	if err != nil {
		return nil, err
	}
	if err := s.resetMissing(ctx, assigned, committed); err != nil {
		return nil, err
	}
	owned := make([]*holding, 0, len(assigned))
	for i, number := range assigned {
		p := s.home.o.Topics.Partitions.GetByID(s.topicID, number)
		owned = append(owned, &holding{
			number: number, part: p, next: committed[i], committed: committed[i], end: unknownEnd,
		})
	}
	return owned, nil
}

// resetMissing puts the place where the group begins for each partition in which it
// has committed nothing, but for those whose replica here is not open yet.
func (s *session) resetMissing(ctx context.Context, numbers []int32, committed []kafka.Offset) error {
	s.mu.Lock()
	terms := s.terms
	s.mu.Unlock()
	v := s.view()
	var missing []int32
	for i, number := range numbers {
		if committed[i] != kafka.NoOffset || v == nil {
			continue
		}
		if _, away := s.home.awayFrom(v, number); away {
			missing = append(missing, number)
		} else if p := s.home.o.Topics.Partitions.GetByID(s.topicID, number); p != nil {
			committed[i] = resetTo(p, terms.Reset, terms.Isolation)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found, err := s.home.locateAll(ctx, v, missing, resetPlace(&terms))
	if err != nil {
		return err
	}
	for i, number := range numbers {
		if at := slices.Index(missing, number); at >= 0 && committed[i] == kafka.NoOffset {
			committed[i] = found[at].at
		}
	}
	return nil
}

// committed returns the group's committed offsets of partitions; kafka.NoOffset
// where there is none.
func (x *Sessions) committed(ctx context.Context, k key, partitions []int32) ([]kafka.Offset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = fetchVersion, true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = k.group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = k.topic, partitions
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := x.ask(ctx, k, req)
	if err != nil {
		return nil, err
	}
	fetched := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := refused(k.group, fetched.ErrorCode); err != nil {
		return nil, err
	}
	offsets := make([]kafka.Offset, 0, len(partitions))
	for i := range fetched.Topics[0].Partitions {
		p := &fetched.Topics[0].Partitions[i]
		if err := refused(k.group, p.ErrorCode); err != nil {
			return nil, err
		}
		offsets = append(offsets, kafka.Offset(p.Offset))
	}
	return offsets, nil
}
