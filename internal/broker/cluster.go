package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/fetcher"
	"github.com/strandline/strandline/internal/insync"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/peer"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/relay"
	"github.com/strandline/strandline/internal/wire"
)

// Voter is a broker that elects a controller: its id, and where its cluster listener
// is.
type Voter struct {
	ID      kafka.BrokerID
	Address string
}

// cluster is what a broker has because there are others. It is nil on a broker that
// is alone.
type cluster struct {
	listener net.Listener
	endpoint metadata.Endpoint // As the others are told.
	self     quorum.Member
	voters   map[kafka.BrokerID]string
	raft     *peer.Raft
	// requests carry decisions and heartbeats, fetches the records: an answer waits
	// for those before it on its connection.
	requests, fetches *peer.Pool
	// markers carry markers, whose answers wait for replicas, and transactions what asks the
	// coordinator about partitions: producers wait for that.
	markers, transactions *peer.Pool
	// ranges carry records for damaged logs.
	ranges *peer.Pool
	table  *api.ClusterTable
	wire   *wire.Server
	// relay sends HTTP requests to other brokers, through tunnels that end at the
	// inner door of each.
	relay      *relay.Relay
	tunnels    *netx.Handover
	innerDoor  *sideDoor
	fetcher    *fetcher.Fetcher
	changes    *insync.Changes
	mender     *partition.Mender
	watermarks *commitlog.Watermarks
	options    peer.Options
	tls        *certs.Source // Nil without TLS between brokers.
	twins      *twins

	mu     sync.Mutex
	shares []*peer.Pool // Of loops beside the first of a leader.
}

// openCluster listens for other brokers, before anything is told to them.
func (b *Broker) openCluster(ctx context.Context) error {
	listener := b.config.ClusterListener
	if listener == nil && b.config.ClusterListen == "" {
		return nil
	}
	if listener == nil {
		var err error
		if listener, err = b.network().Listen(ctx, b.config.ClusterListen); err != nil {
			return err
		}
	}
	c := &cluster{listener: listener, voters: map[kafka.BrokerID]string{}, twins: newTwins(b.joined.Load)}
	for _, v := range b.config.Voters {
		c.voters[v.ID] = v.Address
	}
	host, port, err := advertised(b.config.ClusterAdvertise, listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.endpoint = metadata.Endpoint{Name: metadata.ClusterListener, Host: host, Port: port}
	c.self = quorum.Member{
		ID: kafka.BrokerID(b.config.NodeID), Address: net.JoinHostPort(host, strconv.Itoa(int(port))),
	}
	if c.tls, err = b.loadTLS(b.config.ClusterTLS, true); err != nil {
		return errors.Join(fmt.Errorf("TLS between brokers: %w", err), listener.Close())
	}
	o := peer.Options{Network: b.network(), TLS: client(c.tls), Logger: b.log}
	c.options = o
	c.requests, c.fetches = peer.NewPool(b.peerAddress, o), peer.NewPool(b.peerAddress, o)
	c.markers, c.transactions = peer.NewPool(b.peerAddress, o), peer.NewPool(b.peerAddress, o)
	c.ranges = peer.NewPool(b.peerAddress, o)
	c.tunnels = netx.NewHandover(listener.Addr())
	c.relay = relay.New(func(ctx context.Context, to kafka.BrokerID) (net.Conn, error) {
		return c.requests.Tunnel(ctx, c.self.ID, to, b.control.Image().ClusterID())
	})
	b.cluster = c
	return nil
}

// network is what other brokers are reached over.
func (b *Broker) network() netx.Network {
	if b.config.Network != nil {
		return b.config.Network
	}
	return netx.TCP{Silence: peerSilence}
}

// peerSilence is for how long another broker's host may acknowledge nothing until connections
// with it are given up. It is longer than broker.session.timeout.ms is by default: a cut that
// costs no session costs no connection either.
const peerSilence = 2 * time.Second

// remote returns the way to other brokers; nil on a broker that is alone.
func (b *Broker) remote() controlplane.Remote {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.requests
}

// peerAddress returns where another broker's cluster listener is: as it registered,
// else as the quorum finds it.
func (b *Broker) peerAddress(id kafka.BrokerID) (string, bool) {
	if other, ok := b.control.Image().Broker(id); ok {
		if e, ok := other.Listener(metadata.ClusterListener); ok {
			return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), true
		}
	}
	return b.cluster.raft.Address(id)
}

