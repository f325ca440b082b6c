// Package broker is the entrance: it builds every part of a broker, runs them,
// and stops them in reverse. It holds wiring only.
//
//	           clients
//	              | bytes
//	 wire.Server  |  frames, limits, answers in order
//	              v
//	 api.Services |  one file per request
//	     |        |              |
//	     v        v              v
//	partition   coordinator   controlplane
//	     |        | (groups,     |
//	     |        |  txns)       |
//	     v        v              v
//	commitlog <--+            quorum (Raft)
//	     |  journal              |
//	     v                       v
//	           vfs: the disk
//
// Produce: wire.Conn.readLoop -> api.produceAPI -> partition.Append ->
// commitlog.AppendAsLeader -> vfs.File.WriteAt; then the journal's round ->
// partition.durable -> Request.Wake -> the answer.
//
// Fetch: wire.Conn.readLoop -> api.fetchAPI -> partition.Read ->
// commitlog.Read -> a file range that the connection sends by sendfile; with
// nothing to read, it parks on the partitions it names.
//
// It assumes nothing of its caller but that Run is called once. Deliberately
// absent: any decision.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/wire"
)

// Config says how to run a broker; see strandline.Config, which explains it.
type Config struct {
	FS          vfs.FS
	DataDir     string // For people: FS is what is used.
	Listen      string
	Advertise   string
	HTTPListen  string
	DebugListen string
	NodeID      int32
	Rack        string
	// ClusterListen is the address for other brokers, ClusterAdvertise what they are
	// told, and Voters who elects a controller; all empty on a broker that is alone.
	ClusterListen, ClusterAdvertise string
	Voters                          []Voter
	ClusterListener                 net.Listener // In the place of ClusterListen; nil for none.
	// TLS is for clients and HTTP, ClusterTLS for the other brokers; none for plaintext.
	TLS, ClusterTLS certs.Files
	// Network is what other brokers are reached over, Listener what is listened on in
	// the place of Listen, and HTTPListener of HTTPListen; nil for those of TCP.
	Network                netx.Network
	Listener, HTTPListener net.Listener
	Settings               map[string]string
	Logger                 *slog.Logger
	// Metrics takes the broker's metrics, beside /metrics; nil for none.
	Metrics prometheus.Registerer
}

// Broker is a broker. Its fields stand in the order in which a request meets
// them.
type Broker struct {
	config   Config
	log      *slog.Logger
	now      func() time.Time
	listener net.Listener
	tls      *certs.Source // Nil without TLS for clients.
	http     *sideDoor
	httpAPI  *httpapi.API
	debug    *sideDoor
	metrics  http.Handler
	// releaseMetrics takes the metrics out of the embedder's registry; nil if they
	// are in none.
	releaseMetrics func()
	counts         counts
	endpoint       metadata.Endpoint // As advertised.
	address        string            // The same as text.
	wire           *wire.Server
	reach          *doorbell
	api            *api.Services
	groups         *coordinator.Coordinator[*group.Shard]
	txns           *coordinator.Coordinator[*txn.Shard]
	// transactions is the coordinator of transactions, markers what it sends.
	transactions *transactions.Coordinator
	markers      *transactions.Sender
	// coordinator and topics are what requests of both protocols go through.
	coordinator *groups.Coordinator
	sessions    *session.Sessions
	topics      *topics.Directory
	keys        *keyring.Rings // Of idempotent produces over HTTP.
	// partitions follow the metadata image through applier.
	partitions *partition.Table
	applier    *partition.Applier
	cleaner    *cleaner.Cleaner
	control    *controlplane.ControlPlane
	lifecycle  *controlplane.Lifecycle
	joined     atomic.Bool
	cluster    *cluster
	quorum     *quorum.Quorum
	disk       *commitlog.Dir
	ready      chan struct{}
}

// New opens the data directory, recovers what is in it, and listens. Nothing
// runs until Run, which must be called, because it closes what is open here.
func New(ctx context.Context, c Config) (*Broker, error) {
	c, err := c.settled()
	if err != nil {
		return nil, err
	}
	b := &Broker{config: c, log: c.Logger, now: time.Now, ready: make(chan struct{})}
	for _, open := range []func() error{
		func() error { return b.openCluster(ctx) }, b.openControl, b.openDisk, b.openQuorum,
		func() error { return b.openListeners(ctx) }, b.openParts, b.openWire, b.openClusterWire, b.openMetrics,
	} {
		if err := open(); err != nil {
			return nil, errors.Join(err, b.close(false))
		}
	}
	return b, nil
}

