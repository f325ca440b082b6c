package clients_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// txnTool is kafka-transactions.sh.
type txnTool struct {
	t         *testing.T
	classpath string
	addr      string
}

// run runs a command of the tool, and returns the lines that it prints below the heading.
func (x *txnTool) run(args ...string) []string {
	x.t.Helper()
	out := java(x.t, x.classpath, "org.apache.kafka.tools.TransactionsCommand",
		append([]string{"--bootstrap-server", x.addr}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[1:]
}

// expect checks that one of the lines has all of the words.
func (x *txnTool) expect(lines []string, words ...string) {
	x.t.Helper()
	for _, line := range lines {
		missing := false
		for _, w := range words {
			missing = missing || !strings.Contains(line, w)
		}
		if !missing {
			return
		}
	}
	x.t.Errorf("no line with %v in\n%s", words, strings.Join(lines, "\n"))
}

// expectNone checks that nothing was printed.
func (x *txnTool) expectNone(lines []string) {
	x.t.Helper()
	if len(lines) > 0 {
		x.t.Errorf("want no line, there are\n%s", strings.Join(lines, "\n"))
	}
}

// transactionTools runs each command of Kafka's tool for transactions: over what the
// checks left, over a transaction that is open, and over one that hangs.
func transactionTools(t *testing.T, cp string, b *harness.Broker) {
	t.Helper()
	x := &txnTool{t, cp, b.Addr}
	producer := newClient(t, b.Addr, kgo.TransactionalID("left-open"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	record := &kgo.Record{Topic: "tx", Partition: 1, Value: []byte("never")}
	if err := producer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}

	all := x.run("list")
	x.expect(all, "j-transform", "CompleteCommit")
	x.expect(all, "left-open", "Ongoing")
	x.expect(x.run("list", "--duration-filter", "0", "--transactional-id-pattern", "left-.*"), "left-open", "Ongoing")
	x.expectNone(x.run("list", "--transactional-id-pattern", "right-.*"))
	if lines := x.run("list", "--duration-filter", "3600000"); strings.Contains(strings.Join(lines, " "), "left-open") {
		t.Errorf("a transaction that just began is listed as an hour old:\n%s", strings.Join(lines, "\n"))
	}
	x.expect(x.run("describe", "--transactional-id", "j-feed"), "j-feed", "CompleteCommit")
	x.expect(x.run("describe", "--transactional-id", "left-open"), "left-open", "Ongoing", "tx-1")
	x.expectNone(x.run("find-hanging", "--topic", "tx", "--max-transaction-timeout", "0"))

	x.run("forceTerminateTransaction", "--transactionalId", "left-open")
	if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("a transaction that was terminated has committed")
	}
	x.expect(x.run("list"), "left-open", "Empty")

	start, partition := hang(t, b), "0"
	x.expect(x.run("describe-producers", "--topic", "tx", "--partition", partition), "4711", start)
	found := x.run("find-hanging", "--broker-id", "1")
	x.expect(found, "tx", partition, "4711", start)
	if len(found) != 1 {
		t.Errorf("more transactions hang than the one that does:\n%s", strings.Join(found, "\n"))
	}
	x.run("abort", "--topic", "tx", "--partition", partition, "--start-offset", start)
	x.expectNone(x.run("find-hanging", "--broker-id", "1"))
}

// hang restarts the broker with a transaction in tx-0 that is an hour old, and that no
// coordinator knows, and returns where it begins.
func hang(t *testing.T, b *harness.Broker) string {
	t.Helper()
	topics, err := kadm.NewClient(newClient(t, b.Addr)).ListTopics(t.Context(), "tx")
	if err != nil {
		t.Fatal(err)
	}
	b.Stop()
	const producer = 4711
	start, err := harness.HangTransaction(b.DataDir, topics["tx"].ID, 0, producer, "hangs", time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	b.Restart()
	return fmt.Sprint(start)
}

// newClient returns a client that goes with the test.
func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.AlwaysRetryEOF()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
