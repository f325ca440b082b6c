package strandlinetest

import (
	"bytes"
	"io"
	"path"
	"strings"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
)

// Exchange has two nodes that do not run listen for the others where the other one did. What
// they were told of the voters stays as it is.
func (c *Cluster) Exchange(a, b int) {
	one, other := c.node(a), c.node(b)
	one.host, other.host = other.host, one.host
	one.config.ClusterListen, other.config.ClusterListen = other.config.ClusterListen, one.config.ClusterListen
}

// Suffer gives a node's disk a fault of the test's own, until FreeDisk.
func (c *Cluster) Suffer(id int, fault errorfs.Injector) { c.node(id).disk.suffer(fault) }

// Disk returns what is on a node's disk, past all faults.
func (c *Cluster) Disk(id int) vfs.FS {
	d := c.node(id).disk
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.memory
}

// Log returns all that the nodes have logged.
func (c *Cluster) Log() string { return c.log.String() }

// Epoch returns the leader epoch of a partition.
func (c *Cluster) Epoch(topic string, partition int32) int {
	p, _ := c.partition(topic, partition)
	return int(p.LeaderEpoch)
}

// PartitionEpoch returns how often a partition's state has changed.
func (c *Cluster) PartitionEpoch(topic string, partition int32) int {
	p, _ := c.partition(topic, partition)
	return int(p.PartitionEpoch)
}

// Partitions returns how many partitions a topic has.
func (c *Cluster) Partitions(topic string) int {
	for _, image := range c.images() {
		if t := image.Topic(topic); t != nil {
			return len(t.Partitions)
		}
	}
	return 0
}

// GroupPartition returns the partition of the offsets topic that a group is on.
func (c *Cluster) GroupPartition(group string, partitions int32) int32 {
	return coordinator.PartitionOf(group, partitions)
}

// Replicas returns the nodes that have a replica of a partition.
func (c *Cluster) Replicas(topic string, partition int32) (ids []int) {
	p, _ := c.partition(topic, partition)
	for _, id := range p.Replicas {
		ids = append(ids, int(id))
	}
	return ids
}

// ReplicasAre reports whether partitions have these replicas, all of them in sync, and
// no move goes on.
func (c *Cluster) ReplicasAre(topic string, partitions int32, ids []int32) bool {
	for i := range partitions {
		p, ok := c.partition(topic, i)
		if !ok || p.Moving() || len(p.ISR) != len(ids) {
			return false
		}
		for j, id := range p.Replicas {
			if int32(id) != ids[j] {
				return false
			}
		}
	}
	return true
}

// Await waits until something is so.
func (c *Cluster) Await(what string, so func() bool) {
	c.t.Helper()
	if !c.await(so) {
		c.t.Fatalf("not within %v: %s", patience, what)
	}
}

// LogDir returns the directory of a partition's replicas.
func (c *Cluster) LogDir(topic string, partition int32) string {
	for _, image := range c.images() {
		if t := image.Topic(topic); t != nil {
			return commitlog.LogDir(kafka.TopicIDPartition{ID: t.ID, Partition: partition})
		}
	}
	c.t.Fatalf("no node knows topic %s", topic)
	return ""
}

// Segments returns the bytes of a replica's log, which no node writes to meanwhile.
func (c *Cluster) Segments(id int, dir string) []byte {
	c.t.Helper()
	files := c.Disk(id)
	entries, err := files.ReadDir(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	var all bytes.Buffer
	for _, e := range entries { // Sorted by name, and so by base offset.
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		f, err := files.Open(path.Join(dir, e.Name()), vfs.ReadOnly)
		if err != nil {
			c.t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			c.t.Fatal(err)
		}
		if _, err := io.Copy(&all, io.NewSectionReader(f, 0, size)); err != nil {
			c.t.Fatal(err)
		}
		_ = f.Close()
	}
	return all.Bytes()
}

// Leased says that a running node knows that no other has taken over what it leads.
func (c *Cluster) Leased(id int) bool {
	r := c.node(id).running()
	return r != nil && r.broker.Leased()
}
