package group

import (
	"bytes"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// newMemberTimeoutMs bounds how long a member that has never had an answer stays
// in a rebalance: it cannot heartbeat, and its client may be gone.
const newMemberTimeoutMs = 5 * 60 * 1000

// The first versions of JoinGroup with a feature.
const (
	joinMemberIDRequired = 4 // KIP-394: a member joins with an id it was given.
	joinSkipAssignment   = 9 // KIP-814: a static leader that rejoins needs not assign.
)

// join is a JoinGroup request on its way through the machine.
type join struct {
	*Context
	req       *kmsg.JoinGroupRequest
	protocols []protocol
	fx        *shard.Effects
}

// JoinGroup answers versions 0-9 of the request, at once or when the rebalance
// that it starts is over.
func (s *Shard) JoinGroup(c *Context, req *kmsg.JoinGroupRequest, fx *shard.Effects) {
	fx.Subject = req.Group
	j := &join{Context: c, req: req, fx: fx}
	if code := s.checkJoin(req); code != kafka.ErrNone {
		j.refuse(code, req.MemberID)
		return
	}
	j.protocols = protocolsOf(req)
	g := s.groups[req.Group]
	if g == nil {
		if req.MemberID != "" {
			j.refuse(kafka.ErrUnknownMemberID, req.MemberID)
			return
		}
		g = s.create(req.Group)
		g.stateSinceMs = c.NowMs
	}
	switch {
	case !s.hasRoom(g, req.MemberID):
		s.forgetPending(g, req.MemberID)
		j.refuse(kafka.ErrGroupMaxSizeReached, "")
	case req.MemberID == "":
		s.joinUnknown(g, j)
	default:
		s.joinKnown(g, j)
	}
	s.dropIfVoid(g)
}

func (s *Shard) checkJoin(req *kmsg.JoinGroupRequest) kafka.Code {
	session := int64(req.SessionTimeoutMillis)
	switch {
	case !validGroupID(req.Group):
		return kafka.ErrInvalidGroupID
	case session < s.settings.MinSessionTimeout.Milliseconds(),
		session > s.settings.MaxSessionTimeout.Milliseconds():
		return kafka.ErrInvalidSessionTimeout
	case len(req.ProtocolType) > maxString:
		return kafka.ErrInconsistentGroupProtocol
	case req.InstanceID != nil && (*req.InstanceID == "" || len(*req.InstanceID) > maxString):
		return kafka.ErrInvalidRequest
	}
	for i := range req.Protocols {
		if len(req.Protocols[i].Name) > maxString {
			return kafka.ErrInconsistentGroupProtocol
		}
	}
	return kafka.ErrNone
}

// validGroupID reports whether a group may have members under this id.
func validGroupID(id string) bool { return id != "" && len(id) <= maxString }

func protocolsOf(req *kmsg.JoinGroupRequest) []protocol {
	ps := make([]protocol, 0, len(req.Protocols))
	for i := range req.Protocols {
		p := &req.Protocols[i]
		ps = append(ps, protocol{strings.Clone(p.Name), append([]byte{}, p.Metadata...)})
	}
	return ps
}

// hasRoom reports whether group.max.size lets the member in.
func (s *Shard) hasRoom(g *group, memberID string) bool {
	m := g.byID[memberID]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.parkedJoin.waiting || g.joined() < s.settings.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < s.settings.MaxSize
	default:
		return true
	}
}

