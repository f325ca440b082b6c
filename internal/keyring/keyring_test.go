package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// start is when the tests begin.
var start = time.UnixMilli(1_700_000_000_000)

// fixture is a topic of two partitions in memory.
type fixture struct {
	topics.Control
	t       *testing.T
	image   *metadata.Image
	applier *partition.Applier
	topics  *topics.Directory
	rings   *keyring.Rings
	maxKeys int // Of all rings; 0 for any number.
}

// Image implements topics.Control.
func (f *fixture) Image() *metadata.Image { return f.image }

func newFixture(t *testing.T, configs map[string]string) *fixture {
	t.Helper()
	dir, err := commitlog.OpenDir(memfs.New(), commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(true); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	f := &fixture{t: t, image: &metadata.Image{}}
	f.rings = keyring.New(keyring.Options{
		MaxKeys: func() int { return f.maxKeys }, Exists: func(id kafka.TopicID) bool { return f.image.TopicByID(id) != nil },
	})
	f.applier = &partition.Applier{
		Table: partition.NewTable(), Self: 1, Storage: dir, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return start },
		Configure: func(*metadata.Topic) (commitlog.Config, partition.Settings) {
			return commitlog.DefaultConfig(), partition.Settings{MinInSync: 1, MaxLag: time.Second}
		},
	}
	broker := config.Default()
	f.topics = &topics.Directory{
		Control: f, Broker: func() *config.Broker { return broker }, Partitions: f.applier.Table,
		Logger: slog.New(slog.DiscardHandler),
	}
	e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
	replicas := []kafka.BrokerID{1}
	p := metadata.Partition{Replicas: replicas, ISR: replicas, Leader: 1, LeaderEpoch: 3}
	f.apply(
		&metadata.ClusterRecord{ClusterID: "cluster", Level: 1},
		&metadata.BrokerRecord{Broker: metadata.Broker{
			ID: 1, Epoch: 1, Directories: [][16]byte{{1}}, Endpoint: e, Endpoints: []metadata.Endpoint{e},
		}},
		&metadata.TopicCreated{Name: "t", ID: kafka.TopicID{7}, Partitions: []metadata.Partition{p, p}, Config: configs},
		&metadata.TopicCreated{Name: "u", ID: kafka.TopicID{8}, Partitions: []metadata.Partition{p}, Config: configs},
	)
	return f
}

