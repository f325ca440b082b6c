package chaos_test

import (
	"path/filepath"
	"slices"
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
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c)
}

// TestClusterKillAll kills all brokers at the same moment, again and again.
func TestClusterKillAll(t *testing.T) {
	c, l := startClusterLoad(t, "killall")
	n := rounds(t, 3)
	for i := range n {
		l.awaitMore(500 + 71*i%500)
		l.takeGap()
		c.Freeze()
		for _, b := range c.Brokers {
			b.Kill()
		}
		for _, b := range c.Brokers {
			b.Restart()
		}
		l.awaitMore(500)
		t.Logf("round %d: no acknowledgement for %v", i, l.takeGap())
	}
	l.end()
	t.Logf("%d kills of all brokers, %d acknowledged records checked", n, l.verify())
	c.Stop()
	l.compareReplicas(c)
}

// TestClusterPowerLoss takes the power from all brokers at once, each of which has a
// file system of its own: nothing is left on any of them but what was synced.
func TestClusterPowerLoss(t *testing.T) {
	needLoopDisks(t)
	disks := []*loopDisk{newLoopDisk(t), newLoopDisk(t), newLoopDisk(t)}
	c := harness.PrepareCluster(t, harness.Binary(t), t.TempDir(), 3)
	for i, b := range c.Brokers {
		b.DataDir = filepath.Join(disks[i].dir, "data")
		b.Restart()
	}
	two := "2"
	l := startLoadOn(t, c.Addrs(), "power", 6, 2, map[string]*string{"min.insync.replicas": &two})
	n := rounds(t, 3)
	for i := range n {
		l.awaitMore(500 + 53*i%500)
		c.Freeze()
		for i, b := range c.Brokers {
			disks[i].powerOff()
			b.Kill()
			disks[i].unmount()
			disks[i].powerOn()
		}
		for _, b := range c.Brokers {
			b.Restart()
		}
	}
	l.awaitMore(500)
	l.end()
	t.Logf("%d power losses of all brokers, %d acknowledged records checked", n, l.verify())
	c.Stop()
	l.compareReplicas(c)
}
