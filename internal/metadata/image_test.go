package metadata_test

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// What Apply says has changed is what differs; images before are as they were; and
// a snapshot of each rebuilds it byte for byte.
func TestApplyLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type kept struct {
			image    *metadata.Image
			snapshot []byte
		}
		var all []kept
		drawBatches(t, func(from, to *metadata.Image, d metadata.Delta, _ []metadata.Record) {
			checkDelta(t, from, to, d)
			checkCounts(t, to)
			all = append(all, kept{to, to.AppendSnapshot(nil)})
		})
		for _, k := range all {
			if !bytes.Equal(k.image.AppendSnapshot(nil), k.snapshot) {
				t.Fatal("an image changed after it was made")
			}
			again, err := metadata.DecodeSnapshot(k.snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again.AppendSnapshot(nil), k.snapshot) {
				t.Fatal("a snapshot does not rebuild its image")
			}
			if d := metadata.Diff(k.image, again); len(d.Brokers)+len(d.Configs) > 0 || d.ProducerIDs {
				t.Fatalf("a rebuilt image differs: %+v", d)
			}
		}
	})
}

// checkDelta compares with Diff, which may say less: a configuration that was set
// to what it was is touched, but no difference.
func checkDelta(t *rapid.T, from, to *metadata.Image, d metadata.Delta) {
	want := metadata.Diff(from, to)
	pairs := func(d metadata.Delta) (out []string) {
		for _, c := range d.Topics {
			out = append(out, fmt.Sprintf("%p %p", c.Old, c.New))
		}
		return out
	}
	if diff := gocmp.Diff(pairs(want), pairs(d)); diff != "" {
		t.Fatalf("topics (-differ +said):\n%s", diff)
	}
	for _, id := range want.Brokers {
		if !slices.Contains(d.Brokers, id) {
			t.Fatalf("broker %d differs", id)
		}
	}
	for _, r := range want.Configs {
		if !slices.Contains(d.Configs, r) {
			t.Fatalf("the configuration of %v differs", r)
		}
	}
	if want.ProducerIDs != d.ProducerIDs {
		t.Fatalf("producer ids differ: %v, said %v", want.ProducerIDs, d.ProducerIDs)
	}
}

// checkCounts checks every way to find a topic, and the totals.
func checkCounts(t *rapid.T, m *metadata.Image) {
	topics := m.Topics()
	if len(topics) != m.TopicCount() {
		t.Fatalf("%d topics are listed, %d counted", len(topics), m.TopicCount())
	}
	if !slices.IsSortedFunc(topics, func(a, b *metadata.Topic) int { return cmp.Compare(a.Name, b.Name) }) {
		t.Fatal("topics are not in order")
	}
	partitions, replicas, held := 0, 0, map[kafka.BrokerID]int{}
	for _, topic := range topics {
		if m.Topic(topic.Name) != topic || m.TopicByID(topic.ID) != topic {
			t.Fatalf("topic %s is not found", topic.Name)
		}
		partitions += len(topic.Partitions)
		for _, p := range topic.Partitions {
			replicas += len(p.Replicas)
			for _, id := range p.Replicas {
				held[id]++
			}
		}
	}
	for id := range kafka.BrokerID(8) {
		if m.ReplicasOn(id) != held[id] {
			t.Fatalf("broker %d holds %d replicas, counted as %d", id, held[id], m.ReplicasOn(id))
		}
	}
	if partitions != m.PartitionCount() || replicas != m.ReplicaCount() {
		t.Fatalf("%d partitions and %d replicas are counted as %d and %d",
			partitions, replicas, m.PartitionCount(), m.ReplicaCount())
	}
}