func (f *fixture) apply(rs ...metadata.Record) {
	f.t.Helper()
	image, delta, err := f.image.Apply(rs...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.image = image
	f.applier.Apply(delta)
}

// view is the topic t as it is now.
func (f *fixture) view() *topics.View {
	f.t.Helper()
	return f.viewOf("t")
}

func (f *fixture) viewOf(topic string) *topics.View {
	f.t.Helper()
	v, code := f.topics.ByName(topic)
	if code != kafka.ErrNone {
		f.t.Fatal(code)
	}
	return v
}

// write appends a record with a mark behind the ring's back, as it is when the
// broker starts.
func (f *fixture) write(i int32, key string, at time.Time) {
	f.t.Helper()
	b := record.NewBuilder(record.CodecNone, record.DefaultLevel)
	value := []byte("v")
	b.Append(at.UnixMilli(), nil, value, idempotency.AppendMark(nil, []byte(key), idempotency.DigestContent(nil, value, nil)))
	batch, _, err := record.Next(b.Build())
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.view().Partition(i).Append([]record.Batch{batch}, partition.AcksLeader, at); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) hold(ctx context.Context, now time.Time) *keyring.Ring {
	f.t.Helper()
	ring, err := f.rings.Hold(ctx, f.view(), now)
	if err != nil {
		f.t.Fatal(err)
	}
	return ring
}

// find says where a key's record is, "" for nowhere.
func (f *fixture) find(key string, now time.Time) string {
	f.t.Helper()
	ring := f.hold(f.t.Context(), now)
	defer ring.Release()
	place, outcome := ring.Check(idempotency.DigestKey([]byte(key)), idempotency.DigestContent(nil, []byte("v"), nil), now)
	if outcome != idempotency.Repeated {
		return ""
	}
	return fmt.Sprintf("%d/%d", place.Partition, place.Offset)
}

func (f *fixture) want(key, place string, now time.Time) {
	f.t.Helper()
	if got := f.find(key, now); got != place {
		f.t.Errorf("key %s is at %q, want %q", key, got, place)
	}
}

// move gives the topic's partitions a new leader epoch.
func (f *fixture) move(leader kafka.BrokerID, epoch kafka.LeaderEpoch) {
	f.t.Helper()
	replicas := []kafka.BrokerID{1}
	p := metadata.Partition{
		Replicas: replicas, ISR: replicas, Leader: leader, LeaderEpoch: epoch, PartitionEpoch: kafka.PartitionEpoch(epoch),
	}
	f.apply(&metadata.PartitionsChanged{
		ID: kafka.TopicID{7}, Changes: []metadata.PartitionChange{{Index: 0, Partition: p}, {Index: 1, Partition: p}},
	})
}

func TestReadsTheWindow(t *testing.T) {
	f := newFixture(t, nil)
	f.write(0, "old", start.Add(-2*time.Hour))
	f.write(0, "a", start)
	f.write(1, "b", start)
	f.want("old", "", start)
	f.want("a", "0/1", start)
	f.want("b", "1/0", start)
	f.want("c", "", start)
	f.want("a", "", start.Add(time.Hour))
	// What others append counts from the next leadership on.
	f.write(1, "c", start)
	f.want("c", "", start)
	f.move(1, 4)
	f.want("c", "1/1", start)
	kept := f.rings.Kept(start.Add(time.Minute))
	if len(kept) != 2 || kept[0].Topic != "t" || kept[0].Keys+kept[1].Keys != 3 || !kept[0].Oldest.Equal(start) {
		t.Errorf("kept %+v", kept)
	}
	if kept := f.rings.Kept(start.Add(time.Hour)); len(kept) != 0 {
		t.Errorf("kept after an hour %+v", kept)
	}
	f.rings.Forget(kafka.TopicID{7})
	f.want("c", "1/1", start)
}

// An append that follows from a look at the table is one under the same leader
// epoch.
func TestLeadership(t *testing.T) {
	f := newFixture(t, nil)
	ring := f.hold(t.Context(), start)
	epoch, err := ring.Ready(t.Context(), 0, start)
	if err != nil || epoch != 3 {
		t.Fatalf("epoch %d, %v", epoch, err)
	}
	p := f.view().Partition(0)
	f.move(1, 5)
	var fenced *partition.FencedEpochError
	if _, err := p.AppendUnder(epoch, nil, partition.AcksLeader, start); !errors.As(err, &fenced) {
		t.Errorf("an append under the old epoch: %v", err)
	}
	if epoch, err := ring.Ready(t.Context(), 0, start); err != nil || epoch != 5 {
		t.Errorf("epoch %d, %v", epoch, err)
	}
	ring.Release()
	f.write(0, "a", start)
	f.move(kafka.NoBroker, 6)
	f.want("a", "", start)
	ring = f.hold(t.Context(), start)
	if _, err := ring.Ready(t.Context(), 0, start); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("without leadership: %v", err)
	}
	ring.Release()
	f.move(1, 7)
	f.want("a", "0/0", start)
}

// More keys, or older ones, than were kept are read again.
func TestBoundsThatGrow(t *testing.T) {
	f := newFixture(t, map[string]string{"idempotency.max.keys": "2", "idempotency.window.ms": "1000"})
	f.write(0, "older", start.Add(-5*time.Second))
	for _, key := range []string{"a", "b", "c"} {
		f.write(0, key, start)
	}
	f.want("older", "", start)
	f.want("a", "", start)
	f.want("b", "0/2", start)
	set := func(name, value string) {
		f.apply(&metadata.ConfigChanged{
			Resource: metadata.Resource{Type: metadata.TopicResource, Name: "t"}, Set: map[string]string{name: value},
		})
	}
	set("idempotency.max.keys", "10")
	f.want("older", "", start)
	f.want("a", "0/1", start)
	set("idempotency.window.ms", "60000")
	f.want("older", "0/0", start)
	set("idempotency.window.ms", "1000")
	f.want("older", "", start)
}

// expiring is a context that ends after so many looks at it.
type expiring struct {
	context.Context
	left int
}

