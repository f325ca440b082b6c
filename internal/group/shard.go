package group

import (
	"bytes"
	"container/heap"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Shard is the groups of one partition of __consumer_offsets. It implements
// shard.Machine and is not safe for concurrent use.
type Shard struct {
	settings     Settings
	newUUID      func() [16]byte
	topics       Topics // Until the shard is loaded; may be nil.
	groups       map[string]*group
	timers       timers
	pending      int // Members that are pending, in all groups.
	cleanup      cleanup
	transactions transactions
	lastAppended kafka.Offset
}

// Context is what comes with a request.
type Context struct {
	NowMs      int64
	Caller     shard.Caller // Who gets the reply.
	ClientID   string
	ClientHost string
	Topics     Topics // The topics there are; nil if nobody knows.
	// Guard is the partition's for a TxnOffsetCommit: see shard.Transaction.
	Guard any
}

// New returns an empty shard.
func New(o Options) *Shard {
	return &Shard{
		settings: o.Settings, newUUID: o.NewUUID, topics: o.Topics, groups: map[string]*group{},
		lastAppended: kafka.NoOffset,
	}
}

// Configure replaces the settings.
func (s *Shard) Configure(settings Settings) { s.settings = settings }

// Replay implements shard.Machine.
func (s *Shard) Replay(r shard.Record) error {
	k, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if k.kind == kindGroupMetadata {
		err = s.replayGroup(k, r)
	} else {
		err = s.replayOffset(k, r)
	}
	if err == nil {
		s.lastAppended = r.Offset
	}
	return err
}

func (s *Shard) replayOffset(k key, r shard.Record) error {
	if r.Value == nil {
		s.forgetOffset(k, r.Offset)
		return nil
	}
	o, err := decodeOffset(k.kind, r.Value)
	if err != nil {
		return err
	}
	g := s.groups[string(k.group)]
	if g == nil {
		g = s.create(string(k.group))
		g.stateSinceMs = r.TimestampMs
	}
	g.lastAppended = r.Offset
	o.at = r.Offset
	if partitions := g.offsets[string(k.topic)]; partitions != nil {
		partitions[k.partition] = o // The usual case, without a copy of the name.
		return nil
	}
	g.set(string(k.topic), k.partition, o)
	return nil
}

// set makes an offset the committed one.
func (g *group) set(topic string, partition int32, o Offset) {
	if g.offsets == nil {
		g.offsets = make(map[string]map[int32]Offset, 1)
	}
	partitions := g.offsets[topic]
	if partitions == nil {
		partitions = make(map[int32]Offset, 1)
		g.offsets[topic] = partitions
	}
	partitions[partition] = o
}

func (s *Shard) forgetOffset(k key, at kafka.Offset) {
	g := s.groups[string(k.group)]
	if g == nil {
		return
	}
	g.lastAppended = at
	if len(g.unstable) > 0 {
		s.forgetPendingOffsets(g, kafka.TopicPartition{Topic: string(k.topic), Partition: k.partition})
	}
	if partitions := g.offsets[string(k.topic)]; partitions != nil {
		delete(partitions, k.partition)
		if len(partitions) == 0 {
			delete(g.offsets, string(k.topic))
		}
	}
	s.dropIfVoid(g)
}

// replayGroup makes the group what the record says. Members keep what is soft
// about them: parked requests, deadlines, the protocols they did not choose.
func (s *Shard) replayGroup(k key, r shard.Record) error {
	if r.Value == nil {
		s.forgetGroup(k, r.Offset)
		return nil
	}
	saved := bytes.Clone(r.Value)
	v, err := decodeGroup(saved)
	if err != nil {
		return err
	}
	g := s.groups[string(k.group)]
	if g == nil {
		g = s.create(string(k.group))
	}
	g.saved, g.lastAppended = saved, r.Offset
	g.protocolType, g.generation = v.ProtocolType, v.Generation
	g.protocol, g.leader = stringOf(v.Protocol), stringOf(v.Leader)
	g.stateSinceMs = v.CurrentStateTimestamp
	g.rebalance.endJoin()
	before := g.byID
	g.members, g.byID, g.static = nil, nil, nil
	for i := range v.Members {
		g.add(s.replayMember(g, &v.Members[i], before, r.TimestampMs))
	}
	g.leader = stringOf(v.Leader)
	g.state = Stable
	if len(g.members) == 0 {
		g.state, g.leader = Empty, ""
		g.clearRebalance()
	}
	g.subscription.forget()
	s.arm(g, g.nextDeadline())
	return nil
}

func (s *Shard) replayMember(
	g *group, v *kmsg.GroupMetadataValueMember, before map[string]*member, nowMs int64,
) *member {
	m := before[v.MemberID]
	if m == nil {
		m = &member{
			id:         v.MemberID,
			deadlineMs: nowMs + int64(v.SessionTimeoutMillis),
		}
	}
	if known := m.metadata(g.protocol); known == nil || !bytes.Equal(known, v.Subscription) {
		m.protocols = []protocol{{g.protocol, nonNil(v.Subscription)}}
	}
	m.instanceID, m.clientID, m.clientHost = v.InstanceID, v.ClientID, v.ClientHost
	m.sessionTimeoutMs, m.rebalanceTimeoutMs = v.SessionTimeoutMillis, v.RebalanceTimeoutMillis
	if m.rebalanceTimeoutMs < 0 { // Of before KIP-62.
		m.rebalanceTimeoutMs = m.sessionTimeoutMs
	}
	m.assignment = v.Assignment
	return m
}

func (s *Shard) forgetGroup(k key, at kafka.Offset) {
	g := s.groups[string(k.group)]
	if g == nil {
		return
	}
	g.saved, g.lastAppended = nil, at
	g.state, g.generation, g.protocolType, g.protocol, g.leader = Empty, 0, "", "", ""
	g.members, g.byID, g.static = nil, nil, nil
	g.clearRebalance()
	g.subscription.forget()
	s.dropIfVoid(g)
}

// Loaded implements shard.Machine: every session starts anew.
func (s *Shard) Loaded(nowMs int64) {
	s.cleanup.atMs = nowMs + s.settings.RetentionCheck.Milliseconds()
	for _, g := range s.groups {
		for _, m := range g.members {
			m.deadlineMs = nowMs + int64(m.sessionTimeoutMs)
		}
		if s.dropIfVoid(g) {
			continue
		}
		s.rearm(g, g.nextDeadline())
	}
	s.findOrphans()
}

// Deadline implements shard.Machine.
func (s *Shard) Deadline() int64 {
	next := s.cleanup.deadline()
	if len(s.timers) > 0 {
		next = min(next, s.timers[0].timer.atMs)
	}
	return next
}

// Tick implements shard.Machine. It looks at one group, or cleans up a bounded
// number of offsets.
func (s *Shard) Tick(nowMs int64, fx *shard.Effects) {
	if len(s.timers) > 0 && s.timers[0].timer.atMs <= nowMs {
		g := s.timers[0]
		s.expire(g, nowMs, fx)
		if s.groups[g.id] == g && !s.dropIfVoid(g) {
			s.rearm(g, g.nextDeadline())
		}
		return
	}
	if s.cleanup.deadline() <= nowMs {
		s.cleanUp(nowMs, fx)
	}
}

// expire removes what is overdue in a group.
func (s *Shard) expire(g *group, nowMs int64, fx *shard.Effects) {
	fx.Subject = g.id
	for _, id := range overdue(g.pending, nowMs) {
		s.forgetPending(g, id)
	}
	for _, m := range slices.Clone(g.members) {
		if g.byID[m.id] == m && m.expired(nowMs) {
			s.removeMember(g, m, nowMs, fx)
		}
	}
	if g.rebalance.syncDeadlineMs <= nowMs {
		s.expireSync(g, nowMs, fx)
	}
	s.maybeCompleteJoin(g, nowMs, fx)
	if g.state == PreparingRebalance && g.rebalance.joinDeadlineMs <= nowMs {
		s.joinTimeUp(g, nowMs, fx)
	}
}

// overdue returns the ids whose time has come, in order.
func overdue(deadlines map[string]int64, nowMs int64) []string {
	var ids []string
	for id, atMs := range deadlines {
		if atMs <= nowMs {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *Shard) create(id string) *group {
	g := newGroup(strings.Clone(id))
	s.groups[g.id] = g
	return g
}

// dropIfVoid forgets a group of which nothing is left, and reports whether it
// did.
func (s *Shard) dropIfVoid(g *group) bool {
	if !g.void() {
		return false
	}
	if g.timer.index != notInHeap {
		heap.Remove(&s.timers, g.timer.index)
	}
	delete(s.groups, g.id)
	return true
}

// newMemberID makes a member id as Kafka's brokers do: a name people recognise,
// then what makes it unique.
func (s *Shard) newMemberID(prefix string) string {
	const maxPrefix = 1024
	if len(prefix) > maxPrefix {
		prefix = prefix[:maxPrefix]
	}
	u := s.newUUID()
	h := hex.EncodeToString(u[:])
	return prefix + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (s *Shard) addPending(g *group, id string, atMs int64) {
	if g.pending == nil {
		g.pending = map[string]int64{}
	}
	g.pending[id] = atMs
	s.pending++
	s.arm(g, atMs)
}

// forgetPending forgets a member id that was handed out and not used yet.
func (s *Shard) forgetPending(g *group, id string) {
	if _, ok := g.pending[id]; ok {
		delete(g.pending, id)
		s.pending--
	}
}

func stringOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
