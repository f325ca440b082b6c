package strandlinetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// patience is how long a cluster may take for what a test waits for.
const patience = 30 * time.Second

// Leader returns the node that leads a partition, as the best informed of the nodes
// that run knows it; 0 if none does, or there is no such partition.
func (c *Cluster) Leader(topic string, partition int32) int {
	if p, ok := c.partition(topic, partition); ok && p.Leader != kafka.NoBroker {
		return int(p.Leader)
	}
	return 0
}

// InSync returns the nodes that are in sync with a partition's leader: its ISR, in the
// order of their ids.
func (c *Cluster) InSync(topic string, partition int32) []int {
	p, _ := c.partition(topic, partition)
	ids := make([]int, len(p.ISR))
	for i, id := range p.ISR {
		ids[i] = int(id)
	}
	slices.Sort(ids)
	return ids
}

// Controller returns the node that is the active controller, as most of the nodes that
// run know it; 0 if they know of none.
func (c *Cluster) Controller() int {
	votes := map[int]int{}
	best := 0
	for _, n := range c.nodes {
		r := n.running()
		if r == nil {
			continue
		}
		if id, ok := r.broker.ActiveController(); ok {
			votes[int(id)]++
			if votes[int(id)] > votes[best] {
				best = int(id)
			}
		}
	}
	return best
}

// partition returns the newest state of a partition that a running node knows.
func (c *Cluster) partition(topic string, partition int32) (newest metadata.Partition, ok bool) {
	for _, image := range c.images() {
		t := image.Topic(topic)
		if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
			continue
		}
		if p := t.Partitions[partition]; !ok || p.PartitionEpoch > newest.PartitionEpoch {
			newest, ok = p, true
		}
	}
	return newest, ok
}

func (c *Cluster) images() (images []*metadata.Image) {
	for _, n := range c.nodes {
		if r := n.running(); r != nil {
			images = append(images, r.broker.Image())
		}
	}
	return images
}

// MoveLeader has a node lead a partition of which it has a replica, and returns when
// all nodes that run know. It waits for the replica to be in sync. The node is the
// preferred leader from now on.
func (c *Cluster) MoveLeader(topic string, partition int32, to int) {
	c.t.Helper()
	n := c.node(to)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var err error
	moved := func() bool {
		r := n.running()
		if r == nil {
			err = fmt.Errorf("node %d does not run", to)
			return true
		}
		err = r.broker.MoveLeader(ctx, topic, partition, kafka.BrokerID(to))
		return err == nil
	}
	if !c.await(moved) || err != nil {
		c.t.Fatalf("leader of %s-%d: %v", topic, partition, err)
	}
	known := func() bool {
		for _, image := range c.images() {
			t := image.Topic(topic)
			if t == nil || t.Partitions[partition].Leader != kafka.BrokerID(to) {
				return false
			}
		}
		return true
	}
	if !c.await(known) {
		c.t.Fatalf("not all nodes know within %v that node %d leads %s-%d", patience, to, topic, partition)
	}
}

// AwaitInSync waits until every partition has a leader with all of its replicas in
// sync, as after a fault that is over.
func (c *Cluster) AwaitInSync() {
	c.t.Helper()
	missing := ""
	healed := func() bool {
		missing = ""
		for _, image := range c.images() {
			for t := range image.AllTopics() {
				for i := range t.Partitions {
					p, _ := c.partition(t.Name, int32(i))
					if p.Leader == kafka.NoBroker || len(p.ISR) < len(p.Replicas) {
						missing = fmt.Sprintf("%s-%d: leader %d, replicas %v, in sync %v", t.Name, i, p.Leader, p.Replicas, p.ISR)
						return false
					}
				}
			}
		}
		return true
	}
	if !c.await(healed) {
		c.t.Fatalf("not in sync within %v: %s", patience, missing)
	}
}

// await waits until something is so, and reports whether it became so in time.
func (c *Cluster) await(so func() bool) bool {
	const look = 2 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !so() {
		select {
		case <-ticker.C:
		case <-end.C:
			return false
		}
	}
	return true
}
