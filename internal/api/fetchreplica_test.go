package api_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// replicate has the only partition of a topic wait for a follower, broker 2, which may
// fetch from now on.
func (w *world) replicate(topic *metadata.Topic) *partition.Partition {
	w.t.Helper()
	w.table[kmsg.Fetch.Int16()] = w.services.ReplicaFetch()
	p := w.partition(topic.Name, 0)
	w.must(p.BecomeLeader(partition.Leadership{
		Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1, 2}, LeaderEpoch: 3, PartitionEpoch: 9,
	}, time.Now()))
	return p
}

// followOf is a follower's fetch of a topic's only partition.
func followOf(topic *metadata.Topic, offset kafka.Offset, lastEpoch kafka.LeaderEpoch) *kmsg.FetchRequest {
	req := fetchOf(18, topic, offset)
	req.MaxWaitMillis = 10_000
	req.ReplicaState.ID, req.ReplicaState.Epoch = 2, 5
	p := &req.Topics[0].Partitions[0]
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.HighWatermark = 3, int32(lastEpoch), int64(1<<63-1)
	return req
}

// write appends a batch and waits for the leader alone.
func (c *client) write(topic *metadata.Topic, values ...string) {
	c.t.Helper()
	req := produceOf(9, topic.Name, 0, batchOf(values...))
	req.Acks = 1
	if p := c.produced(req); p.ErrorCode != 0 {
		c.t.Fatalf("produce: %v", kafka.Code(p.ErrorCode))
	}
}

func onlyFetched(t *testing.T, resp *kmsg.FetchResponse) kmsg.FetchResponseTopicPartition {
	t.Helper()
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("answer %v about %+v, want one partition", kafka.Code(resp.ErrorCode), resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// TestReplicaFetch: a follower reads to the log's end, acknowledges by its next fetch,
// waits for what is appended, and is told where its log parts from the leader's.
func TestReplicaFetch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		p := w.replicate(topic)
		producer, follower := w.connect(), w.connect()
		producer.write(topic, "a", "b")
		all := producer.send(produceOf(9, "t", 0, batchOf("c")))
		synctest.Wait()
		got := onlyFetched(t, follower.fetched(followOf(topic, 0, -1)))
		if v := valuesIn(t, got.RecordBatches); v != "a b c" || got.HighWatermark != 0 || got.DivergingEpoch.EndOffset != -1 {
			t.Fatalf("values %q, high watermark %d, diverging %+v", v, got.HighWatermark, got.DivergingEpoch)
		}
		begin := time.Now()
		id := follower.send(followOf(topic, 3, 3))
		if p := onlyProduced(t, producer.receive(all)); p.ErrorCode != 0 || p.BaseOffset != 2 {
			t.Errorf("produce: %+v", p)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("acknowledged %v after the follower's fetch", took)
		}
		if p.HighWatermark() != 3 {
			t.Errorf("high watermark %d", p.HighWatermark())
		}
		producer.write(topic, "d")
		got = onlyFetched(t, follower.receive(id).(*kmsg.FetchResponse))
		if v := valuesIn(t, got.RecordBatches); v != "d" || got.HighWatermark != 3 {
			t.Errorf("values %q, high watermark %d", v, got.HighWatermark)
		}
		got = onlyFetched(t, follower.fetched(followOf(topic, 9, 2)))
		if d := got.DivergingEpoch; d.Epoch != 2 && d.Epoch != 0 || got.ErrorCode != 0 || len(got.RecordBatches) > 0 {
			t.Errorf("diverging: %+v", got)
		}
		got = onlyFetched(t, follower.fetched(followOf(topic, 9, 3)))
		if d := got.DivergingEpoch; d.Epoch != 3 || d.EndOffset != 4 {
			t.Errorf("ahead of the leader: %+v", got)
		}
	})
}

// TestReplicaFetchTellsTheHighWatermark at once to a follower that wants to know.
func TestReplicaFetchTellsTheHighWatermark(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		p := w.replicate(topic)
		w.must(p.BecomeLeader(partition.Leadership{
			Replicas: []kafka.BrokerID{1, 2, 3}, ISR: []kafka.BrokerID{1, 2, 3}, LeaderEpoch: 3, PartitionEpoch: 10,
		}, time.Now()))
		producer, second, third := w.connect(), w.connect(), w.connect()
		producer.write(topic, "a")
		req := followOf(topic, 1, 3)
		req.Topics[0].Partitions[0].HighWatermark = 0
		begin := time.Now()
		id := second.send(req)
		<-time.After(time.Second)
		req = followOf(topic, 1, 3)
		req.ReplicaState.ID, req.MaxWaitMillis = 3, 0
		third.fetched(req)
		got := onlyFetched(t, second.receive(id).(*kmsg.FetchResponse))
		if got.HighWatermark != 1 || time.Since(begin) > 1100*time.Millisecond {
			t.Errorf("high watermark %d after %v", got.HighWatermark, time.Since(begin))
		}
	})
}

