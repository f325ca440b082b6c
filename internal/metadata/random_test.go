package metadata_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// draw draws a record that fits an image.
func draw(t *rapid.T, m *metadata.Image) metadata.Record {
	if m.ClusterID() == "" {
		return &metadata.ClusterRecord{ClusterID: "c", Level: metadata.CurrentLevel, LastBrokerEpoch: 3}
	}
	topics := m.Topics()
	kinds := []string{"broker", "create", "config broker", "ids", "restart"}
	if len(m.Brokers()) > 0 {
		kinds = append(kinds, "broker changed", "broker removed")
	}
	if len(topics) > 0 {
		kinds = append(kinds, "create", "delete", "add", "change", "config topic")
	}
	any := func() *metadata.Topic { return rapid.SampledFrom(topics).Draw(t, "topic") }
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "broker":
		return &metadata.BrokerRecord{Broker: drawBroker(t, m)}
	case "broker changed":
		b := rapid.SampledFrom(m.Brokers()).Draw(t, "broker")
		return &metadata.BrokerChanged{
			ID: b.ID, Epoch: b.Epoch, Fenced: !b.Fenced, ShuttingDown: rapid.Bool().Draw(t, "shutting down"),
		}
	case "broker removed":
		return &metadata.BrokerRemoved{ID: rapid.SampledFrom(m.Brokers()).Draw(t, "broker").ID}
	case "create":
		return drawTopic(t, m)
	case "delete":
		return &metadata.TopicDeleted{ID: any().ID}
	case "add":
		topic := any()
		return &metadata.PartitionsAdded{
			ID: topic.ID, First: int32(len(topic.Partitions)), Partitions: drawPartitions(t),
		}
	case "change":
		return drawChange(t, any())
	case "config topic":
		return drawConfig(t, metadata.Resource{Type: metadata.TopicResource, Name: any().Name})
	case "config broker":
		name := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "broker")
		return drawConfig(t, metadata.Resource{Type: metadata.BrokerResource, Name: name})
	case "ids":
		return &metadata.ProducerIDs{Next: m.NextProducerID() + 1000}
	default:
		return &metadata.LeadersRestarted{Broker: kafka.BrokerID(rapid.IntRange(0, 3).Draw(t, "restarted"))}
	}
}

func drawBroker(t *rapid.T, m *metadata.Image) metadata.Broker {
	b := metadata.Broker{
		ID: kafka.BrokerID(rapid.IntRange(0, 3).Draw(t, "id")), Epoch: m.LastBrokerEpoch() + 1,
		Rack: rapid.SampledFrom([]string{"", "r"}).Draw(t, "rack"), Fenced: rapid.Bool().Draw(t, "fenced"),
	}
	b.Incarnation[0] = byte(b.Epoch)
	b.MaxLevel = int16(rapid.IntRange(0, 2).Draw(t, "level"))
	b.ShuttingDown = rapid.Bool().Draw(t, "shutting down")
	for i := range rapid.IntRange(1, 2).Draw(t, "endpoints") {
		b.Endpoints = append(b.Endpoints, metadata.Endpoint{Name: fmt.Sprint(i), Host: "h", Port: 9092})
	}
	b.Directories = [][16]byte{{1}, {2}}[:rapid.IntRange(0, 2).Draw(t, "directories")]
	return b
}

func drawTopic(t *rapid.T, m *metadata.Image) *metadata.TopicCreated {
	name := rapid.StringMatching(`[ab]{1,3}\.[ab]{1,3}`).Filter(func(s string) bool {
		return m.Topic(s) == nil
	}).Draw(t, "name")
	id := kafka.TopicID(slices.Repeat(
		[]byte{byte(rapid.IntRange(1, 255).Draw(t, "id")), byte(rapid.IntRange(0, 255).Draw(t, "id"))}, 8))
	for m.TopicByID(id) != nil || id.IsZero() {
		id[3]++
	}
	r := &metadata.TopicCreated{Name: name, ID: id, Partitions: drawPartitions(t)}
	if rapid.Bool().Draw(t, "own values") {
		r.Config = map[string]string{"retention.ms": "1", "segment.ms": "2"}
	}
	return r
}

func drawPartitions(t *rapid.T) []metadata.Partition {
	out := make([]metadata.Partition, rapid.IntRange(1, 3).Draw(t, "partitions"))
	for i := range out {
		out[i] = drawPartition(t, 0, 0)
	}
	return out
}

func drawPartition(t *rapid.T, leader kafka.LeaderEpoch, partition kafka.PartitionEpoch) metadata.Partition {
	replicas := []kafka.BrokerID{0, 1, 2}[:rapid.IntRange(1, 3).Draw(t, "replicas")]
	isr := replicas[:rapid.IntRange(1, len(replicas)).Draw(t, "isr")]
	p := metadata.Partition{
		Replicas: replicas, ISR: isr, Leader: isr[0], LeaderEpoch: leader, PartitionEpoch: partition,
	}
	if rapid.IntRange(0, 9).Draw(t, "leaderless") == 0 {
		p.Leader = kafka.NoBroker
	}
	return p
}

func drawChange(t *rapid.T, topic *metadata.Topic) *metadata.PartitionsChanged {
	i := rapid.IntRange(0, len(topic.Partitions)-1).Draw(t, "partition")
	old := topic.Partitions[i]
	p := drawPartition(t, old.LeaderEpoch+1, old.PartitionEpoch+1)
	p.Lost = p.Leader == kafka.NoBroker && rapid.Bool().Draw(t, "lost")
	if outside := p.Replicas[len(p.ISR):]; rapid.Bool().Draw(t, "eligible") {
		n := rapid.IntRange(0, len(outside)).Draw(t, "how many")
		p.Eligible, p.LastEligible = slices.Clone(outside[:n]), slices.Clone(outside[n:])
	}
	if n := len(p.Replicas); n > 1 && rapid.Bool().Draw(t, "moves") {
		p.Adding = p.Replicas[n-1:]
		if n > 2 && rapid.Bool().Draw(t, "leaves") {
			p.Removing = p.Replicas[:1]
		}
	}
	return &metadata.PartitionsChanged{
		ID: topic.ID, Changes: []metadata.PartitionChange{{Index: int32(i), Partition: p}},
	}
}

func drawConfig(t *rapid.T, r metadata.Resource) *metadata.ConfigChanged {
	out := &metadata.ConfigChanged{Resource: r}
	for _, name := range []string{"a", "b", "c"} {
		switch rapid.IntRange(0, 2).Draw(t, name) {
		case 0:
			if out.Set == nil {
				out.Set = map[string]string{}
			}
			out.Set[name] = "v"
		case 1:
			out.Remove = append(out.Remove, name)
		}
	}
	return out
}

// drawBatches draws batches of records that fit each other, and hands each to f
// with the image before and after.
func drawBatches(
	t *rapid.T, f func(from, to *metadata.Image, d metadata.Delta, records []metadata.Record),
) *metadata.Image {
	m := new(metadata.Image)
	for range rapid.IntRange(1, 12).Draw(t, "batches") {
		records, step := []metadata.Record{}, m
		for range rapid.IntRange(1, 5).Draw(t, "records") {
			r := draw(t, step)
			records = append(records, r)
			next, _, err := step.Apply(r)
			if err != nil {
				t.Fatal(err)
			}
			step = next
		}
		to, d, err := m.Apply(records...)
		if err != nil {
			t.Fatal(err)
		}
		f(m, to, d, records)
		m = to
	}
	return m
}
