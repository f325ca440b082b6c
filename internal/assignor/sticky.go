package assignor

import (
	"cmp"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// bySticking lets members keep what they have as far as the load can be even.
// It returns the plan, and who owned what before.
//
// Partitions without an owner go to whoever may have them and has the least.
// Then, while some member has two more than another to which partitions can be
// passed on, perhaps through the hands of others, they are: each hand passes one
// on. When no such chain is left the load is as even as subscriptions allow.
func bySticking(members []Member, counts map[string]int32) (Plan, map[kafka.TopicPartition]string) {
	by := subscribers(members, counts)
	b := &balance{
		members: members, by: by, topics: sortedTopics(by),
		has: make([]map[string][]int32, len(members)), load: make([]int, len(members)),
	}
	b.before = b.claims(counts)
	for i := range members {
		b.has[i] = map[string][]int32{}
	}
	b.keep(counts)
	for b.relieveOne() {
	}
	return b.plan(), b.owners()
}

// balance is a division under way. Members go by their index.
type balance struct {
	members []Member
	by      map[string][]int // Topic to subscribers.
	topics  []string
	before  map[kafka.TopicPartition]int
	has     []map[string][]int32 // Per member: topic to partitions.
	load    []int                // Invariant: the number of partitions in has.
}

// claims decides who owned what: whoever says so for the latest generation. A
// claim that two make for the same generation is nobody's, as one of them must
// be mistaken.
func (b *balance) claims(counts map[string]int32) map[kafka.TopicPartition]int {
	const nobody = -1
	owner := map[kafka.TopicPartition]int{}
	since := map[kafka.TopicPartition]int32{}
	for i := range b.members {
		m := &b.members[i]
		seen := map[kafka.TopicPartition]bool{}
		for _, tp := range m.Owned {
			if seen[tp] || tp.Partition < 0 || tp.Partition >= counts[tp.Topic] || !slices.Contains(m.Topics, tp.Topic) {
				continue
			}
			seen[tp] = true
			switch generation, claimed := since[tp]; {
			case !claimed || m.Generation > generation:
				owner[tp], since[tp] = i, m.Generation
			case m.Generation == generation:
				owner[tp] = nobody
			}
		}
	}
	for tp, i := range owner {
		if i == nobody {
			delete(owner, tp)
		}
	}
	return owner
}

// keep leaves every partition with its owner and gives away the others, those
// of topics with few subscribers first.
func (b *balance) keep(counts map[string]int32) {
	var free []kafka.TopicPartition
	for _, topic := range b.topics {
		for p := range counts[topic] {
			tp := kafka.TopicPartition{Topic: topic, Partition: p}
			if i, ok := b.before[tp]; ok {
				b.give(i, topic, p)
			} else {
				free = append(free, tp)
			}
		}
	}
	slices.SortStableFunc(free, func(x, y kafka.TopicPartition) int {
		return cmp.Compare(len(b.by[x.Topic]), len(b.by[y.Topic]))
	})
	for _, tp := range free {
		least := slices.MinFunc(b.by[tp.Topic], func(x, y int) int { return cmp.Compare(b.load[x], b.load[y]) })
		b.give(least, tp.Topic, tp.Partition)
	}
}

func (b *balance) give(i int, topic string, partition int32) {
	b.has[i][topic] = append(b.has[i][topic], partition)
	b.load[i]++
}

// hand is one hand of a chain: it passes a partition of topic on.
type hand struct {
	from  int
	topic string
}

// relieveOne takes a partition from the member that has the most of those that
// can be relieved. It reports whether there was one.
func (b *balance) relieveOne() bool {
	order := make([]int, len(b.members))
	for i := range order {
		order[i] = i
	}
	// Taking from one that has less would make two moves of one.
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(b.load[y], b.load[x]) })
	return slices.ContainsFunc(order, b.relieve)
}

// relieve passes a partition of the member on if somebody at the other end of a
// chain has two less or fewer. It reports whether it did.
func (b *balance) relieve(i int) bool {
	const unseen = -2
	via := make([]hand, len(b.members))
	for k := range via {
		via[k].from = unseen
	}
	via[i].from = -1
	best := i
	expanded := map[string]bool{}
	for queue := []int{i}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, topic := range b.topics {
			if expanded[topic] || len(b.has[at][topic]) == 0 {
				continue
			}
			expanded[topic] = true
			for _, next := range b.by[topic] {
				if via[next].from != unseen {
					continue
				}
				via[next] = hand{at, topic}
				queue = append(queue, next)
				if b.load[next] < b.load[best] {
					best = next
				}
			}
		}
	}
	if b.load[best] > b.load[i]-2 {
		return false
	}
	for to := best; to != i; to = via[to].from {
		b.pass(via[to].from, to, via[to].topic)
	}
	return true
}

// pass moves one partition of the topic: one that comes home if there is one,
// else one that is away from home already, else the last.
func (b *balance) pass(from, to int, topic string) {
	all := b.has[from][topic]
	home := func(p int32) int {
		if i, ok := b.before[kafka.TopicPartition{Topic: topic, Partition: p}]; ok {
			return i
		}
		return -1
	}
	at := slices.IndexFunc(all, func(p int32) bool { return home(p) == to })
	if at < 0 {
		at = slices.IndexFunc(all, func(p int32) bool { return home(p) != from })
	}
	if at < 0 {
		at = len(all) - 1
	}
	p := all[at]
	b.has[from][topic] = slices.Delete(all, at, at+1)
	b.load[from]--
	b.give(to, topic, p)
}

func (b *balance) plan() Plan {
	plan := newPlan(b.members)
	for i := range b.members {
		id := b.members[i].ID
		for topic, partitions := range b.has[i] {
			for _, p := range partitions {
				plan.give(id, topic, p)
			}
		}
		slices.SortFunc(plan[id], kafka.TopicPartition.Compare)
	}
	return plan
}

func (b *balance) owners() map[kafka.TopicPartition]string {
	owners := make(map[kafka.TopicPartition]string, len(b.before))
	for tp, i := range b.before {
		owners[tp] = b.members[i].ID
	}
	return owners
}
