package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// Durable shows the state that only Replay changes, for the replay law.
func (s *Shard) Durable() string {
	var b strings.Builder
	ids := make([]string, 0, len(s.groups))
	for id := range s.groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		g := s.groups[id]
		if g.saved == nil && len(g.offsets) == 0 && len(g.unstable) == 0 {
			continue // Soft only.
		}
		fmt.Fprintf(&b, "group %s saved=%x\n", id, g.saved)
		for _, name := range g.topics(nil) {
			for _, p := range g.partitions(nil, name) {
				fmt.Fprintf(&b, "  %s-%d %+v\n", name, p, g.offsets[name][p])
			}
		}
		fmt.Fprintf(&b, "  unstable %v\n", g.unstable) // Maps print in order.
	}
	return b.String()
}

// Check panics if an invariant of the package comment is broken.
func (s *Shard) Check() {
	pending := 0
	for id, g := range s.groups {
		if g.id != id {
			panic("a group is under another id")
		}
		pending += len(g.pending)
		g.check()
		if next := g.nextDeadline(); g.timer.atMs > next {
			panic(fmt.Sprintf("group %s: timer at %d is later than the deadline %d", id, g.timer.atMs, next))
		}
	}
	s.checkTransactions()
	if pending != s.pending {
		panic("pending members are miscounted")
	}
	for i, g := range s.timers {
		if g.timer.index != i || s.groups[g.id] != g {
			panic("the queue of timers is broken")
		}
	}
}

// checkTransactions panics if a pending offset and the list of its producer's groups
// do not agree.
func (s *Shard) checkTransactions() {
	for producer, groups := range s.transactions.groups {
		for id := range groups {
			if g := s.groups[id]; g == nil || !g.hasPendingOf(producer) {
				panic("a producer is said to have pending offsets in group " + id)
			}
		}
		if len(groups) == 0 {
			panic("a producer is listed without groups")
		}
	}
	for id, g := range s.groups {
		for at, byProducer := range g.unstable {
			for producer := range byProducer {
				if !s.transactions.groups[producer][id] {
					panic("a pending offset of " + at.String() + " is of a producer that is not listed")
				}
			}
			if len(byProducer) == 0 {
				panic("an unstable partition without a pending offset")
			}
		}
	}
}

func (g *group) check() {
	if len(g.byID) != len(g.members) {
		panic("members are miscounted")
	}
	for _, m := range g.members {
		switch {
		case g.byID[m.id] != m:
			panic("a member is under another id")
		case m.instanceID != nil && g.static[*m.instanceID] != m:
			panic("a static member is under another instance id")
		case g.state == Empty:
			panic("an empty group has members")
		case m.parkedSync.waiting && g.state != CompletingRebalance:
			panic("a sync is parked in " + g.state.String())
		case m.parkedJoin.waiting && g.state != PreparingRebalance:
			panic("a join is parked in " + g.state.String())
		}
	}
	if len(g.members) > 0 && g.byID[g.leader] == nil {
		panic("the leader is no member")
	}
	if g.state == Stable && g.supportedByAll(g.protocol) == false {
		panic("a stable group's protocol is not everybody's")
	}
	if len(g.members) == 0 && (g.state == Stable || g.state == CompletingRebalance) {
		panic("a group without members is " + g.state.String())
	}
}

// Pending returns the number of member ids handed out.
func (s *Shard) Pending() int { return s.pending }

// AppendOffsetRecord encodes an offset commit.
func AppendOffsetRecord(group, topic string, partition int32, o Offset) (key, value []byte) {
	return appendOffsetKey(nil, group, topic, partition), appendOffsetValue(nil, &o)
}

// DecodeRecord decodes a record and shows it.
func DecodeRecord(key, value []byte) (string, error) {
	k, err := decodeKey(key)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("group=%s", k.group)
	if k.kind != kindGroupMetadata {
		name += fmt.Sprintf(" offset %s-%d", k.topic, k.partition)
	}
	if value == nil {
		return name + " tombstone", nil
	}
	if k.kind == kindGroupMetadata {
		v, err := decodeGroup(value)
		if err != nil {
			return "", err
		}
		name += fmt.Sprintf(" generation=%d type=%q protocol=%q leader=%q",
			v.Generation, v.ProtocolType, stringOf(v.Protocol), stringOf(v.Leader))
		for _, m := range v.Members {
			name += fmt.Sprintf(" %s=%q", m.MemberID, m.Assignment)
		}
		return name, nil
	}
	o, err := decodeOffset(k.kind, value)
	if err != nil {
		return "", err
	}
	return name + showOffset(o), nil
}

func showOffset(o Offset) string {
	s := fmt.Sprintf(" at=%d epoch=%d", o.Offset, o.LeaderEpoch)
	if o.Metadata != "" {
		s += fmt.Sprintf(" metadata=%q", o.Metadata)
	}
	if o.ExpiresMs != noExpiry {
		s += fmt.Sprintf(" expires=%d", o.ExpiresMs)
	}
	if o.TopicID != (kafka.TopicID{}) {
		s += fmt.Sprintf(" id=%x", o.TopicID[15])
	}
	return s
}

// OffsetOf returns whose offset a record is, as group/partition, and which; kept is
// false of a tombstone.
func OffsetOf(key, value []byte) (of string, offset int64, kept bool) {
	k, err := decodeKey(key)
	if err != nil || k.kind == kindGroupMetadata {
		return "", 0, true
	}
	of = fmt.Sprintf("%s/%d", k.group, k.partition)
	if value == nil {
		return of, 0, false
	}
	o, err := decodeOffset(k.kind, value)
	if err != nil {
		panic(err)
	}
	return of, int64(o.Offset), true
}
