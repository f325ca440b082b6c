package chaos_test

import (
	"encoding/hex"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
	"github.com/strandline/strandline/test/transact"
)

// TestClusterTransactions breaks brokers in every way that a machine without spare file
// systems allows, while producers, and members of a group that read and write, go on
// within transactions.
func TestClusterTransactions(t *testing.T) {
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir(), "--set", "group.min.session.timeout.ms=1000",
		"--set", "offsets.topic.num.partitions=4", "--set", "transaction.state.log.num.partitions=4")
	const topic, partitions = "transactions", 6
	two, small := "2", "1048576"
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	id := createTopic(t, kadm.NewClient(cl), partitions, 3,
		map[string]*string{"min.insync.replicas": &two, "segment.bytes": &small}, topic)
	l := transact.Start(t, transact.Options{
		Addrs: c.Addrs(), Topic: topic, Partitions: partitions, Producers: 4, Contested: 2, Transforms: 2,
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
		l.AwaitMore(20)
		f.end(node)
		l.AwaitMore(20)
	}
	l.Verify()
	awaitInSync(t.Context(), t, c.Addrs(), topic)
	c.Stop()
	noteReplicas(t, c, hex.EncodeToString(id[:]), l.History)
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
