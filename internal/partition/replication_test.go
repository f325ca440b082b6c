package partition_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// cluster is brokers 1 to n with one partition, on disks in memory, that talk by
// direct calls and only when told.
type cluster struct {
	t     *testing.T
	image *metadata.Image
	nodes map[kafka.BrokerID]*node
	state metadata.Partition
	// minInSync counts from the next change of the metadata on.
	minInSync int
	losing    func(p *partition.Partition, from, to kafka.Offset)
}

// node is one broker of a cluster.
type node struct {
	*partition.Applier
	id    kafka.BrokerID
	disk  *memfs.FS
	dir   *commitlog.Dir
	marks *commitlog.Watermarks
	stop  func()
	wants []*partition.Partition
	moved int
}

var orders = kafka.TopicIDPartition{ID: kafka.TopicID{7}}

// newCluster starts brokers whose partition is led by broker 1, with all in sync.
func newCluster(t *testing.T, brokers ...kafka.BrokerID) *cluster {
	t.Helper()
	c := &cluster{t: t, image: &metadata.Image{}, nodes: map[kafka.BrokerID]*node{}, minInSync: 1}
	for _, id := range brokers {
		c.nodes[id] = c.start(id, memfs.New())
	}
	records := []metadata.Record{&metadata.ClusterRecord{ClusterID: "cluster", Level: 1}}
	for _, id := range brokers {
		records = append(records, broker(id))
	}
	c.state = metadata.Partition{Replicas: brokers, ISR: brokers, Leader: brokers[0]}
	c.apply(append(records, &metadata.TopicCreated{
		Name: "orders", ID: orders.ID, Partitions: []metadata.Partition{c.state},
	})...)
	return c
}

// start opens a broker's data directory and runs it until stop or the test's end.
func (c *cluster) start(id kafka.BrokerID, disk *memfs.FS) *node {
	c.t.Helper()
	dir, err := commitlog.OpenDir(disk, commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: id, DirectoryID: fmt.Sprint("directory-", id)}, BallastBytes: -1,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{id: id, disk: disk, dir: dir, marks: dir.Watermarks()}
	n.Applier = &partition.Applier{
		Table: partition.NewTable(), Self: id, Storage: dir, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Marks: n.marks,
		Configure: func(*metadata.Topic) (commitlog.Config, partition.Settings) {
			return commitlog.DefaultConfig(), partition.Settings{MinInSync: c.minInSync, MaxLag: time.Second}
		},
		Wants: func(p *partition.Partition) { n.wants = append(n.wants, p) },
		Moved: func(*partition.Partition) { n.moved++ },
		Losing: func(p *partition.Partition, from, to kafka.Offset) {
			if c.losing != nil {
				c.losing(p, from, to)
			}
		},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- dir.Run(ctx) }() // Ends with stop.
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, dir.Close(false)); err != nil {
			c.t.Errorf("broker %d: %v", id, err)
		}
	})
	c.t.Cleanup(n.stop)
	return n
}

func (c *cluster) apply(rs ...metadata.Record) {
	c.t.Helper()
	image, delta, err := c.image.Apply(rs...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.image = image
	for _, n := range c.nodes {
		n.Apply(delta)
	}
}

// elect makes a broker the leader under the next epoch, with an ISR.
func (c *cluster) elect(leader kafka.BrokerID, members ...kafka.BrokerID) {
	c.t.Helper()
	c.state.Leader, c.state.ISR = leader, members
	c.state.LeaderEpoch++
	c.change()
}

// shrink makes another ISR known under the same leader.
func (c *cluster) shrink(members ...kafka.BrokerID) {
	c.t.Helper()
	c.state.ISR = members
	c.change()
}

func (c *cluster) change() {
	c.t.Helper()
	c.state.PartitionEpoch++
	c.apply(&metadata.PartitionsChanged{ID: orders.ID, Changes: []metadata.PartitionChange{{Partition: c.state}}})
}

// crash restarts a broker as after a power loss.
func (c *cluster) crash(id kafka.BrokerID) {
	c.t.Helper()
	old := c.nodes[id]
	disk := old.disk.CrashClone(uint64(id), 0)
	old.stop()
	n := c.start(id, disk)
	c.nodes[id] = n
	n.Apply(metadata.Diff(&metadata.Image{}, c.image))
}

func (c *cluster) at(id kafka.BrokerID) *partition.Partition {
	c.t.Helper()
	p := c.nodes[id].Table.GetByID(orders.ID, 0)
	if p == nil {
		c.t.Fatalf("broker %d has no replica", id)
	}
	return p
}

// produce appends values at a broker and waits until they are synced there.
func (c *cluster) produce(id kafka.BrokerID, values ...string) commitlog.AppendInfo {
	c.t.Helper()
	info, err := c.at(id).Append(batch(c.t, values...), partition.AcksAll, now)
	if err != nil {
		c.t.Fatalf("append at %d: %v", id, err)
	}
	c.synced(id)
	return info
}

// synced waits until a broker's log is synced.
func (c *cluster) synced(id kafka.BrokerID) {
	c.t.Helper()
	p := c.at(id)
	done := make(wakes, 10)
	var w partition.Waiter
	for p.WaitSynced(&w, done, p.Log().LogEndOffset()) {
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			c.t.Fatalf("broker %d does not sync", id)
		}
	}
}

