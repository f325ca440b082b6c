package peer_test

import (
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