// manyTopics is an image with n topics, made in one batch.
func manyTopics(t testing.TB, n int) *metadata.Image {
	t.Helper()
	var records []metadata.Record
	for i := range n {
		records = append(records, newTopic(i))
	}
	m, _, err := new(metadata.Image).Apply(records...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newTopic(i int) *metadata.TopicCreated {
	replicas := []kafka.BrokerID{1}
	id := kafka.TopicID{1, byte(i >> 16), byte(i >> 8), 15: byte(i * 7)}
	id[4] = byte(i)
	return &metadata.TopicCreated{
		Name: fmt.Sprintf("topic-%d", i*7919%100_000), ID: id,
		Partitions: []metadata.Partition{{Replicas: replicas, ISR: replicas, Leader: 1}},
	}
}

// The index stays right through many single changes at sizes that split and empty
// its chunks.
func TestManyTopics(t *testing.T) {
	const n = 3000
	m := manyTopics(t, n/2)
	apply := func(r metadata.Record) {
		var err error
		if m, _, err = m.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := n / 2; i < n; i++ {
		apply(newTopic(i))
	}
	topics := m.Topics()
	if len(topics) != n || !slices.IsSortedFunc(topics, func(a, b *metadata.Topic) int {
		return cmp.Compare(a.Name, b.Name)
	}) {
		t.Fatalf("%d topics, or not in order", len(topics))
	}
	for i, topic := range topics {
		if m.Topic(topic.Name) != topic || m.TopicByID(topic.ID) != topic {
			t.Fatalf("topic %s is not found", topic.Name)
		}
		apply(&metadata.TopicDeleted{ID: topic.ID})
		if m.Topic(topic.Name) != nil || m.TopicByID(topic.ID) != nil || m.TopicCount() != n-i-1 {
			t.Fatalf("topic %s is still there", topic.Name)
		}
	}
	if m.PartitionCount() != 0 || m.ReplicaCount() != 0 || len(m.Topics()) != 0 {
		t.Error("something is left of no topics")
	}
}

// A topic that is not touched keeps its pointer; so does one that is put back.
func TestUntouchedTopicsKeepTheirPointer(t *testing.T) {
	m := manyTopics(t, 100)
	to, d, err := m.Apply(&metadata.ConfigChanged{
		Resource: metadata.Resource{Type: metadata.TopicResource, Name: m.Topics()[5].Name},
		Set:      map[string]string{"retention.ms": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Topics) != 1 || d.Topics[0].Old != m.Topics()[5] || d.Topics[0].New != to.Topics()[5] {
		t.Errorf("changed: %+v", d.Topics)
	}
	for i, topic := range m.Topics() {
		if same := to.Topics()[i] == topic; same != (i != 5) {
			t.Errorf("topic %d: same pointer is %v", i, same)
		}
	}
}

// A topic made again under its name is two changes, the end of the old one first.
func TestTopicMadeAgain(t *testing.T) {
	m := manyTopics(t, 1)
	old := m.Topics()[0]
	again := newTopic(1)
	again.Name = old.Name
	to, d, err := m.Apply(&metadata.TopicDeleted{ID: old.ID}, again)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Topics) != 2 || d.Topics[0].Old != old || d.Topics[0].New != nil ||
		d.Topics[1].Old != nil || d.Topics[1].New != to.Topic(old.Name) {
		t.Errorf("changes: %+v", d.Topics)
	}
}

func TestLeadersRestarted(t *testing.T) {
	m := manyTopics(t, 3)
	to, d, err := m.Apply(&metadata.LeadersRestarted{Broker: 1})
	if err != nil || len(d.Topics) != 3 {
		t.Fatalf("%d topics changed: %v", len(d.Topics), err)
	}
	for _, topic := range to.Topics() {
		if p := topic.Partitions[0]; p.LeaderEpoch != 1 || p.PartitionEpoch != 1 {
			t.Errorf("%s has epochs %d and %d", topic.Name, p.LeaderEpoch, p.PartitionEpoch)
		}
	}
	if _, d, _ := to.Apply(&metadata.LeadersRestarted{Broker: 2}); len(d.Topics) != 0 {
		t.Errorf("a broker that leads nothing changed %d topics", len(d.Topics))
	}
}

// One change is cheap however many topics there are.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		m := manyTopics(b, n)
		b.Run(fmt.Sprintf("create/topics=%d", n), func(b *testing.B) {
			r := newTopic(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := m.Apply(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTopicByName(b *testing.B) {
	m := manyTopics(b, 10_000)
	name := m.Topics()[4321].Name
	b.ReportAllocs()
	for b.Loop() {
		if m.Topic(name) == nil {
			b.Fatal("not found")
		}
	}
}

// An election counts as unclean when the leader is one that neither was in sync nor
// eligible, nor came to be in sync meanwhile.
func TestElectedUnclean(t *testing.T) {
	ids := func(ids ...kafka.BrokerID) []kafka.BrokerID { return ids }
	for name, c := range map[string]struct {
		before, after metadata.Partition
		want          bool
	}{
		"from the ISR": {
			metadata.Partition{Leader: 1, ISR: ids(1, 2)},
			metadata.Partition{Leader: 2, LeaderEpoch: 1, ISR: ids(2)},
			false,
		},
		"eligible": {
			metadata.Partition{Leader: kafka.NoBroker, ISR: ids(1), Eligible: ids(2)},
			metadata.Partition{Leader: 2, LeaderEpoch: 1, ISR: ids(2)},
			false,
		},
		"neither": {
			metadata.Partition{Leader: kafka.NoBroker, ISR: ids(1)},
			metadata.Partition{Leader: 2, LeaderEpoch: 1, ISR: ids(2)},
			true,
		},
		"in sync once, and wiped since": {
			metadata.Partition{Leader: kafka.NoBroker, ISR: ids(1), Lost: true},
			metadata.Partition{Leader: 1, LeaderEpoch: 1, ISR: ids(1)},
			true,
		},
		"joined, and was elected": {
			metadata.Partition{Leader: 1, ISR: ids(1, 2)},
			metadata.Partition{Leader: 3, LeaderEpoch: 1, ISR: ids(1, 2, 3)},
			false,
		},
		"the last of a move": {
			metadata.Partition{Leader: 1, Replicas: ids(1, 2), ISR: ids(1), Adding: ids(2), Removing: ids(1)},
			metadata.Partition{Leader: 2, LeaderEpoch: 1, Replicas: ids(2), ISR: ids(2)},
			false,
		},
		"no leader": {
			metadata.Partition{Leader: 1, ISR: ids(1)},
			metadata.Partition{Leader: kafka.NoBroker, LeaderEpoch: 1, ISR: ids(1)},
			false,
		},
	} {
		if got := c.after.ElectedUnclean(&c.before); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