// ask has a broker fetch once from another, as they are, and returns the answer.
func (c *cluster) ask(id, from kafka.BrokerID) (partition.ReadResult, error) {
	c.t.Helper()
	p := c.at(id)
	f, ok := p.Following()
	if !ok {
		c.t.Fatalf("broker %d follows nobody", id)
	}
	at, err := p.Position(f.LeaderEpoch)
	if err != nil || !at.Synced {
		c.t.Fatalf("position of %d: %+v, %v", id, at, err)
	}
	return c.at(from).ReadAsReplica(partition.ReplicaFetch{
		Replica: id, BrokerEpoch: kafka.BrokerEpoch(id), LeaderEpoch: f.LeaderEpoch, From: at.Offset,
		LastEpoch: at.LastEpoch, MaxBytes: 1 << 20, MinOneBatch: true, Now: now,
	})
}

// fetch has a broker fetch from its leader until it has all, cutting where the logs
// part. It returns the cuts.
func (c *cluster) fetch(id kafka.BrokerID) []partition.Cut {
	c.t.Helper()
	p := c.at(id)
	f, _ := p.Following()
	var cuts []partition.Cut
	for {
		r, err := c.ask(id, f.Leader)
		switch {
		case err != nil:
			c.t.Fatalf("broker %d fetches: %v", id, err)
		case r.Diverging != nil && len(cuts) > 9:
			c.t.Fatalf("broker %d cuts for ever: %+v", id, cuts)
		case r.Diverging != nil:
			cut, err := p.TruncateTo(f.LeaderEpoch, *r.Diverging)
			if err != nil || cut.To >= cut.From {
				c.t.Fatalf("broker %d cuts %+v: %v", id, cut, err)
			}
			cuts = append(cuts, cut)
			continue
		}
		data, err := r.Chunk.AppendTo(nil)
		r.Chunk.Release()
		if err != nil {
			c.t.Fatal(err)
		}
		_, err = p.AppendAsFollower(f.LeaderEpoch, partition.Fetched{
			Batches: batches(c.t, data), HighWatermark: r.HighWatermark, LogStartOffset: r.LogStartOffset,
		})
		if err != nil {
			c.t.Fatalf("broker %d appends: %v", id, err)
		}
		if len(data) == 0 {
			return cuts
		}
		c.synced(id)
	}
}

func batches(t *testing.T, data []byte) []record.Batch {
	t.Helper()
	var out []record.Batch
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil {
			t.Fatal(err)
		}
		out, data = append(out, b), rest
	}
	return out
}

// bytesOf returns all of a broker's log.
func (c *cluster) bytesOf(id kafka.BrokerID) []byte {
	c.t.Helper()
	var all []byte
	log := c.at(id).Log()
	err := log.Batches(log.LogStartOffset(), log.LogEndOffset(), func(b record.Batch) error {
		all = append(all, b.Bytes()...)
		return nil
	})
	if err != nil {
		c.t.Fatalf("read the log of %d: %v", id, err)
	}
	return all
}

// same checks that the brokers' logs are the same bytes.
func (c *cluster) same(ids ...kafka.BrokerID) {
	c.t.Helper()
	for _, id := range ids[1:] {
		if !bytes.Equal(c.bytesOf(ids[0]), c.bytesOf(id)) {
			c.t.Errorf("the logs of %d and %d are not the same: they end at %d and %d", ids[0], id,
				c.at(ids[0]).Log().LogEndOffset(), c.at(id).Log().LogEndOffset())
		}
	}
}

