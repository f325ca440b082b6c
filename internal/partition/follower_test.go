package partition_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// TestRoles: the replicas that an image names take their roles, once.
func TestRoles(t *testing.T) {
	c := newCluster(t, 1, 2)
	for id, want := range map[kafka.BrokerID]bool{1: false, 2: true} {
		f, ok := c.at(id).Following()
		if ok != want || ok && (f.Leader != 1 || f.LeaderEpoch != 0) {
			t.Errorf("broker %d follows %+v, %v", id, f, ok)
		}
	}
	c.shrink(1)
	if c.nodes[1].moved != 1 || c.nodes[2].moved != 1 {
		t.Errorf("a change of the ISR is no change of roles: told %d and %d times", c.nodes[1].moved, c.nodes[2].moved)
	}
	c.elect(kafka.NoBroker, 1)
	if _, ok := c.at(1).Following(); ok || c.at(1).Leads(kafka.NoLeaderEpoch) == nil {
		t.Error("without a leader broker 1 plays a part")
	}
	if _, err := c.at(2).BecomeFollower(partition.Following{Leader: 1}); err == nil {
		t.Error("an older epoch was followed")
	}
	if err := c.at(1).BecomeLeader(partition.Leadership{}, now); err == nil {
		t.Error("leadership under an older epoch")
	}
	if _, err := c.at(1).AppendAsFollower(1, partition.Fetched{}); !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("an append without a leader: %v", err)
	}
}

// TestMovedAway: a replica that is not this broker's any more goes, with its files.
func TestMovedAway(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	gone := c.at(2)
	c.state.Replicas = []kafka.BrokerID{1}
	c.shrink(1)
	if c.nodes[2].Table.Get("orders", 0) != nil {
		t.Fatal("the replica is still there")
	}
	if _, err := gone.Position(0); !errors.Is(err, partition.ErrDeleted) {
		t.Errorf("position: %v", err)
	}
	if ids := c.nodes[2].dir.Logs(); len(ids) != 0 {
		t.Errorf("logs that are left: %v", ids)
	}
	c.watermark(1, 1) // Nobody else holds it.
}

// TestTooFarBehind: a follower whose leader has deleted what it lacks begins anew, and
// follows the leader's log start from then on.
func TestTooFarBehind(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	c.shrink(1)
	for range 4 {
		c.produceAlone(1, "x")
	}
	if err := c.at(1).Log().DeleteRecords(4); err != nil {
		t.Fatal(err)
	}
	var outOf *commitlog.OffsetOutOfRangeError
	_, err := c.ask(2, 1)
	if !errors.As(err, &outOf) || outOf.Start != 4 {
		t.Fatalf("a fetch below the log start: %v", err)
	}
	cut, err := c.at(2).RestartAt(0, outOf.Start)
	if err != nil || cut.From != 1 || cut.To != 4 || cut.Lost() {
		t.Fatalf("restart: %+v, %v", cut, err)
	}
	c.fetch(2)
	c.same(1, 2)
	c.watermark(2, 5)
	c.produceAlone(1, "y")
	c.fetch(2)
	if err := c.at(1).Log().DeleteRecords(5); err != nil {
		t.Fatal(err)
	}
	c.fetch(2)
	if got := c.at(2).Log().LogStartOffset(); got != 5 {
		t.Errorf("the follower's log starts at %d, its leader's at 5", got)
	}
	c.crash(2)
	c.fetch(2)
	c.same(1, 2)
}

// TestReadingFromFollowers: a reader who takes a follower's copy gets it up to the
// follower's high watermark, while the follower hears from its leader; one who takes
// anything gets it in any case.
func TestReadingFromFollowers(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(2)
	read := partition.ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, CurrentEpoch: -1, Now: now}
	expect := func(what string, source partition.Source, want error) {
		t.Helper()
		read.Source = source
		r, err := c.at(2).Read(read)
		if !errors.Is(err, want) || err == nil && r.Chunk.Size() == 0 {
			t.Errorf("%s: %d bytes, %v", what, r.Chunk.Size(), err)
		}
		r.Chunk.Release()
	}
	expect("leader only", partition.LeaderOnly, partition.ErrNotLeader)
	expect("a follower that never heard", partition.FollowerToo, partition.ErrNotLeader)
	var contact partition.Contact
	c.at(2).InContact(0, &contact)
	contact.Heard(now.Add(-time.Second))
	expect("a follower that heard", partition.FollowerToo, nil)
	if got := c.at(2).Heard(); !got.Equal(now.Add(-time.Second)) {
		t.Errorf("heard at %v", got)
	}
	contact.Heard(now.Add(-time.Second - 1))
	expect("a follower that heard long ago", partition.FollowerToo, partition.ErrNotLeader)
	// The clock on the wall may be set at any time, and time.Unix would go by nothing else.
	running := time.Now()
	contact.Heard(running)
	if got := c.at(2).Heard(); got != running {
		t.Errorf("heard at %v, which is no more than the time of day of %v", got, running)
	}
	contact.Heard(now.Add(-time.Second - 1))
	expect("anything", partition.Anything, nil)
	c.elect(kafka.NoBroker, 1)
	expect("anything without a leader", partition.Anything, nil)
	expect("a follower without a leader", partition.FollowerToo, partition.ErrNotLeader)
	read.CurrentEpoch = 5
	var unknown *partition.UnknownEpochError
	read.Source = partition.FollowerToo
	if _, err := c.at(2).Read(read); !errors.As(err, &unknown) {
		t.Errorf("a newer epoch: %v", err)
	}
}

