package group

import (
	"slices"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// State is the state of a group.
type State int8

// The states of a group; see the package comment for the ways between them.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead // A group that does not exist, as DescribeGroups shows it.
)

// String returns Kafka's name of the state.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	case Dead:
		return "Dead"
	}
	return "Unknown"
}

// consumerProtocol is the protocol type of consumers, whose member metadata the
// machine can read.
const consumerProtocol = "consumer"

// group is one group. Invariant: members, byID and static hold the same members.
type group struct {
	id           string
	state        State
	stateSinceMs int64
	protocolType string // Empty if nobody ever joined: offsets only.
	generation   int32
	protocol     string // The chosen one, from CompletingRebalance on.
	leader       string // A member id; empty without members.
	members      []*member
	byID         map[string]*member
	static       map[string]*member // By group.instance.id.
	pending      map[string]int64   // Member ids handed out: when each is forgotten.
	rebalance    rebalance
	subscription subscription

	offsets map[string]map[int32]Offset
	// unstable are offsets that open transactions will commit or not.
	unstable map[kafka.TopicPartition]map[kafka.ProducerID]Offset
	// saved is the value of the group's last metadata record, nil if there is
	// none: what a coordinator that loads the partition will know of the group.
	saved []byte
	// lastAppended is the offset of the newest record about the group.
	lastAppended kafka.Offset

	timer timer
}

// rebalance is the part of a group that lives while a rebalance is under way.
type rebalance struct {
	joinDeadlineMs int64 // When PreparingRebalance ends at the latest.
	syncDeadlineMs int64 // When members that have not synced are removed.
	// initial: the group was empty, and joining goes on for the initial delay
	// even if all known members have joined. Each time somebody new has come in
	// meanwhile, it is extended, until extendMs is used up.
	initial   bool
	newMember bool
	extendMs  int64
}

// member is one member of a group.
type member struct {
	id                 string
	instanceID         *string // nil for a dynamic member.
	clientID           string
	clientHost         string
	rebalanceTimeoutMs int32
	sessionTimeoutMs   int32
	protocols          []protocol // In the order of the member's preference.
	assignment         []byte
	deadlineMs         int64 // When the session ends, unless a parked request keeps it alive.
	// isNew: has never had an answer to a join, so it cannot heartbeat, and being
	// parked does not keep it alive.
	isNew      bool
	owesSync   bool // Has not sent SyncGroup in this generation.
	parkedJoin parked
	parkedSync parked
}

// protocol is one of the assignment strategies that a member offers.
type protocol struct {
	name     string
	metadata []byte
}

// parked is a request that is to be answered later.
type parked struct {
	caller  shard.Caller
	version int16
	waiting bool
}

func newGroup(id string) *group {
	g := &group{id: id, lastAppended: kafka.NoOffset}
	g.timer.atMs, g.timer.index = shard.NoDeadline, notInHeap
	g.clearRebalance()
	return g
}

func (g *group) clearRebalance() {
	g.rebalance = rebalance{joinDeadlineMs: shard.NoDeadline, syncDeadlineMs: shard.NoDeadline}
}

// endJoin ends the joining part of a rebalance.
func (r *rebalance) endJoin() {
	r.joinDeadlineMs, r.initial, r.newMember, r.extendMs = shard.NoDeadline, false, false, 0
}

// void reports whether nothing would be lost if the group were forgotten.
func (g *group) void() bool {
	return g.saved == nil && len(g.members) == 0 && len(g.pending) == 0 && len(g.offsets) == 0 &&
		len(g.unstable) == 0
}

// isLeader reports whether the member leads the group.
func (g *group) isLeader(m *member) bool { return g.leader == m.id }

func (g *group) add(m *member) {
	if g.byID == nil {
		g.byID, g.static = map[string]*member{}, map[string]*member{}
	}
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.instanceID != nil {
		g.static[*m.instanceID] = m
	}
	if g.leader == "" {
		g.leader = m.id
	}
}

func (g *group) remove(m *member) {
	g.members = slices.DeleteFunc(g.members, func(x *member) bool { return x == m })
	delete(g.byID, m.id)
	if m.instanceID != nil && g.static[*m.instanceID] == m {
		delete(g.static, *m.instanceID)
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// rename gives a static member a new id.
func (g *group) rename(m *member, id string) {
	if g.leader == m.id {
		g.leader = id
	}
	delete(g.byID, m.id)
	m.id = id
	g.byID[id] = m
}

// rebalanceTimeoutMs is the longest that any member may take to rejoin.
func (g *group) rebalanceTimeoutMs() int64 {
	var longest int32
	for _, m := range g.members {
		longest = max(longest, m.rebalanceTimeoutMs)
	}
	return int64(longest)
}

func (g *group) joined() int {
	n := 0
	for _, m := range g.members {
		if m.parkedJoin.waiting {
			n++
		}
	}
	return n
}

// allJoined reports whether everybody known has joined, those included that were
// just given a member id.
func (g *group) allJoined() bool {
	return len(g.pending) == 0 && g.joined() == len(g.members)
}

// supports reports whether a member with these protocols could be of the group,
// leaving out one member whose own protocols they would replace.
func (g *group) supports(protocolType string, protocols []protocol, except *member) bool {
	if protocolType == "" || len(protocols) == 0 {
		return false
	}
	others := len(g.members)
	if except != nil {
		others--
	}
	if others <= 0 {
		return g.state == Empty || len(g.members) == 0 || g.protocolType == protocolType
	}
	if g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p protocol) bool {
		for _, m := range g.members {
			if m != except && m.metadata(p.name) == nil {
				return false
			}
		}
		return true
	})
}

// choose picks the protocol by votes: every member votes for the first of its
// own that all support. On a tie the one that comes first in the first member's
// list wins.
func (g *group) choose() string {
	votes := make(map[string]int, 4)
	for _, m := range g.members {
		for _, p := range m.protocols {
			if g.supportedByAll(p.name) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for _, p := range g.members[0].protocols {
		if n := votes[p.name]; n > 0 && (best == "" || n > votes[best]) {
			best = p.name
		}
	}
	return best
}

func (g *group) supportedByAll(name string) bool {
	return !slices.ContainsFunc(g.members, func(m *member) bool { return m.metadata(name) == nil })
}

// metadata returns what the member sent for a protocol; nil if it does not offer
// the protocol.
func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].name == protocol {
			return m.protocols[i].metadata
		}
	}
	return nil
}

// offers reports whether the member's protocols are exactly these.
func (m *member) offers(protocols []protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b protocol) bool {
		return a.name == b.name && string(a.metadata) == string(b.metadata)
	})
}

// expired reports whether the member's session is over. A member whose request
// is parked here is alive by definition, unless it is new.
func (m *member) expired(nowMs int64) bool { return m.deadline() <= nowMs }

// deadline returns when the session ends as things stand.
func (m *member) deadline() int64 {
	if !m.isNew && (m.parkedJoin.waiting || m.parkedSync.waiting) {
		return shard.NoDeadline
	}
	return m.deadlineMs
}
