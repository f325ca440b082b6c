package controller_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Whatever is asked in whatever order: decisions apply to the state that made
// them, an answer without an error is followed by what it says, and the records
// rebuild the state.
func TestRandomRequests(t *testing.T) {
	names := []string{"a.b", "a_b", "a", "b", "bad name", "", "c.d_e", metadata.OffsetsTopic}
	rapid.Check(t, func(t *rapid.T) {
		brokers := rapid.IntRange(1, 4).Draw(t, "brokers")
		w := newWorld(t, brokers, nil)
		name := func() string { return rapid.SampledFrom(names).Draw(t, "name") }
		for range rapid.IntRange(1, 25).Draw(t, "requests") {
			switch rapid.IntRange(0, 5).Draw(t, "request") {
			case 0:
				randomCreate(t, w, name)
			case 1:
				randomDelete(t, w, name)
			case 2:
				randomGrow(t, w, name())
			case 3:
				changes := rapid.SliceOfN(rapid.SampledFrom([]string{
					"retention.ms=1", "-retention.ms", "cleanup.policy+=compact", "cleanup.policy-=delete",
					"bad=1", "min.compaction.lag.ms=5", "max.compaction.lag.ms=4", "-max.compaction.lag.ms",
				}), 1, 3).Draw(t, "changes")
				_, records := w.IncrementalAlterConfigs(incremental(topic, name(), changes...))
				w.replay(records)
			case 4:
				id := int32(rapid.IntRange(1, brokers).Draw(t, "restarted"))
				b, _ := w.Image().Broker(kafka.BrokerID(id))
				w.register(id, int64(b.Epoch)-int64(rapid.IntRange(0, 1).Draw(t, "crashed")))
			case 5:
				change := rapid.SampledFrom([]string{
					"num.partitions=3", "-num.partitions", "default.replication.factor=2", "num.partitions=0",
				}).Draw(t, "default")
				_, records := w.IncrementalAlterConfigs(incremental(broker, "", change))
				w.replay(records)
			}
		}
		w.checkReplayLaw()
	})
}

func randomCreate(t *rapid.T, w *world, name func() string) {
	req := createRequest()
	for range rapid.IntRange(1, 3).Draw(t, "topics") {
		partitions := rapid.SampledFrom([]int32{-1, 0, 1, 3}).Draw(t, "partitions")
		factor := rapid.SampledFrom([]int16{-1, 1, 2, 5}).Draw(t, "factor")
		req.Topics = append(req.Topics, topicOf(name(), partitions, factor))
	}
	resp, records := w.CreateTopics(req)
	w.replay(records)
	for _, topic := range resp.Topics {
		got := w.Image().Topic(topic.Topic)
		if topic.ErrorCode != 0 {
			continue
		}
		if got == nil || got.ID != topic.TopicID || len(got.Partitions) != int(topic.NumPartitions) {
			t.Fatalf("created %+v, there is %+v", topic, got)
		}
	}
}

func randomDelete(t *rapid.T, w *world, name func() string) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	for range rapid.IntRange(1, 3).Draw(t, "topics") {
		n := name()
		item := kmsg.DeleteTopicsRequestTopic{Topic: &n}
		if topic := w.Image().Topic(n); topic != nil && rapid.Bool().Draw(t, "by id") {
			item = kmsg.DeleteTopicsRequestTopic{TopicID: topic.ID}
		}
		req.Topics = append(req.Topics, item)
	}
	resp, records := w.DeleteTopics(req)
	w.replay(records)
	for _, topic := range resp.Topics {
		if topic.ErrorCode == 0 && w.Image().TopicByID(topic.TopicID) != nil {
			t.Fatalf("topic %s was deleted and is there", *topic.Topic)
		}
	}
}

func randomGrow(t *rapid.T, w *world, name string) {
	req := kmsg.NewPtrCreatePartitionsRequest()
	item := kmsg.NewCreatePartitionsRequestTopic()
	item.Topic, item.Count = name, int32(rapid.IntRange(0, 6).Draw(t, "count"))
	req.Topics = append(req.Topics, item)
	resp, records := w.CreatePartitions(req)
	w.replay(records)
	if resp.Topics[0].ErrorCode == 0 && len(w.Image().Topic(name).Partitions) != int(item.Count) {
		t.Fatal(fmt.Sprintf("topic %s has not grown to %d", name, item.Count))
	}
}
