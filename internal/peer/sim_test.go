package peer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/peer"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/test/seeds"
)

// smallLog makes snapshots and segments frequent.
func smallLog(o *quorum.Options) { o.SnapshotEntries, o.TrailingEntries, o.SegmentBytes = 20, 5, 8<<10 }

func TestThreeVotersElectAtOnce(t *testing.T) {
	start := time.Time{}
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		start = time.Now()
		for id := range kafka.BrokerID(3) {
			c.start(id)
		}
		n := c.active()
		if d := time.Since(start); d > 300*time.Millisecond {
			t.Errorf("a leader after %s", d)
		}
		c.mustAdd("a", "b")
		c.agree()
		for _, other := range c.running() {
			<-other.Ready()
			var not *quorum.NotLeaderError
			if err := other.add("x"); other != n && (!errors.As(err, &not) || not.Leader != n.id) {
				t.Errorf("node %d: %v, want leader %d named", other.id, err, n.id)
			}
		}
		c.stopAll()
	})
}

// Who founds a quorum waits for all voters, so that two that lost their disks do not
// found another beside the third.
func TestFoundingNeedsAllVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start(0)
		c.start(1)
		advance(10 * time.Second)
		for _, n := range c.running() {
			if s := n.Status(); s.Leader != kafka.NoBroker || s.LastIndex > 1 {
				t.Errorf("two of three founded: %+v", s)
			}
		}
		c.start(2)
		c.mustAdd("all there")
		c.agree()
		c.stopAll()
	})
}

func TestWipedMajorityFoundsNothing(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("kept")
		c.agree()
		for id := range kafka.BrokerID(2) {
			c.kill(id)
			c.replaceDisk(id)
		}
		wiped := []*node{c.start(0), c.start(1)}
		advance(20 * time.Second)
		for _, n := range wiped {
			if s := n.Status(); s.Leader != kafka.NoBroker || s.LastIndex > 1 {
				c.t.Errorf("node %d, wiped: %+v", n.id, s)
			}
		}
	})
}

// The process of the leader dies: no timeout is waited for.
func TestLeaderKilled(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("before")
		for range 10 {
			c.agree()
			old := c.active()
			start := time.Now()
			c.kill(old.id)
			c.active()
			if d := time.Since(start); d > 150*time.Millisecond {
				c.t.Errorf("a leader after %s", d)
			}
			c.mustAdd("after")
			c.start(old.id)
		}
		c.agree()
	})
}

// The leader is cut off: it is missed after a while, steps down, and comes back.
func TestLeaderCutOff(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("before")
		c.agree()
		old := c.active()
		c.cut(old.id, true)
		lost := make(chan error, 1)
		go func() { lost <- old.add("lost") }()
		start := time.Now()
		c.active(old.id)
		if d := time.Since(start); d > 2500*time.Millisecond {
			c.t.Errorf("a leader after %s", d)
		}
		var not *quorum.NotLeaderError
		if err := <-lost; !errors.As(err, &not) || !not.Proposed {
			c.t.Errorf("the entry on its way: %v", err)
		}
		c.mustAdd("after")
		c.cut(old.id, false)
		c.agree()
	})
}

// A follower that hears the leader and can't be heard, or the other way round,
// disturbs nobody; a leader that can't be heard is replaced.
func TestOneWayCuts(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("before")
		c.agree()
		leader := c.active()
		term := leader.Status().Term
		follower := (leader.id + 1) % 3
		others := []kafka.BrokerID{leader.id, (leader.id + 2) % 3}
		for _, outward := range []bool{true, false} {
			set := func(deaf bool) {
				for _, other := range others {
					if outward {
						c.setDeaf(follower, other, deaf)
					} else {
						c.setDeaf(other, follower, deaf)
					}
				}
			}
			set(true)
			for i := range 20 {
				c.mustAdd(fmt.Sprint(i))
				advance(500 * time.Millisecond)
			}
			set(false)
			c.agree()
		}
		if s := leader.Status(); !s.Active || s.Term != term {
			c.t.Errorf("the leader of term %d was disturbed: %+v", term, s)
		}
		for other := range kafka.BrokerID(3) {
			c.setDeaf(leader.id, other, true)
		}
		c.active(leader.id)
		for other := range kafka.BrokerID(3) {
			c.setDeaf(leader.id, other, false)
		}
		c.mustAdd("after")
		c.agree()
	})
}