// TestReplicaFetchIsOvertaken by the next of its session, and both are answered at once.
func TestReplicaFetchIsOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic, other := w.createTopic("t", 1), w.createTopic("u", 1)
		w.replicate(topic)
		w.replicate(other)
		producer, follower := w.connect(), w.connect()
		producer.write(other, "x")
		first := followOf(topic, 0, -1)
		first.SessionEpoch, first.MaxWaitMillis = 0, 0
		session := follower.fetched(first).SessionID
		if session == 0 {
			t.Fatal("no session")
		}
		begin := time.Now()
		next := followOf(topic, 0, -1)
		next.Topics, next.SessionID, next.SessionEpoch = nil, session, 1
		parked := follower.send(next)
		<-time.After(time.Second)
		more := followOf(other, 0, -1)
		more.SessionID, more.SessionEpoch = session, 2
		id := follower.send(more)
		expect(t, "the one that waited", show(t, follower.receive(parked).(*kmsg.FetchResponse)), "")
		resp := follower.receive(id).(*kmsg.FetchResponse)
		if got := onlyFetched(t, resp); valuesIn(t, got.RecordBatches) != "x" {
			t.Errorf("values %q", valuesIn(t, got.RecordBatches))
		}
		if took := time.Since(begin); took > 1100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestReplicaFetchIsRefused: under another epoch, of an earlier registration, and of a
// broker that is no replica.
func TestReplicaFetchIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		c := w.connect()
		for _, f := range []struct {
			change func(*kmsg.FetchRequest)
			want   kafka.Code
		}{
			{func(req *kmsg.FetchRequest) { req.MaxWaitMillis = 0 }, kafka.ErrNone},
			{func(req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].CurrentLeaderEpoch = 2 }, kafka.ErrFencedLeaderEpoch},
			{func(req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].CurrentLeaderEpoch = 4 }, kafka.ErrUnknownLeaderEpoch},
			{func(req *kmsg.FetchRequest) { req.ReplicaState.Epoch = 4 }, kafka.ErrNotLeaderOrFollower},
			{func(req *kmsg.FetchRequest) { req.ReplicaState.ID = 7 }, kafka.ErrUnknownLeaderEpoch},
			{func(req *kmsg.FetchRequest) { req.Topics[0].Partitions[0].FetchOffset = 7 }, kafka.ErrOffsetOutOfRange},
		} {
			req := followOf(topic, 0, -1)
			f.change(req)
			if got := kafka.Code(onlyFetched(t, c.fetched(req)).ErrorCode); got != f.want {
				t.Errorf("%+v: %s, want %s", req, got, f.want)
			}
		}
	})
}

// otherBrokers is a controller whose image has brokers in racks.
type otherBrokers struct {
	api.Control
	racks map[kafka.BrokerID]string
	t     *testing.T
}

func (o otherBrokers) Image() *metadata.Image {
	image := o.Control.Image()
	for id, rack := range o.racks {
		e := metadata.Endpoint{Name: "PLAINTEXT", Host: "other.example", Port: 9092}
		next, _, err := image.Apply(&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: id, Epoch: image.LastBrokerEpoch() + 1, Directories: [][16]byte{{byte(id)}}, Endpoint: e,
			Endpoints: []metadata.Endpoint{e}, Rack: rack,
		}})
		if err != nil {
			o.t.Error(err)
			return image
		}
		image = next
	}
	return image
}

// TestFetchByRack: a consumer is sent to the replica in its rack, and is served by a
// follower that hears from its leader (KIP-392).
func TestFetchByRack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.services.Control = otherBrokers{w.services.Control, map[kafka.BrokerID]string{2: "far"}, t}
		p := w.replicate(topic)
		c := w.connect()
		c.write(topic, "a")
		c.fetched(followOf(topic, 0, -1))
		ack := followOf(topic, 1, 3)
		ack.MaxWaitMillis = 0
		c.fetched(ack)
		req := fetchOf(18, topic, 0)
		for rack, want := range map[string]int32{"": -1, "near": -1, "far": 2} {
			req.Rack = rack
			got := onlyFetched(t, c.fetched(req))
			if got.PreferredReadReplica != want || (len(got.RecordBatches) == 0) != (want >= 0) || got.ErrorCode != 0 {
				t.Errorf("rack %q: sent to %d with %d bytes, %v", rack, got.PreferredReadReplica, len(got.RecordBatches), got.ErrorCode)
			}
		}

		req.Rack = "far"
		if _, err := p.BecomeFollower(partition.Following{Leader: 2, LeaderEpoch: 4}); err != nil {
			t.Fatal(err)
		}
		notLeader := int16(kafka.ErrNotLeaderOrFollower)
		if got := onlyFetched(t, c.fetched(req)); got.ErrorCode != notLeader {
			t.Errorf("a follower that did not hear from its leader: %+v", got)
		}
		var contact partition.Contact
		contact.Heard(time.Now())
		p.InContact(4, &contact)
		if got := onlyFetched(t, c.fetched(req)); valuesIn(t, got.RecordBatches) != "a" || got.PreferredReadReplica != -1 {
			t.Errorf("from a follower: %+v", got)
		}
		req.Rack = ""
		if got := onlyFetched(t, c.fetched(req)); got.ErrorCode != notLeader {
			t.Errorf("a consumer without a rack: %+v", got)
		}
		req.ReplicaState.ID = -2
		if got := onlyFetched(t, c.fetched(req)); valuesIn(t, got.RecordBatches) != "a" {
			t.Errorf("a broker whose log is damaged: %+v", got)
		}
	})
}