// Err implements context.Context.
func (e *expiring) Err() error {
	if e.left--; e.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A load that does not end in time goes on where it was.
func TestLoadGoesOn(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 100 {
		f.write(int32(i%2), fmt.Sprint("key-", i), start)
	}
	tries := 0
	for ; tries < 200; tries++ {
		ring, err := f.rings.Hold(&expiring{t.Context(), 5}, f.view(), start)
		if err == nil {
			ring.Release()
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if tries < 10 || tries == 200 {
		t.Errorf("%d tries", tries)
	}
	for i := range 100 {
		f.want(fmt.Sprint("key-", i), fmt.Sprintf("%d/%d", i%2, i/2), start)
	}
}

func TestOneHolder(t *testing.T) {
	f := newFixture(t, nil)
	f.write(0, "a", start)
	ring := f.hold(t.Context(), start)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.rings.Hold(ctx, f.view(), start); !errors.Is(err, context.Canceled) {
		t.Errorf("a held ring: %v", err)
	}
	if kept := f.rings.Kept(start); len(kept) != 1 || kept[0].Keys != 1 {
		t.Errorf("kept %+v", kept)
	}
	ring.Release()
	f.hold(t.Context(), start).Release()
}

// observe takes keys in, as of records that were just appended.
func (f *fixture) observe(topic string, i int32, keys ...string) {
	f.t.Helper()
	ring, err := f.rings.Hold(f.t.Context(), f.viewOf(topic), start)
	if err != nil {
		f.t.Fatal(err)
	}
	defer ring.Release()
	for n, key := range keys {
		ring.Observe(idempotency.DigestKey([]byte(key)), idempotency.Digest{},
			idempotency.Place{Partition: i, Offset: kafka.Offset(n), TimestampMs: start.UnixMilli()})
	}
}

// knows says which of the keys are known.
func (f *fixture) knows(topic string, keys ...string) (known []string) {
	f.t.Helper()
	ring, err := f.rings.Hold(f.t.Context(), f.viewOf(topic), start)
	if err != nil {
		f.t.Fatal(err)
	}
	defer ring.Release()
	for _, key := range keys {
		if _, outcome := ring.Check(idempotency.DigestKey([]byte(key)), idempotency.Digest{}, start); outcome == idempotency.Repeated {
			known = append(known, key)
		}
	}
	return known
}

// All rings together keep so many keys. Beyond it the partition with the most
// forgets its oldest, whoever has come with one more.
func TestRoom(t *testing.T) {
	f := newFixture(t, map[string]string{"idempotency.max.keys": "100"})
	f.maxKeys = 10
	f.observe("t", 0, "0", "1", "2", "3", "4", "5", "6")
	f.observe("t", 1, "x")
	f.observe("u", 0, "a", "b")
	check := func(want keyring.Room) {
		t.Helper()
		want.Limit = f.maxKeys
		if got := f.rings.Room(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	check(keyring.Room{Keys: 10})
	f.observe("u", 0, "c", "d")
	check(keyring.Room{Keys: 10, EvictedByBroker: 2})
	if got := f.knows("t", "0", "1", "2", "6", "x"); !slices.Equal(got, []string{"2", "6", "x"}) {
		t.Errorf("t knows %q", got)
	}
	if got := f.knows("u", "a", "b", "c", "d"); len(got) != 4 {
		t.Errorf("u knows %q", got)
	}
	// Who has the most is the one who pays, also with keys of its own.
	f.observe("u", 0, "e", "f", "g", "h", "i", "j")
	if got := f.rings.Room(); got.Keys != 10 || got.EvictedByBroker != 8 {
		t.Errorf("%+v", got)
	}
	if got := f.knows("t", "x"); len(got) != 1 {
		t.Error("a partition with one key lost it")
	}
	kept := 0
	for _, k := range f.rings.Kept(start) {
		kept += k.Keys
	}
	if kept != 10 {
		t.Errorf("%d kept", kept)
	}
	// What is over makes room by itself.
	f.rings.Kept(start.Add(time.Hour))
	check(keyring.Room{EvictedByBroker: 8})
}

// A partition that has no room for more is counted apart, and a load is bounded as
// well.
func TestRoomOfAPartition(t *testing.T) {
	f := newFixture(t, map[string]string{"idempotency.max.keys": "2"})
	f.observe("t", 0, "a", "b", "c")
	if got, want := f.rings.Room(), (keyring.Room{Keys: 2, EvictedByPartition: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	f = newFixture(t, nil)
	f.maxKeys = 5
	for i := range 20 {
		f.write(0, fmt.Sprint(i), start)
	}
	f.hold(t.Context(), start).Release()
	if got := f.rings.Room(); got.Keys != 5 || got.EvictedByBroker != 15 {
		t.Errorf("after a load: %+v", got)
	}
	f.want("19", "0/19", start)
}

// A topic that was deleted leaves nothing behind, whoever was about to hold its
// ring.
func TestForget(t *testing.T) {
	f := newFixture(t, nil)
	before := f.view()
	f.observe("t", 0, "a")
	held := f.hold(t.Context(), start)
	f.apply(&metadata.TopicDeleted{ID: kafka.TopicID{7}})
	f.rings.Forget(kafka.TopicID{7})
	held.Observe(idempotency.DigestKey([]byte("b")), idempotency.Digest{}, idempotency.Place{TimestampMs: start.UnixMilli()})
	held.Release()
	_, err := f.rings.Hold(t.Context(), before, start)
	if code := refusal.CodeOf(err); code != kafka.ErrUnknownTopicOrPartition {
		t.Errorf("hold of a deleted topic: %v", err)
	}
	if room, kept := f.rings.Room(), f.rings.Kept(start); room.Keys != 0 || len(kept) != 0 || f.rings.Len() != 0 {
		t.Errorf("%+v, %+v, %d rings", room, kept, f.rings.Len())
	}
}
