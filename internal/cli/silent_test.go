package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// A broker that hangs takes connections and says nothing. Others are asked before the time
// of a command is over, whichever stands first.
func TestABrokerThatHangs(t *testing.T) {
	t.Parallel()
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	c.want("orders\t3\t3\t", "topic", "create", "orders", "--partitions", "3", "--durability", "strict")
	cluster.Pause(1)
	for _, args := range [][]string{
		{"topic", "list"},
		{"cluster", "describe"},
		{"cluster", "doctor", "--watch", "0"},
		{"consume", "orders", "--from", "start", "--until", "end"},
	} {
		c.run(0, append(args, "--timeout", "6s")...)
	}
}

// Without a controller nothing can be moved, and what brokers say of one another is old.
// Neither is told as if all were well, nor is what was not asked to the end.
func TestWithoutAController(t *testing.T) {
	t.Parallel()
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	cluster.Kill(1, 2)
	c.brokers = c.brokers[2:]
	const advice = "A majority of the voters elects the controller"
	out, errs := c.run(0, "cluster", "describe", "--json", "--timeout", "2s")
	if !strings.Contains(out, `"controller": -1`) || strings.Contains(out, `"controller": true`) ||
		!strings.Contains(errs, "is as it was when there was a controller. "+advice) {
		t.Errorf("cluster describe:\n%s%s", out, errs)
	}
	for _, args := range [][]string{
		{"cluster", "balance"}, {"cluster", "drain", "2", "--yes"}, {"cluster", "add", "2"}, {"cluster", "remove-voter", "2"},
	} {
		c.wantCode(1, advice, append(args, "--timeout", "2s")...)
	}

	interrupted, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	time.AfterFunc(time.Second, interrupt)
	var stdout, stderr bytes.Buffer
	code := cli.Run(interrupted, cli.Env{
		Args:  []string{"cluster", "describe", "--brokers", c.brokers[0]},
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
	})
	if code != 130 || stdout.Len() > 0 {
		t.Errorf("interrupted while it asks: exit code %d\n%s%s", code, &stdout, &stderr)
	}
}

// Leaders that are not where they belong are not called even, and change only with a yes.
func TestLeadersGoBackWithAYes(t *testing.T) {
	t.Parallel()
	cluster := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("auto.leader.rebalance.enable", "false"))
	c := commands{t, cluster.Addrs()}
	c.run(0, "topic", "create", "orders", "--partitions", "6", "--durability", "strict")
	cluster.Kill(3)
	cluster.Restart(3)
	cluster.AwaitInSync()
	const away = "2 partitions led by another replica than they prefer"
	doctor := []string{"cluster", "doctor", "--watch", "0", "--strict"}
	c.want("note\tleaders\t"+away, doctor...)
	c.want("Nothing was done: --yes carries it out.", "cluster", "balance", "--leaders")
	c.want("note\tleaders\t"+away, doctor...)
	c.want("2 partitions led by the replica that they prefer again", "cluster", "balance", "--leaders", "--yes")
	// The broker that is asked may hear a moment later of what was decided.
	out := ""
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out, "leaders are even: broker 1 has 2") && time.Now().Before(end); {
		out, _ = c.run(0, doctor...)
	}
	if !strings.Contains(out, "ok\tleaders\tleaders are even: broker 1 has 2, broker 2 has 2, broker 3 has 2") {
		t.Errorf("with the leaders back:\n%s", out)
	}
}
