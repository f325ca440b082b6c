package api

// What brokers ask of one another, on a listener of their own: records (Fetch as
// followers send it), and what the active controller decides. A decision takes a
// round of the quorum, so it is made beside the connection, and its answer waits its
// turn as that of a produce does.

import (
	"context"
	"sync"

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
	return &ClusterTable{services: s, decider: d, memory: s.others}
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
	m := c.memory
	rows := []entry{
		{kmsg.ApiVersions, 0, 4, unary(m, c.apiVersions)},
		{kmsg.DescribeQuorum, 0, 2, unary(m, c.services.describeQuorum)},
		{kmsg.AddRaftVoter, 0, 1, unary(m, c.services.addRaftVoter)},
		{kmsg.RemoveRaftVoter, 0, 0, unary(m, c.services.removeRaftVoter)},
		{kmsg.OffsetForLeaderEpoch, 2, 4, unary(m, c.services.offsetForLeaderEpoch)},
		{kmsg.AddPartitionsToTxn, 4, 5, beside(c, c.services.addPartitionsToTxn)},
		{kmsg.WriteTxnMarkers, 1, 2, beside(c, c.services.writeTxnMarkers)},
	}
	for key, first := range decided() {
		c.services.errors.add(key)
		rows = append(rows, entry{key, first, kmsg.RequestForKey(key.Int16()).MaxVersion(), c.decide})
	}
	all := append(further, c.services.ReplicaFetch())
	for _, row := range rows {
		all = append(all, row.api())
	}
	apis := make(map[int16]wire.API, len(all))
	for _, a := range all {
		apis[a.Key] = a
		c.versions = append(c.versions, advertisedAs(a))
	}
	return apis
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
	r := &laterReply{wire: w, memory: c.memory}
	c.underway.Go(func() { // Bounded by what a connection may have under way; see Wait.
		defer give()
		resp, err := c.decider.Serve(ctx, req)
		if err != nil {
			c.services.Logger.Warn("a broker's request is not answered", "api", kmsg.NameForKey(req.Key()), "error", err)
		} else {
			resp.SetVersion(req.GetVersion()) // Not w's: that is another's once the connection died.
		}
		r.complete(resp, err)
	})
	return r
}

// beside makes a handler of a function that waits: it runs beside the connection, on
// which many clients' requests come.
func beside[T any, P message[T]](
	c *ClusterTable, answer func(context.Context, *wire.Request, P) kmsg.Response,
) func(context.Context, *wire.Request) wire.Response {
	return func(ctx context.Context, w *wire.Request) wire.Response {
		req := P(new(T))
		give, err := c.memory.read(ctx, w, req)
		if err != nil {
			return badRequest(w, err)
		}
		r := &laterReply{wire: w, memory: c.memory}
		c.underway.Go(func() { // Bounded by what a connection may have under way; see Wait.
			defer give()
			r.complete(answer(ctx, nil, req), nil) // What was w is another's once the connection died.
		})
		return r
	}
}

// Wait returns when no decision is under way. The listener has stopped by then.
func (c *ClusterTable) Wait() { c.underway.Wait() }
