package quorum_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// goOnAlone makes what is left of a node's disk decide alone.
func (c *cluster) goOnAlone(id kafka.BrokerID, machine quorum.Machine) {
	c.t.Helper()
	if err := quorum.GoOnAlone(quorum.Options{FS: c.disks[id], Dir: "quorum", NodeID: id, Machine: machine}); err != nil {
		c.t.Fatal(err)
	}
}

// Two of three voters are lost with their disks. The third goes on alone with what it has,
// and all others follow it then: a learner that knew more, new nodes in the place of those
// that are lost, and one of the lost that comes back with what it had.
func TestOneVoterIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		lead, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "a", "b")
		c.join(3)
		left, lost := (lead+1)%3, (lead+2)%3
		c.setCut(left, true) // It does not hear of what comes now.
		mustAdd(t, n, "undone", "undone too")
		advance(100 * time.Millisecond)
		if got := c.machines[3].entries(); !slices.Equal(got, []string{"a", "b", "undone", "undone too"}) {
			t.Fatalf("the learner has %q", got)
		}
		for id := range kafka.BrokerID(4) {
			c.halt(id)
		}
		c.setCut(left, false)

		m := &list{}
		remains, err := quorum.Survey(c.disks[left], "quorum", m)
		if err != nil || remains.NodeID != left || len(remains.Voters) != 3 || !slices.Equal(m.entries(), []string{"a", "b"}) {
			t.Fatalf("%+v with %q: %v", remains, m.entries(), err)
		}
		if more, err := quorum.Survey(c.disks[3], "quorum", &list{}); err != nil || more.LastIndex <= remains.LastIndex {
			t.Errorf("the learner has %+v, the voter that is left %+v: %v", more, remains, err)
		}
		old := c.disks[lead]
		c.goOnAlone(left, &list{})
		c.start(left)
		if id, _ := c.leader(); id != left {
			t.Fatalf("node %d leads", id)
		}
		alone := c.net.nodes[left]
		<-alone.Ready()
		if s := alone.Status(); !slices.Equal(s.Voters, []kafka.BrokerID{left}) || len(s.Learners) > 0 {
			t.Errorf("alone it is %+v", s)
		}
		mustAdd(t, alone, "after")
		c.start(3)
		c.disks[lost] = memfs.New()
		c.startNew(lost)
		c.disks[lead] = old // The other comes back all the same, alone.
		c.start(lead)
		want := []string{"a", "b", "after"}
		if diff := cmp.Diff(want, c.agree()); diff != "" {
			t.Errorf("all follow who is left (-want +got):\n%s", diff)
		}
		advance(5 * time.Second)
		if diff := cmp.Diff(want, c.agree()); diff != "" {
			t.Errorf("5 s later (-want +got):\n%s", diff)
		}
		if s := alone.Status(); !s.Active || len(s.Voters) != 1 || len(s.Learners) != 3 {
			t.Errorf("at the end: %+v", s)
		}
		for _, id := range []kafka.BrokerID{lost, 3} {
			member, _ := alone.Member(id)
			if err := alone.AddVoter(t.Context(), member); err != nil {
				t.Errorf("voter %d: %v", id, err)
			}
		}
		mustAdd(t, alone, "three voters")
		c.stop()
	})
}

// startNew starts a node that asks to be let in.
func (c *cluster) startNew(id kafka.BrokerID) {
	change := c.change
	c.change = func(o *quorum.Options) {
		o.Directory, o.Voters = [16]byte{byte(id) + 1, 1}, []kafka.BrokerID{9}
	}
	c.start(id)
	c.change = change
}

// A power failure at any moment leaves the directory as it was or done, and then it can be
// done again.
func TestGoingOnAloneSurvivesACrash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		lead, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "a", "b")
		c.agree()
		for id := range kafka.BrokerID(3) {
			c.halt(id)
		}
		before := c.disks[lead]
		for seed := range uint64(20) {
			disk := before.CrashClone(seed, 100)
			c.disks[lead] = disk
			c.goOnAlone(lead, &list{})
			c.disks[lead] = disk.CrashClone(seed, 0)
			m := &list{}
			if r, err := quorum.Survey(c.disks[lead], "quorum", m); err != nil || len(r.Voters) != 1 {
				t.Fatalf("seed %d: %+v, %v", seed, r, err)
			}
			c.start(lead)
			<-c.net.nodes[lead].Ready()
			if got := c.machines[lead].entries(); !slices.Equal(got, []string{"a", "b"}) {
				t.Fatalf("seed %d: %q", seed, got)
			}
			c.halt(lead)
		}
		if err := quorum.GoOnAlone(quorum.Options{FS: memfs.New(), Dir: "quorum", Machine: &list{}}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with nothing left: %v", err)
		}
		c.stop()
	})
}