// watermark checks a broker's high watermark.
func (c *cluster) watermark(id kafka.BrokerID, want kafka.Offset) {
	c.t.Helper()
	if got := c.at(id).HighWatermark(); got != want {
		c.t.Errorf("high watermark of %d is %d, want %d", id, got, want)
	}
}

// values returns the values in a broker's log.
func (c *cluster) values(id kafka.BrokerID) []string {
	c.t.Helper()
	var out []string
	for _, b := range batches(c.t, c.bytesOf(id)) {
		for r, err := range b.Records(1 << 20) {
			if err != nil {
				c.t.Fatal(err)
			}
			out = append(out, string(r.Value))
		}
	}
	return out
}

// TestFollowersAcknowledge: a record is acknowledged when every member of the ISR has
// fetched beyond it, which each does only with what is on its disk; and their logs are
// the leader's, byte by byte.
func TestFollowersAcknowledge(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	info := c.produce(1, "a", "b")
	c.produce(1, "c")
	end := info.LastOffset + 1
	if err := c.at(1).Acknowledged(info.LeaderEpoch, end); !errors.Is(err, partition.ErrNotYet) {
		t.Fatalf("acknowledged by the leader alone: %v", err)
	}
	c.fetch(2)
	c.watermark(1, 0)
	c.fetch(3)
	c.watermark(1, 3)
	if err := c.at(1).Acknowledged(info.LeaderEpoch, end); err != nil {
		t.Fatalf("not acknowledged by all: %v", err)
	}
	c.watermark(2, 0) // It has not asked since.
	c.fetch(2)
	c.watermark(2, 3)
	c.same(1, 2, 3)
}

// TestFailover: the next leader has all that was acknowledged; what one replica alone
// had is cut, by where the epochs end, when it comes back.
func TestFailover(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(3)
	c.produce(1, "lost-1", "lost-2")
	c.elect(2, 2, 3)
	c.produce(2, "b")
	if cuts := c.fetch(3); len(cuts) != 0 {
		t.Errorf("broker 3 cut %+v", cuts)
	}
	c.watermark(2, 2)
	c.shrink(1, 2, 3)
	cuts := c.fetch(1)
	if len(cuts) != 1 || cuts[0].From != 3 || cuts[0].To != 1 || cuts[0].Lost() {
		t.Errorf("broker 1 cut %+v", cuts)
	}
	c.same(1, 2, 3)
}

// TestTwoFastElections is KIP-279: leadership goes from 1 to 2 and back to 1 with
// records of both that nobody else has. A comparison of one epoch is not enough.
func TestTwoFastElections(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(2)
	c.produce(1, "only-1-epoch-0", "only-1-epoch-0")
	c.elect(2, 1, 2)
	c.produce(2, "only-2-epoch-1")
	c.elect(1, 1, 2)
	c.produce(1, "only-1-epoch-2")
	c.produce(1, "only-1-epoch-2")
	if cuts := c.fetch(2); len(cuts) == 0 || cuts[len(cuts)-1].To != 1 {
		t.Errorf("cuts %+v", cuts)
	}
	c.same(1, 2)
	c.watermark(1, 5)
}

// TestLeaderWithoutRecords: leadership goes from 1 to 2 and back before 2 has appended
// anything or 1 has followed. What 2 then fetches is of an older epoch than its own.
func TestLeaderWithoutRecords(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	c.elect(1, 1, 2)
	c.produce(1, "b", "c")
	c.produce(1, "d")
	c.elect(2, 1, 2)
	c.elect(1, 1, 2)
	if cuts := c.fetch(2); len(cuts) != 0 {
		t.Errorf("cuts %+v", cuts)
	}
	c.fetch(2)
	c.same(1, 2)
	c.watermark(2, 4)
	c.produce(1, "e")
	c.fetch(2)
	c.same(1, 2)
	want, err := c.at(1).Log().Epochs()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.at(2).Log().Epochs(); err != nil || !slices.Equal(got, want) {
		t.Errorf("the follower's epochs are %v, its leader's %v, %v", got, want, err)
	}
}