// joinQuorum fills in what the quorum needs to know of this node.
func (b *Broker) joinQuorum(o *quorum.Options) error {
	c := b.cluster
	if c == nil {
		// Its files would be taken for those of topics that nobody knows.
		o.Joined = len(b.disk.Logs()) > 0
		return nil
	}
	meta := b.disk.Meta()
	o.Joined = meta.ClusterID != ""
	directory, err := kafka.ParseTopicID(meta.DirectoryID)
	if err != nil {
		return fmt.Errorf("directory id: %w", err)
	}
	if len(c.voters) > 0 {
		o.Voters = o.Voters[:0]
		for id := range c.voters {
			o.Voters = append(o.Voters, id)
		}
	}
	o.Directory = directory
	if c.self.Directory, err = quorum.Identify(*o); err != nil {
		return err
	}
	c.raft = peer.NewRaft(peer.RaftOptions{
		Self: c.self, ClusterID: meta.ClusterID, Voters: c.voters,
		Conn: c.options, OnDown: b.reportDown, OnTwin: c.twins.told,
	})
	c.twins.check = c.raft.CheckSelf
	o.Transport, o.Directory, o.Address = c.raft, c.self.Directory, c.self.Address
	o.Hangs = b.diskHangs
	o.OnLeader = func(l quorum.Leadership) { b.control.LeaderChanged(l.Leader, l.Term) }
	return nil
}

func (b *Broker) reportDown(id kafka.BrokerID, err error) {
	var down *peer.DownError
	if errors.As(err, &down) && down.Cause == peer.Refused {
		b.control.ReportDead(id)
		return
	}
	b.control.ReportDown(id, false)
}

// openReplication makes what follows other brokers, and what answers them.
func (b *Broker) openReplication() {
	c := b.cluster
	if c == nil {
		return
	}
	c.raft.Attach(b.quorum)
	c.fetcher = fetcher.New(fetcher.Options{
		Self: c.self.ID, BrokerEpoch: b.brokerEpoch, Now: b.now, Logger: b.log, Settings: b.fetcherSettings,
		Joined:  b.joined.Load,
		To:      func(id kafka.BrokerID) fetcher.Requester { return c.fetches.To(id) },
		ToShare: func(id kafka.BrokerID, share int) fetcher.Requester { return c.share(share, b.peerAddress).To(id) },
	})
	c.changes = insync.New(insync.Options{
		Self: c.self.ID, BrokerEpoch: b.brokerEpoch, Controller: b.control, Partitions: b.partitions,
		MaxLag: func() time.Duration { return b.settings().ReplicaLagTimeMax }, Unheard: b.api.Unheard, Now: b.now, Logger: b.log,
	})
	b.applier.Moved, b.applier.Wants, b.applier.Eligible = c.fetcher.Follow, c.changes.Want, b.eligible
	c.mender = &partition.Mender{Applier: b.applier, Now: b.now, Logger: b.log, Peers: &fetcher.Ranges{
		Self: c.self.ID, Image: b.control.Image, To: func(id kafka.BrokerID) fetcher.Requester { return c.ranges.To(id) },
	}}
	c.watermarks = b.disk.Watermarks()
	b.applier.Losing = b.reportLost
	b.applier.Throttles = partition.Throttles{
		Leader:   &partition.Throttle{Rate: func() int64 { return b.settings().LeaderThrottledRate }},
		Follower: &partition.Throttle{Rate: func() int64 { return b.settings().FollowerThrottledRate }},
	}
	b.applier.Alive, b.applier.Troubled, b.applier.Marks = b.alive, c.mender.Note, c.watermarks
}

