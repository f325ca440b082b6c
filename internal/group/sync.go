package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// SyncGroup answers versions 0-5 of the request. Members wait for the leader's;
// all are answered when the assignment is committed.
func (s *Shard) SyncGroup(c *Context, req *kmsg.SyncGroupRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	g := s.groups[req.Group]
	m, code := checkSync(g, req)
	if code != kafka.ErrNone {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = int16(code)
		fx.Reply(c.Caller, resp)
		return
	}
	g.synced(m)
	if g.state == Stable {
		s.alive(g, m, c.NowMs)
		fx.WaitFor(g.lastAppended)
		fx.Reply(c.Caller, syncResponse(req.Version, g, m.assignment))
		return
	}
	m.answerSync(kafka.ErrRebalanceInProgress, fx) // Of a connection given up.
	m.parkedSync = parked{caller: c.Caller, version: req.Version, waiting: true}
	if g.isLeader(m) {
		s.assign(g, req, c.NowMs, fx)
	}
}

func checkSync(g *group, req *kmsg.SyncGroupRequest) (*member, kafka.Code) {
	switch {
	case req.Group == "" || len(req.Group) > maxString:
		return nil, kafka.ErrInvalidGroupID
	case g == nil:
		return nil, kafka.ErrUnknownMemberID
	}
	m, code := g.find(req.MemberID, req.InstanceID)
	switch {
	case code != kafka.ErrNone:
		return nil, code
	case g.state == Empty:
		return nil, kafka.ErrUnknownMemberID
	case req.Generation != g.generation:
		return nil, kafka.ErrIllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType,
		req.Protocol != nil && *req.Protocol != g.protocol:
		return nil, kafka.ErrInconsistentGroupProtocol
	case g.state == PreparingRebalance:
		return nil, kafka.ErrRebalanceInProgress
	}
	return m, kafka.ErrNone
}

// synced notes that the member has kept up; when all have, nobody is removed for
// it.
func (g *group) synced(m *member) {
	m.owesSync = false
	for _, x := range g.members {
		if x.owesSync {
			return
		}
	}
	g.rebalance.syncDeadlineMs = shard.NoDeadline
}

// assign makes the leader's assignment a record and answers all that wait for
// it. Members that the leader left out get an empty one. The group becomes
// stable in Replay.
func (s *Shard) assign(g *group, req *kmsg.SyncGroupRequest, nowMs int64, fx *shard.Effects) {
	assignments := make(map[string][]byte, len(req.GroupAssignment))
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		assignments[a.MemberID] = append([]byte{}, a.MemberAssignment...)
	}
	g.stateSinceMs = nowMs
	g.appendMetadata(fx, assignments)
	for _, m := range g.members {
		if p := m.parkedSync; p.waiting {
			m.parkedSync = parked{}
			s.alive(g, m, nowMs)
			fx.Reply(p.caller, syncResponse(p.version, g, assignments[m.id]))
		}
	}
	s.arm(g, g.nextDeadline())
}

func syncResponse(version int16, g *group, assignment []byte) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = version
	protocolType, protocol := g.protocolType, g.protocol
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	resp.MemberAssignment = nonNil(assignment)
	return resp
}

// Heartbeat answers versions 0-4 of the request.
func (s *Shard) Heartbeat(c *Context, req *kmsg.HeartbeatRequest, fx *shard.Effects) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = int16(s.heartbeat(c.NowMs, req))
	fx.Reply(c.Caller, resp)
}

func (s *Shard) heartbeat(nowMs int64, req *kmsg.HeartbeatRequest) kafka.Code {
	g := s.groups[req.Group]
	switch {
	case req.Group == "" || len(req.Group) > maxString:
		return kafka.ErrInvalidGroupID
	case g == nil:
		return kafka.ErrUnknownMemberID
	}
	m, code := g.find(req.MemberID, req.InstanceID)
	switch {
	case code != kafka.ErrNone:
		return code
	case req.Generation != g.generation:
		return kafka.ErrIllegalGeneration
	}
	s.alive(g, m, nowMs)
	if g.state == PreparingRebalance {
		return kafka.ErrRebalanceInProgress
	}
	return kafka.ErrNone
}