// settings returns the broker's settings as they are now.
func (b *Broker) settings() *config.Broker { return b.control.BrokerConfig() }

func (b *Broker) openControl() (err error) {
	b.control, err = controlplane.New(controlplane.Options{
		Self: kafka.BrokerID(b.config.NodeID), Static: b.config.Settings, Remote: b.remote(), Logger: b.log,
		Hangs: b.diskHangs, Full: func() bool { return b.disk.Full() }, Stranded: func() { b.partitions.WakeWaiting() },
	})
	return err
}

func (b *Broker) openDisk() (err error) {
	s := b.settings()
	clusterID := newID().String()
	rounds := commitlog.JournalOptions{Logger: b.log, Replicated: func() bool {
		m := b.control.Image()
		return m.ReplicaCount() > m.PartitionCount()
	}}
	if b.cluster != nil {
		clusterID = "" // Its founder draws one.
	}
	b.disk, err = commitlog.OpenDir(b.config.FS, commitlog.DirOptions{
		Fresh: commitlog.Meta{
			ClusterID: clusterID, NodeID: kafka.BrokerID(b.config.NodeID), DirectoryID: newID().String(),
		},
		Events: b.counts.events.Storage(storageEvents{commitlog.LogEvents{Logger: b.log}, b}), CheckpointInterval: s.LogCheckpointInterval,
		OnFull:          b.control.Urge,
		RecoveryThreads: int(s.RecoveryThreads), Journal: rounds,
	})
	return err
}

func (b *Broker) openQuorum() (err error) {
	self := kafka.BrokerID(b.config.NodeID)
	o := quorum.Options{
		FS: b.config.FS, Dir: "metadata", NodeID: self, Voters: []kafka.BrokerID{self},
		Machine: b.control, Logger: b.log, SnapshotBytes: b.settings().MetadataSnapshotAfterBytes,
	}
	if err := b.joinQuorum(&o); err != nil {
		return err
	}
	b.quorum, err = quorum.Open(o)
	return err
}

func (b *Broker) openListeners(ctx context.Context) (err error) {
	s := b.settings()
	if b.tls, err = b.loadTLS(b.config.TLS, false); err != nil {
		return fmt.Errorf("TLS for clients: %w", err)
	}
	network := netx.TCP{
		SendBufferBytes: int(s.SocketSendBufferBytes), ReceiveBufferBytes: int(s.SocketReceiveBufferBytes),
	}
	if b.listener = b.config.Listener; b.listener == nil {
		if b.listener, err = network.Listen(ctx, b.config.Listen); err != nil {
			return err
		}
	}
	if b.http, err = openSideDoor(b.config.HTTPListener, b.config.HTTPListen, s, b.tls, b.log); err != nil {
		return err
	}
	if b.debug, err = openSideDoor(nil, b.config.DebugListen, s, nil, b.log); err == nil && b.debug != nil {
		b.debug.handle(httpapi.Debug())
	}
	return err
}

// openParts makes the rooms between the disk and the wire, and has them follow
// the metadata.
func (b *Broker) openParts() error {
	self := kafka.BrokerID(b.config.NodeID)
	b.partitions = partition.NewTable()
	b.applier = &partition.Applier{
		Table: b.partitions, Self: self, Storage: b.disk, Configure: b.configure, Now: b.now,
		Logger: b.log, Led: b.led, Lost: b.lost,
	}
	b.groups = coordinator.New(coordinator.Options[*group.Shard]{
		Topic: metadata.OffsetsTopic, CodeOf: refusal.CodeOf, Now: b.now, Logger: b.log,
		New: b.newGroups, WriteTimeout: b.settings().OffsetsCommitTimeout, Leased: b.leased,
		OutOfTouch: b.outOfTouch,
	})
	b.openTransactions()
	s := b.settings()
	b.cleaner = cleaner.New(cleaner.Options{
		Targets: b.compacted, Threads: int(s.CleanerThreads), Backoff: s.CleanerBackoff,
		DedupeBytes: s.CleanerDedupeBufferSize, Events: b.counts.events.Cleaner(cleaner.LogEvents{Logger: b.log}),
	})
	b.openRequests()
	b.control.Attach(b.quorum)
	b.control.OnImage(b.follow)
	b.openReplication()
	return nil
}