// A connection that breaks while the process lives costs no leader.
func TestFalseAlarm(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("before")
		c.agree()
		leader := c.active()
		term := leader.Status().Term
		for range 20 {
			for other := range kafka.BrokerID(3) {
				c.memory.Reset(ipOf(leader.id), ipOf(other))
			}
			advance(300 * time.Millisecond)
			c.mustAdd("still")
		}
		if s := leader.Status(); !s.Active || s.Term != term {
			c.t.Errorf("the leader of term %d was disturbed: %+v", term, s)
		}
	})
}

func TestResignHandsOver(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		for range 5 {
			c.mustAdd("x")
			c.agree()
			old := c.active()
			start := time.Now()
			if err := old.Resign(c.t.Context()); err != nil {
				c.t.Fatal(err)
			}
			if c.active(old.id); time.Since(start) > 20*time.Millisecond {
				c.t.Errorf("a leader after %s", time.Since(start))
			}
		}
		last := c.active()
		for _, n := range c.running() {
			if n != last {
				c.kill(n.id)
			}
		}
		advance(700 * time.Millisecond) // Until nobody passes for being there.
		if err := last.Resign(c.t.Context()); last.Status().Active && err == nil {
			c.t.Error("handed over to nobody")
		}
	})
	simulate(t, 1, nil, func(c *cluster) {
		c.mustAdd("x")
		if err := c.active().Resign(c.t.Context()); err != nil {
			c.t.Errorf("the only voter: %v", err)
		}
	})
}

func TestFollowerFarBehindGetsSnapshot(t *testing.T) {
	simulate(t, 3, smallLog, func(c *cluster) {
		c.mustAdd("a")
		c.agree()
		leader := c.active()
		behind := (leader.id + 1) % 3
		c.losePower(behind, 1)
		for i := range 100 {
			c.mustAdd(fmt.Sprint(i))
			advance(50 * time.Millisecond) // Until what was queued for it is dropped.
		}
		back := c.start(behind)
		c.agree()
		if back.machine.restores() == 0 {
			c.t.Error("no snapshot was sent")
		}
		for id := range kafka.BrokerID(3) {
			if m, ok := back.Member(id); !ok || m.Address != addressOf(id) || m.Directory != c.dirs[id] {
				c.t.Errorf("after the snapshot node %d is known as %+v", id, m)
			}
		}
		c.mustAdd("on")
		c.agree()
		c.kill(behind)
		c.start(behind)
		c.agree()
	})
}

