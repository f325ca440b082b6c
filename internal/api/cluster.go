package api

// What brokers ask of one another, on a listener of their own: records (Fetch as
// followers send it), and what the active controller decides. A decision takes a
// round of the quorum, so it is made beside the connection, and its answer waits its
// turn as that of a produce does.

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/wire"
)

// Decider decides requests as the active controller; *controlplane.ControlPlane is
// one.
type Decider interface {
	Serve(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// ClusterTable is the table of the cluster listener.
type ClusterTable struct {
	services *Services
	decider  Decider
	memory   *memory
	versions []kmsg.ApiVersionsResponseApiKey
	underway sync.WaitGroup
}

// NewClusterTable returns a table without rows. Services.Table must have been called
// before.
func (s *Services) NewClusterTable(d Decider) *ClusterTable {
	m := newMemory(s.Broker().QueuedMaxRequestBytes)
	m.errors = &s.errors
	return &ClusterTable{services: s, decider: d, memory: m}
}

// decided are the requests that the active controller answers, with their first
// versions.
func decided() map[kmsg.Key]int16 {
	return map[kmsg.Key]int16{
		kmsg.BrokerRegistration: 0, kmsg.BrokerHeartbeat: 0, kmsg.AlterPartition: 2, kmsg.AllocateProducerIDs: 0,
		kmsg.UnregisterBroker: 0, kmsg.CreateTopics: 2, kmsg.DeleteTopics: 1, kmsg.CreatePartitions: 0,
		kmsg.AlterConfigs: 0, kmsg.IncrementalAlterConfigs: 0, kmsg.ElectLeaders: 0, kmsg.AlterPartitionAssignments: 0,
	}
}

// Rows returns what answers each request, by its key; further are rows of others.
func (c *ClusterTable) Rows(further ...wire.API) map[int16]wire.API {
	rows := map[int16]wire.API{}
	add := func(a wire.API) {
		rows[a.Key] = a
		c.versions = append(c.versions, kmsg.ApiVersionsResponseApiKey{
			ApiKey: a.Key, MinVersion: a.Min, MaxVersion: a.Max,
		})
	}
	for key, first := range decided() {
		c.services.errors.add(key)
		add(wire.API{
			Name: key.Name(), Key: key.Int16(), Min: first, Max: kmsg.RequestForKey(key.Int16()).MaxVersion(),
			FlexibleFrom: flexibleFrom(key), Handle: c.decide, Small: true,
		})
	}
	add(wire.API{
		Name: kmsg.ApiVersions.Name(), Key: kmsg.ApiVersions.Int16(), Max: 4,
		FlexibleFrom: flexibleFrom(kmsg.ApiVersions), Handle: unary(c.memory, c.apiVersions), Small: true,
	})
	small := func(key kmsg.Key, highest int16, handle func(context.Context, *wire.Request) wire.Response) {
		add(wire.API{
			Name: key.Name(), Key: key.Int16(), Max: highest, FlexibleFrom: flexibleFrom(key), Handle: handle, Small: true,
		})
	}
	small(kmsg.DescribeQuorum, 2, unary(c.memory, c.services.describeQuorum))
	small(kmsg.AddRaftVoter, 1, unary(c.memory, c.services.addRaftVoter))
	small(kmsg.RemoveRaftVoter, 0, unary(c.memory, c.services.removeRaftVoter))
	add(wire.API{
		Name: kmsg.OffsetForLeaderEpoch.Name(), Key: kmsg.OffsetForLeaderEpoch.Int16(), Min: 2, Max: 4,
		FlexibleFrom: flexibleFrom(kmsg.OffsetForLeaderEpoch), Handle: unary(c.memory, c.services.offsetForLeaderEpoch),
	})
	for _, a := range append(further, c.services.ReplicaFetch()) {
		add(a)
	}
	return rows
}

func (c *ClusterTable) apiVersions(_ context.Context, _ *wire.Request, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := &kmsg.ApiVersionsResponse{Version: req.Version}
	resp.Default()
	resp.ApiKeys = c.versions
	return resp
}

// decide hands a request to the controller.
func (c *ClusterTable) decide(ctx context.Context, w *wire.Request) wire.Response {
	req := kmsg.RequestForKey(w.Key)
	give, err := c.memory.read(ctx, w, req)
	if err != nil {
		return badRequest(w, err)
	}
	r := &decision{}
	c.underway.Go(func() { // Bounded by what a connection may have under way; see Wait.
		defer give()
		resp, err := c.decider.Serve(ctx, req)
		if err != nil {
			c.services.Logger.Warn("a broker's request is not answered", "api", kmsg.NameForKey(w.Key), "error", err)
		}
		r.complete(c.memory, w, resp, err)
	})
	return r
}

// Wait returns when no decision is under way. The listener has stopped by then.
func (c *ClusterTable) Wait() { c.underway.Wait() }

// decision is an answer of the controller.
type decision struct {
	mu    sync.Mutex
	ready *reply
	err   error
	done  atomic.Bool
	over  bool // Encoded: what is decided now comes too late.
}

// complete makes the answer ready.
func (d *decision) complete(m *memory, w *wire.Request, resp kmsg.Response, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	if d.err = err; err == nil {
		resp.SetVersion(w.Version)
		d.ready = m.encode(w, resp)
	}
	d.done.Store(true)
	w.Wake()
}

// Done implements wire.Response.
func (d *decision) Done() bool { return d.done.Load() }

// Deadline implements wire.Response: the controller's own waits end.
func (d *decision) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (d *decision) Encode(w *wire.Writer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.ready == nil {
		return d.err
	}
	return d.ready.Encode(w)
}
