package strandline_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

// loopback is a cluster whose brokers reach one another over loopback, as processes on
// one machine do: for tests of what strandlinetest.Cluster leaves out, which has a
// network of its own.
type loopback struct {
	testing.TB
	nodes []*strandline.Server
}

// startOnLoopback runs n brokers until the test ends.
func startOnLoopback(t testing.TB, n int, options ...strandlinetest.Option) *loopback {
	t.Helper()
	c := &loopback{t, make([]*strandline.Server, n)}
	listeners, voters := make([]net.Listener, n), make([]strandline.Voter, n)
	for i := range n {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		voters[i] = strandline.Voter{NodeID: int32(i + 1), Address: listeners[i].Addr().String()}
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		for i := range n {
			all.Go(func() { c.Stop(i + 1) })
		}
		all.Wait()
	})
	for i := range n {
		config := strandline.Config{
			NodeID: int32(i + 1), Voters: voters, ClusterListener: listeners[i], Settings: map[string]string{},
		}
		for _, o := range options {
			o(&config)
		}
		all.Go(func() {
			var err error
			if c.nodes[i], err = strandline.Start(context.WithoutCancel(t.Context()), config); err != nil {
				t.Errorf("start node %d: %v", i+1, err)
			}
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	return c
}

// Addrs returns the addresses of the brokers that run, for clients to begin with.
func (c *loopback) Addrs() (addrs []string) {
	for _, n := range c.nodes {
		if n != nil {
			addrs = append(addrs, n.Addr())
		}
	}
	return addrs
}

// Stop stops a broker cleanly, if it runs. Several may be stopped at once.
func (c *loopback) Stop(id int) {
	n := c.nodes[id-1]
	c.nodes[id-1] = nil
	if n == nil {
		return
	}
	if err := n.Close(); err != nil {
		c.Errorf("node %d ended badly: %v", id, err)
	}
}
