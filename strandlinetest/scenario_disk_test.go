package strandlinetest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/strandlinetest"
)

// Scenarios by their numbers are listed in test/scenarios.md.

// others returns the two nodes of three that are not this one.
func others(id int) (int, int) { return 1 + id%3, 1 + (id+1)%3 }

// Scenario 1, and 43: power is lost while syncs take long, so that much is written and
// not synced. What was acknowledged is on the disk.
func TestPowerLossDuringSyncs(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			c := strandlinetest.StartCluster(t, nodes)
			r := ride(t, c, "orders", 1)
			ids := []int{1, 2, 3}[:nodes]
			for range 6 {
				for _, id := range ids {
					c.SlowDisk(id, 100*time.Millisecond)
				}
				r.awaitMore(50)
				c.LosePower(ids...)
				c.Restart(ids...)
			}
			for _, id := range ids {
				c.FreeDisk(id)
			}
			r.awaitMore(50)
			r.check()
		})
	}
}

// Scenario 2: a broker loses what it had not synced while the others are paused by
// turns, so that a majority is made of the one that forgot and of the one that slept.
func TestForgetfulMajority(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 2)
	for victim := 1; victim <= 3; victim++ {
		asleep, awake := others(victim)
		c.Pause(asleep)
		r.awaitMore(200) // Which the sleeper does not have.
		c.LosePower(victim)
		c.Pause(awake)
		c.Resume(asleep)
		c.Restart(victim)
		c.Resume(awake)
		r.awaitMore(200)
		c.AwaitInSync()
	}
	r.check()
}

// Scenario 8: the leader's disk can't be read. Nothing short or wrong is served, and
// what was not read is when it can be.
func TestLeaderCannotRead(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 1)
	leader := c.Leader("orders", 0)
	var failed atomic.Int64
	c.Suffer(leader, func(o errorfs.Op) error {
		if o.Kind == errorfs.Read && strings.HasSuffix(o.Name, ".log") {
			failed.Add(1)
			return syscall.EIO
		}
		return nil
	})
	reader := watchFrom(t, c, r)
	c.Await("a read to fail", func() bool { return failed.Load() > 0 })
	c.FreeDisk(leader)
	r.awaitMore(100)
	reader()
	r.check()
}

// Scenario 9: the leader's disk is full: others lead, as long as it is. Then all disks are;
// then brokers are killed and start with full disks. Readers read on, producers wait, and
// go on once there is room.
func TestFullDisks(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 2)
	// The active controller's own decision that others are to lead needs room as well.
	for _, full := range []int{c.Leader("orders", 0), c.Controller()} {
		c.MoveLeader("orders", 0, full)
		began := time.Now()
		c.FillDisk(full)
		watchFrom(t, c, r)()
		c.Await("others lead than the one whose disk is full", func() bool {
			return !slices.Contains([]int{c.Leader("orders", 0), c.Leader("orders", 1)}, full)
		})
		r.awaitMore(200)
		t.Logf("others lead, and go on, within %v after the disk of a leader was full", time.Since(began))
		c.FreeDisk(full)
		c.AwaitInSync()
	}
	for id := 1; id <= 3; id++ {
		c.FillDisk(id)
	}
	watchFrom(t, c, r)()
	c.Kill(1, 2, 3)
	c.Restart(1, 2, 3)
	watchFrom(t, c, r)()
	for id := 1; id <= 3; id++ {
		c.FreeDisk(id)
	}
	r.awaitMore(200)
	r.check()
}

// Scenario 10: the leader's disk hangs, and its network does not. Others lead soon, and
// nothing is lost when the disk goes on.
func TestLeadersDiskHangs(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 1)
	leader := c.Leader("orders", 0)
	hangDisk(t, c, r, leader)
	r.check()
}

// hangDisk hangs the disk of the node that leads, and sees that another does soon.
func hangDisk(t *testing.T, c *strandlinetest.Cluster, r *rider, leader int) {
	t.Helper()
	began := time.Now()
	c.HangDisk(leader)
	r.awaitMore(100)
	took := time.Since(began)
	t.Logf("goes on after %v", took)
	if took > 3*time.Second {
		t.Errorf("nothing was acknowledged for %v", took)
	}
	if c.Leader(r.topic, 0) == leader {
		t.Errorf("node %d, whose disk hangs, leads still", leader)
	}
	c.FreeDisk(leader)
	r.awaitMore(100)
}

// Scenario 10, at the active controller: its own decision that others are to lead would
// have to be synced on the disk that hangs.
func TestControllersDiskHangs(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 1)
	controller := c.Controller()
	c.MoveLeader("orders", 0, controller)
	r.awaitMore(100)
	hangDisk(t, c, r, controller)
	if c.Controller() == controller {
		t.Errorf("node %d, whose disk hung, is the active controller still", controller)
	}
	c.AwaitInSync()
	r.check()
}

// Scenario 11: a follower's disk is slow. It leaves the ISR and stays out as long as
// that lasts, and the leader goes on without it.
func TestSlowFollower(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"))
	r := ride(t, c, "orders", 1)
	follower, _ := others(c.Leader("orders", 0))
	c.SlowDisk(follower, 2*time.Second)
	c.Await("the slow one leaves the ISR", func() bool { return len(c.InSync("orders", 0)) == 2 })
	before := c.PartitionEpoch("orders", 0)
	r.awaitMore(1000)
	if changes := c.PartitionEpoch("orders", 0) - before; changes > 2 {
		t.Errorf("the ISR changed %d times while the follower was slow", changes)
	}
	c.FreeDisk(follower)
	c.AwaitInSync()
	r.check()
}

// watchFrom reads the topic from its start, up to what was acknowledged by now, and
// returns a function that waits for that.
func watchFrom(t *testing.T, c *strandlinetest.Cluster, r *rider) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	want := r.history.AckedCount()
	r.readers++
	name := fmt.Sprint("reader ", r.readers)
	go func() { // Ends when all is read, or the test does.
		defer close(done)
		r.readSome(name, want)
	}()
	return func() {
		t.Helper()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("a consumer could not read %d acknowledged records within 30 s\n%s", want, c.Log())
		}
	}
}