// TestElectedBeforeItKnewTheHighWatermark is KIP-101: a follower that crashes and is
// elected at once keeps what was acknowledged, although it had not heard so.
func TestElectedBeforeItKnewTheHighWatermark(t *testing.T) {
	c := newCluster(t, 1, 2)
	info := c.produce(1, "acknowledged")
	r, err := c.ask(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	data, err := r.Chunk.AppendTo(nil)
	r.Chunk.Release()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.at(2).AppendAsFollower(0, partition.Fetched{Batches: batches(t, data)}); err != nil {
		t.Fatal(err)
	}
	c.synced(2)
	if _, err := c.ask(2, 1); err != nil { // Its answer is lost.
		t.Fatal(err)
	}
	if err := c.at(1).Acknowledged(info.LeaderEpoch, info.LastOffset+1); err != nil {
		t.Fatalf("not acknowledged: %v", err)
	}
	c.crash(2)
	c.watermark(2, 0)
	c.elect(2, 2)
	if got := c.values(2); len(got) != 1 || got[0] != "acknowledged" {
		t.Fatalf("the new leader has %v", got)
	}
	c.watermark(2, 1)
	if cuts := c.fetch(1); len(cuts) != 0 {
		t.Errorf("the leader before cut %+v", cuts)
	}
	c.same(1, 2)
}

// TestPowerLossOfAFollower: what it had not synced it fetches again, and had never
// acknowledged.
func TestPowerLossOfAFollower(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	c.crash(2)
	c.produce(1, "b")
	c.fetch(2)
	c.same(1, 2)
	c.watermark(1, 2)
}

// TestZombieLeader: a leader that does not know yet that another was elected
// acknowledges nothing, and its followers' fetches do not count.
func TestZombieLeader(t *testing.T) {
	c := newCluster(t, 1, 2)
	zombie := c.nodes[1]
	delete(c.nodes, 1) // Cut from the metadata.
	c.elect(2, 2)
	c.nodes[1] = zombie
	info, err := c.at(1).Append(batch(t, "never"), partition.AcksAll, now)
	if err != nil {
		t.Fatal(err)
	}
	var unknown *partition.UnknownEpochError
	_, err = c.at(1).ReadAsReplica(partition.ReplicaFetch{
		Replica: 2, BrokerEpoch: 2, LeaderEpoch: 1, From: 1, LastEpoch: 0, Now: now,
	})
	if !errors.As(err, &unknown) {
		t.Errorf("a fetch under the new epoch: %v", err)
	}
	var fenced *partition.FencedEpochError
	_, err = c.at(2).ReadAsReplica(partition.ReplicaFetch{Replica: 1, BrokerEpoch: 1, LeaderEpoch: 0, Now: now})
	if !errors.As(err, &fenced) {
		t.Errorf("a fetch under the old epoch: %v", err)
	}
	if err := c.at(1).Acknowledged(info.LeaderEpoch, info.LastOffset+1); !errors.Is(err, partition.ErrNotYet) {
		t.Errorf("the zombie: %v", err)
	}
}

// TestAcknowledgementsEndWithTheEpoch: when leadership goes and comes back, another
// record may be at the offset that a producer waits for.
func TestAcknowledgementsEndWithTheEpoch(t *testing.T) {
	c := newCluster(t, 1, 2)
	info := c.produce(1, "gone")
	done := make(wakes, 1)
	var w partition.Waiter
	if !c.at(1).Wait(&w, done, info.LastOffset+1) {
		t.Fatal("nothing to wait for")
	}
	c.elect(2, 2)
	<-done
	c.produceAlone(2, "other")
	c.fetch(1)
	c.watermark(1, 1)
	c.elect(1, 1, 2)
	if got := c.at(1).HighWatermark(); got <= info.LastOffset {
		t.Fatalf("high watermark %d: the test shows nothing", got)
	}
	var fenced *partition.FencedEpochError
	if err := c.at(1).Acknowledged(info.LeaderEpoch, info.LastOffset+1); !errors.As(err, &fenced) {
		t.Errorf("acknowledged what is gone: %v", err)
	}
	err := c.at(1).Await(t.Context(), nil, info.LeaderEpoch, info.LastOffset+1)
	if !errors.As(err, &fenced) {
		t.Errorf("awaited what is gone: %v", err)
	}
}

// TestStaleFetches: of an earlier registration of a broker, and of one that is no
// replica.
func TestStaleFetches(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	f := partition.ReplicaFetch{Replica: 2, BrokerEpoch: 8, LastEpoch: -1, MaxBytes: 1, Now: now}
	if _, err := c.at(1).ReadAsReplica(f); err != nil {
		t.Fatal(err)
	}
	f.BrokerEpoch, f.From, f.LastEpoch = 7, 1, 0
	if _, err := c.at(1).ReadAsReplica(f); !errors.Is(err, isr.ErrStaleFetch) {
		t.Errorf("an earlier registration: %v", err)
	}
	f.Replica = 9
	if _, err := c.at(1).ReadAsReplica(f); !errors.Is(err, isr.ErrNotReplica) {
		t.Errorf("an outsider: %v", err)
	}
	c.watermark(1, 0)
	f.Replica, f.BrokerEpoch, f.From = 2, 8, 5
	if r, err := c.at(1).ReadAsReplica(f); err != nil || r.Diverging == nil || r.Diverging.EndOffset != 1 {
		t.Errorf("ahead of the leader: %+v, %v", r, err)
	}
}

// TestTooFewInSync: before the append, and after it.
func TestTooFewInSync(t *testing.T) {
	c := newCluster(t, 1, 2)
	info := c.produce(1, "a")
	c.fetch(2)
	c.minInSync = 2
	c.shrink(1)
	c.watermark(1, 1)
	var few *partition.NotEnoughReplicasError
	if err := c.at(1).Acknowledged(info.LeaderEpoch, 1); !errors.As(err, &few) || !few.Appended || few.InSync != 1 {
		t.Errorf("after the append: %v", err)
	}
	if _, err := c.at(1).Append(batch(t, "b"), partition.AcksAll, now); !errors.As(err, &few) || few.Appended {
		t.Errorf("before the append: %v", err)
	}
	r, err := c.at(1).Read(partition.ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, CurrentEpoch: -1})
	if err != nil || r.Chunk.Size() == 0 {
		t.Errorf("reads do not go on: %d bytes, %v", r.Chunk.Size(), err)
	}
	r.Chunk.Release()
}

