package chaos_test

import (
	"encoding/hex"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
	"github.com/strandline/strandline/test/transact"
	"github.com/strandline/strandline/test/wild"
)

// TestClusterTransactions breaks brokers in every way that a machine without spare file
// systems allows, while producers, and members of a group that read and write, go on
// within transactions.
func TestClusterTransactions(t *testing.T) {
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir(), smallTransactions()...)
	l, topicID := transactionsOn(t, c.Addrs())
	breakUnder(t, c, links, l, 20)
	judgeTransactions(t, c, l, topicID)
}

// transacting is clients that go on within transactions.
type transacting interface {
	AwaitMore(n int)
	Summary() string
}

// breakUnder has each fault happen to brokers in turn, and waits each time until the clients
// have ended so many more transactions.
func breakUnder(t *testing.T, c *harness.Cluster, links *harness.Links, l transacting, more int) {
	t.Helper()
	l.AwaitMore(more)
	faults := append(endings(t, c), cuts(links)...)
	for i := range rounds(t, len(faults)) {
		f, node := faults[i%len(faults)], 1+i%3
		if f.onlyController {
			node = controller(t, c.Addrs())
		}
		t.Logf("broker %d %s, after %s", node, f.name, l.Summary())
		f.begin(node)
		l.AwaitMore(more)
		f.end(node)
		l.AwaitMore(more)
	}
}

// TestClusterTransactionsPowerLoss takes the power from one broker, or from all, in the
// middle of transactions.
func TestClusterTransactionsPowerLoss(t *testing.T) {
	c := startOnDisks(t, smallTransactions()...)
	l, topicID := transactionsOn(t, c.Addrs())
	for i := range rounds(t, 4) {
		l.AwaitMore(20 + 7*i%20)
		nodes := []int{1, 2, 3}
		if i%2 == 0 {
			nodes = []int{1 + i/2%3}
		}
		c.losePower(nodes...)
		if len(nodes) == 1 {
			l.AwaitMore(20)
		}
		c.restart(nodes...)
	}
	l.AwaitMore(20)
	judgeTransactions(t, c.Cluster, l, topicID)
}

// smallTransactions are arguments of brokers for package transact.
func smallTransactions() []string {
	return []string{
		"--set", "group.min.session.timeout.ms=1000",
		"--set", "offsets.topic.num.partitions=4", "--set", "transaction.state.log.num.partitions=4",
	}
}

// transactionsOn starts clients with transactions, on a topic of which it returns the id.
func transactionsOn(t *testing.T, addrs []string) (*transact.Load, string) {
	t.Helper()
	const partitions = 6
	two, small := "2", "1048576"
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	id := createTopic(t, kadm.NewClient(cl), partitions, 3,
		map[string]*string{"min.insync.replicas": &two, "segment.bytes": &small}, transactionsTopic)
	return transact.Start(t, transact.Options{
		Addrs: addrs, Topic: transactionsTopic, Partitions: partitions, Producers: 4, Contested: 2, Transforms: 2,
	}), hex.EncodeToString(id[:])
}

const transactionsTopic = "transactions"

// judgeTransactions stops all, and holds what was seen against what there is.
func judgeTransactions(t *testing.T, c *harness.Cluster, l *transact.Load, topicID string) {
	t.Helper()
	l.Verify()
	awaitInSync(t.Context(), t, c.Addrs(), transactionsTopic)
	c.Stop()
	noteReplicas(t, c, topicID, l.History)
	report(t, l.History)
	t.Log(l.Summary())
}

// endings are the ways of ending a broker, or all of them, for a while.
func endings(t *testing.T, c *harness.Cluster) []fault {
	t.Helper()
	signal := func(s syscall.Signal) func(int) {
		return func(node int) {
			if err := syscall.Kill(c.Brokers[node-1].Pid(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	restart := func(node int) { c.Brokers[node-1].Restart() }
	return []fault{
		{name: "killed", begin: func(node int) { c.Brokers[node-1].Kill() }, end: restart},
		{name: "stopped by SIGSTOP", begin: signal(syscall.SIGSTOP), end: signal(syscall.SIGCONT)},
		{name: "stopped cleanly", begin: func(node int) { c.Brokers[node-1].Stop() }, end: restart},
		{name: "killed, as are all", begin: func(int) {
			c.Freeze()
			for _, b := range c.Brokers {
				b.Kill()
			}
			for _, b := range c.Brokers {
				b.Restart()
			}
		}, end: func(int) {}},
	}
}

// TestClusterWildTransactions is TestClusterTransactions with clients that keep no rule.
func TestClusterWildTransactions(t *testing.T) {
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir(), smallTransactions()...)
	const partitions = 3
	two := "2"
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	createTopic(t, kadm.NewClient(cl), partitions, 3, map[string]*string{"min.insync.replicas": &two}, transactionsTopic)
	l := wild.Start(t, wild.Options{
		Addrs: c.Addrs(), Topic: transactionsTopic, Partitions: partitions, IDs: 3, Clients: 8,
	})
	l.AwaitMore(20)
	faults := append(endings(t, c), cuts(links)...)
	for i := range rounds(t, len(faults)) {
		f, node := faults[i%len(faults)], 1+i%3
		if f.onlyController {
			node = controller(t, c.Addrs())
		}
		t.Logf("broker %d %s, after %s", node, f.name, l.Summary())
		f.begin(node)
		l.AwaitMore(15)
		f.end(node)
		l.AwaitMore(15)
	}
	awaitInSync(t.Context(), t, c.Addrs(), transactionsTopic)
	l.Verify()
	t.Log(l.Summary())
}
