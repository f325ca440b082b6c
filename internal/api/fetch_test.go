package api_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// bubble runs a test with a broker in virtual time.
// The settings are name=value.
func bubble(t *testing.T, test func(t *testing.T, w *world), settings ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, s := range settings {
			name, value := cut(s)
			w.settings[name] = value
		}
		w.start()
		test(t, w)
	})
}

// fetched asks and returns the answer.
func (c *client) fetched(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.t.Helper()
	return c.ask(req).(*kmsg.FetchResponse)
}

// show writes an answer in one line: the session's code and, of each partition,
// what it has.
func show(t testing.TB, resp *kmsg.FetchResponse) string {
	t.Helper()
	var out []string
	if resp.ErrorCode != 0 {
		out = append(out, kafka.Code(resp.ErrorCode).String())
	}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			s := fmt.Sprintf("%s-%d", rt.Topic, p.Partition)
			if p.ErrorCode != 0 {
				s += " " + kafka.Code(p.ErrorCode).String()
			}
			if v := valuesIn(t, p.RecordBatches); v != "" {
				s += " " + v
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, ", ")
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestFetchWaits: without enough bytes until they come, or max_wait is over.
func TestFetchWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		c := w.connect()
		req := fetchOf(12, topic, 0)
		req.MaxWaitMillis, req.MinBytes = 10_000, int32(2*len(batchOf("v0")))

		begin := time.Now()
		expect(t, "nothing came", show(t, c.fetched(req)), "t-0")
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("an empty answer after %v", took)
		}

		begin = time.Now()
		id := c.send(req)
		var later sync.WaitGroup
		later.Go(func() {
			for i := range 2 {
				<-time.After(time.Second)
				w.fill("t", 0, fmt.Sprint("v", i))
			}
		})
		expect(t, "two batches came", show(t, c.receive(id).(*kmsg.FetchResponse)), "t-0 v0 v1")
		if took := time.Since(begin); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("the answer came after %v", took)
		}
		later.Wait()

		begin = time.Now()
		req.Topics[0].Partitions[0].FetchOffset, req.MaxWaitMillis = 2, 0
		expect(t, "no wait", show(t, c.fetched(req)), "t-0")
		req.MaxWaitMillis, req.MinBytes = 10_000, 0
		expect(t, "no bytes wanted", show(t, c.fetched(req)), "t-0")
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestFetchWaitsForNothing: what can't come, or is of no use, is not waited for.
func TestFetchWaitsForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 2)
		w.fill("t", 0, "a", "b", "c")
		c := w.connect()
		for _, f := range []struct {
			what   string
			change func(*kmsg.FetchRequest)
			want   string
		}{
			{"the partition's limit is below min_bytes", func(req *kmsg.FetchRequest) {
				req.Topics[0].Partitions[0].PartitionMaxBytes = 160
			}, "t-0 a b, t-1"},
			{"max_bytes is", func(req *kmsg.FetchRequest) { req.MaxBytes = 100 }, "t-0 a, t-1"},
			{"no partition", func(req *kmsg.FetchRequest) { req.Topics = nil }, ""},
			{"an error", func(req *kmsg.FetchRequest) {
				req.Topics[0].Partitions[0].FetchOffset = 3
				req.Topics[0].Partitions[1].Partition = 7
			}, "t-0, t-7 UNKNOWN_TOPIC_OR_PARTITION"},
		} {
			req := fetchOf(12, topic, 0, 0)
			req.MaxWaitMillis, req.MinBytes = 10_000, 1<<20
			f.change(req)
			begin := time.Now()
			expect(t, f.what, show(t, c.fetched(req)), f.want)
			if took := time.Since(begin); took > 0 {
				t.Errorf("%s: it took %v", f.what, took)
			}
		}
		// Partition 1 is at its end and 0 below min_bytes: that is waited for.
		req := fetchOf(12, topic, 0, 0)
		req.MaxWaitMillis, req.MinBytes = 10_000, 1<<20
		begin := time.Now()
		expect(t, "too little", show(t, c.fetched(req)), "t-0 a b c, t-1")
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("too little was not waited for: %v", took)
		}
	})
}

// TestFetchLimits: whole batches only, the first whatever its size.
func TestFetchLimits(t *testing.T) {
	w := startWorld(t)
	topic := w.createTopic("t", 2)
	w.fill("t", 0, "a", "b", "c")
	w.fill("t", 1, "x", "y")
	size := len(batchOf("a"))
	c := w.connect()
	for _, f := range []struct {
		max, partitionMax int
		want              string
	}{
		{1 << 20, 1 << 20, "t-0 a b c, t-1 x y"},
		{1 << 20, 2 * size, "t-0 a b, t-1 x y"},
		{1 << 20, 3*size - 1, "t-0 a b, t-1 x y"},
		{1 << 20, 1, "t-0 a, t-1"},
		{1 << 20, 0, "t-0 a, t-1"},
		{1 << 20, -5, "t-0 a, t-1"},
		{4 * size, 1 << 20, "t-0 a b c, t-1 x"},
		{3 * size, 1 << 20, "t-0 a b c, t-1"},
		{1, 1 << 20, "t-0 a, t-1"},
		{0, 1 << 20, "t-0 a, t-1"},
		{-1, 1 << 20, "t-0 a, t-1"},
	} {
		req := fetchOf(12, topic, 0, 0)
		req.MaxBytes = int32(f.max)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = int32(f.partitionMax)
		}
		expect(t, fmt.Sprintf("max %d, partition max %d", f.max, f.partitionMax), show(t, c.fetched(req)), f.want)
	}
}

