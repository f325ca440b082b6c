package partition_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

var now = time.UnixMilli(1_700_000_000_000)

// wakes counts wake-ups.
type wakes chan struct{}

func (w wakes) Wake() { w <- struct{}{} }

// fixture is an applier on a data directory in memory whose journal runs only
// when told.
type fixture struct {
	*partition.Applier
	t     *testing.T
	fs    *memfs.FS
	dir   *commitlog.Dir
	image *metadata.Image
	set   partition.Settings
	lost  []kafka.TopicIDPartition
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	disk := memfs.New()
	dir, err := commitlog.OpenDir(disk, commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, fs: disk, dir: dir, image: &metadata.Image{}, set: partition.Settings{MinInSync: 1, MaxLag: time.Second}}
	f.Applier = &partition.Applier{
		Table: partition.NewTable(), Self: 1, Storage: dir, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
		Configure: func(*metadata.Topic) (commitlog.Config, partition.Settings) {
			return commitlog.DefaultConfig(), f.set
		},
		Lost: func(p *partition.Partition) { f.lost = append(f.lost, p.ID()) },
	}
	t.Cleanup(func() {
		if err := dir.Close(true); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	f.apply(&metadata.ClusterRecord{ClusterID: "cluster", Level: 1}, broker(1), broker(2))
	return f
}

func broker(id kafka.BrokerID) *metadata.BrokerRecord {
	e := metadata.Endpoint{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 1}
	return &metadata.BrokerRecord{Broker: metadata.Broker{
		ID: id, Epoch: kafka.BrokerEpoch(id), Directories: [][16]byte{{byte(id)}}, Endpoint: e,
		Endpoints: []metadata.Endpoint{e},
	}}
}

func (f *fixture) apply(rs ...metadata.Record) {
	f.t.Helper()
	image, delta, err := f.image.Apply(rs...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.image = image
	f.Apply(delta)
}

// commit runs the journal until done is woken.
func (f *fixture) commit(done wakes) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.dir.Run(ctx) }() // Ends with cancel, below.
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		f.t.Error("nothing became durable in time")
	}
	cancel()
	if err := <-ended; err != nil {
		f.t.Errorf("run: %v", err)
	}
}

func (f *fixture) topic(name string, id byte, replicas ...kafka.BrokerID) *partition.Partition {
	f.t.Helper()
	f.apply(&metadata.TopicCreated{Name: name, ID: kafka.TopicID{id}, Partitions: []metadata.Partition{
		{Replicas: replicas, ISR: replicas, Leader: replicas[0], LeaderEpoch: 3},
	}})
	p := f.Table.Get(name, 0)
	if p == nil {
		f.t.Fatalf("no partition of %s", name)
	}
	return p
}

func batch(t *testing.T, values ...string) []record.Batch {
	t.Helper()
	b := record.NewBuilder(record.CodecNone, 0)
	for _, v := range values {
		b.Append(now.UnixMilli(), nil, []byte(v), nil)
	}
	raw := b.Build()
	parsed, rest, err := record.Next(raw)
	if err != nil || len(rest) > 0 {
		t.Fatalf("next: %v, %d bytes left", err, len(rest))
	}
	return []record.Batch{parsed}
}

// TestHighWatermarkFollowsTheSync is the product's first promise: what is
// written is neither acknowledged nor served before it is on disk.
func TestHighWatermarkFollowsTheSync(t *testing.T) {
	f := newFixture(t)
	p := f.topic("orders", 1, 1)
	info, err := p.Append(batch(t, "a", "b"), partition.AcksAll, now)
	if err != nil || info.BaseOffset != 0 || info.LastOffset != 1 {
		t.Fatalf("append: %+v, %v", info, err)
	}
	if got := p.HighWatermark(); got != 0 {
		t.Fatalf("high watermark %d before the sync", got)
	}
	read := partition.ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch}
	if r, err := p.Read(read); err != nil || r.Chunk.Size() != 0 {
		t.Fatalf("read before the sync: %d bytes, %v", r.Chunk.Size(), err)
	}
	done := make(wakes, 2)
	var w partition.Waiter
	if !p.Wait(&w, done, info.LastOffset+1) {
		t.Fatal("nothing to wait for")
	}
	f.commit(done)
	if got := p.HighWatermark(); got != 2 || !w.Fired() {
		t.Fatalf("high watermark %d after the sync, fired %v", got, w.Fired())
	}
	r, err := p.Read(read)
	if err != nil || r.Chunk.Size() == 0 || r.Chunk.NextOffset() != 2 {
		t.Fatalf("read after the sync: %d bytes, %v", r.Chunk.Size(), err)
	}
	r.Chunk.Release()
	if p.Wait(&w, done, 2) {
		t.Error("waiting for what is there already")
	}
}

func TestFencing(t *testing.T) {
	f := newFixture(t)
	p := f.topic("orders", 1, 1, 2)
	var fenced *partition.FencedEpochError
	var unknown *partition.UnknownEpochError
	if err := p.Leads(2); !errors.As(err, &fenced) {
		t.Errorf("older epoch: %v", err)
	}
	if err := p.Leads(4); !errors.As(err, &unknown) {
		t.Errorf("newer epoch: %v", err)
	}
	if err := errors.Join(p.Leads(3), p.Leads(kafka.NoLeaderEpoch)); err != nil {
		t.Errorf("current epoch: %v", err)
	}
	done := make(wakes, 1)
	var w partition.Waiter
	p.Wait(&w, done, 100)
	p.Resign(false)
	<-done
	if _, err := p.Append(batch(t, "x"), partition.AcksLeader, now); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("append after resigning: %v", err)
	}
}

