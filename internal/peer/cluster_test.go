package peer_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/peer"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/wire"
)

// cluster is a simulation: nodes with disks and a network in memory, in virtual time.
// It watches that all apply the same entries, and that no term has two leaders.
type cluster struct {
	t      *testing.T
	memory *netx.Memory
	voters map[kafka.BrokerID]string // What every node is started with.
	change func(*quorum.Options)
	// listenAt is where the next node listens that others are told another address of.
	listenAt string
	// log is where the next node says what it does; nowhere if it is nil.
	log *slog.Logger
	// clusterIDs are those of nodes that belong to another cluster.
	clusterIDs map[kafka.BrokerID]string

	mu      sync.Mutex
	nodes   map[kafka.BrokerID]*node
	disks   map[kafka.BrokerID]*memfs.FS
	dirs    map[kafka.BrokerID][16]byte
	history map[uint64]string                   // What was applied, by index.
	leaders map[uint64]kafka.BrokerID           // Who was active, by term.
	deaf    map[[2]kafka.BrokerID]bool          // Links from the first to the second that lose all.
	downs   map[kafka.BrokerID][]kafka.BrokerID // Who was told of whose death.
}

// node is one process.
type node struct {
	*quorum.Quorum
	id      kafka.BrokerID
	machine *journal
	raft    *peer.Raft
	host    *host
	cancel  context.CancelFunc
	ended   chan error
	twins   atomic.Int32 // How often it was told that it runs elsewhere.
}

// newCluster makes a cluster of the first count nodes as voters; none runs yet.
func newCluster(t *testing.T, count int, change func(*quorum.Options)) *cluster {
	c := &cluster{
		t: t, memory: netx.NewMemory(), voters: map[kafka.BrokerID]string{}, change: change,
		clusterIDs: map[kafka.BrokerID]string{},
		nodes:      map[kafka.BrokerID]*node{}, disks: map[kafka.BrokerID]*memfs.FS{},
		dirs: map[kafka.BrokerID][16]byte{}, history: map[uint64]string{},
		leaders: map[uint64]kafka.BrokerID{}, deaf: map[[2]kafka.BrokerID]bool{},
		downs: map[kafka.BrokerID][]kafka.BrokerID{},
	}
	for id := range kafka.BrokerID(count) {
		c.voters[id] = addressOf(id)
	}
	return c
}

// simulate runs a test on a cluster whose voters all run.
func simulate(t *testing.T, count int, change func(*quorum.Options), test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, count, change)
		for id := range kafka.BrokerID(count) {
			c.start(id)
		}
		defer c.stopAll()
		test(c)
	})
}

func ipOf(id kafka.BrokerID) string { return fmt.Sprintf("10.0.0.%d", 10+id) }

func addressOf(id kafka.BrokerID) string { return ipOf(id) + ":9093" }

// start runs a node on its disk; a first start gets an empty one.
func (c *cluster) start(id kafka.BrokerID) *node {
	c.t.Helper()
	return c.startAt(id, addressOf(id))
}

