package chaos_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// TestGrow grows a single broker to three under load, with the command line alone, and
// then loses the first one for good: it is drained, taken out of the voters and
// forgotten, while the load goes on.
func TestGrow(t *testing.T) {
	binary, dir := harness.Binary(t), t.TempDir()
	first := harness.Start(t, binary, filepath.Join(dir, "1"))
	l := startLoad(t, first.Addr, "grow", 4, 2)
	l.awaitMore(1000)
	command := func(b *harness.Broker, args ...string) {
		t.Helper()
		began := time.Now()
		out := harness.Run(t, time.Minute, dir, binary, append(args, "--brokers", b.Addr)...)
		t.Logf("strandline %v: %v\n%s", args, time.Since(began).Round(time.Millisecond), out)
	}
	first.Stop()
	address := harness.FreeAddr(t)
	first.RestartWith("--cluster-listen", address)
	join := func(id string) *harness.Broker {
		return harness.Start(t, binary, filepath.Join(dir, id), "--node-id", id, "--cluster-listen", harness.FreeAddr(t),
			"--voters", "1@"+address)
	}
	second, third := join("2"), join("3")
	command(first, "cluster", "add", "2", "3", "--replication-factor", "3", "--yes")
	l.awaitMore(1000)
	l.takeGap()
	first.Kill()
	l.awaitMore(1000)
	t.Logf("the first broker killed: no acknowledgement for %v", l.takeGap())
	command(second, "cluster", "drain", "1", "--fewer", "--yes")
	command(second, "cluster", "remove-voter", "1", "--yes")
	command(second, "cluster", "unregister", "1", "--yes")
	command(third, "cluster", "describe")
	l.awaitMore(1000)
	l.addrs = []string{second.Addr, third.Addr}
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
}