// share returns the connections for one more loop of each leader.
func (c *cluster) share(n int, address func(kafka.BrokerID) (string, bool)) *peer.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.shares) < n {
		c.shares = append(c.shares, peer.NewPool(address, c.options))
	}
	return c.shares[n-1]
}

// openClusterWire makes the server of the cluster listener.
func (b *Broker) openClusterWire() (err error) {
	c := b.cluster
	if c == nil {
		return nil
	}
	c.table = b.api.NewClusterTable(b.control)
	rows := c.table.Rows(c.raft.API(), b.tunnelAPI())
	c.innerDoor = openInnerDoor(c.tunnels, b.settings(), b.log)
	c.innerDoor.handle(b.httpAPI.Inside(), b.produceRoute(b.httpAPI.Produce()))
	_, l := divided(b.settings(), true)
	c.wire, err = wire.New(wire.Options{
		Listeners: []wire.Listener{{Name: metadata.ClusterListener, Listener: c.listener, TLS: server(c.tls)}},
		APIs:      func(key int16) (wire.API, bool) { a, ok := rows[key]; return a, ok },
		Limits:    l, Logger: b.log,
		Events: wire.Events{ConnClosed: func(c *wire.Conn, _ wire.CloseReason, _ error) { b.api.Closed(c) }},
	})
	return err
}

// tunnelAPI opens tunnels for HTTP requests of other brokers.
func (b *Broker) tunnelAPI() wire.API {
	c := b.cluster
	open := func() error {
		select {
		case <-b.ready:
		default:
			return errors.New("the broker is starting")
		}
		if c.tunnels.Closed() {
			return errors.New("the broker is stopping")
		}
		return nil
	}
	return peer.TunnelAPI(c.self.ID, func() string { return b.control.Image().ClusterID() }, open, c.tunnels.Hand)
}

// serveInside answers the HTTP requests of other brokers until ctx ends.
func (b *Broker) serveInside(ctx context.Context) error {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.innerDoor.run(ctx)
}

// clusterRequestBytes leaves room for the largest snapshot of the metadata.
const clusterRequestBytes = 72 << 20

// run runs what the other brokers need of this one, until ctx ends.
func (b *Broker) runCluster(ctx context.Context, g *errgroup.Group) {
	c := b.cluster
	if c == nil {
		return
	}
	g.Go(func() error { return c.raft.Run(ctx) })
	g.Go(func() error { return c.twins.run(ctx) })
	g.Go(func() error { return b.control.Run(ctx) })
	g.Go(func() error { return c.fetcher.Run(ctx) })
	g.Go(func() error { return c.changes.Run(ctx) })
	g.Go(func() error { return c.mender.Run(ctx) })
	g.Go(func() error { return partition.KeepWatermarks(ctx, b.partitions, c.watermarks, b.log) })
	g.Go(func() error {
		err := c.wire.Run(ctx)
		c.table.Wait()
		return err
	})
}

// belong notes which cluster the data directory belongs to.
func (b *Broker) belong(clusterID string) error {
	if b.cluster == nil {
		return nil
	}
	b.cluster.raft.SetClusterID(clusterID)
	return b.disk.SetClusterID(clusterID)
}

// leaveTimeout is how long a broker that stops waits for others to take over, and
// orphanTimeout how long for somebody to be the active controller: where all brokers
// stop at once, the last ones wait for nobody.
const (
	leaveTimeout  = 10 * time.Second
	orphanTimeout = time.Second
)

// ErrKilled as the cause of a context's end has Run end as a process does that is
// killed: the other brokers are told nothing.
var ErrKilled = errors.New("the broker was killed")

