package quorum_test

import (
	"testing"
	"time"
)

// A follower whose disk is put back to what it was, under the same leader, lacks what it has
// acknowledged. The two do not argue about it without a pause: time goes on.
func TestAFollowerPutBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		id, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "a")
		c.agree()
		follower := (id + 1) % 3
		old := c.disks[follower].CrashClone(1, 100)
		mustAdd(t, n, "b", "c")
		c.agree()
		c.kill(follower, 1)
		c.disks[follower] = old
		c.start(follower)
		advance(time.Second)
		mustAdd(t, n, "d")
		advance(5 * time.Second)
		if s := n.Status(); !s.Active {
			t.Errorf("the leader is %+v", s)
		}
		c.stop()
	})
}