// startAt is start at another address than the node's own.
func (c *cluster) startAt(id kafka.BrokerID, address string) *node {
	c.t.Helper()
	if c.disks[id] == nil {
		c.replaceDisk(id)
	}
	host, _, _ := net.SplitHostPort(address)
	network := c.memory.Host(host)
	n := &node{id: id, machine: &journal{cluster: c, id: id}, ended: make(chan error, 2)}
	self := quorum.Member{ID: id, Directory: c.dirs[id], Address: address}
	n.raft = peer.NewRaft(peer.RaftOptions{
		Self: self, ClusterID: cmp.Or(c.clusterIDs[id], "test"), Voters: c.voters,
		Conn: peer.Options{Network: network, Logger: c.log},
		OnDown: func(other kafka.BrokerID, _ error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.downs[id] = append(c.downs[id], other)
		},
		OnTwin: func(error) { n.twins.Add(1) },
	})
	opt := quorum.Options{
		FS: c.disks[id], Dir: "metadata", NodeID: id, Machine: n.machine, Transport: n.raft,
		Directory: self.Directory, Address: self.Address,
		OnLeader: func(l quorum.Leadership) { c.leads(id, l) },
	}
	for voter := range c.voters {
		opt.Voters = append(opt.Voters, voter)
	}
	if c.change != nil {
		c.change(&opt)
	}
	q, err := quorum.Open(opt)
	if err != nil {
		c.t.Fatal(err)
	}
	n.Quorum = q
	n.raft.Attach(q)
	n.host = listen(c.t, network, cmp.Or(c.listenAt, address), slog.New(slog.DiscardHandler), c.hearing(id, n.raft.API()))
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	// Both end with ctx; end waits for them.
	go func() { n.ended <- n.raft.Run(ctx) }()
	go func() { n.ended <- q.Run(ctx) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = n
	return n
}

// replaceDisk gives a node an empty disk, with a directory id of its own.
func (c *cluster) replaceDisk(id kafka.BrokerID) {
	c.disks[id] = memfs.New()
	dir := c.dirs[id]
	dir[0], dir[1] = byte(id+1), dir[1]+1
	c.dirs[id] = dir
}

// hearing puts the links that lose everything before the receiving side of a node.
func (c *cluster) hearing(id kafka.BrokerID, api wire.API) wire.API {
	handle := api.Handle
	api.Handle = func(ctx context.Context, r *wire.Request) wire.Response {
		if c.isDeaf(r.Conn.RemoteAddr(), id) {
			return &reply{ready: make(chan struct{})} // No answer, ever.
		}
		return handle(ctx, r)
	}
	return api
}

func (c *cluster) isDeaf(from net.Addr, to kafka.BrokerID) bool {
	host, _, _ := net.SplitHostPort(from.String())
	c.mu.Lock()
	defer c.mu.Unlock()
	for link, deaf := range c.deaf {
		if deaf && link[1] == to && ipOf(link[0]) == host {
			return true
		}
	}
	return false
}

// setDeaf cuts a link in one direction, or heals it.
func (c *cluster) setDeaf(from, to kafka.BrokerID, deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf[[2]kafka.BrokerID{from, to}] = deaf
}

// cut takes a node off the network, both ways, or heals that.
func (c *cluster) cut(id kafka.BrokerID, cut bool) {
	for other := range kafka.BrokerID(10) {
		switch {
		case other == id:
		case cut:
			c.memory.Partition(ipOf(id), ipOf(other))
		default:
			c.memory.Heal(ipOf(id), ipOf(other))
		}
	}
}

// leads notes who leads, and fails the test when a term has two leaders.
func (c *cluster) leads(id kafka.BrokerID, l quorum.Leadership) {
	if !l.Active {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.leaders[l.Term]; ok && before != id {
		c.t.Errorf("term %d has two leaders, %d and %d", l.Term, before, id)
	}
	c.leaders[l.Term] = id
}

// end stops a process; its connections close.
func (c *cluster) end(id kafka.BrokerID) { c.endAnd(id, func() {}) }

// endAnd is end that does something when the process promises nothing any more and has not
// closed its files.
func (c *cluster) endAnd(id kafka.BrokerID, stopped func()) {
	c.t.Helper()
	c.mu.Lock()
	n := c.nodes[id]
	delete(c.nodes, id)
	c.mu.Unlock()
	n.cancel()
	n.host.stop()
	for range 2 {
		if err := <-n.ended; err != nil {
			c.t.Errorf("node %d ended with %v", id, err)
		}
	}
	stopped()
	if err := n.Close(); err != nil {
		c.t.Errorf("close node %d: %v", id, err)
	}
}

// kill ends a process as kill -9 does: what it wrote is there.
func (c *cluster) kill(id kafka.BrokerID) {
	disk := c.disks[id]
	c.endAnd(id, func() { c.disks[id] = disk.CrashClone(1, 100) })
}

// losePower takes a node's power: most of what it had not synced is gone, and its
// connections hang until it is back.
func (c *cluster) losePower(id kafka.BrokerID, seed uint64) {
	c.cut(id, true)
	disk := c.disks[id].CrashClone(seed, 30)
	c.end(id)
	c.disks[id] = disk
	for other := range kafka.BrokerID(10) {
		c.memory.Reset(ipOf(id), ipOf(other))
	}
	c.cut(id, false)
}

func (c *cluster) stopAll() {
	c.mu.Lock()
	var ids []kafka.BrokerID
	for id := range c.nodes {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	for _, id := range ids {
		c.end(id)
	}
}

// running returns a snapshot of the nodes.
func (c *cluster) running() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*node
	for _, n := range c.nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *node) int { return int(a.id - b.id) })
	return out
}

