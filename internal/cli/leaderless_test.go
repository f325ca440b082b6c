package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// With one of three brokers gone for good, what the others hold is read; what it alone held is
// named, and nobody is told that all was read. Its vote is not taken for a living one.
func TestWithoutALeader(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()[:1]}
	c.run(0, "topic", "create", "orders", "--partitions", "3", "--replication-factor", "1",
		"--config", "min.insync.replicas=1")
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	gone, there := -1, []string{}
	for p := range int32(3) {
		r := &kgo.Record{Topic: "orders", Partition: p, Value: fmt.Appendf(nil, "record of %d", p)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if cluster.Leader("orders", p) == 3 {
			gone = int(p)
		} else {
			there = append(there, fmt.Sprint(p))
		}
	}
	if gone < 0 {
		t.Fatal("broker 3 leads no partition of three")
	}
	others := strings.Join(there, ",")
	cluster.Kill(3)
	awaitOutput(t, fmt.Sprintf("orders\t%d\t-\t", gone), func() string {
		out, _ := c.run(0, "topic", "describe", "orders")
		return out
	})

	lost := fmt.Sprintf("no leader: orders-%d", gone)
	t.Run("refused", func(t *testing.T) { // Each after a while, so all at once.
		for _, args := range [][]string{
			{"consume", "orders"},
			{"consume", "orders", "--from", "1h"},
			{"consume", "orders", "--partition", fmt.Sprint(gone)},
			{"group", "seek", "billing", "--to", "start", "--topic", "orders"},
		} {
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				commands{t, c.brokers}.wantCode(1, lost, args...)
			})
		}
	})
	for _, from := range []string{"start", "1h", "-1"} {
		out, _ := c.run(0, "consume", "orders", "--partition", others, "--from", from)
		for _, p := range there {
			if !strings.Contains(out, "record of "+p+"\n") {
				t.Errorf("from %s: of partitions %s only this was read: %q", from, others, out)
			}
		}
	}
	c.run(0, "group", "seek", "billing", "--to", "start", "--topic", "orders", "--partition", others)
	out, errs := c.run(0, "consume", "orders", "--follow", "-n", "2")
	if strings.Count(out, "record of ") != 2 || !strings.Contains(errs, lost+"; what they hold comes") {
		t.Errorf("who follows read %q and was told %q", out, errs)
	}
	awaitOutput(t, "broker 3 is a voter already, and is not heard of", func() string {
		_, errs, _ := c.try("cluster", "add", "3", "--yes")
		return errs
	})
}

// awaitOutput runs a command until it says something.
func awaitOutput(t *testing.T, part string, run func() string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		out := run()
		if strings.Contains(out, part) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it never says %q:\n%s", part, out)
		}
	}
}
