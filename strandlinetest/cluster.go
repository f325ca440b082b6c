package strandlinetest

import (
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/strandline/strandline"
)

// Cluster is several brokers that form one queue.
type Cluster struct {
	t       testing.TB
	log     *lockedBuffer
	configs []strandline.Config
	nodes   []*strandline.Server // By node id less one; nil for one that is stopped.
}

// StartCluster runs n brokers on free loopback ports, all of them voters, until the
// test ends, and returns when all of them serve. If the test fails, their log is
// printed.
func StartCluster(t testing.TB, n int, options ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t, log: &lockedBuffer{}, nodes: make([]*strandline.Server, n)}
	var voters []strandline.Voter
	listeners := make([]net.Listener, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		voters = append(voters, strandline.Voter{NodeID: int32(i + 1), Address: l.Addr().String()})
	}
	for i := range n {
		config := strandline.Config{
			NodeID: int32(i + 1), Voters: voters, ClusterListener: listeners[i],
			Settings: map[string]string{"group.initial.rebalance.delay.ms": "0"},
			Logger:   slog.New(slog.NewTextHandler(c.log, nil)).With("node", i+1),
		}
		for _, o := range options {
			o(&config)
		}
		c.configs = append(c.configs, config)
	}
	c.startAll()
	t.Cleanup(c.stop)
	return c
}

func (c *Cluster) startAll() {
	c.t.Helper()
	errs := make([]error, len(c.configs))
	var all sync.WaitGroup
	for i, config := range c.configs {
		all.Go(func() { c.nodes[i], errs[i] = strandline.Start(c.t.Context(), config) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			c.t.Fatalf("start node %d: %v\n%s", i+1, err, c.log)
		}
	}
}

// Node returns a broker by its id; nil if it is stopped.
func (c *Cluster) Node(id int) *strandline.Server { return c.nodes[id-1] }

// Addrs returns the addresses of the brokers that run, for clients to begin with.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		if n != nil {
			addrs = append(addrs, n.Addr())
		}
	}
	return addrs
}

// Stop stops a broker cleanly: others lead what it led when it returns.
func (c *Cluster) Stop(id int) {
	c.t.Helper()
	n := c.nodes[id-1]
	c.nodes[id-1] = nil
	if err := n.Close(); err != nil {
		c.t.Errorf("node %d ended badly: %v", id, err)
	}
}

func (c *Cluster) stop() {
	var all sync.WaitGroup
	for i, n := range c.nodes {
		if n != nil {
			all.Go(func() {
				if err := n.Close(); err != nil {
					c.t.Errorf("node %d ended badly: %v", i+1, err)
				}
			})
		}
	}
	all.Wait()
	if c.t.Failed() {
		c.t.Logf("the cluster's log:\n%s", strings.TrimSpace(fmt.Sprint(c.log)))
	}
}