func (b *Broker) openWire() (err error) {
	host, port, err := advertised(b.config.Advertise, b.listener.Addr().String())
	if err != nil {
		return err
	}
	listener := wire.Listener{Name: b.config.listenerName(), Listener: b.listener, TLS: server(b.tls)}
	b.endpoint = metadata.Endpoint{Name: listener.Name, Host: host, Port: port}
	b.address = net.JoinHostPort(host, strconv.Itoa(int(port)))
	b.reach.address = b.address
	apis := b.api.Table()
	l, _ := divided(b.settings(), b.cluster != nil)
	b.wire, err = wire.New(wire.Options{
		Listeners: []wire.Listener{listener},
		APIs:      func(key int16) (wire.API, bool) { a, ok := apis[key]; return a, ok },
		Limits:    l, Logger: b.log,
	})
	return err
}

// Ready is closed when the broker serves.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Addr returns the address that clients are told.
func (b *Broker) Addr() string { return b.address }

// ListenAddr returns the address that is listened on.
func (b *Broker) ListenAddr() string { return b.listener.Addr().String() }

// HTTPAddr returns the address of the HTTP listener, or "".
func (b *Broker) HTTPAddr() string { return b.http.addr() }

// Run runs the broker until ctx ends or a part fails. It stops in this order: it
// has others lead what it leads; then what serves clients, so that answers on their
// way can still become durable; then what makes them so; then the files.
func (b *Broker) Run(ctx context.Context) error {
	base, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	below, base := errgroup.WithContext(base)
	below.Go(func() error { return b.quorum.Run(base) })
	below.Go(func() error { return b.disk.Run(base) })
	b.runCluster(base, below)
	serving, stopServing := context.WithCancel(base)
	below.Go(func() error { // Ends with ctx or base.
		defer stopServing()
		select {
		case <-ctx.Done():
			b.leave(base, context.Cause(ctx))
		case <-base.Done():
		}
		return nil
	})
	err := b.serve(serving)
	stopBase()
	err = errors.Join(err, below.Wait())
	return errors.Join(err, b.close(err == nil && !errors.Is(context.Cause(ctx), ErrKilled)))
}

// serve boots and runs what faces clients until ctx ends.
func (b *Broker) serve(ctx context.Context) error {
	if err := b.boot(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // Stopped before it began, or a part below failed and says why.
		}
		return err
	}
	above, ctx := errgroup.WithContext(ctx)
	above.Go(func() error { return b.lifecycle.Run(ctx) })
	above.Go(func() error { return b.groups.Run(ctx) })
	above.Go(func() error { return b.txns.Run(ctx) })
	above.Go(func() error { return b.markers.Run(ctx) })
	above.Go(func() error { return b.wire.Run(ctx) })
	above.Go(func() error { return b.http.run(ctx) })
	above.Go(func() error { return b.serveInside(ctx) })
	above.Go(func() error { return b.sessions.Run(ctx) })
	above.Go(func() error { return b.debug.run(ctx) })
	above.Go(func() error { return b.retain(ctx) })
	above.Go(func() error { return b.compact(ctx) })
	above.Go(func() error { return b.reach.run(ctx) })
	close(b.ready)
	return above.Wait()
}

// boot waits for the metadata and makes this broker part of it.
func (b *Broker) boot(ctx context.Context) error {
	defer b.tellWaits(ctx)()
	defer b.sendElsewhere()()
	select {
	case <-b.quorum.Ready():
	case <-ctx.Done():
		return ctx.Err()
	}
	b.compareVoters()
	meta := b.disk.Meta()
	directory, err := kafka.ParseTopicID(meta.DirectoryID)
	if err != nil {
		return fmt.Errorf("directory id in meta.properties: %w", err)
	}
	b.lifecycle = b.control.NewLifecycle(controlplane.Registration{
		ClusterID: meta.ClusterID, Rack: b.config.Rack, Directory: directory, Clean: b.disk.WasClean(),
		Endpoints: b.endpoints(),
	})
	clusterID, err := b.lifecycle.Join(ctx)
	if err != nil {
		return fmt.Errorf("register with the controller: %w", err)
	}
	b.joined.Store(true)
	if err := b.belong(clusterID); err != nil {
		return err
	}
	b.settleStrays()
	b.disk.ReserveBallast()
	return nil
}

// close closes files and listeners, whatever of them is open.
func (b *Broker) close(clean bool) error {
	var errs []error
	if b.releaseMetrics != nil {
		b.releaseMetrics()
	}
	if b.listener != nil {
		_ = b.listener.Close() // Closed before by the server, if it ran.
	}
	errs = append(errs, b.http.close(), b.debug.close(), b.closeCluster())
	if b.quorum != nil {
		errs = append(errs, b.quorum.Close())
	}
	if b.disk != nil {
		errs = append(errs, b.disk.Close(clean))
	}
	return errors.Join(errs...)
}
