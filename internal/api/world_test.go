package api_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/wire"
)

// world is a broker for tests: the rooms that handlers call, wired as package
// broker wires them, but for a quorum that decides at once.
type world struct {
	t        testing.TB
	files    vfs.FS
	settings map[string]string
	memory   *netx.Memory
	network  netx.Network
	addr     string
	limits   wire.Limits
	server   *wire.Server

	plane      *controlplane.ControlPlane
	disk       *commitlog.Dir
	partitions *partition.Table
	applier    *partition.Applier
	groups     *coordinator.Coordinator[*group.Shard]
	txns       *coordinator.Coordinator[*txn.Shard]
	markers    *transactions.Sender
	topics     *topics.Directory
	services   *api.Services
	table      map[int16]wire.API
	// closed yields why connections ended.
	closed chan error
	log    *logtest.Log

	// controlErr, if set, is the outcome of every decision.
	controlErr error
	decisions  sync.Mutex
	decided    uint64
}

// newWorld returns a broker in memory that start starts.
func newWorld(t testing.TB) *world {
	memory := netx.NewMemory()
	return &world{
		t: t, files: memfs.New(), log: &logtest.Log{}, closed: make(chan error, 1000),
		memory: memory, network: memory.Host("10.0.0.1"), limits: wire.DefaultLimits(),
		settings: map[string]string{
			"group.initial.rebalance.delay.ms": "0", "node.id": "1", "offsets.topic.num.partitions": "2",
		},
	}
}

// startWorld starts a broker in memory.
func startWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.start()
	return w
}

// Do implements controlplane.Proposer: decisions are applied one by one.
func (w *world) Do(_ context.Context, decide func() ([]byte, error)) error {
	w.decisions.Lock()
	defer w.decisions.Unlock()
	if w.controlErr != nil {
		return w.controlErr
	}
	entry, err := decide()
	if err != nil || entry == nil {
		return err
	}
	if err := w.plane.Stage(entry); err != nil {
		return err
	}
	w.decided++
	return w.plane.Apply(w.decided, entry)
}

// controlFails sets the outcome of every decision from now on; nil for that of the decision.
func (w *world) controlFails(err error) {
	w.decisions.Lock()
	defer w.decisions.Unlock()
	w.controlErr = err
}

// start runs the broker until the test ends.
func (w *world) start() {
	w.t.Helper()
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.open(logger)
	listener, err := w.network.Listen(w.t.Context(), "10.0.0.1:0")
	w.must(err)
	w.addr = listener.Addr().String()
	w.table = w.services.Table()
	server, err := wire.New(wire.Options{
		Listeners: []wire.Listener{{Name: "PLAINTEXT", Listener: listener}},
		APIs:      func(key int16) (wire.API, bool) { a, ok := w.table[key]; return a, ok },
		Limits:    w.limits, Logger: logger, Events: wire.Events{ConnClosed: w.connClosed},
	})
	w.must(err)
	w.server = server
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	above, stopAbove := context.WithCancel(ctx)
	var below, serving sync.WaitGroup
	run := func(wg *sync.WaitGroup, run func() error) {
		wg.Go(func() {
			if err := run(); err != nil {
				w.t.Errorf("the broker ended: %v", err)
			}
		})
	}
	run(&below, func() error { return w.disk.Run(ctx) })
	run(&serving, func() error { return w.groups.Run(above) })
	run(&serving, func() error { return w.txns.Run(above) })
	run(&serving, func() error { return w.markers.Run(above) })
	run(&serving, func() error { return server.Run(above) })
	w.t.Cleanup(func() {
		stopAbove()
		serving.Wait()
		stop()
		below.Wait()
		if err := w.disk.Close(true); err != nil {
			w.t.Errorf("close the data directory: %v", err)
		}
		if w.t.Failed() {
			w.t.Logf("the broker's log:\n%s", w.log)
		}
	})
	w.boot()
}

func (w *world) connClosed(c *wire.Conn, reason wire.CloseReason, err error) {
	w.services.Closed(c)
	select {
	case w.closed <- fmt.Errorf("%s: %w", reason, err):
	default: // Nobody looks.
	}
}

// open makes the rooms.
func (w *world) open(logger *slog.Logger) {
	w.t.Helper()
	var err error
	w.plane, err = controlplane.New(controlplane.Options{Self: 1, Static: w.settings, Logger: logger})
	w.must(err)
	w.disk, err = commitlog.OpenDir(w.files, commitlog.DirOptions{
		Fresh:  commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: kafka.TopicID{15: 1}.String()},
		Events: commitlog.LogEvents{Logger: logger}, BallastBytes: -1,
	})
	w.must(err)
	w.partitions = partition.NewTable()
	w.groups = coordinator.New(coordinator.Options[*group.Shard]{
		Topic: metadata.OffsetsTopic, CodeOf: refusal.CodeOf, Now: time.Now, Logger: logger,
		WriteTimeout: w.plane.BrokerConfig().OffsetsCommitTimeout,
		New: func(int32) *group.Shard {
			settings := group.DefaultSettings()
			settings.InitialRebalanceDelay = 0
			return group.New(group.Options{Settings: settings, NewUUID: newUUID})
		},
	})
	w.applier = &partition.Applier{
		Table: w.partitions, Self: 1, Storage: w.disk, Configure: w.configure, Now: time.Now,
		Logger: logger, Led: w.led,
	}
	w.topics = &topics.Directory{
		Control: w.plane, Broker: w.plane.BrokerConfig, Partitions: w.partitions,
		EnsureOffsets: w.ensureOffsetsTopic, Logger: logger,
	}
	w.services = &api.Services{
		Quorum: loneQuorum{},
		NodeID: 1, LogDir: "/data", Partitions: w.partitions, Control: w.plane, Disk: w.files,
		Groups: &groups.Coordinator{Shards: w.groups, EnsureTopic: w.ensureOffsetsTopic, Image: w.plane.Image},
		Topics: w.topics,
		Broker: w.plane.BrokerConfig, Now: time.Now, Logger: logger,
	}
	w.openTransactions(logger)
	w.plane.Attach(w)
	w.plane.OnImage(func(_, _ *metadata.Image, d metadata.Delta) {
		w.applier.Apply(d)
		for _, c := range d.Topics {
			if c.New == nil {
				w.topics.Forget(c.Old.ID)
			}
		}
	})
}