// advance lets virtual time pass.
func advance(d time.Duration) { <-time.After(d) }

// eventually waits until a condition holds, for 20 s at most.
func (c *cluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	for range 4000 {
		synctest.Wait()
		if holds() {
			return
		}
		advance(5 * time.Millisecond)
	}
	for _, n := range c.running() {
		c.t.Logf("node %d: %+v", n.id, n.Status())
	}
	c.t.Fatalf("after 20 s: %s", what)
}

// active waits for a leader among the running nodes but the excluded ones.
func (c *cluster) active(but ...kafka.BrokerID) *node {
	c.t.Helper()
	var found *node
	c.eventually("nobody leads", func() bool {
		for _, n := range c.running() {
			if n.Status().Active && !slices.Contains(but, n.id) {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// add has an entry decided by one node, within 3 s.
func (n *node) add(entry string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return n.Do(ctx, func() ([]byte, error) { return []byte(entry), nil })
}

// mustAdd has entries decided by whoever leads.
func (c *cluster) mustAdd(entries ...string) {
	c.t.Helper()
	for _, e := range entries {
		n := c.active()
		if err := n.add(e); err != nil {
			c.t.Fatalf("add %q on node %d: %v", e, n.id, err)
		}
	}
}

// agree waits until all running nodes have applied as much as any.
func (c *cluster) agree() {
	c.t.Helper()
	c.eventually("nodes differ in what they applied", func() bool {
		nodes := c.running()
		for _, n := range nodes {
			if n.Status().AppliedIndex != nodes[0].Status().AppliedIndex {
				return false
			}
		}
		return true
	})
}

// holds checks that what was acknowledged is in the history, in its order.
func (c *cluster) holds(acked []string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var indexes []uint64
	for index := range c.history {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	next := 0
	for _, index := range indexes {
		if next < len(acked) && c.history[index] == acked[next] {
			next++
		}
	}
	if next < len(acked) {
		c.t.Errorf("%q was acknowledged and is gone, or out of order", acked[next])
	}
}

// journal is a machine that keeps what it applied, and compares with the others.
type journal struct {
	cluster *cluster
	id      kafka.BrokerID

	mu       sync.Mutex
	last     uint64
	restored int
}

// Apply implements quorum.Machine.
func (j *journal) Apply(index uint64, entry []byte) error {
	j.mu.Lock()
	if index <= j.last {
		j.mu.Unlock()
		return fmt.Errorf("entry %d after entry %d", index, j.last)
	}
	j.last = index
	j.mu.Unlock()
	c := j.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.history[index]; ok && before != string(entry) {
		c.t.Errorf("node %d applies %q as entry %d, another applied %q", j.id, entry, index, before)
	}
	c.history[index] = string(entry)
	return nil
}

// Snapshot implements quorum.Machine.
func (j *journal) Snapshot() ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return binary.BigEndian.AppendUint64(nil, j.last), nil
}

// Restore implements quorum.Machine.
func (j *journal) Restore(_ uint64, data []byte) error {
	if len(data) != 8 {
		return errors.New("bad snapshot")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = binary.BigEndian.Uint64(data)
	j.restored++
	return nil
}

func (j *journal) restores() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.restored
}