// leave has others lead what this broker leads, before it stops serving.
func (b *Broker) leave(ctx context.Context, why error) {
	if b.cluster == nil || errors.Is(why, ErrKilled) {
		return
	}
	select {
	case <-b.ready:
	default:
		return // It leads nothing yet.
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { // Ends with ctx.
		b.awaitOrphaned(ctx)
		cancel()
	})
	if err := b.lifecycle.Leave(ctx); err != nil {
		b.log.Warn("stopping without a word of the controller: the other brokers find out by themselves", "error", err)
	}
	if err := b.quorum.Resign(ctx); err != nil {
		b.log.Warn("stopping as the active controller: the other voters find out by themselves", "error", err)
	}
}

// awaitOrphaned returns when there was no active controller for a while, or ctx ends.
func (b *Broker) awaitOrphaned(ctx context.Context) {
	const look = 50 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for without := time.Duration(0); without < orphanTimeout; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, ok := b.control.ActiveController(); ok {
			without = 0
		} else {
			without += look
		}
	}
}

// closeCluster closes what openCluster opened, and what came on top.
func (b *Broker) closeCluster() error {
	c := b.cluster
	if c == nil {
		return nil
	}
	_ = c.listener.Close() // Closed before by the server, if it ran.
	errs := []error{
		c.relay.Close(), c.tunnels.Close(), c.requests.Close(), c.fetches.Close(), c.markers.Close(),
		c.transactions.Close(), c.ranges.Close(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.shares {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// endpoints are the addresses that this broker registers: where clients find it
// first.
func (b *Broker) endpoints() []metadata.Endpoint {
	all := []metadata.Endpoint{b.endpoint}
	if b.cluster != nil {
		all = append(all, b.cluster.endpoint)
	}
	return all
}

// diskPatience is how long a sync may take before the disk is held for one that hangs:
// long enough for a busy one.
const diskPatience = 2 * time.Second

// diskHangs reports whether what is to be acknowledged waits for a disk that hangs.
func (b *Broker) diskHangs() bool { return b.disk.Hanging() >= diskPatience }

func (b *Broker) brokerEpoch() kafka.BrokerEpoch {
	self, ok := b.control.Image().Broker(kafka.BrokerID(b.config.NodeID))
	if !ok {
		return -1
	}
	return self.Epoch
}

// leased says that no other broker can have taken over from this one without its knowledge.
// One that has not joined knows nothing of the kind.
func (b *Broker) leased() bool { return b.joined.Load() && b.lifecycle.Leased() }

// outOfTouch says that others may lead what this broker believes to lead: it has not heard
// the active controller, or that one holds it for failed. Its metadata may stand still, on
// a disk that is full.
func (b *Broker) outOfTouch() bool {
	return b.control.OutOfTouch() || b.joined.Load() && b.lifecycle.Fenced()
}

// alive reports whether a broker is not fenced.
func (b *Broker) alive(id kafka.BrokerID) bool {
	other, ok := b.control.Image().Broker(id)
	return ok && !other.Fenced
}

// eligible reports whether a broker may become a member of an ISR.
func (b *Broker) eligible(id kafka.BrokerID, epoch kafka.BrokerEpoch) bool {
	other, ok := b.control.Image().Broker(id)
	return ok && other.Available() && other.Epoch == epoch
}

func (b *Broker) fetcherSettings() fetcher.Settings {
	s := b.settings()
	f := fetcher.DefaultSettings()
	f.Fetchers, f.WaitMax = int(s.NumReplicaFetchers), s.ReplicaFetchWaitMax
	f.MinBytes, f.MaxBytes = s.ReplicaFetchMinBytes, s.ReplicaFetchResponseMaxBytes
	f.PartitionMaxBytes, f.Backoff = s.ReplicaFetchMaxBytes, s.ReplicaFetchBackoff
	f.Timeout = s.ReplicaSocketTimeout
	return f
}