// TestFetchRefusals: each with its code, and the offsets that help.
func TestFetchRefusals(t *testing.T) {
	w := startWorld(t)
	topic := w.createTopic("t", 1)
	w.fill("t", 0, "a", "b", "c")
	w.must(w.partition("t", 0).Log().DeleteRecords(1))
	const epoch = 5
	w.must(w.partition("t", 0).BecomeLeader(partition.Leadership{
		Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, LeaderEpoch: epoch,
	}, time.Now()))
	c := w.connect()
	for _, f := range []struct {
		what    string
		version int16
		change  func(*kmsg.FetchRequest, *kmsg.FetchRequestTopic, *kmsg.FetchRequestTopicPartition)
		code    kafka.Code
		start   int64
	}{
		{"below the log", 12, func(_ *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) {
			p.FetchOffset = 0
		}, kafka.ErrOffsetOutOfRange, 1},
		{"beyond the log", 4, func(_ *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) {
			p.FetchOffset = 4
		}, kafka.ErrOffsetOutOfRange, -1},
		{"old epoch", 9, func(_ *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) {
			p.CurrentLeaderEpoch = epoch - 1
		}, kafka.ErrFencedLeaderEpoch, -1},
		{"new epoch", 12, func(_ *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, p *kmsg.FetchRequestTopicPartition) {
			p.CurrentLeaderEpoch = epoch + 1
		}, kafka.ErrUnknownLeaderEpoch, -1},
		{"no topic", 12, func(_ *kmsg.FetchRequest, t *kmsg.FetchRequestTopic, _ *kmsg.FetchRequestTopicPartition) {
			t.Topic = "nowhere"
		}, kafka.ErrUnknownTopicOrPartition, -1},
		{"no topic id", 13, func(_ *kmsg.FetchRequest, t *kmsg.FetchRequestTopic, _ *kmsg.FetchRequestTopicPartition) {
			t.TopicID = [16]byte{3}
		}, kafka.ErrUnknownTopicID, -1},
		{"zero topic id", 18, func(_ *kmsg.FetchRequest, t *kmsg.FetchRequestTopic, _ *kmsg.FetchRequestTopicPartition) {
			t.TopicID = [16]byte{}
		}, kafka.ErrUnknownTopicID, -1},
		{"a replica", 6, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, _ *kmsg.FetchRequestTopicPartition) {
			r.ReplicaID = 2
		}, kafka.ErrClusterAuthorizationFailed, -1},
		{"a replica by its state", 15, func(r *kmsg.FetchRequest, _ *kmsg.FetchRequestTopic, _ *kmsg.FetchRequestTopicPartition) {
			r.ReplicaState.ID = 2
		}, kafka.ErrClusterAuthorizationFailed, -1},
	} {
		req := fetchOf(f.version, topic, 1)
		f.change(req, &req.Topics[0], &req.Topics[0].Partitions[0])
		resp := c.fetched(req)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			t.Errorf("%s: %s", f.what, show(t, resp))
			continue
		}
		p := resp.Topics[0].Partitions[0]
		if kafka.Code(p.ErrorCode) != f.code || p.LogStartOffset != f.start || len(p.RecordBatches) > 0 {
			t.Errorf("%s: %v, log start %d; want %v, %d", f.what, kafka.Code(p.ErrorCode), p.LogStartOffset, f.code, f.start)
		}
	}
}

// TestFetchIsWokenByTheEnd: who waits on a partition hears that it is led no
// more, or gone.
func TestFetchIsWokenByTheEnd(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"NOT_LEADER_OR_FOLLOWER": func(w *world) { w.partition("t", 0).Resign(false) },
		"UNKNOWN_TOPIC_OR_PARTITION": func(w *world) {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TopicNames = []string{"t"}
			_, err := w.plane.DeleteTopics(w.t.Context(), req)
			w.must(err)
		},
	} {
		bubble(t, func(t *testing.T, w *world) {
			topic := w.createTopic("t", 1)
			c := w.connect()
			req := fetchOf(12, topic, 0)
			req.MaxWaitMillis = 10_000
			begin := time.Now()
			id := c.send(req)
			later := time.AfterFunc(time.Second, func() { end(w) })
			defer later.Stop()
			expect(t, "answer", show(t, c.receive(id).(*kmsg.FetchResponse)), "t-0 "+name)
			if took := time.Since(begin); took != time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestFetchKeepsOrder: an answer that waits holds up those behind it, and
// nothing else.
func TestFetchKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		c := w.connect()
		req := fetchOf(12, topic, 0)
		req.MaxWaitMillis = 60_000
		first := c.send(req)
		second := c.send(produceOf(9, "t", 0, batchOf("v"))) // Wakes the first.
		expect(t, "fetch", show(t, c.receive(first).(*kmsg.FetchResponse)), "t-0 v")
		if got := outcomeOf(onlyProduced(t, c.receive(second))); got != (outcome{0, 0}) {
			t.Errorf("produce: %v", got)
		}
	})
}

// TestIsolation: read_committed readers get a list of aborted transactions,
// empty, others none.
func TestIsolation(t *testing.T) {
	w := startWorld(t)
	topic := w.createTopic("t", 1)
	w.fill("t", 0, "a")
	c := w.connect()
	req := fetchOf(12, topic, 0)
	if p := c.fetched(req).Topics[0].Partitions[0]; p.AbortedTransactions != nil {
		t.Errorf("read_uncommitted: %+v", p)
	}
	req.IsolationLevel = 1
	p := c.fetched(req).Topics[0].Partitions[0]
	if p.AbortedTransactions == nil || p.LastStableOffset != 1 || valuesIn(t, p.RecordBatches) != "a" {
		t.Errorf("read_committed: %+v", p)
	}
}
