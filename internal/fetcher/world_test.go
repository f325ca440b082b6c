package fetcher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/fetcher"
	"github.com/strandline/strandline/internal/insync"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/wire"
)

// world is a cluster of brokers that replicate: disks and network in memory, in
// virtual time. The controller is the test, which sees to it that decisions reach the
// brokers it has not cut off.
type world struct {
	t       testing.TB
	network *netx.Memory
	nodes   map[kafka.BrokerID]*node
	log     *logtest.Log
	level   slog.Level

	settings fetcher.Settings
	topic    partition.Settings  // Of every topic.
	throttle int64               // Bytes a second.
	edit     func(kmsg.Response) // Changes what brokers answer followers.

	mu    sync.Mutex // Of decisions.
	state *controller.State
	deaf  map[kafka.BrokerID]bool // Brokers that hear of no decision.
	// away says that no controller answers.
	away bool
	// asked counts the changes of ISRs that brokers asked for.
	asked map[kafka.BrokerID]int
}

// node is one broker.
type node struct {
	w          *world
	id         kafka.BrokerID
	disk       *memfs.FS
	faulty     *errorfs.FS // The disk as the broker sees it.
	dir        *commitlog.Dir
	applier    *partition.Applier
	fetcher    *fetcher.Fetcher
	changes    *insync.Changes
	mender     *partition.Mender
	watermarks *commitlog.Watermarks
	services   *api.Services
	addr       string
	links      map[kafka.BrokerID]*link
	requests   map[kafka.BrokerID]int // Fetches sent.
	stop       func()
	outside    atomic.Bool // It has not joined.
	beforeSend atomic.Pointer[func()]

	mu    sync.Mutex
	image *metadata.Image
}

const maxLag = 10 * time.Second

// replicated runs a test in a bubble of virtual time, with brokers 1 to n.
// The settings are Kafka's, but for what is changed.
func replicated(t *testing.T, n int, test func(t *testing.T, w *world), change ...func(*fetcher.Settings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, network: netx.NewMemory(), nodes: map[kafka.BrokerID]*node{}, deaf: map[kafka.BrokerID]bool{},
			asked: map[kafka.BrokerID]int{}, log: &logtest.Log{}, settings: fetcher.DefaultSettings(), throttle: math.MaxInt64,
			topic: partition.Settings{MinInSync: 1, MaxLag: maxLag},
		}
		for _, c := range change {
			c(&w.settings)
		}
		var err error
		w.state, err = controller.New(controller.Options{NewTopicID: func() kafka.TopicID { return kafka.TopicID{1} }}, &metadata.Image{})
		w.must(err)
		records := []metadata.Record{&metadata.ClusterRecord{ClusterID: "cluster", Level: metadata.CurrentLevel}}
		for id := kafka.BrokerID(1); id <= kafka.BrokerID(n); id++ {
			records = append(records, w.registered(id, kafka.BrokerEpoch(id)))
			w.nodes[id] = w.start(id, memfs.New())
		}
		w.decide(records...)
		test(t, w)
		for _, n := range w.nodes {
			n.stop()
		}
		if t.Failed() {
			t.Logf("log:\n%s", w.log)
		}
	})
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) registered(id kafka.BrokerID, epoch kafka.BrokerEpoch) metadata.Record {
	e := metadata.Endpoint{Name: "CLUSTER", Host: host(id), Port: 9093}
	return &metadata.BrokerRecord{Broker: metadata.Broker{
		ID: id, Epoch: epoch, Directories: [][16]byte{{byte(id)}}, Endpoint: e, Endpoints: []metadata.Endpoint{e},
		Rack: fmt.Sprint("rack-", id),
	}}
}

func host(id kafka.BrokerID) string { return fmt.Sprint("10.0.0.", id) }

// control is the controller as handlers see it.
type control struct {
	api.Control
	n *node
}

func (c control) Image() *metadata.Image { return c.n.known() }

func (n *node) known() *metadata.Image {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.image
}

// epoch is a broker's registration as it knows it.
func (n *node) epoch() kafka.BrokerEpoch {
	b, _ := n.known().Broker(n.id)
	return b.Epoch
}

