package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// world is what sessions need of a broker: partitions on a disk in memory, and
// the group machine itself behind a coordinator whose log is never late.
type world struct {
	t        *testing.T
	sessions *session.Sessions
	applier  *partition.Applier
	topics   *topics.Directory
	stop     func()
	image    atomic.Pointer[metadata.Image]

	mu      sync.Mutex
	machine *group.Shard
	next    kafka.Offset
	log     []shard.Record
	down    bool // The coordinator is not there.
	mute    bool // It never answers commits.
	// restarts counts the calls of restart.
	restarts int
	uuids    byte
}

// run runs a test in a bubble with sessions that run.
func run(t *testing.T, limit int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir, err := commitlog.OpenDir(memfs.New(), commitlog.DirOptions{
			Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := dir.Close(true); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		w := &world{t: t}
		w.image.Store(&metadata.Image{})
		w.machine = w.newMachine()
		logger := slog.New(slog.DiscardHandler)
		w.applier = &partition.Applier{
			Table: partition.NewTable(), Self: 1, Storage: dir, Logger: logger, Now: time.Now,
			Configure: func(*metadata.Topic) (commitlog.Config, partition.Settings) {
				c := commitlog.DefaultConfig()
				c.FlushMessages = 1 << 40 // Durable enough for a test without a journal.
				return c, partition.Settings{MinInSync: 1, MaxLag: time.Second}
			},
		}
		w.topics = &topics.Directory{
			Control: w, Broker: config.Default, Partitions: w.applier.Table, Logger: logger,
			EnsureOffsets: func(context.Context) error { return nil },
		}
		e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
		w.apply(&metadata.ClusterRecord{ClusterID: "cluster", Level: 1}, &metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 1, Directories: [][16]byte{{1}}, Endpoint: e, Endpoints: []metadata.Endpoint{e},
		}})
		stop := w.begin(limit)
		test(t, w)
		stop()
	})
}

