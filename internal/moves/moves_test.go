package moves_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/moves"
)

// brokers returns brokers 1 and up in racks.
func brokers(racks ...string) (out []moves.Broker) {
	for i, rack := range racks {
		out = append(out, moves.Broker{ID: kafka.BrokerID(i + 1), Rack: rack, Available: true})
	}
	return out
}

// partitions are those of topic t, each on the brokers named.
func partitions(bytes int64, replicas ...[]kafka.BrokerID) (out []moves.Partition) {
	for i, r := range replicas {
		tp := kafka.TopicPartition{Topic: "t", Partition: int32(i)}
		out = append(out, moves.Partition{TopicPartition: tp, Replicas: r, Bytes: bytes})
	}
	return out
}

// list is n partitions on the same brokers.
func list(n int, replicas ...kafka.BrokerID) (out [][]kafka.BrokerID) {
	for range n {
		out = append(out, slices.Clone(replicas))
	}
	return out
}

func show(p moves.Plan) (out []string) {
	for _, m := range p {
		out = append(out, fmt.Sprintf("%s %v -> %v", m.TopicPartition, m.From, m.To))
	}
	return out
}

func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		cluster moves.Cluster
		away    []kafka.BrokerID
		fewer   bool
		want    []string
		stuck   int
	}{
		"to the one that is left": {
			moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1, []kafka.BrokerID{1, 2}, []kafka.BrokerID{2, 1})},
			[]kafka.BrokerID{1},
			false,
			[]string{"t-0 [1 2] -> [2 3]", "t-1 [2 1] -> [2 3]"},
			0,
		},
		"one replica": {
			moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1, list(2, 1)...)},
			[]kafka.BrokerID{1},
			false,
			[]string{"t-0 [1] -> [2]", "t-1 [1] -> [3]"},
			0,
		},
		"nowhere to go: only who leads changes": {
			moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1, list(2, 1, 2, 3)...)},
			[]kafka.BrokerID{1},
			false,
			[]string{"t-0 [1 2 3] -> [2 1 3]", "t-1 [1 2 3] -> [3 2 1]"},
			2,
		},
		"nowhere to go: fewer replicas": {
			moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1, list(2, 1, 2, 3)...)},
			[]kafka.BrokerID{1},
			true,
			[]string{"t-0 [1 2 3] -> [3 2]", "t-1 [1 2 3] -> [2 3]"},
			0,
		},
		"nobody is left": {
			moves.Cluster{Brokers: brokers(""), Partitions: partitions(1, list(1, 1)...)},
			[]kafka.BrokerID{1},
			true,
			nil,
			1,
		},
		"into the rack that is left by it": {
			moves.Cluster{Brokers: brokers("a", "b", "b", "a"), Partitions: partitions(1, []kafka.BrokerID{2, 1})},
			[]kafka.BrokerID{1},
			false,
			[]string{"t-0 [2 1] -> [2 4]"},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, stuck := c.cluster.Drain(c.away, c.fewer)
			if diff := cmp.Diff(c.want, show(plan)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(stuck) != c.stuck {
				t.Errorf("stuck: %v", stuck)
			}
		})
	}
}

// A broker that grows to three: everything gets copies, and leaders are spread.
func TestReplicateThenLead(t *testing.T) {
	c := moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(100, list(6, 1)...)}
	plan, short := c.Replicate(func(string) int { return 3 })
	if len(plan) != 6 || len(short) != 0 {
		t.Fatalf("%v, short %v", show(plan), short)
	}
	plan = plan.Then(c.After(plan).Lead())
	leads := map[kafka.BrokerID]int{}
	for _, m := range plan {
		leads[m.To[0]]++
	}
	if leads[1] != 2 || leads[2] != 2 || leads[3] != 2 || plan.Copied() != 6*2*100 {
		t.Errorf("%v: leaders %v, %d bytes", show(plan), leads, plan.Copied())
	}
	plan, short = c.Replicate(func(string) int { return 4 })
	if len(plan) != 6 || len(short) != 6 {
		t.Errorf("four replicas on three brokers: %v, short %v", show(plan), short)
	}
}

func TestBalance(t *testing.T) {
	// A new broker takes its share of bytes and of leaders.
	c := moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1<<30, list(12, 1, 2)...)}
	plan := c.Balance()
	for id, l := range c.After(plan).Loads() {
		if l.Replicas != 8 || l.Leaders != 4 {
			t.Errorf("broker %d: %+v", id, l)
		}
	}
	if len(plan) > 12 || plan.Copied() != 8<<30 {
		t.Errorf("%d moves, %d bytes", len(plan), plan.Copied())
	}
	// One that is down is given nothing, and nothing is taken from it.
	c.Brokers[2].Available = false
	if plan := c.Balance(); plan.Copied() != 0 || len(plan) != 6 {
		t.Errorf("with broker 3 down: %v", show(plan))
	}
	// What is even stays.
	c.Brokers[2].Available = true
	even := c.After(c.Balance())
	if plan := even.Balance(); len(plan) != 0 {
		t.Errorf("once more: %v", show(plan))
	}
}

// Leaders are evened out over several brokers where no pair can do it alone.
func TestLeadersAlongAPath(t *testing.T) {
	c := moves.Cluster{Brokers: brokers("", "", ""), Partitions: partitions(1,
		[]kafka.BrokerID{1, 2}, []kafka.BrokerID{1, 2}, []kafka.BrokerID{2, 3},
	)}
	after := c.After(c.Lead())
	for id, l := range after.Loads() {
		if l.Leaders != 1 {
			t.Errorf("broker %d leads %d: %v", id, l.Leaders, show(c.Lead()))
		}
	}
}
