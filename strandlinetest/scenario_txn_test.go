package strandlinetest_test

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/transact"
	"github.com/strandline/strandline/test/wild"
)

// chaosRounds returns how many faults there are: what the environment says, or as many
// as given.
func chaosRounds(t *testing.T, otherwise int) int {
	t.Helper()
	s := os.Getenv("STRANDLINE_CHAOS_ROUNDS")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("STRANDLINE_CHAOS_ROUNDS=%q: %v", s, err)
	}
	return n
}

// txnFault is something that happens to a node, and how it ends.
type txnFault struct {
	name       string
	begin, end func(c *strandlinetest.Cluster, node int)
}

func txnFaults() []txnFault {
	restart := func(c *strandlinetest.Cluster, node int) { c.Restart(node) }
	heal := func(c *strandlinetest.Cluster, _ int) { c.Heal() }
	free := func(c *strandlinetest.Cluster, node int) { c.FreeDisk(node) }
	next := func(node int) int { return 1 + node%3 }
	return []txnFault{
		{"killed", func(c *strandlinetest.Cluster, node int) { c.Kill(node) }, restart},
		{"without power", func(c *strandlinetest.Cluster, node int) { c.LosePower(node) }, restart},
		{"paused", func(c *strandlinetest.Cluster, node int) { c.Pause(node) }, func(c *strandlinetest.Cluster, node int) { c.Resume(node) }},
		{"cut off from other nodes", func(c *strandlinetest.Cluster, node int) { c.Isolate(node) }, heal},
		{"cut off from one node, one way", func(c *strandlinetest.Cluster, node int) { c.CutOneWay(node, next(node)) }, heal},
		{"out of room, leading nothing", func(c *strandlinetest.Cluster, node int) {
			leadAll(c, next(node))
			c.FillDisk(node)
		}, free},
		{"out of room, for a second", func(c *strandlinetest.Cluster, node int) {
			c.FillDisk(node)
			<-time.After(time.Second) // Nothing that it leads goes on.
			c.FreeDisk(node)
		}, func(*strandlinetest.Cluster, int) {}},
		{"to lead all", func(c *strandlinetest.Cluster, node int) { leadAll(c, node) }, func(c *strandlinetest.Cluster, node int) { leadAll(c, next(node)) }},
		{"stopped", func(c *strandlinetest.Cluster, node int) { c.Stop(node) }, restart},
		{"without power, as are all", func(c *strandlinetest.Cluster, _ int) {
			c.LosePower(1, 2, 3)
			c.Restart(1, 2, 3)
		}, func(*strandlinetest.Cluster, int) {}},
	}
}

// leadAll has a node lead all partitions, those of coordinators included.
func leadAll(c *strandlinetest.Cluster, node int) {
	for _, topic := range []string{"orders", metadata.TransactionsTopic, metadata.OffsetsTopic} {
		for p := range c.Partitions(topic) {
			c.MoveLeader(topic, int32(p), node)
		}
	}
}

// Transactional producers, members of a group that read and write in transactions, and
// readers of both isolations go on whatever happens to leaders and coordinators: nothing
// of an aborted transaction is read, all of a committed one is, nothing is processed
// twice, and who was replaced does nothing any more.
func TestTransactionsUnderFaults(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"),
		strandlinetest.WithSetting("group.min.session.timeout.ms", "1000"),
		strandlinetest.WithSetting("offsets.topic.num.partitions", "4"),
		strandlinetest.WithSetting("transaction.state.log.num.partitions", "4"))
	const partitions = 4
	r := watch(t, c, "orders", partitions)
	l := transact.Start(t, transact.Options{
		Addrs: c.Addrs(), Topic: "orders", Partitions: partitions, Producers: 3, Contested: 1, Transforms: 2,
	})
	r.history = l.History
	breakUnder(t, c, l)
	r.compareReplicas()
	r.verdict()
}

// transacting is clients that go on within transactions, and what they know of them.
type transacting interface {
	AwaitMore(n int)
	Summary() string
	Verify()
}

// breakUnder has each fault happen to nodes in turn while the clients go on, and has them
// look at what became of their transactions.
func breakUnder(t *testing.T, c *strandlinetest.Cluster, l transacting) {
	t.Helper()
	l.AwaitMore(20)
	faults := txnFaults()
	for i := range chaosRounds(t, len(faults)) {
		f, node := faults[i%len(faults)], 1+i%3
		t.Logf("node %d %s, after %s", node, f.name, l.Summary())
		f.begin(c, node)
		l.AwaitMore(30)
		f.end(c, node)
		l.AwaitMore(30)
	}
	c.AwaitInSync()
	l.Verify()
	t.Log(l.Summary())
}

// Clients that keep no rule of transactions, with credentials that are over, requests of all
// versions in any order, and late ones, while leaders and coordinators break and move: what
// the logs tell fits together all the same, and nothing stays open.
func TestWildTransactions(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"),
		strandlinetest.WithSetting("offsets.topic.num.partitions", "2"),
		strandlinetest.WithSetting("transaction.state.log.num.partitions", "2"))
	const partitions = 3
	watch(t, c, "orders", partitions)
	l := wild.Start(t, wild.Options{Addrs: c.Addrs(), Topic: "orders", Partitions: partitions, IDs: 3, Clients: 8})
	breakUnder(t, c, l)
}

// A coordinator is cut off from the other brokers, not from clients, when it writes down that
// a transaction is to end, which nobody else hears of. It has nobody wait for that, time
// after time, but sends the producer, and one that takes its id over, to the coordinator that
// there is by now, which ends it.
func TestTransactionCoordinatorCutOff(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	watch(t, c, "orders", 1)
	cl := transactional(t, c, "id")
	inTransaction(t, cl, "read", 0)
	zombie := coordinatorOf(c, "id")
	c.MoveLeader("orders", 0, 1+zombie%3)
	id, epoch, err := cl.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// It is asked itself, and waited for.
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[zombie-1]), kgo.RequestTimeoutOverhead(20*time.Second))
	defer direct.Close()
	commit := func() error {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "id", id, epoch, true
		resp, err := direct.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.(*kmsg.EndTxnResponse).ErrorCode)
	}
	takeOver := func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("id"), 60_000
		resp, err := direct.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode)
	}
	c.Isolate(zombie)
	began := time.Now()
	if err := commit(); !errors.Is(err, kerr.NotCoordinator) {
		t.Errorf("a commit at a coordinator that is cut off: %v", err)
	}
	const soon = 4 * time.Second // Else it waits for its record, for 5 s.
	if took := time.Since(began); took > soon {
		t.Errorf("it said so after %v", took)
	}
	c.Await("another coordinator", func() bool { l := coordinatorOf(c, "id"); return l != 0 && l != zombie })
	for what, do := range map[string]func() error{"the commit again": commit, "another producer": takeOver} {
		if err := do(); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("%s: %v", what, err)
		}
	}
	commitUntilTold(t, c, cl, "id")
	c.Heal()
	expectCommitted(t, c, 1, "read")
}