func (w *world) boot() {
	w.t.Helper()
	_, err := w.plane.Boot(w.t.Context(), controlplane.Registration{
		ClusterID: "cluster", Directory: [16]byte{15: 1}, Clean: true,
		Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "broker.example", Port: 9092}},
	})
	w.must(err)
}

func newUUID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}

// configure says what a topic's configuration means for its logs.
func (w *world) configure(t *metadata.Topic) (commitlog.Config, partition.Settings) {
	broker := w.plane.BrokerConfig()
	c := config.ResolveTopic(broker, t.Config)
	return commitlog.Config{
		SegmentBytes: int64(c.SegmentBytes), SegmentMs: c.SegmentMs,
		IndexIntervalBytes: int64(c.IndexIntervalBytes), IndexMaxBytes: int64(c.SegmentIndexBytes),
		RetentionMs: c.RetentionMs, RetentionBytes: c.RetentionBytes,
		MaxMessageBytes: int(c.MaxMessageBytes), MaxDecompressedBytes: int64(c.MaxDecompressedMessageBytes),
		FlushMessages: c.FlushMessages, FlushMs: c.FlushMs, LogAppendTime: c.LogAppendTime(),
		Delete: c.CleanupDelete, Compact: c.CleanupCompact,
		ProducerExpirationMs: broker.ProducerIDExpiration.Milliseconds(),
	}, partition.Settings{MinInSync: int(c.MinInsyncReplicas), MaxLag: broker.ReplicaLagTimeMax}
}

func (w *world) led(p *partition.Partition) {
	if p.Topic() == metadata.OffsetsTopic {
		w.groups.Lead(p.ID().Partition, coordinator.Leader(p))
	}
	if p.Topic() == metadata.TransactionsTopic {
		w.txns.Lead(p.ID().Partition, coordinator.Leader(p))
	}
}

func (w *world) ensureOffsetsTopic(context.Context) error {
	if w.plane.Image().Topic(metadata.OffsetsTopic) == nil {
		w.createTopic(metadata.OffsetsTopic, 2, "cleanup.policy=compact")
	}
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// createTopic creates a topic, with configs as name=value.
func (w *world) createTopic(name string, partitions int32, configs ...string) *metadata.Topic {
	w.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	for _, c := range configs {
		key, value := cut(c)
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: &value})
	}
	req.Topics = append(req.Topics, t)
	resp, err := w.plane.CreateTopics(w.t.Context(), req)
	w.must(err)
	if rt := resp.Topics[0]; rt.ErrorCode != 0 {
		w.must(fmt.Errorf("create topic %s: %s", name, *rt.ErrorMessage))
	}
	return w.plane.Image().Topic(name)
}

// partition returns a partition replica.
func (w *world) partition(topic string, i int32) *partition.Partition {
	w.t.Helper()
	p := w.partitions.Get(topic, i)
	if p == nil {
		w.t.Fatalf("no partition %s-%d", topic, i)
	}
	return p
}

// settle has the broker answer something, which takes about as long as it takes
// to do something else.
func (w *world) settle() {
	w.t.Helper()
	req := kmsg.NewPtrDescribeClusterRequest()
	c := w.connect()
	c.ask(req)
	w.must(c.conn.Close())
}

// loneQuorum is a quorum of one node.
type loneQuorum struct{}

func (loneQuorum) AddVoter(context.Context, quorum.Member) error {
	return &kafka.Error{Code: kafka.ErrDuplicateVoter, Message: "it is one"}
}

func (loneQuorum) RemoveVoter(context.Context, kafka.BrokerID, [16]byte) error {
	return &kafka.Error{Code: kafka.ErrVoterNotFound, Message: "it is none"}
}

func (loneQuorum) RemoveLearner(context.Context, kafka.BrokerID, [16]byte) error {
	return &kafka.Error{Code: kafka.ErrVoterNotFound, Message: "it is none"}
}

func (loneQuorum) Describe(context.Context) (quorum.Description, error) {
	now := time.Now()
	return quorum.Description{Leader: 1, Term: 1, Voters: []quorum.Replica{
		{Member: quorum.Member{ID: 1, Address: "localhost:9093"}, LastContact: now, LastCaughtUp: now},
	}}, nil
}
