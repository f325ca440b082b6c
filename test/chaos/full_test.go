package chaos_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// fill leaves no byte free. The function that it returns makes room again.
func (d *loopDisk) fill() (free func()) {
	d.t.Helper()
	name := filepath.Join(d.dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	at := int64(0)
	for size := int64(64 << 20); size >= 4096; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, at, size); {
		case err == nil:
			at += size
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case !errors.Is(err, syscall.EINTR):
			d.t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			d.t.Error(err)
		}
	}
}

// fullGoal is how long a broker whose disk is full may stop a partition.
const fullGoal = 3 * time.Second

// TestClusterFullDisks fills the disk of the active controller, and of another broker, by
// turns. Others lead what it leads, as after any other failure.
func TestClusterFullDisks(t *testing.T) {
	c := startOnDisks(t)
	two := "2"
	l := startLoadOn(t, c.Addrs(), "full", 6, 2, map[string]*string{"min.insync.replicas": &two})
	l.slow(100 * time.Microsecond) // What is written meanwhile is read three times in the end.
	var gaps []time.Duration
	for i := range rounds(t, 2) {
		l.awaitMore(1000)
		node := controller(t, c.Addrs())
		if i%2 == 1 {
			node = 1 + node%3
		}
		l.takeGap()
		began := time.Now()
		free := c.disks[node-1].fill()
		l.awaitMore(100)
		for until := began.Add(8 * time.Second); time.Now().Before(until); {
			l.awaitEach(time.Now())
		}
		gap := l.takeGap()
		t.Logf("the disk of broker %d is full, active controller: %v: no acknowledgement for %v", node, i%2 == 0, gap)
		gaps = append(gaps, gap)
		free()
		awaitInSync(t.Context(), t, c.Addrs(), "full")
	}
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c.Cluster)
	judge(t, "a disk was full", gaps, fullGoal)
}