func TestMinInSyncReplicas(t *testing.T) {
	f := newFixture(t)
	f.set.MinInSync = 2
	p := f.topic("orders", 1, 1)
	var few *partition.NotEnoughReplicasError
	if _, err := p.Append(batch(t, "x"), partition.AcksAll, now); !errors.As(err, &few) || few.InSync != 1 || few.Min != 2 {
		t.Errorf("acks=all with one of two: %v", err)
	}
	if _, err := p.Append(batch(t, "x"), partition.AcksLeader, now); err != nil {
		t.Errorf("acks=1 does not ask for replicas: %v", err)
	}
	if err := p.EnoughInSync(); !errors.As(err, &few) {
		t.Errorf("after the append: %v", err)
	}
}

func TestTableFollowsTheImage(t *testing.T) {
	f := newFixture(t)
	p := f.topic("orders", 1, 1)
	other := f.topic("elsewhere-later", 2, 1)
	if f.Table.GetByID(kafka.TopicID{1}, 0) != p || f.Table.Get("orders", 1) != nil || f.Table.Get("orders", -1) != nil {
		t.Error("lookups")
	}
	f.apply(&metadata.TopicDeleted{ID: kafka.TopicID{1}})
	if f.Table.Get("orders", 0) != nil || len(f.lost) != 1 {
		t.Errorf("a deleted topic is still there, or its loss was not told: %v", f.lost)
	}
	if _, err := p.Append(batch(t, "x"), partition.AcksAll, now); !errors.Is(err, partition.ErrDeleted) {
		t.Errorf("append to a deleted partition: %v", err)
	}
	again := f.topic("orders", 9, 1)
	if again == p || again.ID().ID != (kafka.TopicID{9}) {
		t.Error("a topic made again under its name is another one")
	}
	n := 0
	f.Table.All(func(*partition.Partition) bool { n++; return true })
	if n != 2 || f.Table.Get("elsewhere-later", 0) != other {
		t.Errorf("%d partitions, want 2", n)
	}
}

// counting is storage that counts how often it is asked to delete logs.
type counting struct {
	partition.Storage
	deletions []int // How many logs at a time.
}

func (c *counting) Delete(ids ...kafka.TopicIDPartition) error {
	c.deletions = append(c.deletions, len(ids))
	return c.Storage.Delete(ids...)
}

// TestDeletedTogether: a change of the metadata deletes all logs at once, since each time
// takes a sync, for which all other changes wait.
func TestDeletedTogether(t *testing.T) {
	f := newFixture(t)
	storage := &counting{Storage: f.dir}
	f.Storage = storage
	one := []kafka.BrokerID{1}
	for id := range byte(2) {
		f.apply(&metadata.TopicCreated{Name: string('a' + rune(id)), ID: kafka.TopicID{id + 1}, Partitions: []metadata.Partition{
			{Replicas: one, ISR: one, Leader: 1}, {Replicas: one, ISR: one, Leader: 1},
		}})
	}
	f.apply(&metadata.TopicDeleted{ID: kafka.TopicID{1}}, &metadata.TopicDeleted{ID: kafka.TopicID{2}})
	if got := storage.deletions; len(got) != 1 || got[0] != 4 {
		t.Errorf("deleted %v at a time", got)
	}
	if left := f.dir.Logs(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestWaiters: each fires once, at its own target, and not after it was removed.
func TestWaiters(t *testing.T) {
	f := newFixture(t)
	p := f.topic("orders", 1, 1)
	done := make(wakes, 10)
	var at1, at2, at5, removed partition.Waiter
	p.Wait(&at5, done, 5)
	p.Wait(&at1, done, 1)
	p.Wait(&removed, done, 1)
	p.Wait(&at2, done, 2)
	p.StopWaiting(&removed)
	p.StopWaiting(&removed)
	if _, err := p.Append(batch(t, "a", "b"), partition.AcksAll, now); err != nil {
		t.Fatal(err)
	}
	f.commit(done)
	<-done
	if !at1.Fired() || !at2.Fired() || at5.Fired() || removed.Fired() || len(done) != 0 {
		t.Errorf("fired: %v %v %v %v, %d wakes too many", at1.Fired(), at2.Fired(), at5.Fired(), removed.Fired(), len(done))
	}
	p.StopWaiting(&at5)
}

// silent is a Waker for somebody who looks by himself.
type silent struct{}

func (silent) Wake() {}

// TestWaiterIsUsedAgainAtOnce: whoever sees that a waiter fired may use it again, while the one that fired it is still
// about to wake him. The race detector tells.
func TestWaiterIsUsedAgainAtOnce(t *testing.T) {
	f := newFixture(t)
	p, other := f.topic("orders", 1, 1), f.topic("others", 2, 1)
	ended := make(chan struct{})
	rounds := make(chan struct{})
	go func() { // Ends with rounds.
		defer close(ended)
		for range rounds {
			p.Resign(false) // Which wakes all.
		}
	}()
	var w partition.Waiter
	done := make(wakes, 1)
	for range 2000 {
		p.Wait(&w, silent{}, 100)
		rounds <- struct{}{}
		for !w.Fired() {
			runtime.Gosched()
		}
		other.Wait(&w, done, 100)
		other.StopWaiting(&w)
	}
	close(rounds)
	<-ended
	if len(done) > 0 {
		t.Error("somebody else was woken")
	}
}
