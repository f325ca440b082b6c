package strandlinetest

import (
	"context"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/kafka"
)

// Kill ends nodes as SIGKILL does, all at the same moment: nothing is flushed, nobody
// is told, connections break. What they had written is there after a Restart, and what
// of it was not synced is still at the mercy of LosePower.
func (c *Cluster) Kill(ids ...int) {
	c.t.Helper()
	c.kill(ids)
}

func (c *Cluster) kill(ids []int) {
	c.t.Helper()
	var runs []*run
	for _, id := range ids {
		if r := c.node(id).take(); r != nil {
			r.process.kill()
			runs = append(runs, r)
		}
	}
	var all sync.WaitGroup
	for _, r := range runs {
		all.Go(r.kill)
	}
	all.Wait()
}

// LosePower is Kill for nodes whose machines lose their power: what they had not
// synced is gone, or part of it, as chance has it. A node that was killed before, and
// not started since, may lose its power too. Disks have to be in memory.
func (c *Cluster) LosePower(ids ...int) {
	c.t.Helper()
	c.kill(ids)
	for _, id := range ids {
		c.losses++
		if !c.node(id).disk.losePower(c.losses) {
			c.t.Fatal("LosePower needs disks in memory: leave OnDisk out")
		}
	}
}

// Wipe is Kill for nodes whose disks are replaced by empty ones. As an operator has to,
// it takes them out of the quorum, where nothing that they knew counts any more;
// Restart gives them their votes back. A majority of all nodes has to go on running,
// and disks have to be in memory.
func (c *Cluster) Wipe(ids ...int) {
	c.t.Helper()
	c.kill(ids)
	for _, id := range ids {
		if !c.node(id).disk.wipe() {
			c.t.Fatal("Wipe needs disks in memory: leave OnDisk out")
		}
		c.voters("take a wiped node out of the quorum", func(ctx context.Context, b *broker.Broker) error {
			return b.RemoveVoter(ctx, kafka.BrokerID(id))
		})
		c.node(id).wiped = true
	}
}

// voters has the active controller change who votes.
func (c *Cluster) voters(what string, change func(context.Context, *broker.Broker) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var err error
	changed := func() bool {
		id := c.Controller()
		if id == 0 {
			return false
		}
		r := c.node(id).running()
		if r == nil {
			return false
		}
		err = change(ctx, r.broker)
		return err == nil
	}
	if !c.await(changed) {
		c.t.Fatalf("%s: %v\n%s", what, err, c.log)
	}
}

// Pause stops nodes as SIGSTOP does: they read, write and answer nothing, and what is
// sent to them waits in their connections. Their own clocks go on, other than those of
// a process that is stopped.
func (c *Cluster) Pause(ids ...int) {
	c.t.Helper()
	for _, id := range ids {
		if r := c.node(id).running(); r != nil {
			r.process.pause()
		}
	}
}

// Resume has paused nodes go on, as SIGCONT does, with what has come meanwhile.
func (c *Cluster) Resume(ids ...int) {
	c.t.Helper()
	for _, id := range ids {
		if r := c.node(id).running(); r != nil {
			r.process.resume()
		}
	}
}

// Cut cuts the link between two nodes: what they send each other vanishes. Clients
// still reach both.
func (c *Cluster) Cut(a, b int) {
	c.t.Helper()
	c.CutOneWay(a, b)
	c.CutOneWay(b, a)
}

// CutOneWay has what one node sends another vanish. What comes back arrives.
func (c *Cluster) CutOneWay(from, to int) {
	c.t.Helper()
	c.network.PartitionOneWay(hostOf(c.node(from).id), hostOf(c.node(to).id))
	c.cuts[[2]int{min(from, to), max(from, to)}] = true
}

// Isolate cuts the links of a node to all others. Clients still reach it.
func (c *Cluster) Isolate(id int) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.id != id {
			c.Cut(id, n.id)
		}
	}
}

// Heal undoes Cut, CutOneWay and Isolate, whatever is cut. Connections over what was cut
// break: nobody sends again what they lost.
func (c *Cluster) Heal() {
	for pair := range c.cuts {
		a, b := hostOf(pair[0]), hostOf(pair[1])
		c.network.Heal(a, b)
		c.network.Reset(a, b)
	}
	clear(c.cuts)
}

// FillDisk leaves no byte free on a node's disk, whether the node runs or not.
func (c *Cluster) FillDisk(id int) {
	c.t.Helper()
	c.node(id).disk.fill()
}

// HangDisk has a node's disk answer nothing from now on, as one whose controller has
// failed: the page cache still takes and gives, and a sync waits until FreeDisk or Kill. The
// network goes on.
func (c *Cluster) HangDisk(id int) {
	c.t.Helper()
	c.node(id).disk.hang()
}

// SlowDisk has every sync of a node's disk take longer.
func (c *Cluster) SlowDisk(id int, by time.Duration) {
	c.t.Helper()
	c.node(id).disk.slowDown(by)
}

// FreeDisk makes a node's disk a good one again, with room: it undoes FillDisk,
// HangDisk and SlowDisk.
func (c *Cluster) FreeDisk(id int) {
	c.t.Helper()
	c.node(id).disk.mend()
}