// joinUnknown lets in a member that has no id yet.
func (s *Shard) joinUnknown(g *group, j *join) {
	var replaced *member
	if j.req.InstanceID != nil {
		replaced = g.static[*j.req.InstanceID]
	}
	if !g.supports(j.req.ProtocolType, j.protocols, replaced) {
		j.refuse(kafka.ErrInconsistentGroupProtocol, "")
		return
	}
	switch {
	case replaced != nil:
		s.replaceStatic(g, replaced, j)
	case j.req.InstanceID != nil:
		s.addMember(g, s.newMemberID(*j.req.InstanceID), j)
	case j.req.Version >= joinMemberIDRequired && s.pending >= s.settings.MaxPendingMembers:
		j.refuse(kafka.ErrCoordinatorLoadInProgress, "")
	case j.req.Version >= joinMemberIDRequired:
		id := s.newMemberID(j.ClientID)
		s.addPending(g, id, j.NowMs+int64(j.req.SessionTimeoutMillis))
		j.refuse(kafka.ErrMemberIDRequired, id)
	default:
		s.addMember(g, s.newMemberID(j.ClientID), j)
	}
}

// joinKnown lets in a member that comes with an id.
func (s *Shard) joinKnown(g *group, j *join) {
	id := j.req.MemberID
	if _, ok := g.pending[id]; ok && j.req.InstanceID == nil {
		if !g.supports(j.req.ProtocolType, j.protocols, nil) {
			j.refuse(kafka.ErrInconsistentGroupProtocol, id)
			return
		}
		s.forgetPending(g, id)
		s.addMember(g, strings.Clone(id), j)
		return
	}
	m, code := g.find(id, j.req.InstanceID)
	if code == kafka.ErrNone && !g.supports(j.req.ProtocolType, j.protocols, m) {
		code = kafka.ErrInconsistentGroupProtocol
	}
	if code != kafka.ErrNone {
		j.refuse(code, id)
		return
	}
	switch {
	case g.state == CompletingRebalance && m.offers(j.protocols):
		// The answer to the join was lost: give it again.
		s.accept(g, m, j)
	case g.state == Stable && !g.isLeader(m) && m.offers(j.protocols):
		// A follower without news needs no rebalance. A leader does: it rejoins
		// when it has seen a change that the members cannot see.
		s.accept(g, m, j)
	default:
		s.rejoin(g, m, j)
	}
}

// find returns the member that a request speaks for.
func (g *group) find(memberID string, instanceID *string) (*member, kafka.Code) {
	if instanceID != nil {
		m := g.static[*instanceID]
		switch {
		case m == nil:
			return nil, kafka.ErrUnknownMemberID
		case m.id != memberID:
			return nil, kafka.ErrFencedInstanceID
		}
		return m, kafka.ErrNone
	}
	if m := g.byID[memberID]; m != nil {
		return m, kafka.ErrNone
	}
	return nil, kafka.ErrUnknownMemberID
}

func (s *Shard) addMember(g *group, id string, j *join) {
	m := &member{
		id: id, clientID: shorten(j.ClientID), clientHost: shorten(j.ClientHost),
		isNew: true, deadlineMs: j.NowMs + newMemberTimeoutMs,
	}
	if j.req.InstanceID != nil {
		instance := strings.Clone(*j.req.InstanceID)
		m.instanceID = &instance
	}
	if len(g.members) == 0 {
		g.protocolType = strings.Clone(j.req.ProtocolType)
	}
	m.update(j)
	g.add(m)
	if g.rebalance.initial {
		g.rebalance.newMember = true
	}
	s.arm(g, m.deadlineMs)
	s.rejoin(g, m, j)
}

// shorten makes a name from a client fit into a record.
func shorten(name string) string {
	if len(name) > maxString {
		name = name[:maxString]
	}
	return strings.Clone(name)
}

func (m *member) update(j *join) {
	m.protocols = j.protocols
	m.sessionTimeoutMs = j.req.SessionTimeoutMillis
	m.rebalanceTimeoutMs = j.req.RebalanceTimeoutMillis
	if m.rebalanceTimeoutMs < 0 || j.req.Version < 1 {
		m.rebalanceTimeoutMs = m.sessionTimeoutMs
	}
}

// rejoin parks the member's request and starts or completes a rebalance.
func (s *Shard) rejoin(g *group, m *member, j *join) {
	m.update(j)
	m.parkJoin(j)
	g.subscription.forget()
	if g.state == PreparingRebalance {
		s.maybeCompleteJoin(g, j.NowMs, j.fx)
		return
	}
	s.prepareRebalance(g, j.NowMs, j.fx)
}

