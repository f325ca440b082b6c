package coordinator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// Scenario 38: a coordinator loaded its state under one leader epoch, and its broker
// leads the partition again under another, between which others may have written. It
// neither writes, nor reads, nor learns what is committed.
func TestCoordinatorOfAnotherEpoch(t *testing.T) {
	dir, err := commitlog.OpenDir(memfs.New(), commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "cluster", NodeID: 1, DirectoryID: "directory"}, BallastBytes: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := kafka.TopicIDPartition{ID: kafka.TopicID{1}}
	p, err := partition.New(partition.Options{Topic: "__consumer_offsets", ID: id, Self: 1},
		func(c partition.Callbacks) (*commitlog.Log, error) {
			return dir.Log(id, commitlog.Options{
				Config: commitlog.DefaultConfig(), OnDurable: c.OnDurable, OnFailed: c.OnFailed,
			})
		})
	if err != nil {
		t.Fatal(err)
	}
	lead := func(epoch kafka.LeaderEpoch) {
		t.Helper()
		one := []kafka.BrokerID{1}
		err := p.BecomeLeader(partition.Leadership{
			Replicas: one, ISR: one, LeaderEpoch: epoch, PartitionEpoch: kafka.PartitionEpoch(epoch),
		}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	lead(3)
	before := coordinator.Leader(p)
	if _, err := before.Append(batchOf(t, "a"), time.Now()); err != nil {
		t.Fatal(err)
	}
	lead(4)
	end := p.Log().LogEndOffset()
	for what, ask := range map[string]func() error{
		"append": func() error { _, err := before.Append(batchOf(t, "b"), time.Now()); return err },
		"append in a transaction": func() error {
			_, err := before.AppendTxn(batchOf(t, "b"), nil, time.Now())
			return err
		},
		"end a transaction": func() error {
			_, err := before.AppendMarker(kafka.NoLeaderEpoch, commitlog.Marker{ProducerID: 5, Commit: true}, time.Now())
			return err
		},
		"read":           func() error { _, err := before.Read(nil, 0, 1000); return err },
		"high watermark": func() error { _, err := before.HighWatermark(); return err },
	} {
		var fenced *partition.FencedEpochError
		if err := ask(); !errors.As(err, &fenced) {
			t.Errorf("%s under an epoch that is over: %v", what, err)
		}
	}
	if now := p.Log().LogEndOffset(); now != end {
		t.Errorf("the log went on to %d from %d", now, end)
	}
	after := coordinator.Leader(p)
	var fenced *partition.FencedEpochError
	if _, err := after.AppendMarker(3, commitlog.Marker{ProducerID: 5, Commit: true}, time.Now()); !errors.As(err, &fenced) {
		t.Errorf("end a transaction for who believes in an epoch that is over: %v", err)
	}
	if at, err := after.Append(batchOf(t, "c"), time.Now()); err != nil || at != end {
		t.Errorf("append under the epoch there is: %d, %v", at, err)
	}
	if err := dir.Close(true); err != nil {
		t.Error(err)
	}
}

func batchOf(t *testing.T, key string) []record.Batch {
	t.Helper()
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(time.Now().UnixMilli(), []byte(key), []byte("value"), nil)
	batch, _, err := record.Next(b.Build())
	if err != nil {
		t.Fatal(err)
	}
	return []record.Batch{batch}
}