// start starts a broker on a disk. It has heard of nothing yet.
func (w *world) start(id kafka.BrokerID, disk *memfs.FS) *node {
	w.t.Helper()
	logger := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: w.level})).With("node", id)
	faulty := errorfs.Wrap(disk, nil)
	dir, err := commitlog.OpenDir(faulty, commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: id, DirectoryID: fmt.Sprint("directory-", id)}, BallastBytes: -1,
		Events: commitlog.LogEvents{Logger: logger},
	})
	w.must(err)
	n := &node{
		w: w, id: id, disk: disk, faulty: faulty, dir: dir, image: &metadata.Image{}, links: map[kafka.BrokerID]*link{},
		requests: map[kafka.BrokerID]int{},
	}
	table := partition.NewTable()
	broker := config.Default()
	n.changes = insync.New(insync.Options{
		Self: id, BrokerEpoch: n.epoch, Controller: n, Partitions: table, Now: time.Now, Logger: logger,
		MaxLag: func() time.Duration { return maxLag },
	})
	n.fetcher = fetcher.New(fetcher.Options{
		Self: id, BrokerEpoch: n.epoch, Now: time.Now, Logger: logger,
		To: func(id kafka.BrokerID) fetcher.Requester { return n.to(id, id) }, ToShare: n.toShare,
		Settings: func() fetcher.Settings { return w.settings }, Joined: func() bool { return !n.outside.Load() },
	})
	n.applier = &partition.Applier{
		Table: table, Self: id, Storage: dir, Now: time.Now, Logger: logger,
		Configure: func(*metadata.Topic) (commitlog.Config, partition.Settings) {
			return commitlog.DefaultConfig(), w.topic
		},
		Moved: n.fetcher.Follow, Wants: n.changes.Want,
		Eligible: func(id kafka.BrokerID, epoch kafka.BrokerEpoch) bool {
			b, ok := n.known().Broker(id)
			return ok && !b.Fenced && b.Epoch == epoch
		},
		Alive: func(id kafka.BrokerID) bool {
			b, ok := n.known().Broker(id)
			return ok && !b.Fenced
		},
		Throttles: partition.Throttles{
			Leader:   &partition.Throttle{Rate: func() int64 { return w.throttle }},
			Follower: &partition.Throttle{Rate: func() int64 { return w.throttle }},
		},
	}
	n.mender = &partition.Mender{Applier: n.applier, Now: time.Now, Logger: logger, Peers: &fetcher.Ranges{
		Self: id, Image: n.known,
		To: func(id kafka.BrokerID) fetcher.Requester { return n.to(id, id+rangeLinks) },
	}}
	n.watermarks = dir.Watermarks()
	n.applier.Troubled, n.applier.Marks = n.mender.Note, n.watermarks
	n.services = &api.Services{
		NodeID: id, Partitions: table, Control: control{n: n}, Broker: func() *config.Broker { return broker },
		Now: time.Now, Logger: logger,
		Topics: &topics.Directory{
			Control: control{n: n}, Broker: func() *config.Broker { return broker }, Partitions: table, Logger: logger,
		},
	}
	n.run(logger)
	return n
}

// run runs a broker until stop.
func (n *node) run(logger *slog.Logger) {
	n.w.t.Helper()
	listener, err := n.w.network.Host(host(n.id)).Listen(n.w.t.Context(), host(n.id)+":0")
	n.w.must(err)
	n.addr = listener.Addr().String()
	apis := n.services.Table()
	apis[kmsg.Fetch.Int16()] = n.services.ReplicaFetch()
	server, err := wire.New(wire.Options{
		Listeners: []wire.Listener{{Name: "CLUSTER", Listener: listener}},
		APIs:      func(key int16) (wire.API, bool) { a, ok := apis[key]; return a, ok },
		Limits:    wire.DefaultLimits(), Logger: logger,
	})
	n.w.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(n.w.t.Context()))
	var running sync.WaitGroup
	keep := func(ctx context.Context) error {
		return partition.KeepWatermarks(ctx, n.applier.Table, n.watermarks, logger)
	}
	for _, run := range []func(context.Context) error{
		n.dir.Run, n.fetcher.Run, n.changes.Run, server.Run, n.mender.Run, keep,
	} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				n.w.t.Errorf("broker %d: %v", n.id, err)
			}
		})
	}
	n.stop = sync.OnceFunc(func() {
		cancel()
		for _, l := range n.links {
			l.close()
		}
		running.Wait()
		if err := n.dir.Close(false); err != nil {
			n.w.t.Errorf("broker %d: %v", n.id, err)
		}
	})
}

