package strandlinetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/netx"
)

// Cluster is several brokers that form one queue, in one process: disks and the
// network between them are in memory, and clients come over loopback TCP. They are
// the product's own brokers, which replicate, elect and sync as they do in production,
// so that a test may break one and see what its program makes of it:
//
//	c := strandlinetest.StartCluster(t, 3)
//	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...))
//	...
//	c.Kill(c.Leader("orders", 0)) // The client's next record is taken by another.
//
// Topics have three replicas, or as many as there are nodes, and min.insync.replicas is 2,
// unless they or WithSetting say otherwise: also one that a client has created by asking
// for it.
//
// Nodes have the ids 1 to n. A node's addresses stay the same through all of its runs.
// Node, Addrs, Leader and Controller may be called from any goroutine, everything else
// from the test's own, as it ends the test where something can't be done.
type Cluster struct {
	t       testing.TB
	log     *logtest.Log
	network *netx.Memory
	nodes   []*node
	losses  uint64          // How often power was lost.
	cuts    map[[2]int]bool // Pairs of nodes, the lower first.
}

// clusterPort is where a node listens for the others, on a host of its own.
const clusterPort = 9093

func hostOf(id int) string { return fmt.Sprintf("10.0.0.%d", id) }

// StartCluster runs n brokers, all of them voters, until the test ends, and returns
// when all of them serve. If the test fails, their log is printed.
func StartCluster(t testing.TB, n int, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, log: &logtest.Log{}, network: netx.NewMemory(), cuts: map[[2]int]bool{}}
	t.Cleanup(c.end)
	options = slices.Concat([]Option{
		WithSetting("default.replication.factor", strconv.Itoa(min(n, 3))),
		WithSetting("min.insync.replicas", strconv.Itoa(min(n, 2))),
	}, options)
	var voters []strandline.Voter
	ids := make([]int, n)
	for i := range n {
		ids[i] = i + 1
		voters = append(voters, strandline.Voter{
			NodeID: int32(i + 1), Address: fmt.Sprintf("%s:%d", hostOf(i+1), clusterPort),
		})
	}
	for _, id := range ids {
		node, err := c.newNode(id, voters, options)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, node)
	}
	c.Restart(ids...)
	if !c.await(c.allKnown) {
		t.Fatalf("not all nodes know of one another after %v\n%s", patience, c.log)
	}
	return c
}

// allKnown reports whether every node knows that every node serves.
func (c *Cluster) allKnown() bool {
	for _, image := range c.images() {
		for _, n := range c.nodes {
			if b, ok := image.Broker(kafka.BrokerID(n.id)); !ok || b.Fenced {
				return false
			}
		}
	}
	return true
}

func (c *Cluster) newNode(id int, voters []strandline.Voter, options []Option) (n *node, err error) {
	config := strandline.Config{
		NodeID: int32(id), Voters: voters, ClusterListen: voters[id-1].Address,
		Settings: map[string]string{"group.initial.rebalance.delay.ms": "0"},
		Logger:   slog.New(slog.NewTextHandler(c.log, nil)).With("node", id),
	}
	for _, o := range options {
		o(&config)
	}
	n = &node{id: id, host: c.network.Host(hostOf(id)), disk: newDisk(config.DataDir, id)}
	config.DataDir = n.disk.dir
	if n.kafka, err = openDoor(); err != nil {
		return nil, err
	}
	if config.HTTPListen != "" {
		if n.http, err = openDoor(); err != nil {
			return nil, err
		}
	}
	n.config = config
	return n, nil
}

func (c *Cluster) node(id int) *node {
	c.t.Helper()
	if id < 1 || id > len(c.nodes) {
		c.t.Fatalf("there is no node %d: there are 1 to %d", id, len(c.nodes))
	}
	return c.nodes[id-1]
}

// Node returns a broker by its id; nil while it does not run.
func (c *Cluster) Node(id int) *strandline.Server {
	if r := c.nodes[id-1].running(); r != nil {
		return r.server
	}
	return nil
}

// Addrs returns the addresses of all nodes, for clients to begin with. Those of nodes
// that do not run are among them, as in a client's configuration.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.kafka.outside.Addr().String()
	}
	return addrs
}

// Stop stops nodes cleanly, one after the other: others lead what each led when it
// has stopped.
func (c *Cluster) Stop(ids ...int) {
	c.t.Helper()
	for _, id := range ids {
		if r := c.node(id).take(); r != nil {
			if err := r.stop(); err != nil {
				c.t.Errorf("node %d ended badly: %v", id, err)
			}
		}
	}
}

// Restart starts nodes that do not run, all at once, and returns when they serve: for
// that, a majority of all nodes has to be there.
func (c *Cluster) Restart(ids ...int) {
	c.t.Helper()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		n := c.node(id)
		all.Go(func() { errs[i] = n.start() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatalf("%v\n%s", err, c.log)
	}
	for _, id := range ids {
		if n := c.node(id); n.wiped {
			c.voters("give a wiped node its vote back", func(ctx context.Context, b *broker.Broker) error {
				return b.AddVoter(ctx, kafka.BrokerID(id))
			})
			n.wiped = false
		}
	}
}

// end stops what runs when the test is over. Disks in memory are gone then, so nobody
// waits for a clean stop of those.
func (c *Cluster) end() {
	var all sync.WaitGroup
	for _, n := range c.nodes {
		r := n.take()
		if r == nil {
			continue
		}
		select {
		case <-r.ended:
			c.t.Errorf("node %d ended by itself: %v", n.id, r.err)
			continue
		default:
		}
		if n.disk.dir == "" {
			r.process.kill() // All of them, before the first finds out.
			all.Go(r.kill)
			continue
		}
		n.disk.mend()
		all.Go(func() {
			if err := r.stop(); err != nil {
				c.t.Errorf("node %d ended badly: %v", n.id, err)
			}
		})
	}
	all.Wait()
	for _, n := range c.nodes {
		n.kafka.close()
		if n.http != nil {
			n.http.close()
		}
	}
	if c.t.Failed() {
		c.t.Logf("the cluster's log:\n%s", strings.TrimSpace(fmt.Sprint(c.log)))
	}
}