// begin runs sessions and the coordinator's clock until the function it returns
// is called.
func (w *world) begin(limit int) func() {
	w.sessions = session.New(session.Options{
		Groups: w, EnsureOffsets: func(context.Context) error { return nil }, Topics: w.topics,
		Now: time.Now, Logger: slog.New(slog.DiscardHandler), MaxSessions: limit,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { // Ends with cancel.
		if err := w.sessions.Run(ctx); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	done.Go(func() { w.tick(ctx) }) // Ends with cancel.
	w.stop = func() { cancel(); done.Wait() }
	return func() { w.stop() }
}

// restart loses all sessions and what the machine has not written.
func (w *world) restart() {
	w.stop()
	w.restarts++
	w.mu.Lock()
	w.machine = w.newMachine()
	for _, r := range w.log {
		if err := w.machine.Replay(r); err != nil {
			w.t.Errorf("replay: %v", err)
		}
	}
	w.machine.Loaded(time.Now().UnixMilli())
	w.mu.Unlock()
	w.begin(0)
}

// keepUpTo takes back what was written after the group's record of a generation.
func (w *world) keepUpTo(generation int32) {
	w.stop()
	for ; ; w.log = w.log[:len(w.log)-1] {
		m := w.newMachine()
		for _, r := range w.log {
			if err := m.Replay(r); err != nil {
				w.t.Fatal(err)
			}
		}
		d, ok := m.Describe("g")
		if d.Generation == generation && len(d.Members) == 2 {
			return
		}
		if !ok {
			w.t.Fatalf("there is no record of generation %d", generation)
		}
	}
}

func (w *world) newMachine() *group.Shard {
	return group.New(group.Options{Settings: group.DefaultSettings(), NewUUID: func() [16]byte {
		w.uuids++
		return [16]byte{w.uuids}
	}})
}

func (w *world) tick(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_ = w.Do("", func(m *group.Shard, nowMs int64, fx *shard.Effects) {
			if m.Deadline() <= nowMs {
				m.Tick(nowMs, fx)
			}
		})
	}
}

// Read implements session.Groups.
func (w *world) Read(_ context.Context, id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	return w.Do(id, step)
}

// Do implements session.Groups.
func (w *world) Do(_ string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	w.mu.Lock()
	if w.down {
		w.mu.Unlock()
		return &kafka.Error{Code: kafka.ErrCoordinatorLoadInProgress, Message: "loading"}
	}
	var fx shard.Effects
	now := time.Now().UnixMilli()
	step(w.machine, now, &fx)
	for _, kv := range fx.Records {
		r := shard.Record{Key: kv.Key, Value: kv.Value, Offset: w.next, TimestampMs: now}
		w.next++
		replay := w.machine.Replay
		if in := fx.Transaction; in != nil { // Nobody restarts while one is open.
			replay = func(r shard.Record) error { return w.machine.ReplayPending(r, in.ProducerID) }
		} else {
			w.log = append(w.log, r)
		}
		if err := replay(r); err != nil {
			w.t.Errorf("replay: %v", err)
		}
	}
	mute := w.mute
	w.mu.Unlock()
	for _, r := range fx.Replies {
		if _, ok := r.Response.(*kmsg.OffsetCommitResponse); ok && mute {
			continue
		}
		r.To.Complete(r.Response)
	}
	return nil
}

// Image implements topics.Control.
func (w *world) Image() *metadata.Image { return w.image.Load() }

// CreateTopics implements topics.Control.
func (w *world) CreateTopics(context.Context, *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	return nil, fmt.Errorf("no controller here")
}

func (w *world) apply(rs ...metadata.Record) {
	w.t.Helper()
	image, delta, err := w.image.Load().Apply(rs...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.image.Store(image)
	w.applier.Apply(delta)
}

func (w *world) createTopic(name string, id byte, partitions int) {
	w.t.Helper()
	created := &metadata.TopicCreated{Name: name, ID: kafka.TopicID{id}}
	for range partitions {
		created.Partitions = append(created.Partitions, metadata.Partition{
			Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1, LeaderEpoch: 1,
		})
	}
	w.apply(created)
}

// produce appends a batch with values.
func (w *world) produce(topic string, number int32, codec record.Codec, values ...string) {
	w.t.Helper()
	b := record.NewBuilder(codec, 0)
	for _, v := range values {
		b.Append(time.Now().UnixMilli(), []byte("k"), []byte(v), nil)
	}
	parsed, _, err := record.Next(b.Build())
	if err == nil {
		_, err = w.applier.Table.Get(topic, number).Append([]record.Batch{parsed}, partition.AcksAll, time.Now())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// page is a sink that keeps what it is given as partition:offset=value.
type page struct {
	records []string
	limit   int
}

func (p *page) Add(number int32, r *record.Record) bool {
	p.records = append(p.records, fmt.Sprintf("%d:%d=%s", number, r.Offset, r.Value))
	return p.limit == 0 || len(p.records) < p.limit
}
func (p *page) Mark() int       { return len(p.records) }
func (p *page) Rewind(mark int) { p.records = p.records[:mark] }

// consume is a call that must succeed.
func (w *world) consume(r session.Consume) ([]string, session.Batch) {
	w.t.Helper()
	if r.Group == "" {
		r.Group = "g"
	}
	if r.Topic == "" {
		r.Topic = "t"
	}
	if r.MaxBytes == 0 {
		r.MaxBytes = 1 << 20
	}
	var p page
	b, err := w.sessions.Consume(w.t.Context(), r, &p)
	if err != nil {
		w.t.Fatalf("consume: %v", err)
	}
	if b.Records != len(p.records) {
		w.t.Fatalf("%d records said, %d given", b.Records, len(p.records))
	}
	return p.records, b
}

// peer is a member of the group that speaks the protocol itself, as a Kafka
// client would.
type peer struct {
	w          *world
	strategies []string
	id         string
	generation int32
	owned      []int32
	// patient: tries again while the group knows just one strategy of members that
	// are not back after a restart.
	patient bool
}

type reply chan kmsg.Response

func (r reply) Complete(response any) { r <- response.(kmsg.Response) }

func (w *world) ask(req kmsg.Request) kmsg.Response {
	w.t.Helper()
	to := make(reply, 1)
	err := w.Do("g", func(m *group.Shard, nowMs int64, fx *shard.Effects) {
		m.Handle(&group.Context{
			NowMs: nowMs, Caller: to, ClientID: "java", ClientHost: "/10.0.0.1", Topics: groups.Topics{Image: w.Image()},
		}, req, fx)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return <-to
}

// join joins and syncs once; assign makes the assignment if the peer leads.
func (p *peer) join(assign func(*kmsg.JoinGroupResponse) []kmsg.SyncGroupRequestGroupAssignment) {
	p.w.t.Helper()
	for {
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics, m.Generation = 2, []string{"t"}, p.generation
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.MemberID, req.ProtocolType = 5, "g", p.id, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
		for _, s := range p.strategies {
			proto := kmsg.NewJoinGroupRequestProtocol()
			proto.Name, proto.Metadata = s, m.AppendTo(nil)
			req.Protocols = append(req.Protocols, proto)
		}
		resp := p.w.ask(req).(*kmsg.JoinGroupResponse)
		p.id = resp.MemberID
		if resp.ErrorCode == int16(kafka.ErrMemberIDRequired) {
			continue
		}
		if resp.ErrorCode == int16(kafka.ErrInconsistentGroupProtocol) && p.patient {
			pass(time.Second)
			continue
		}
		if resp.ErrorCode != 0 {
			p.w.t.Fatalf("join: %v", kafka.Code(resp.ErrorCode))
		}
		p.generation = resp.Generation
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "g", p.id, p.generation
		if resp.LeaderID == resp.MemberID {
			sync.GroupAssignment = assign(resp)
		}
		synced := p.w.ask(sync).(*kmsg.SyncGroupResponse)
		if synced.ErrorCode == int16(kafka.ErrRebalanceInProgress) {
			continue
		}
		if synced.ErrorCode != 0 {
			p.w.t.Fatalf("sync: %v", kafka.Code(synced.ErrorCode))
		}
		p.owned = nil
		assigned, _ := group.AssignedPartitions(synced.MemberAssignment)
		for _, tp := range assigned {
			p.owned = append(p.owned, tp.Partition)
		}
		return
	}
}

func (p *peer) heartbeat() kafka.Code {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, "g", p.id, p.generation
	return kafka.Code(p.w.ask(req).(*kmsg.HeartbeatResponse).ErrorCode)
}

func (p *peer) leave() {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 3, "g"
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = p.id
	req.Members = append(req.Members, m)
	p.w.ask(req)
}

func (w *world) setMute(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = mute
}

func (w *world) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// pass lets the bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }
