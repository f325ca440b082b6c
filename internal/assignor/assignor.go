// Package assignor divides the partitions of topics among the members of a
// consumer group, by the strategies that Kafka's clients call range, roundrobin,
// sticky and cooperative-sticky. Whoever leads a group computes this; clients of
// any make obey it.
//
// It is pure: the same members and counts make the same plan, in whatever order
// they come.
//
// Invariants of every plan:
//
//	a partition has at most one owner, and it subscribes to the topic
//	under all strategies but Cooperative, a partition of a topic that somebody
//	  subscribes to has an owner
//	under Cooperative, a partition that changes hands has no owner in the plan:
//	  its old owner gives it up first, and the next plan hands it on (KIP-429)
//
// Deliberately absent: racks, and the bytes in which clients exchange all this.
package assignor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// The names of the strategies in the protocol.
const (
	Range       = "range"
	RoundRobin  = "roundrobin"
	Sticky      = "sticky"
	Cooperative = "cooperative-sticky"
)

// Member is a member of a group as its leader sees it.
type Member struct {
	ID         string
	InstanceID string // Of a static member.
	Topics     []string
	// Owned are the partitions that the member says it has had since Generation;
	// -1 is a member that does not tell since when.
	Owned      []kafka.TopicPartition
	Generation int32
}

// Plan is what each member gets, by member id, in order of topic and partition.
// Every member is in it.
type Plan map[string][]kafka.TopicPartition

// Supported reports whether New knows the strategy.
func Supported(strategy string) bool {
	switch strategy {
	case Range, RoundRobin, Sticky, Cooperative:
		return true
	}
	return false
}

// New divides the partitions of the topics, whose numbers of partitions are in
// counts, among the members. A strategy that is not Supported panics.
func New(strategy string, members []Member, counts map[string]int32) Plan {
	members = ordered(members)
	switch strategy {
	case Range:
		return byRange(members, counts)
	case RoundRobin:
		return byRoundRobin(members, counts)
	case Sticky:
		plan, _ := bySticking(members, counts)
		return plan
	case Cooperative:
		plan, before := bySticking(members, counts)
		return plan.withoutMoves(before)
	}
	panic("assignor: unknown strategy " + strategy)
}

// ordered returns the members in the order in which clients of all makes take
// them: static ones by instance id before the others by member id, so that a
// static member that comes back gets what it had.
func ordered(members []Member) []Member {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int {
		if (a.InstanceID == "") != (b.InstanceID == "") {
			return cmp.Compare(b.InstanceID, a.InstanceID)
		}
		return cmp.Or(strings.Compare(a.InstanceID, b.InstanceID), strings.Compare(a.ID, b.ID))
	})
	return members
}

// subscribers returns the members of each topic that has partitions, in order.
func subscribers(members []Member, counts map[string]int32) map[string][]int {
	by := map[string][]int{}
	for i := range members {
		for _, topic := range members[i].Topics {
			all := by[topic]
			if counts[topic] > 0 && (len(all) == 0 || all[len(all)-1] != i) {
				by[topic] = append(all, i)
			}
		}
	}
	return by
}

func sortedTopics(by map[string][]int) []string {
	topics := make([]string, 0, len(by))
	for topic := range by {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	return topics
}

func newPlan(members []Member) Plan {
	plan := make(Plan, len(members))
	for i := range members {
		plan[members[i].ID] = nil
	}
	return plan
}

func (p Plan) give(member string, topic string, partition int32) {
	p[member] = append(p[member], kafka.TopicPartition{Topic: topic, Partition: partition})
}

// byRange gives each member a run of consecutive partitions of each topic, so
// that topics with as many partitions are divided alike.
func byRange(members []Member, counts map[string]int32) Plan {
	plan := newPlan(members)
	by := subscribers(members, counts)
	for _, topic := range sortedTopics(by) {
		readers := by[topic]
		each, extra := int(counts[topic])/len(readers), int(counts[topic])%len(readers)
		next := int32(0)
		for i, m := range readers {
			n := each
			if i < extra {
				n++
			}
			for range n {
				plan.give(members[m].ID, topic, next)
				next++
			}
		}
	}
	return plan
}

// byRoundRobin deals all partitions out one by one.
func byRoundRobin(members []Member, counts map[string]int32) Plan {
	plan := newPlan(members)
	by := subscribers(members, counts)
	turn := 0
	for _, topic := range sortedTopics(by) {
		for p := range counts[topic] {
			for !slices.Contains(by[topic], turn) {
				turn = (turn + 1) % len(members)
			}
			plan.give(members[turn].ID, topic, p)
			turn = (turn + 1) % len(members)
		}
	}
	return plan
}

// withoutMoves takes out of the plan what another member owned before.
func (p Plan) withoutMoves(before map[kafka.TopicPartition]string) Plan {
	for id := range p {
		p[id] = slices.DeleteFunc(p[id], func(tp kafka.TopicPartition) bool {
			owner, owned := before[tp]
			return owned && owner != id
		})
	}
	return p
}