// TestProduceUnderAnotherEpoch: what was appended under an epoch is not acknowledged
// under the next.
func TestProduceUnderAnotherEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		p := w.replicate(topic)
		c := w.connect()
		id := c.send(produceOf(9, "t", 0, batchOf("a")))
		<-time.After(time.Second)
		if _, err := p.BecomeFollower(partition.Following{Leader: 2, LeaderEpoch: 4}); err != nil {
			t.Fatal(err)
		}
		w.must(p.BecomeLeader(partition.Leadership{
			Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, LeaderEpoch: 5, PartitionEpoch: 10,
		}, time.Now()))
		if got := onlyProduced(t, c.receive(id)); kafka.Code(got.ErrorCode) != kafka.ErrNotLeaderOrFollower {
			t.Errorf("%+v", got)
		}
	})
}

// TestListOffsetsUnsettled: a new leader does not tell the latest offset before it knows
// that it is no less than what was told before (KIP-207).
func TestListOffsetsUnsettled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.fill("t", 0, "a")
		p := w.partition("t", 0)
		w.must(p.BecomeLeader(partition.Leadership{
			Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1, 2}, LeaderEpoch: 3, PartitionEpoch: 9,
		}, time.Now()))
		w.connect().write(topic, "b")
		w.must(p.BecomeLeader(partition.Leadership{
			Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1, 2}, LeaderEpoch: 4, PartitionEpoch: 10,
		}, time.Now()))
		c := w.connect()
		for version, want := range map[int16]kafka.Code{4: kafka.ErrLeaderNotAvailable, 7: kafka.ErrOffsetNotAvailable} {
			for timestamp, want := range map[int64]kafka.Code{-1: want, -2: kafka.ErrNone, 0: want} {
				req := kmsg.NewPtrListOffsetsRequest()
				req.Version, req.ReplicaID = version, -1
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Timestamp = timestamp
				rt := kmsg.NewListOffsetsRequestTopic()
				rt.Topic, rt.Partitions = "t", append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				got := c.ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
				if kafka.Code(got.ErrorCode) != want {
					t.Errorf("version %d, timestamp %d: %s, want %s", version, timestamp, kafka.Code(got.ErrorCode), want)
				}
			}
		}
	})
}

// TestCurrentLeader: a client that is refused is told whom to ask (KIP-951).
func TestCurrentLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.must(errorOf(w.partition("t", 0).BecomeFollower(partition.Following{Leader: 1, LeaderEpoch: 4})))
		c := w.connect()
		for version, want := range map[int16]int{9: 0, 10: 1, 13: 1} {
			req := produceOf(version, "t", 0, batchOf("a"))
			req.Topics[0].TopicID = topic.ID
			resp := c.ask(req).(*kmsg.ProduceResponse)
			p := onlyProduced(t, resp)
			if p.ErrorCode != int16(kafka.ErrNotLeaderOrFollower) || len(resp.Brokers) != want || want > 0 && p.CurrentLeader.LeaderID != 1 {
				t.Errorf("produce version %d: %+v, brokers %+v", version, p, resp.Brokers)
			}
		}
		for version, want := range map[int16]int{12: 0, 15: 0, 16: 1} {
			resp := c.fetched(fetchOf(version, topic, 0))
			p := onlyFetched(t, resp)
			if p.ErrorCode != int16(kafka.ErrNotLeaderOrFollower) || len(resp.Brokers) != want {
				t.Errorf("fetch version %d: %+v, brokers %+v", version, p, resp.Brokers)
			}
			if want > 0 && (p.CurrentLeader.LeaderID != 1 || resp.Brokers[0].Host != "broker.example") {
				t.Errorf("fetch version %d: %+v, brokers %+v", version, p.CurrentLeader, resp.Brokers)
			}
		}
	})
}

func errorOf(_ bool, err error) error { return err }
