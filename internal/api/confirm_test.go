package api_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// answering is a follower of a topic that says to its leader, when that asks, that it follows
// it still.
func answering(t *testing.T, c *client, topic *metadata.Topic) func() {
	var round []byte
	return func() {
		req := followOf(topic, 1, 3)
		req.MaxWaitMillis = 1
		if round != nil {
			req.Topics[0].Partitions[0].UnknownTags.Set(kafka.RoundTag, round)
		}
		p := onlyFetched(t, c.fetched(req))
		round = nil
		p.UnknownTags.Each(func(tag uint32, value []byte) {
			if tag == kafka.RoundTag {
				round = value
			}
		})
	}
}

// TestLatestOffsetsAreOfNow: a leader that may have been replaced tells where a partition
// ends when its replicas say that it leads still, and else that it may not lead.
func TestLatestOffsetsAreOfNow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var leased atomic.Bool
		leased.Store(true)
		w.services.Leased = leased.Load
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		w.connect().write(topic, "a")
		follow := answering(t, w.connect(), topic)
		follow()
		c := w.connect()
		list := func(timestamp int64) kmsg.Request {
			req := kmsg.NewPtrListOffsetsRequest()
			req.Version = 8
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic.Name
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp = timestamp
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return req
		}
		expect := func(what string, timestamp int64, meanwhile func(), code kafka.Code, offset int64) {
			t.Helper()
			id := c.send(list(timestamp))
			meanwhile()
			p := c.receive(id).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
			if kafka.Code(p.ErrorCode) != code || p.Offset != offset {
				t.Errorf("%s of timestamp %d: %v, offset %d", what, timestamp, kafka.Code(p.ErrorCode), p.Offset)
			}
		}
		nothing := func() {}
		twice := func() {
			<-time.After(10 * time.Millisecond)
			follow()
			follow()
		}
		const latest, earliest, newest = -1, -2, -3
		expect("with the lease", latest, nothing, kafka.ErrNone, 1)
		leased.Store(false)
		for _, timestamp := range []int64{latest, newest, 1} {
			expect("without an answer", timestamp, nothing, kafka.ErrNotLeaderOrFollower, -1)
		}
		expect("without an answer", earliest, nothing, kafka.ErrNone, 0)
		expect("with an answer", latest, twice, kafka.ErrNone, 1)
		expect("with an answer", newest, twice, kafka.ErrNone, 0)
		expect("the lease comes back", latest, func() { leased.Store(true) }, kafka.ErrNone, 1)
	})
}
