package quorum_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// Who has the id and the directory of a node that is there is a copy of it, and counts for
// nothing. One that is started again at its address is let in at once, and one that moved
// when the old is silent.
func TestACopyIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		id, n := c.leader()
		<-n.Ready()
		c.join(3)
		advance(time.Second)
		for _, other := range []kafka.BrokerID{(id + 1) % 3, 3} {
			known, _ := n.Member(other)
			copied := known
			copied.Address = "elsewhere"
			var twin *quorum.TwinError
			m := &raftpb.Message{
				Type: new(raftpb.MsgAppResp), From: new(uint64(other) + 1), To: new(uint64(id) + 1), Term: new(n.Status().Term),
				Index: new(n.Status().LastIndex),
			}
			for range 20 {
				if err := n.Receive(t.Context(), copied, m); !errors.As(err, &twin) || twin.There != known.Address {
					t.Fatalf("the copy of node %d is heard: %v", other, err)
				}
				if err := n.Greeted(t.Context(), copied, false); !errors.As(err, &twin) {
					t.Fatalf("the copy of node %d is greeted: %v", other, err)
				}
				advance(150 * time.Millisecond)
			}
			if m, _ := n.Member(other); m != known {
				t.Errorf("node %d is taken for %+v", other, m)
			}
			if err := n.Receive(t.Context(), known, m); err != nil {
				t.Errorf("node %d itself: %v", other, err)
			}
			c.setCut(other, true)
			advance(time.Second)
			if err := n.Greeted(t.Context(), copied, false); err != nil {
				t.Errorf("node %d has moved: %v", other, err)
			}
			advance(100 * time.Millisecond)
			if m, _ := n.Member(other); m != copied {
				t.Errorf("node %d has moved, and is looked for at %+v", other, m)
			}
		}
		// One that heard of the copy alone prefers the node that the quorum knows.
		first, _ := n.Member(id)
		away := first
		away.Address = "elsewhere"
		third := c.net.nodes[(id+2)%3]
		c.setCut(id, true)
		advance(2 * time.Second)
		for _, step := range []struct {
			from quorum.Member
			ok   bool
		}{{away, true}, {first, true}, {away, false}, {first, true}} {
			if err := third.Greeted(t.Context(), step.from, false); (err == nil) != step.ok {
				t.Errorf("%+v after its copy: %v", step.from, err)
			}
		}
		c.stop()
	})
}

// A learner that is started at another address says so, since it asks nobody for votes.
func TestALearnerThatMoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		_, n := c.leader()
		<-n.Ready()
		c.join(3)
		c.kill(3, 1)
		mustAdd(t, n, "meanwhile")
		advance(2 * time.Second)
		change := c.change
		c.change = func(o *quorum.Options) {
			change(o)
			o.Address = "elsewhere"
		}
		c.start(3)
		advance(2 * time.Second)
		if m, _ := n.Member(3); m.Address != "elsewhere" || !slices.Contains(n.Status().Learners, 3) {
			t.Errorf("it is looked for at %+v", m)
		}
		c.stop()
	})
}
