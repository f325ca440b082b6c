package chaos_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// startClusterLoad starts three brokers and a load on them: three replicas, two of
// which must have a record.
func startClusterLoad(t *testing.T, topic string) (*harness.Cluster, *load) {
	t.Helper()
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3)
	two := "2"
	return c, startLoadOn(t, c.Addrs(), topic, 6, 2, map[string]*string{"min.insync.replicas": &two})
}

// TestClusterKill9 kills each broker of three in turn, the active controller
// included, under load.
func TestClusterKill9(t *testing.T) {
	c, l := startClusterLoad(t, "kill")
	l.awaitMore(1000)
	l.takeGap()
	n := rounds(t, 9)
	var gaps []time.Duration
	for i := range n {
		b := c.Brokers[i%3]
		b.Kill()
		l.awaitMore(2000)
		gaps = append(gaps, l.takeGap())
		b.Restart()
		l.awaitMore(2000)
		l.takeGap()
	}
	l.end()
	checked := l.verify()
	slices.Sort(gaps)
	t.Logf("%d kills, %d acknowledged records checked; longest time without an acknowledgement: median %v, most %v",
		n, checked, gaps[len(gaps)/2], gaps[len(gaps)-1])
	if gaps[len(gaps)/2] > 5*time.Second {
		t.Errorf("half of the kills stopped a partition for more than %v", gaps[len(gaps)/2])
	}
}

// TestClusterPause stops brokers with SIGSTOP for longer than their sessions last,
// and lets them go on: what they then believe is of an old leader epoch.
func TestClusterPause(t *testing.T) {
	c, l := startClusterLoad(t, "pause")
	l.awaitMore(1000)
	l.takeGap()
	n := rounds(t, 3)
	for i := range n {
		pid := c.Brokers[i%3].Pid()
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		l.awaitMore(2000)
		gap := l.takeGap()
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		l.awaitMore(2000)
		t.Logf("pause %d: no acknowledgement for %v", i, gap)
	}
	l.end()
	t.Logf("%d pauses, %d acknowledged records checked", n, l.verify())
}

// TestClusterStops stops brokers cleanly, one after the other and then all at once,
// and starts them again.
func TestClusterStops(t *testing.T) {
	c, l := startClusterLoad(t, "stop")
	l.awaitMore(1000)
	for _, b := range c.Brokers {
		l.takeGap()
		b.Stop()
		l.awaitMore(500)
		t.Logf("clean stop: no acknowledgement for %v", l.takeGap())
		b.Restart()
		l.awaitMore(1000)
	}
	for _, b := range c.Brokers {
		b.Kill()
	}
	for _, b := range c.Brokers {
		b.Restart()
	}
	l.awaitMore(1000)
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
}
