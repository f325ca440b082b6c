package strandlinetest_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
)

// Scenario 25, with transactions: who is elected by an operator's wish lacks the marker of a
// transaction that has ended, or records of one that is open. Readers of what is committed
// go on all the same: what is open ends as ever, and what has lost its marker ends when its
// producer goes on, or, if it does not, when the operator says so.
func TestUncleanElectionAmidTransactions(t *testing.T) {
	c := strandlinetest.StartCluster(t, 5, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"),
		strandlinetest.WithSetting("transaction.state.log.replication.factor", "5")) // Two nodes are lost.
	watch(t, c, "orders", 1, "min.insync.replicas", "1")
	replicas := c.Replicas("orders", 0)
	leader, other, last := replicas[0], replicas[1], replicas[2]
	c.MoveLeader("orders", 0, leader)
	producers := map[string]*kgo.Client{}
	for _, id := range []string{"goes on", "is gone", "is open", "is lost"} {
		producers[id] = transactional(t, c, id)
		if id != "is lost" {
			inTransaction(t, producers[id], id, 0)
		}
	}
	c.AwaitInSync()
	// Who is cut off from the leader coordinates none of them: it could not end them there.
	for id := range producers {
		if coordinatorOf(c, id) == last {
			partitions := int32(c.Partitions(metadata.TransactionsTopic))
			c.MoveLeader(metadata.TransactionsTopic, c.GroupPartition(id, partitions), other)
		}
	}
	c.Cut(last, leader)
	inTransaction(t, producers["is lost"], "is lost", 0)
	for _, id := range []string{"goes on", "is gone"} {
		end(t, producers[id], kgo.TryCommit)
		awaitMarkers(t, c, id)
	}
	c.Kill(leader, other)
	c.Heal()
	c.Await("an unclean election", func() bool {
		elected, err := electUnclean(t.Context(), admin(t, c), "orders")
		return err == nil && elected && c.Leader("orders", 0) == last
	})
	for _, id := range []string{"is open", "is lost"} {
		// Who knew a coordinator that is gone may give up when it can't be reached.
		commitUntilTold(t, c, producers[id], id)
		awaitMarkers(t, c, id)
	}
	goOn(t, producers["goes on"])
	awaitMarkers(t, c, "goes on") // Else what ends the hanging one would end this as well.
	if n := abortHanging(t, c); n != 1 {
		t.Errorf("%d transactions hang, want that of the producer which is gone", n)
	}
	c.Restart(leader, other)
	c.AwaitInSync()
	expectCommitted(t, c, 1, "is open", "after")
}

// goOn has a producer that finds its transaction of before open make another one: the first
// that it tries is refused, and what ends that ends the other as well.
func goOn(t *testing.T, cl *kgo.Client) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("refused")}).FirstErr()
	t.Logf("refused with: %v", err)
	if err == nil {
		t.Error("a transaction went on from one that had ended")
	}
	end(t, cl, kgo.TryAbort)
	inTransaction(t, cl, "after", 0)
	end(t, cl, kgo.TryCommit)
}

// awaitMarkers waits until the markers of an id's transaction are written.
func awaitMarkers(t *testing.T, c *strandlinetest.Cluster, id string) {
	t.Helper()
	adm := admin(t, c)
	c.Await("the markers of "+id+" are written", func() bool {
		described, err := adm.DescribeTransactions(t.Context(), id)
		return err == nil && described[id].Err == nil && described[id].State == "CompleteCommit"
	})
}

// abortHanging ends what is open in partition 0 by markers, and returns how much there was.
func abortHanging(t *testing.T, c *strandlinetest.Cluster) (n int) {
	t.Helper()
	adm := admin(t, c)
	var in kadm.TopicsSet
	in.Add("orders", 0)
	producers, err := adm.DescribeProducers(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range producers.SortedProducers() {
		if p.CurrentTxnStartOffset < 0 {
			continue
		}
		n++
		written, err := adm.WriteTxnMarkers(t.Context(), kadm.TxnMarkers{
			ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(p.CoordinatorEpoch, 0), Topics: in,
		})
		for _, w := range written.SortedPartitions() {
			err = errors.Join(err, w.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}