// parkJoin parks the request. One that is parked already was sent over a
// connection that the client has given up.
func (m *member) parkJoin(j *join) {
	m.answerJoin(kafka.ErrRebalanceInProgress, j.fx)
	m.parkedJoin = parked{caller: j.Caller, version: j.req.Version, waiting: true}
}

// replaceStatic gives a static member that was restarted a new member id, which
// fences whoever had the old one (KIP-345). If the group is stable and its
// protocol stays the same there is no rebalance.
func (s *Shard) replaceStatic(g *group, m *member, j *join) {
	m.answerJoin(kafka.ErrFencedInstanceID, j.fx)
	m.answerSync(kafka.ErrFencedInstanceID, j.fx)
	leaderBefore := g.leader
	g.rename(m, s.newMemberID(*j.req.InstanceID))
	m.clientID, m.clientHost = shorten(j.ClientID), shorten(j.ClientHost)
	m.update(j)
	s.alive(g, m, j.NowMs)
	if g.state != Stable || g.choose() != g.protocol {
		s.rejoin(g, m, j)
		return
	}
	g.subscription.forget()
	g.appendMetadata(j.fx, nil)
	resp := joinResponse(j.req.Version, g, m)
	if j.req.Version >= joinSkipAssignment {
		resp.SkipAssignment = g.isLeader(m)
	} else {
		// An older client that finds itself leader would assign, and nobody would
		// sync with it. So it is told of the leader before.
		resp.LeaderID, resp.Members = leaderBefore, nil
	}
	j.fx.Reply(j.Caller, resp)
}

// accept answers a join at once with the current generation.
func (s *Shard) accept(g *group, m *member, j *join) {
	m.answerJoin(kafka.ErrRebalanceInProgress, j.fx)
	resp := joinResponse(j.req.Version, g, m)
	if g.state == Stable {
		resp.Members = nil
	}
	s.alive(g, m, j.NowMs)
	j.fx.Reply(j.Caller, resp)
}

// joinResponse is the answer to a member of the current generation. The leader
// gets everybody's metadata.
func joinResponse(version int16, g *group, m *member) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = version
	resp.Generation = g.generation
	protocolType, protocol := g.protocolType, g.protocol
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	resp.LeaderID, resp.MemberID = g.leader, m.id
	if !g.isLeader(m) {
		return resp
	}
	resp.Members = make([]kmsg.JoinGroupResponseMember, 0, len(g.members))
	for _, x := range g.members {
		resp.Members = append(resp.Members, kmsg.JoinGroupResponseMember{
			MemberID: x.id, InstanceID: x.instanceID,
			ProtocolMetadata: bytes.Clone(x.metadata(g.protocol)),
		})
	}
	return resp
}

func (j *join) refuse(code kafka.Code, memberID string) {
	j.fx.Reply(j.Caller, joinRefusal(j.req.Version, code, memberID))
}

func joinRefusal(version int16, code kafka.Code, memberID string) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.ErrorCode, resp.MemberID = version, int16(code), memberID
	if version < 7 {
		resp.Protocol = new(string)
	}
	return resp
}

// answerJoin refuses the member's parked join, if there is one.
func (m *member) answerJoin(code kafka.Code, fx *shard.Effects) {
	if p := m.parkedJoin; p.waiting {
		m.parkedJoin = parked{}
		fx.Reply(p.caller, joinRefusal(p.version, code, m.id))
	}
}

// answerSync refuses the member's parked sync, if there is one.
func (m *member) answerSync(code kafka.Code, fx *shard.Effects) {
	if p := m.parkedSync; p.waiting {
		m.parkedSync = parked{}
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.Version, resp.ErrorCode = p.version, int16(code)
		fx.Reply(p.caller, resp)
	}
}