// unsynced returns a partition that follows under leader epoch 3, with two records that are
// not on disk.
func (f *fixture) unsynced() *partition.Partition {
	f.t.Helper()
	p := f.topic("orders", 1, 2, 1)
	bs := batch(f.t, "a", "b")
	bs[0].Stamp(0, 3)
	if _, err := p.AppendAsFollower(3, partition.Fetched{Batches: bs}); err != nil {
		f.t.Fatal(err)
	}
	return p
}

// TestPositionIsOnDisk: where a follower fetches on says whether it may be told.
func TestPositionIsOnDisk(t *testing.T) {
	f := newFixture(t)
	p := f.unsynced()
	if at, err := p.Position(3); err != nil || at.Offset != 2 || at.LastEpoch != 3 || at.Synced {
		t.Errorf("before the sync: %+v, %v", at, err)
	}
	done := make(wakes, 1)
	var w partition.Waiter
	if !p.WaitSynced(&w, done, 2) {
		t.Fatal("synced already")
	}
	f.commit(done)
	if at, err := p.Position(3); err != nil || !at.Synced {
		t.Errorf("after the sync: %+v, %v", at, err)
	}
}

// TestReadersWaitAtFollowers: for the follower's high watermark.
func TestReadersWaitAtFollowers(t *testing.T) {
	c := newCluster(t, 1, 2)
	done := make(wakes, 1)
	var w partition.Waiter
	if !c.at(2).Wait(&w, done, 1) || !c.at(2).HasReaders() {
		t.Fatal("nothing to wait for")
	}
	c.produce(1, "a")
	if _, err := c.at(2).AppendAsFollower(0, partition.Fetched{Batches: batch(t, "a")}); err != nil {
		t.Fatal(err)
	}
	if w.Fired() {
		t.Error("woken before the high watermark moved")
	}
	c.synced(2)
	c.fetch(2)
	if !w.Fired() || c.at(2).HasReaders() {
		t.Error("not woken")
	}
}

func TestNearest(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.produce(1, "a")
	c.fetch(3)
	c.fetch(2)
	c.produce(1, "b")
	c.fetch(2)
	near := func(ids ...kafka.BrokerID) func(kafka.BrokerID) bool {
		return func(id kafka.BrokerID) bool {
			for _, n := range ids {
				if n == id {
					return true
				}
			}
			return false
		}
	}
	for _, f := range []struct {
		at   kafka.BrokerID
		near []kafka.BrokerID
		from kafka.Offset
		want kafka.BrokerID
	}{
		{1, []kafka.BrokerID{3}, 0, 3},
		{1, []kafka.BrokerID{2, 3}, 0, 2},
		{1, []kafka.BrokerID{3}, 2, kafka.NoBroker}, // It is not there yet.
		{1, []kafka.BrokerID{1, 2, 3}, 0, 1},
		{1, nil, 0, kafka.NoBroker},
		{2, []kafka.BrokerID{3}, 0, kafka.NoBroker},
	} {
		got, ok := c.at(f.at).Nearest(near(f.near...), f.from)
		if got != f.want || ok != (f.want != kafka.NoBroker) {
			t.Errorf("%+v: %d, %v", f, got, ok)
		}
	}
}

// TestAwaitSynced ends with the role.
func TestAwaitSynced(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.fetch(2)
	if err := c.at(2).AwaitSynced(t.Context(), 0, 1); err != nil {
		t.Errorf("synced: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.at(2).AwaitSynced(ctx, 0, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.at(2).AwaitSynced(context.WithoutCancel(ctx), 0, 9) }()
	c.elect(2, 2)
	if err := <-ended; !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("another role: %v", err)
	}
}

// TestFollowersWaitForTheLogsEnd, synced or not.
func TestFollowersWaitForTheLogsEnd(t *testing.T) {
	c := newCluster(t, 1, 2)
	done := make(wakes, 1)
	var w partition.Waiter
	if !c.at(1).WaitAppended(&w, done, 1) {
		t.Fatal("nothing to wait for")
	}
	if _, err := c.at(1).Append(batch(t, "a"), partition.AcksLeader, now); err != nil {
		t.Fatal(err)
	}
	<-done
	if !w.Fired() || c.at(1).WaitAppended(&w, done, 1) {
		t.Error("not woken, or it waits for what is there")
	}
}
