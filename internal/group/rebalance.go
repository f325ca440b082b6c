package group

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// prepareRebalance asks all members to join again. An empty group waits for the
// initial delay first, so that members that start together share one rebalance.
func (s *Shard) prepareRebalance(g *group, nowMs int64, fx *shard.Effects) {
	if g.state == CompletingRebalance {
		for _, m := range g.members {
			m.assignment = nil
			m.answerSync(kafka.ErrRebalanceInProgress, fx)
		}
	}
	for _, m := range g.members {
		m.owesSync = false
	}
	wasEmpty := g.state == Empty
	g.clearRebalance()
	g.setState(PreparingRebalance, nowMs)
	timeout := g.rebalanceTimeoutMs()
	delay := s.settings.InitialRebalanceDelay.Milliseconds()
	if wasEmpty && delay > 0 {
		g.rebalance.initial = true
		g.rebalance.joinDeadlineMs = nowMs + delay
		g.rebalance.extendMs = max(timeout-delay, 0)
	} else {
		g.rebalance.joinDeadlineMs = nowMs + timeout
	}
	s.maybeCompleteJoin(g, nowMs, fx)
	s.arm(g, g.nextDeadline())
}

func (g *group) setState(state State, nowMs int64) {
	g.state, g.stateSinceMs = state, nowMs
}

// maybeCompleteJoin ends the joining if nobody is missing.
func (s *Shard) maybeCompleteJoin(g *group, nowMs int64, fx *shard.Effects) {
	if g.state == PreparingRebalance && !g.rebalance.initial && g.allJoined() {
		s.completeJoin(g, nowMs, fx)
	}
}

// joinTimeUp ends the joining, or puts its end off if it is still the initial
// delay and somebody new came in.
func (s *Shard) joinTimeUp(g *group, nowMs int64, fx *shard.Effects) {
	r := &g.rebalance
	if r.initial && r.newMember && r.extendMs > 0 {
		delay := s.settings.InitialRebalanceDelay.Milliseconds()
		r.joinDeadlineMs = nowMs + min(delay, r.extendMs)
		r.extendMs = max(r.extendMs-delay, 0)
		r.newMember = false
		return
	}
	s.completeJoin(g, nowMs, fx)
}

// minRetryMs keeps a client's tiny rebalance timeout from making the shard spin.
const minRetryMs = 1000

// completeJoin begins the next generation with those that have joined. Static
// members stay until their session ends.
func (s *Shard) completeJoin(g *group, nowMs int64, fx *shard.Effects) {
	for _, m := range slices.Clone(g.members) {
		if !m.parkedJoin.waiting && m.instanceID == nil {
			m.answerSync(kafka.ErrUnknownMemberID, fx)
			g.remove(m)
		}
	}
	if len(g.members) > 0 && !g.electLeader() {
		// Static members only, and none is back: wait for them, or for the end of
		// their sessions.
		g.rebalance.initial = false
		g.rebalance.joinDeadlineMs = nowMs + max(g.rebalanceTimeoutMs(), minRetryMs)
		s.arm(g, g.rebalance.joinDeadlineMs)
		return
	}
	g.clearRebalance()
	g.generation = nextGeneration(g.generation)
	g.subscription.forget()
	if len(g.members) == 0 {
		g.protocol, g.leader = "", ""
		g.setState(Empty, nowMs)
		g.appendMetadata(fx, nil)
		return
	}
	g.protocol = g.choose()
	g.setState(CompletingRebalance, nowMs)
	for _, m := range g.members {
		m.isNew, m.owesSync = false, true
		s.alive(g, m, nowMs)
		if p := m.parkedJoin; p.waiting {
			m.parkedJoin = parked{}
			fx.Reply(p.caller, joinResponse(p.version, g, m))
		}
	}
	g.rebalance.syncDeadlineMs = nowMs + max(g.rebalanceTimeoutMs(), 1)
	s.arm(g, g.nextDeadline())
}

// electLeader keeps the leader if it has joined, or else takes the first member
// that has. It returns false if nobody has.
func (g *group) electLeader() bool {
	if m := g.byID[g.leader]; m != nil && m.parkedJoin.waiting {
		return true
	}
	i := slices.IndexFunc(g.members, func(m *member) bool { return m.parkedJoin.waiting })
	if i < 0 {
		return false
	}
	g.leader = g.members[i].id
	return true
}

func nextGeneration(generation int32) int32 {
	if generation < 0 || generation == math.MaxInt32 {
		return 1
	}
	return generation + 1
}

// removeMember takes a member out of the group and lets the others rebalance.
func (s *Shard) removeMember(g *group, m *member, nowMs int64, fx *shard.Effects) {
	m.answerJoin(kafka.ErrUnknownMemberID, fx)
	m.answerSync(kafka.ErrUnknownMemberID, fx)
	g.remove(m)
	g.subscription.forget()
	switch g.state {
	case Stable, CompletingRebalance:
		s.prepareRebalance(g, nowMs, fx)
	default:
		s.maybeCompleteJoin(g, nowMs, fx)
	}
}

// expireSync removes the members that have not synced in time.
func (s *Shard) expireSync(g *group, nowMs int64, fx *shard.Effects) {
	g.rebalance.syncDeadlineMs = shard.NoDeadline
	removed := false
	for _, m := range slices.Clone(g.members) {
		if m.owesSync {
			g.remove(m)
			removed = true
		}
	}
	if removed {
		g.subscription.forget()
		s.prepareRebalance(g, nowMs, fx)
	}
}

// appendMetadata adds the group's metadata record to the effects, with the
// assignments given or, if that is nil, those the members have.
func (g *group) appendMetadata(fx *shard.Effects, assignments map[string][]byte) {
	v := kmsg.NewGroupMetadataValue()
	v.Version = groupValueVersion
	v.ProtocolType, v.Generation = g.protocolType, g.generation
	if g.protocol != "" {
		v.Protocol = &g.protocol
	}
	if g.leader != "" {
		v.Leader = &g.leader
	}
	v.CurrentStateTimestamp = g.stateSinceMs
	for _, m := range g.members {
		assignment := m.assignment
		if assignments != nil {
			assignment = assignments[m.id]
		}
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: m.id, InstanceID: m.instanceID,
			ClientID: m.clientID, ClientHost: m.clientHost,
			RebalanceTimeoutMillis: m.rebalanceTimeoutMs, SessionTimeoutMillis: m.sessionTimeoutMs,
			Subscription: m.metadata(g.protocol), Assignment: assignment,
		})
	}
	fx.Append(
		func(dst []byte) []byte { return appendGroupKey(dst, g.id) },
		v.AppendTo,
	)
}