// TestRetryWithTooFewInSync: a batch that is in the log already is not refused as one that
// was not appended, however few are in sync. Its producer would take that for the truth,
// and begin anew with it under another epoch, which makes it two.
func TestRetryWithTooFewInSync(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.minInSync = 2
	send := func(sequence int32, value string) (commitlog.AppendInfo, error) {
		b := record.NewBuilder(record.CodecNone, 0)
		b.SetProducer(7, 0, sequence)
		b.Append(now.UnixMilli(), nil, []byte(value), nil)
		return c.at(1).Append(batches(t, append([]byte(nil), b.Build()...)), partition.AcksAll, now)
	}
	const sent = 8 // More than the producer state knows: the first are looked for in the log.
	for i := range int32(sent) {
		if info, err := send(i, "a"); err != nil || info.Duplicate {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	c.shrink(1)
	end := c.at(1).Log().LogEndOffset()
	for i := range int32(sent) {
		info, err := send(i, "a")
		if err != nil || !info.Duplicate || info.BaseOffset != kafka.Offset(i) {
			t.Errorf("batch %d again: %+v, %v", i, info, err)
		}
		if err := c.at(1).Acknowledged(info.LeaderEpoch, info.LastOffset+1); !errors.Is(err, partition.ErrNotYet) {
			t.Errorf("batch %d is acknowledged with %v, and is on one disk", i, err)
		}
	}
	var few *partition.NotEnoughReplicasError
	for _, sequence := range []int32{sent, sent + 3} {
		if info, err := send(sequence, "new"); !errors.As(err, &few) || few.Appended {
			t.Errorf("a new batch: %+v, %v", info, err)
		}
	}
	if got := c.at(1).Log().LogEndOffset(); got != end {
		t.Errorf("the log ends at %d, and ended at %d", got, end)
	}
}

// TestHeldBelowMinInSync: below min.insync.replicas, and while others are eligible, the high
// watermark stands still, so that who left has all that was acknowledged (KIP-966).
func TestHeldBelowMinInSync(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.image, _, _ = c.image.Apply(&metadata.LevelRaised{Level: 3})
	c.minInSync = 2
	c.produce(1, "a")
	c.fetch(2)
	c.state.Eligible = []kafka.BrokerID{2}
	c.shrink(1)
	c.produceAlone(1, "b")
	c.watermark(1, 1)
	c.minInSync = 1 // At this broker; the controller has still to say so.
	c.state.LastEligible, c.state.Eligible = nil, []kafka.BrokerID{2}
	c.change()
	c.watermark(1, 1)
	c.state.Eligible = nil
	c.change()
	c.watermark(1, 2)
	c.minInSync = 2
	c.change()
	c.produceAlone(1, "c")
	c.watermark(1, 2)
	c.fetch(2)
	c.shrink(1, 2)
	c.watermark(1, 3)
}

// TestSmallerISRByAnAnswer: a smaller ISR counts when the metadata has it, which says who
// is eligible beside it.
func TestSmallerISRByAnAnswer(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.at(1).ISRCommitted(0, []kafka.BrokerID{1}, 1)
	c.watermark(1, 0)
	c.shrink(1)
	c.watermark(1, 1)
}

// TestJoining: a follower that has caught up is wanted in, once.
func TestJoining(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.shrink(1)
	c.produceAlone(1, "a")
	before := len(c.nodes[1].wants)
	c.fetch(2)
	if n := len(c.nodes[1].wants) - before; n != 1 || before == 0 {
		t.Fatalf("wanted %d times, and %d times because there is a follower", n, before)
	}
	want, ok := c.at(1).WantedISR()
	if !ok || len(want.ISR) != 2 || want.ISR[1] != (isr.Member{ID: 2, BrokerEpoch: 2}) || want.PartitionEpoch != 1 {
		t.Fatalf("wants %+v, %v", want, ok)
	}
	c.at(1).ISRCommitted(want.LeaderEpoch, []kafka.BrokerID{1, 2}, 2)
	if in, _, _ := c.at(1).InSync(); in != 2 {
		t.Errorf("%d in sync", in)
	}
	if _, ok := c.at(1).WantedISR(); ok {
		t.Error("it is still wanted")
	}
}

// produceAlone is produce for acks=1.
func (c *cluster) produceAlone(id kafka.BrokerID, values ...string) {
	c.t.Helper()
	if _, err := c.at(id).Append(batch(c.t, values...), partition.AcksLeader, now); err != nil {
		c.t.Fatal(err)
	}
	c.synced(id)
}

// TestSettled: a new leader does not tell the latest offset before it is no less than
// what its predecessor told.
func TestSettled(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(3)
	c.watermark(1, 1)
	if err := c.at(1).Settled(); err != nil {
		t.Errorf("the first leader: %v", err)
	}
	c.elect(2, 2, 3)
	c.watermark(2, 0)
	if err := c.at(2).Settled(); !errors.Is(err, partition.ErrNotSettled) {
		t.Errorf("the next leader: %v", err)
	}
	c.fetch(3)
	c.watermark(2, 1)
	if err := c.at(2).Settled(); err != nil {
		t.Errorf("the next leader, after its follower's fetch: %v", err)
	}
	if err := c.at(3).Settled(); !errors.Is(err, partition.ErrNotLeader) {
		t.Errorf("a follower: %v", err)
	}
}

// leaveBehind has all brokers hold a record, and all but broker 3 one more, which is
// acknowledged.
func (c *cluster) leaveBehind() {
	c.t.Helper()
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(3)
	c.shrink(1, 2)
	c.produce(1, "lost")
	c.fetch(2)
	c.fetch(2)
	c.watermark(2, 2)
}

// TestUncleanElection: what was acknowledged and is lost is said with its offsets, and
// the high watermark goes down with the log.
func TestUncleanElection(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	var told []string
	c.leaveBehind()
	c.elect(3, 3)
	c.produceAlone(3, "b")
	c.losing = func(p *partition.Partition, from, to kafka.Offset) {
		told = append(told, fmt.Sprint(from, " to ", to, " of ", p.Log().LogEndOffset()))
	}
	cuts := c.fetch(2)
	if want := "[1 to 2 of 2]"; fmt.Sprint(told) != want {
		t.Errorf("told of the loss before the cut: %v, want %s", told, want)
	}
	if len(cuts) != 1 || !cuts[0].Lost() || cuts[0].To != 1 || cuts[0].LostFrom != 2 {
		t.Errorf("cut %+v", cuts)
	}
	c.same(2, 3)
	c.watermark(2, 2)
}
