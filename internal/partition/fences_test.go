package partition_test

import (
	"context"
	"errors"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// TestAnswersOfAnEarlierEpoch: what was fetched under a leader epoch that is over changes
// nothing of the follower's log, whoever sent it.
func TestAnswersOfAnEarlierEpoch(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.produce(1, "a")
	c.fetch(2)
	c.fetch(3)
	c.produce(1, "late")
	late := batches(t, c.bytesOf(1))
	c.elect(3, 2, 3)
	p := c.at(2)
	if _, err := p.AppendAsFollower(0, partition.Fetched{Batches: late, HighWatermark: 2}); !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("append: %v", err)
	}
	if _, err := p.TruncateTo(0, partition.EpochEnd{}); !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("truncate: %v", err)
	}
	if _, err := p.RestartAt(0, 2); !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("restart: %v", err)
	}
	if _, err := p.Position(0); !errors.Is(err, partition.ErrNotFollower) {
		t.Errorf("position: %v", err)
	}
	if start, end := p.Log().LogStartOffset(), p.Log().LogEndOffset(); start != 0 || end != 1 {
		t.Errorf("the log is from %d to %d, want 0 to 1", start, end)
	}
}

// TestBatchOfALaterEpoch: a leader has no records of a later epoch than its own.
func TestBatchOfALaterEpoch(t *testing.T) {
	other := newCluster(t, 1, 2)
	other.elect(1, 1, 2)
	other.produce(1, "of epoch 1")
	c := newCluster(t, 1, 2)
	_, err := c.at(2).AppendAsFollower(0, partition.Fetched{Batches: batches(t, other.bytesOf(1))})
	if end := c.at(2).Log().LogEndOffset(); err == nil || end != 0 {
		t.Errorf("appended up to %d, %v", end, err)
	}
}

// TestBoundsOfAFollower: a follower knows no high watermark beyond its own log, and removes
// nothing above its high watermark, whatever its leader says.
func TestBoundsOfAFollower(t *testing.T) {
	for what, f := range map[string]struct {
		highWatermark, logStart kafka.Offset // The leader's.
		wantWatermark, want     kafka.Offset
	}{
		"as they are":                     {2, 1, 2, 1},
		"a high watermark ahead":          {9, 1, 2, 1},
		"a log start ahead":               {1, 2, 1, 1},
		"a log start ahead of everything": {0, 9, 0, 0},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, 1, 2)
			c.produce(1, "a")
			c.produce(1, "b")
			_, err := c.at(2).AppendAsFollower(0, partition.Fetched{
				Batches: batches(t, c.bytesOf(1)), HighWatermark: f.highWatermark, LogStartOffset: f.logStart,
			})
			if got := c.at(2).Log().LogStartOffset(); err != nil || got != f.want {
				t.Errorf("the log starts at %d, want %d: %v", got, f.want, err)
			}
			c.watermark(2, f.wantWatermark)
		})
	}
}

// TestWatermarkMovesWithTheLog: a follower's high watermark is not above a log that was cut,
// also after a power loss, nor below where its log begins.
func TestWatermarkMovesWithTheLog(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.leaveBehind()
	c.keep(2)
	c.elect(3, 3) // Unclean.
	if _, err := c.at(2).TruncateTo(1, partition.EpochEnd{LeaderEpoch: 0, EndOffset: 1}); err != nil {
		t.Fatal(err)
	}
	c.watermark(2, 1)
	// It has records again where it knew them for acknowledged, and does not take them for that.
	c.produceAlone(3, "b")
	if _, err := c.at(2).AppendAsFollower(1, partition.Fetched{Batches: batches(t, c.bytesOf(3))}); err != nil {
		t.Fatal(err)
	}
	c.synced(2)
	c.crash(2)
	if end := c.at(2).Log().LogEndOffset(); end != 2 {
		t.Fatalf("the log ends at %d", end)
	}
	c.watermark(2, 1)
}

// keep writes down a broker's high watermark.
func (c *cluster) keep(id kafka.BrokerID) {
	c.t.Helper()
	marks := map[kafka.TopicIDPartition]kafka.Offset{orders: c.at(id).HighWatermark()}
	if err := c.nodes[id].marks.Save(func() map[kafka.TopicIDPartition]kafka.Offset { return marks }); err != nil {
		c.t.Fatal(err)
	}
}

// TestFetchesThatDoNotFit: a follower that has records of a later leader epoch than its
// leader's is not told to cut them, and one whose log ends behind the leader's acknowledges
// nothing.
func TestFetchesThatDoNotFit(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	fetch := func(from kafka.Offset, last kafka.LeaderEpoch) (partition.ReadResult, error) {
		return c.at(1).ReadAsReplica(partition.ReplicaFetch{
			Replica: 2, BrokerEpoch: 2, From: from, LastEpoch: last, MaxBytes: 1 << 20, Now: now,
		})
	}
	var unknown *partition.UnknownEpochError
	if r, err := fetch(1, 3); !errors.As(err, &unknown) || r.Diverging != nil {
		t.Errorf("a record of leader epoch 3: diverging %v, %v", r.Diverging, err)
	}
	var outOf *commitlog.OffsetOutOfRangeError
	if _, err := fetch(2, kafka.NoLeaderEpoch); !errors.As(err, &outOf) {
		t.Errorf("a log that ends at 2: %v", err)
	}
	c.watermark(1, 0)
}

// TestAnswersToEarlierLeaders: who answers a question that was asked under an earlier leader
// epoch does not confirm the leader of this one.
func TestAnswersToEarlierLeaders(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.elect(1, 1, 2)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	wait := c.at(1).Confirm(1)
	for epoch, confirmed := range []bool{false, true} {
		_, err := c.at(1).ReadAsReplica(partition.ReplicaFetch{
			Replica: 2, BrokerEpoch: 2, LeaderEpoch: 1, LastEpoch: kafka.NoLeaderEpoch, MaxBytes: 1 << 20, Now: now,
			Answers: kafka.Round{LeaderEpoch: kafka.LeaderEpoch(epoch), Number: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := wait(over); (err == nil) != confirmed {
			t.Errorf("after an answer to leader epoch %d: %v", epoch, err)
		}
	}
}

// TestEpochOfALeaderWithoutRecords: where an epoch ends of which there are no records yet is
// known, or followers would be told of the epoch before.
func TestEpochOfALeaderWithoutRecords(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.produce(1, "a")
	c.elect(1, 1, 2)
	if epoch, end, err := c.at(1).Log().EndOffsetForEpoch(1); err != nil || epoch != 1 || end != 1 {
		t.Errorf("leader epoch 1: %d ends at %d, %v", epoch, end, err)
	}
}

// TestElectedBeforeItsSync: who becomes the leader before the records that it was sent are on
// its disk does not count them as if they were.
func TestElectedBeforeItsSync(t *testing.T) {
	f := newFixture(t)
	p := f.unsynced()
	alone := []kafka.BrokerID{1}
	if err := p.BecomeLeader(partition.Leadership{Replicas: []kafka.BrokerID{1, 2}, ISR: alone, LeaderEpoch: 4}, now); err != nil {
		t.Fatal(err)
	}
	if got := p.HighWatermark(); got != 0 {
		t.Errorf("before the sync the high watermark is %d", got)
	}
	done := make(wakes, 1)
	var w partition.Waiter
	if !p.Wait(&w, done, 2) {
		t.Fatal("there is nothing to wait for")
	}
	f.commit(done)
	if got := p.HighWatermark(); got != 2 {
		t.Errorf("after it the high watermark is %d", got)
	}
}
