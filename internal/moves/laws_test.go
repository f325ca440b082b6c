package moves_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

// drawCluster is any cluster: brokers in racks or none, some down, partitions of all
// sizes with one to four replicas.
func drawCluster(t *rapid.T) *moves.Cluster {
	c := &moves.Cluster{Brokers: brokers(rapid.SliceOfN(
		rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 7).Draw(t, "racks")...)}
	var ids []kafka.BrokerID
	for i := range c.Brokers {
		c.Brokers[i].Available = rapid.IntRange(0, 7).Draw(t, "down") > 0
		ids = append(ids, c.Brokers[i].ID)
	}
	for i := range rapid.IntRange(0, 40).Draw(t, "partitions") {
		order := rapid.Permutation(ids).Draw(t, "replicas")
		factor := rapid.IntRange(1, min(4, len(ids))).Draw(t, "factor")
		c.Partitions = append(c.Partitions, moves.Partition{
			TopicPartition: kafka.TopicPartition{Topic: []string{"a", "b"}[i%2], Partition: int32(i / 2)},
			Replicas:       order[:factor],
			Bytes:          rapid.SampledFrom([]int64{0, 1, 1 << 20, 1 << 25, 1 << 30}).Draw(t, "bytes"),
		})
	}
	return c
}

// checkPlan checks what holds of every plan. sizes says how many replicas a partition
// may have, given how many it had; racks that it stands in as many racks as before.
func checkPlan(t *rapid.T, c *moves.Cluster, plan moves.Plan, sizes func(had, has int) bool, racks bool) {
	rack, available := map[kafka.BrokerID]string{}, map[kafka.BrokerID]bool{}
	for _, b := range c.Brokers {
		rack[b.ID], available[b.ID] = b.Rack, b.Available
	}
	spread := func(ids []kafka.BrokerID) int {
		seen := map[string]bool{}
		for _, id := range ids {
			seen[rack[id]] = true
		}
		return len(seen)
	}
	from := map[kafka.TopicPartition][]kafka.BrokerID{}
	for _, p := range c.Partitions {
		from[p.TopicPartition] = p.Replicas
	}
	last := kafka.TopicPartition{}
	for _, m := range plan {
		if m.Topic < last.Topic || m.Topic == last.Topic && m.Partition <= last.Partition && last != (kafka.TopicPartition{}) {
			t.Fatalf("%s after %s", m.TopicPartition, last)
		}
		last = m.TopicPartition
		switch {
		case !slices.Equal(m.From, from[m.TopicPartition]):
			t.Fatalf("%s has %v, not %v", m.TopicPartition, from[m.TopicPartition], m.From)
		case slices.Equal(m.From, m.To):
			t.Fatalf("%s: nothing changes", m.TopicPartition)
		case len(m.To) == 0 || len(slices.Compact(slices.Sorted(slices.Values(m.To)))) != len(m.To):
			t.Fatalf("%s to %v", m.TopicPartition, m.To)
		case !sizes(len(m.From), len(m.To)):
			t.Fatalf("%s from %v to %v", m.TopicPartition, m.From, m.To)
		case racks && spread(m.To) < spread(m.From):
			t.Fatalf("%s from %v to %v: fewer racks of %v", m.TopicPartition, m.From, m.To, rack)
		}
		for _, id := range m.Added() {
			if !available[id] {
				t.Fatalf("%s to %v, and %d is down", m.TopicPartition, m.To, id)
			}
		}
	}
}

func same(had, has int) bool { return had == has }

func TestDrainLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		away := []kafka.BrokerID{c.Brokers[rapid.IntRange(0, len(c.Brokers)-1).Draw(t, "away")].ID}
		if rapid.Bool().Draw(t, "another") {
			away = append(away, 1)
		}
		fewer := rapid.Bool().Draw(t, "fewer")
		plan, stuck := c.Drain(away, fewer)
		checkPlan(t, c, plan, func(had, has int) bool { return had == has || fewer && has < had }, false)
		staying := 0
		for _, b := range c.Brokers {
			if b.Available && !slices.Contains(away, b.ID) {
				staying++
			}
		}
		after := c.After(plan)
		for _, p := range after.Partitions {
			held := slices.ContainsFunc(p.Replicas, func(id kafka.BrokerID) bool { return slices.Contains(away, id) })
			if held != slices.Contains(stuck, p.TopicPartition) {
				t.Fatalf("%s at %v, stuck %v", p.TopicPartition, p.Replicas, stuck)
			}
			if held && len(p.Replicas) <= staying {
				t.Fatalf("%s at %v is stuck, with %d brokers that stay", p.TopicPartition, p.Replicas, staying)
			}
			if was := partitionOf(c, p.TopicPartition); held && !slices.Equal(sorted(p.Replicas), sorted(was.Replicas)) {
				t.Fatalf("%s is stuck, and went from %v to %v", p.TopicPartition, was.Replicas, p.Replicas)
			}
			up := func(id kafka.BrokerID) bool { return c.Brokers[id-1].Available && !slices.Contains(away, id) }
			if was := partitionOf(c, p.TopicPartition); slices.Contains(away, was.Replicas[0]) &&
				slices.ContainsFunc(p.Replicas, up) && !up(p.Replicas[0]) {
				t.Fatalf("%s at %v prefers one that is down", p.TopicPartition, p.Replicas)
			}
			stays := slices.ContainsFunc(p.Replicas, func(id kafka.BrokerID) bool { return !slices.Contains(away, id) })
			if stays && slices.Contains(away, p.Replicas[0]) {
				t.Fatalf("%s at %v still prefers one that is left", p.TopicPartition, p.Replicas)
			}
		}
		if again, _ := after.Drain(away, fewer); len(again) > 0 {
			t.Fatalf("once more: %v", show(again))
		}
		for _, m := range plan {
			// Who has the records already takes over, if there is such a one.
			ready := slices.ContainsFunc(m.To, func(id kafka.BrokerID) bool {
				return slices.Contains(m.From, id) && !slices.Contains(away, id) && c.Brokers[id-1].Available
			})
			if ready && slices.Contains(away, m.From[0]) && !slices.Contains(m.From, m.To[0]) {
				t.Fatalf("%s: %d leads without its records", m.TopicPartition, m.To[0])
			}
		}
	})
}

func TestReplicateLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		want := rapid.IntRange(1, 4).Draw(t, "want")
		plan, short := c.Replicate(func(topic string) int { return want })
		checkPlan(t, c, plan, func(had, has int) bool { return has > had && has <= want }, true)
		after := c.After(plan)
		for _, p := range after.Partitions {
			if (len(p.Replicas) < want) != slices.Contains(short, p.TopicPartition) {
				t.Fatalf("%s has %d replicas, short are %v", p.TopicPartition, len(p.Replicas), short)
			}
		}
		for _, m := range plan {
			if !slices.Equal(m.To[:len(m.From)], m.From) {
				t.Fatalf("%s from %v to %v: what is there moves", m.TopicPartition, m.From, m.To)
			}
		}
		next := after.Lead()
		both := plan.Then(next)
		checkPlan(t, c, both, func(had, has int) bool { return has >= had }, true)
		for i, p := range c.After(both).Partitions {
			if want := after.After(next).Partitions[i].Replicas; !slices.Equal(p.Replicas, want) {
				t.Fatalf("%s: %v, one after the other %v", p.TopicPartition, p.Replicas, want)
			}
		}
	})
}

func TestBalanceLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		plan := c.Balance()
		checkPlan(t, c, plan, same, true)
		after := c.After(plan)
		if again := after.Balance(); len(again) > 0 {
			t.Fatalf("once more: %v", show(again))
		}
		before, now := c.Loads(), after.Loads()
		var most, least, mostBefore int64
		least = 1 << 62
		for _, b := range c.Brokers {
			if !b.Available {
				if before[b.ID].Replicas != now[b.ID].Replicas {
					t.Fatalf("broker %d is down, and held %+v before %+v", b.ID, before[b.ID], now[b.ID])
				}
				continue
			}
			most, least = max(most, weight(now[b.ID])), min(least, weight(now[b.ID]))
			mostBefore = max(mostBefore, weight(before[b.ID]))
		}
		if most > mostBefore {
			t.Fatalf("the heaviest broker carries %d, before %d", most, mostBefore)
		}
		checkLeaders(t, after)
	})
}

// weight is what balancing evens out.
func weight(l moves.Load) int64 { return l.Bytes + int64(l.Replicas)<<20 }

// checkLeaders checks that no single change of a leader would even out leaders.
func checkLeaders(t *rapid.T, c *moves.Cluster) {
	loads := c.Loads()
	up := func(id kafka.BrokerID) bool { return c.Brokers[id-1].Available }
	for _, p := range c.Partitions {
		for _, id := range p.Replicas[1:] {
			if up(id) && up(p.Replicas[0]) && loads[p.Replicas[0]].Leaders-loads[id].Leaders > 1 {
				t.Fatalf("%s at %v: broker %d leads %d, broker %d %d", p.TopicPartition, p.Replicas,
					p.Replicas[0], loads[p.Replicas[0]].Leaders, id, loads[id].Leaders)
			}
		}
	}
}

func partitionOf(c *moves.Cluster, tp kafka.TopicPartition) moves.Partition {
	i := slices.IndexFunc(c.Partitions, func(p moves.Partition) bool { return p.TopicPartition == tp })
	return c.Partitions[i]
}

func sorted(ids []kafka.BrokerID) []kafka.BrokerID { return slices.Sorted(slices.Values(ids)) }