// Random faults under load, from a seed: nothing acknowledged is lost, all apply the
// same, no term has two leaders.
func TestRandomFaults(t *testing.T) {
	for seed := range seeds.Of(t, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			count := 3 + int(seed%2)*2
			simulate(t, count, smallLog, func(c *cluster) { c.torment(count, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// load adds entries and returns those that were acknowledged.
func (c *cluster) load(round int) (acked []string) {
	for i := range 5 {
		entry := fmt.Sprintf("%d/%d", round, i)
		for _, n := range c.running() {
			if n.Status().Active && n.add(entry) == nil {
				acked = append(acked, entry)
				break
			}
		}
	}
	return acked
}

func (c *cluster) torment(count int, random *rand.Rand) {
	var acked []string
	for round := range 25 {
		acked = append(acked, c.load(round)...)
		id, other := kafka.BrokerID(random.IntN(count)), kafka.BrokerID(random.IntN(count))
		pause := time.Duration(random.IntN(3000)) * time.Millisecond
		switch random.IntN(5) {
		case 0:
			c.kill(id)
			advance(pause)
			c.start(id)
		case 1:
			c.losePower(id, random.Uint64())
			advance(pause)
			c.start(id)
		case 2:
			c.cut(id, true)
			advance(pause)
			c.cut(id, false)
		case 3:
			c.setDeaf(id, other, true)
			advance(pause)
			c.setDeaf(id, other, false)
		case 4:
			c.memory.Reset(ipOf(id), ipOf(other))
		}
		advance(time.Duration(random.IntN(500)) * time.Millisecond)
	}
	c.eventually("no entry is taken", func() bool { return c.active().add("the end") == nil })
	c.agree()
	c.holds(append(acked, "the end"))
	if len(acked) < 50 {
		c.t.Errorf("only %d entries were acknowledged", len(acked))
	}
}

// Voters come and go under load while nodes die and learners lose their disks.
func TestRandomChangesOfVoters(t *testing.T) {
	for seed := range seeds.Of(t, 6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulate(t, 3, smallLog, func(c *cluster) { c.churn(rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func (c *cluster) churn(random *rand.Rand) {
	const count = 5
	c.start(3)
	c.start(4)
	var acked []string
	changes := 0
	for round := range 40 {
		acked = append(acked, c.load(round)...)
		id := kafka.BrokerID(random.IntN(count))
		leader := c.active()
		voters := leader.Status().Voters
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		var err error
		switch op := random.IntN(5); {
		case op == 0 && len(voters) > 2:
			err = leader.RemoveVoter(ctx, id, [16]byte{})
		case op <= 1:
			err = leader.AddVoter(ctx, quorum.Member{ID: id, Directory: c.dirs[id], Address: addressOf(id)})
		case op == 2:
			c.kill(id)
			advance(time.Duration(random.IntN(2000)) * time.Millisecond)
			c.start(id)
		case op == 3:
			c.losePower(id, random.Uint64())
			c.start(id)
		case id >= 3 && !slices.Contains(voters, id):
			c.kill(id)
			c.replaceDisk(id)
			c.start(id)
		}
		cancel()
		if err == nil && !slices.Equal(c.active().Status().Voters, voters) {
			changes++
		}
		advance(time.Duration(random.IntN(500)) * time.Millisecond)
	}
	c.eventually("no entry is taken", func() bool { return c.active().add("the end") == nil })
	c.agree()
	c.holds(append(acked, "the end"))
	if len(acked) < 100 || changes < 3 {
		c.t.Errorf("only %d entries and %d changes were made", len(acked), changes)
	}
}

// A voter whose disk was replaced counts for nothing, until it was removed, has
// joined as a learner, and is made a voter again.
func TestWipedVoter(t *testing.T) {
	simulate(t, 3, smallLog, func(c *cluster) {
		for i := range 50 {
			c.mustAdd(fmt.Sprint(i))
		}
		c.agree()
		leader := c.active()
		wiped, third := (leader.id+1)%3, (leader.id+2)%3
		old := c.dirs[wiped]
		c.kill(wiped)
		c.replaceDisk(wiped)
		back := c.start(wiped)
		advance(5 * time.Second)
		c.kill(third)
		// The wiped one and the leader are no majority.
		if err := leader.add("not yet"); err == nil {
			c.t.Error("an entry was committed with the help of a wiped voter")
		}
		if s := back.Status(); s.AppliedIndex > 1 {
			c.t.Errorf("the wiped voter was given the log: %+v", s)
		}
		c.start(third)
		leader = c.active()
		var problem *quorum.MemberError
		err := leader.RemoveVoter(c.t.Context(), wiped, c.dirs[wiped])
		if !errors.As(err, &problem) || problem.Problem != quorum.OtherDirectory {
			c.t.Errorf("removal by the new directory: %v", err)
		}
		if err := leader.RemoveVoter(c.t.Context(), wiped, old); err != nil {
			c.t.Fatal(err)
		}
		c.eventually("the wiped node does not join", func() bool {
			return back.Status().AppliedIndex == leader.Status().AppliedIndex
		})
		self := quorum.Member{ID: wiped, Directory: c.dirs[wiped], Address: addressOf(wiped)}
		if err := leader.AddVoter(c.t.Context(), self); err != nil {
			c.t.Fatal(err)
		}
		c.kill(third)
		c.mustAdd("with the help of the new one")
		c.start(third)
		c.agree()
	})
}

// A node that is no voter joins by itself, follows, and can become a voter.
func TestLearnerJoins(t *testing.T) {
	simulate(t, 3, smallLog, func(c *cluster) {
		for i := range 50 {
			c.mustAdd(fmt.Sprint(i))
		}
		c.start(3)
		c.agree()
		leader := c.active()
		d, err := leader.Describe(c.t.Context())
		if err != nil || len(d.Voters) != 3 || len(d.Learners) != 1 {
			c.t.Fatalf("described as %+v, %v", d, err)
		}
		if l := d.Learners[0]; l.ID != 3 || l.Address != addressOf(3) || l.Directory != c.dirs[3] ||
			l.Match != d.LastIndex || l.LastContact.IsZero() || l.LastCaughtUp.IsZero() {
			c.t.Errorf("the learner is described as %+v", l)
		}
		c.losePower(3, 1)
		c.mustAdd("without it")
		c.start(3)
		c.agree()
		c.kill(3)
		c.replaceDisk(3)
		c.start(3)
		c.mustAdd("to the new disk")
		c.agree()
		self := quorum.Member{ID: 3, Directory: c.dirs[3], Address: addressOf(3)}
		if err := leader.AddVoter(c.t.Context(), self); err != nil {
			c.t.Fatal(err)
		}
		if err := leader.RemoveVoter(c.t.Context(), leader.id, [16]byte{}); err != nil {
			c.t.Fatal(err)
		}
		next := c.active(leader.id)
		c.mustAdd("under another")
		c.eventually("who was removed does not follow", func() bool {
			return leader.Status().AppliedIndex == next.Status().AppliedIndex
		})
		if s := next.Status(); len(s.Voters) != 3 || len(s.Learners) != 1 || s.Learners[0] != leader.id {
			c.t.Errorf("members at the end: %+v", s)
		}
		if err := next.RemoveVoter(c.t.Context(), 9, [16]byte{}); err == nil {
			c.t.Error("a stranger was removed")
		}
	})
}

// A lone voter grows to three without losing anything.
func TestLoneVoterGrows(t *testing.T) {
	simulate(t, 1, smallLog, func(c *cluster) {
		for i := range 50 {
			c.mustAdd(fmt.Sprint(i))
		}
		for id := kafka.BrokerID(1); id < 3; id++ {
			c.start(id)
			c.agree()
			self := quorum.Member{ID: id, Directory: c.dirs[id], Address: addressOf(id)}
			if err := c.active().AddVoter(c.t.Context(), self); err != nil {
				c.t.Fatal(err)
			}
		}
		c.mustAdd("three")
		c.agree()
		c.kill(c.active().id)
		c.mustAdd("two of three")
	})
}

// Another cluster's node is refused, and so is what is meant for another node.
func TestStrangersAreRefused(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("x")
		c.agree()
		leader := c.active()
		c.clusterIDs[3] = "another"
		stranger := c.start(3)
		advance(5 * time.Second)
		if s := stranger.Status(); s.LastIndex != 0 {
			c.t.Errorf("the stranger was given the log: %+v", s)
		}
		if s := leader.Status(); !s.Active || len(s.Learners) > 0 {
			c.t.Errorf("the stranger was taken: %+v", s)
		}
		if err := leader.raft.Receive(c.t.Context(), []byte("garbage")); err == nil {
			c.t.Error("garbage was taken")
		}
		c.end(3)
		// The address of a voter now belongs to another node.
		follower := (leader.id + 1) % 3
		c.kill(follower)
		moved := c.startAt(4, addressOf(follower))
		advance(5 * time.Second)
		if s := leader.Status(); !s.Active || len(s.Learners) != 1 || s.Learners[0] != moved.id {
			c.t.Errorf("beside the learner: %+v", s)
		}
		var refused *peer.RefusedError
		m := &raftpb.Message{From: new(uint64(1)), To: new(uint64(2)), Type: new(raftpb.MsgHeartbeat)}
		if err := moved.Receive(c.t.Context(), quorum.Member{ID: 0}, m); err == nil || errors.As(err, &refused) {
			c.t.Errorf("a message for another node: %v", err)
		}
	})
}

// A copy of a node's disk is started beside it, of the leader, a follower and a learner: it
// is told so, gets nothing, and the node goes on as if it were not there.
func TestCopiesAreRefused(t *testing.T) {
	simulate(t, 3, nil, func(c *cluster) {
		c.mustAdd("x")
		c.start(3)
		c.agree()
		leader := c.active()
		for _, id := range []kafka.BrokerID{leader.id, (leader.id + 1) % 3, 3} {
			own := c.disks[id]
			itself, term := c.nodes[id], leader.Status().Term
			c.disks[id] = own.CrashClone(1, 100)
			twin := c.startAt(id, ipOf(id)+":9193")
			c.nodes[id] = itself
			advance(5 * time.Second)
			c.mustAdd(fmt.Sprint("beside the copy of ", id))
			c.agree()
			if s := leader.Status(); !s.Active || s.Term != term {
				t.Errorf("with a copy of node %d there was an election: %+v", id, s)
			}
			if s := twin.Status(); s.Leader != kafka.NoBroker || s.LastIndex >= leader.Status().LastIndex || twin.twins.Load() < 3 {
				t.Errorf("the copy of node %d was told %d times, and has %+v", id, twin.twins.Load(), s)
			}
			for _, n := range c.running() {
				if a, _ := n.raft.Address(id); n.id != id && a != addressOf(id) || n.twins.Load() > 0 {
					t.Errorf("node %d looks for node %d at %s, and was told of %d twins", n.id, id, a, n.twins.Load())
				}
			}
			c.nodes[id] = twin
			c.end(id)
			c.nodes[id], c.disks[id] = itself, own
		}
		// The next leader finds them where they are.
		c.kill(leader.id)
		c.mustAdd("under another")
		c.agree()
	})
}