// toShare returns the ways beside the first, which are counted by negative numbers.
func (n *node) toShare(id kafka.BrokerID, share int) fetcher.Requester {
	return n.to(id, kafka.BrokerID(-share))
}

// to returns the way to a broker, under a name.
func (n *node) to(id, name kafka.BrokerID) fetcher.Requester {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests[name]++
	if n.links[name] == nil {
		n.links[name] = &link{
			network: n.w.network.Host(host(n.id)),
			edit:    n.w.edit,
			addr: func() string {
				n.w.mu.Lock()
				defer n.w.mu.Unlock()
				return n.w.nodes[id].addr
			},
			before: func() {
				if f := n.beforeSend.Load(); f != nil {
					(*f)()
				}
			},
		}
	}
	return n.links[name]
}

// rangeLinks are added to a broker's number for the way on which damaged logs are mended.
const rangeLinks = 1000

// asked returns how many requests went to a broker.
func (n *node) asked(id kafka.BrokerID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests[id]
}

// AlterPartition implements insync.Controller.
func (n *node) AlterPartition(
	_ context.Context, req *kmsg.AlterPartitionRequest,
) (*kmsg.AlterPartitionResponse, error) {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away || w.deaf[n.id] {
		return nil, errors.New("no controller")
	}
	w.asked[n.id]++
	resp, records := w.state.AlterPartition(req)
	w.applyLocked(records)
	return resp, nil
}

// isAway says whether the controller answers.
func (w *world) isAway(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// decide makes records known to all brokers that hear.
func (w *world) decide(records ...metadata.Record) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applyLocked(records)
}

func (w *world) applyLocked(records []metadata.Record) {
	if len(records) == 0 {
		return
	}
	if _, err := w.state.Replay(records); err != nil {
		w.t.Errorf("decide: %v", err)
	}
	for id := range w.nodes {
		if !w.deaf[id] {
			w.tellLocked(id)
		}
	}
}

// tellLocked brings a broker up to date.
func (w *world) tellLocked(id kafka.BrokerID) {
	n, image := w.nodes[id], w.state.Image()
	old := n.known()
	n.mu.Lock()
	n.image = image
	n.mu.Unlock()
	n.applier.Apply(metadata.Diff(old, image))
}

// hear ends a broker's deafness.
func (w *world) hear(id kafka.BrokerID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.deaf, id)
	w.tellLocked(id)
}

// create makes a topic whose partitions are all led by the first replica.
func (w *world) create(name string, partitions int, replicas ...kafka.BrokerID) *metadata.Topic {
	w.t.Helper()
	id := kafka.TopicID{9, byte(w.state.Image().TopicCount())}
	r := &metadata.TopicCreated{Name: name, ID: id}
	for range partitions {
		r.Partitions = append(r.Partitions, metadata.Partition{Replicas: replicas, ISR: replicas, Leader: replicas[0]})
	}
	w.decide(r)
	return w.state.Image().TopicByID(id)
}

// change changes a partition's state.
func (w *world) change(topic string, i int32, edit func(*metadata.Partition)) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.state.Image().Topic(topic)
	p := t.Partitions[i]
	edit(&p)
	p.PartitionEpoch++
	w.applyLocked([]metadata.Record{&metadata.PartitionsChanged{
		ID: t.ID, Changes: []metadata.PartitionChange{{Index: i, Partition: p}},
	}})
}

// elect makes a broker the leader under a new epoch, with an ISR.
func (w *world) elect(topic string, i int32, leader kafka.BrokerID, members ...kafka.BrokerID) {
	w.t.Helper()
	w.change(topic, i, func(p *metadata.Partition) {
		p.Leader, p.ISR = leader, members
		p.LeaderEpoch++
	})
}

// members returns the ISR of a partition, as decided.
func (w *world) members(topic string, i int32) []kafka.BrokerID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Image().Topic(topic).Partitions[i].ISR
}

// crash takes a broker down as by a power loss: what it had not synced survives by
// percent. It returns its disk.
func (w *world) crash(id kafka.BrokerID, percent int) *memfs.FS {
	n := w.nodes[id]
	w.mu.Lock()
	w.deaf[id] = true
	w.mu.Unlock()
	for other := range w.nodes {
		w.network.Reset(host(id), host(other))
	}
	disk := n.disk.CrashClone(uint64(id), percent)
	n.stop()
	return disk
}

