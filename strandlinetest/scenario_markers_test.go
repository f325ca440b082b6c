package strandlinetest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
)

// TestMarkersHoldUpNoProduce: a marker waits at another broker for a replica that hangs. The
// transactions that are coordinated there, of which partitions here are to be part, go on.
func TestMarkersHoldUpNoProduce(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3,
		strandlinetest.WithSetting("broker.session.timeout.ms", "60000"),
		strandlinetest.WithSetting("min.insync.replicas", "1"),
		strandlinetest.WithSetting("transaction.state.log.replication.factor", "1"),
	)
	for topic, replicas := range map[string]int16{"paired": 2, "single": 1} {
		if _, err := admin(t, c).CreateTopic(t.Context(), 24, replicas, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(id string) *kgo.Client {
		cl := dial(t, c, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		t.Cleanup(cl.Close)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		return cl
	}
	produce := func(cl *kgo.Client, topic string, partition int32) {
		t.Helper()
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("x")}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce(begin("warm-up"), "single", 0)
	c.AwaitInSync()
	here := c.Controller()
	there := here%3 + 1
	hung := there%3 + 1
	at := func(topic string, leader int, replicas ...int) int32 {
		for p := range int32(24) {
			of := c.Replicas(topic, p)
			slices.Sort(of)
			slices.Sort(replicas)
			if c.Leader(topic, p) == leader && slices.Equal(of, replicas) {
				return p
			}
		}
		t.Fatalf("no partition of %s is led by %d and at %v", topic, leader, replicas)
		return 0
	}
	coordinatedBy := func(node int) string {
		return named(t, c, metadata.TransactionsTopic, func(_ []int, leader int) bool { return leader == node })
	}
	ending, going := begin(coordinatedBy(here)), begin(coordinatedBy(there))
	waits := at("paired", there, there, hung)
	produce(ending, "paired", waits)
	produce(going, "single", at("single", there, there)) // It has its producer id.
	c.Pause(hung)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- ending.EndTransaction(ctx, kgo.TryCommit) }() // Ends with cancel.
	asked := kadm.TopicsSet{}
	asked.Add("paired", waits)
	c.Await("the marker is written", func() bool {
		described, err := admin(t, c).DescribeProducers(t.Context(), asked)
		if err != nil {
			return false
		}
		producers := described.SortedProducers()
		return len(producers) == 1 && producers[0].CurrentTxnStartOffset < 0
	})
	began := time.Now()
	produce(going, "single", at("single", here, here))
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("a produce of another transaction took %v", took)
	}
	c.Resume(hung)
	cancel()
	<-ended
}
