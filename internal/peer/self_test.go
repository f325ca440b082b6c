package peer_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A node finds out that another process is where the others look for it; not by itself
// being there, nor by nobody.
func TestWhoIsAtMyAddress(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("x")
		c.agree()
		for _, n := range c.running() {
			if err := n.raft.CheckSelf(c.t.Context()); err != nil {
				t.Errorf("node %d itself: %v", n.id, err)
			}
		}
		follower := (c.active().id + 1) % 3
		itself, own := c.nodes[follower], c.disks[follower]
		c.disks[follower] = own.CrashClone(1, 100)
		c.listenAt = ipOf(follower) + ":9193"
		twin := c.startAt(follower, addressOf(follower))
		c.listenAt = ""
		c.nodes[follower] = itself
		for range 3 {
			if err := twin.raft.CheckSelf(c.t.Context()); err == nil {
				t.Error("the copy takes its node's address for its own")
			}
			if err := itself.raft.CheckSelf(c.t.Context()); err != nil {
				t.Errorf("beside its copy: %v", err)
			}
			advance(time.Second)
		}
		c.end(follower)
		if err := twin.raft.CheckSelf(c.t.Context()); err != nil {
			t.Errorf("nobody is there: %v", err)
		}
		c.nodes[follower], c.disks[follower] = twin, own
	})
}

// A node that others look for where another one is says so in its log, and goes on.
func TestAnotherIsAtMyAddress(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("x")
		c.agree()
		moved, there := (c.active().id+1)%3, (c.active().id+2)%3
		c.end(moved)
		var log bytes.Buffer
		c.log, c.listenAt = slog.New(slog.NewTextHandler(&log, nil)), ipOf(there)+":9193"
		n := c.startAt(moved, addressOf(there))
		for range 2 {
			if err := n.raft.CheckSelf(c.t.Context()); err != nil {
				t.Error(err)
			}
		}
		c.end(moved)
		if count := strings.Count(log.String(), "another broker answers where this one says that it is"); count != 1 {
			t.Errorf("said %d times\n%s", count, &log)
		}
		c.log, c.listenAt = nil, ""
		c.start(moved)
		c.agree()
	})
}