// restart brings a broker up again on a disk, under a new registration.
func (w *world) restart(id kafka.BrokerID, disk *memfs.FS) {
	w.t.Helper()
	n := w.start(id, disk)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[id] = n
	delete(w.deaf, id)
	w.applyLocked([]metadata.Record{w.registered(id, w.state.Image().LastBrokerEpoch()+1)})
}

func (w *world) at(id kafka.BrokerID, topic string, i int32) *partition.Partition {
	w.t.Helper()
	p := w.nodes[id].applier.Table.Get(topic, i)
	if p == nil {
		w.t.Fatalf("broker %d has no %s-%d", id, topic, i)
	}
	return p
}

// batch builds a batch of values.
func batch(t testing.TB, values ...string) []record.Batch {
	t.Helper()
	b := record.NewBuilder(record.CodecNone, 0)
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), nil, []byte(v), nil)
	}
	parsed, _, err := record.Next(bytes.Clone(b.Build()))
	if err != nil {
		t.Fatal(err)
	}
	return []record.Batch{parsed}
}

// valuesOf returns the values in stored batches, by offset.
func valuesOf(t testing.TB, stored []byte) map[kafka.Offset]string {
	t.Helper()
	values := map[kafka.Offset]string{}
	for len(stored) > 0 {
		b, rest, err := record.Next(stored)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range b.Records(1 << 20) {
			if err != nil {
				t.Fatal(err)
			}
			values[b.BaseOffset()+kafka.Offset(r.OffsetDelta)] = string(r.Value)
		}
		stored = rest
	}
	return values
}

// produce appends at a broker.
func (w *world) produce(id kafka.BrokerID, topic string, i int32, values ...string) commitlog.AppendInfo {
	w.t.Helper()
	info, err := w.at(id, topic, i).Append(batch(w.t, values...), partition.AcksAll, time.Now())
	w.must(err)
	return info
}

// acked waits until an append is acknowledged, and returns how long that took.
func (w *world) acked(id kafka.BrokerID, topic string, i int32, info commitlog.AppendInfo) time.Duration {
	w.t.Helper()
	begin := time.Now()
	err := w.at(id, topic, i).Await(w.t.Context(), time.After(time.Minute), info.LeaderEpoch, info.LastOffset+1)
	if err != nil {
		w.t.Fatalf("%s-%d at %d is not acknowledged: %v", topic, i, info.BaseOffset, err)
	}
	return time.Since(begin)
}

// bytesOf returns a replica's log from an offset on.
func (w *world) bytesOf(id kafka.BrokerID, topic string, i int32, from kafka.Offset) []byte {
	w.t.Helper()
	var all []byte
	log := w.at(id, topic, i).Log()
	err := log.Batches(from, log.LogEndOffset(), func(b record.Batch) error {
		all = append(all, b.Bytes()...)
		return nil
	})
	if errors.Is(err, commitlog.ErrBusy) {
		return nil // It is being cut just now.
	}
	w.must(err)
	return all
}

// logStart returns the offset that all of the replicas' logs have, or end at.
func (w *world) logStart(topic string, i int32, ids ...kafka.BrokerID) kafka.Offset {
	w.t.Helper()
	var start kafka.Offset
	for _, id := range ids {
		start = max(start, w.at(id, topic, i).Log().LogStartOffset())
	}
	return start
}

// same waits until the replicas' logs are the same bytes, from where all of them have
// begun. A leader may have what its predecessor had deleted a moment before.
func (w *world) same(topic string, i int32, ids ...kafka.BrokerID) {
	w.t.Helper()
	for range 100 {
		equal, start := true, w.logStart(topic, i, ids...)
		for _, id := range ids[1:] {
			equal = equal && bytes.Equal(w.bytesOf(ids[0], topic, i, start), w.bytesOf(id, topic, i, start))
		}
		if equal {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	for _, id := range ids {
		log := w.at(id, topic, i).Log()
		w.t.Errorf("the replicas of %s-%d differ: that of %d has [%d, %d)", topic, i, id, log.LogStartOffset(), log.LogEndOffset())
	}
}
