package chaos_test

import (
	"path/filepath"
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
	c := startOnDisks(t)
	two := "2"
	l := startLoadOn(t, c.Addrs(), "power", 6, 2, map[string]*string{"min.insync.replicas": &two})
	n := rounds(t, 3)
	for i := range n {
		l.awaitMore(500 + 53*i%500)
		c.losePower(1, 2, 3)
		c.restart(1, 2, 3)
	}
	l.awaitMore(500)
	l.end()
	t.Logf("%d power losses of all brokers, %d acknowledged records checked", n, l.verify())
	c.Stop()
	l.compareReplicas(c.Cluster)
}

// TestClusterForgetfulMajority takes the power from one broker when another was stopped
// for a while, and stops the third: a majority is made of the one that forgot what it
// had not synced, and of the one that slept.
func TestClusterForgetfulMajority(t *testing.T) {
	c := startOnDisks(t)
	two := "2"
	l := startLoadOn(t, c.Addrs(), "forgetful", 6, 2, map[string]*string{"min.insync.replicas": &two})
	l.awaitMore(1000)
	n := rounds(t, 3)
	for i := range n {
		victim, asleep, awake := 1+i%3, 1+(i+1)%3, 1+(i+2)%3
		c.signal(asleep, syscall.SIGSTOP)
		l.awaitEach(time.Now())
		l.awaitMore(1000) // Which the sleeper does not have.
		c.losePower(victim)
		c.signal(awake, syscall.SIGSTOP)
		c.signal(asleep, syscall.SIGCONT)
		c.restart(victim)
		c.signal(awake, syscall.SIGCONT)
		l.awaitEach(time.Now())
		l.awaitMore(1000)
		awaitInSync(t.Context(), t, l.addrs, l.topic)
	}
	l.end()
	t.Logf("%d times, %d acknowledged records checked", n, l.verify())
	c.Stop()
	l.compareReplicas(c.Cluster)
}

// onDisks is a cluster whose brokers have a file system each.
type onDisks struct {
	*harness.Cluster
	t     *testing.T
	disks []*loopDisk
}

func startOnDisks(t *testing.T, args ...string) *onDisks {
	t.Helper()
	needLoopDisks(t)
	c := &onDisks{
		t: t, disks: []*loopDisk{newLoopDisk(t), newLoopDisk(t), newLoopDisk(t)},
		Cluster: harness.PrepareCluster(t, harness.Binary(t), t.TempDir(), 3, args...),
	}
	for i, b := range c.Brokers {
		b.DataDir = filepath.Join(c.disks[i].dir, "data")
		b.Restart()
	}
	return c
}

// losePower takes the power from brokers at the same moment. It is there again for
// restart.
func (c *onDisks) losePower(nodes ...int) {
	c.t.Helper()
	for _, node := range nodes {
		c.Brokers[node-1].Freeze()
	}
	for _, node := range nodes {
		d := c.disks[node-1]
		d.powerOff()
		c.Brokers[node-1].Kill()
		d.unmount()
		d.powerOn()
	}
}

func (c *onDisks) restart(nodes ...int) {
	c.t.Helper()
	for _, node := range nodes {
		c.Brokers[node-1].Restart()
	}
}

func (c *onDisks) signal(node int, s syscall.Signal) {
	c.t.Helper()
	if err := syscall.Kill(c.Brokers[node-1].Pid(), s); err != nil {
		c.t.Fatal(err)
	}
}
