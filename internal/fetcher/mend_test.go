package fetcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/fetcher"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// stopClean stops a broker in order, and returns its disk.
func (w *world) stopClean(id kafka.BrokerID) *memfs.FS {
	w.t.Helper()
	disk := w.crash(id, 100)
	dir, err := commitlog.OpenDir(disk, commitlog.DirOptions{BallastBytes: -1, Fresh: commitlog.Meta{
		ClusterID: "cluster", NodeID: id, DirectoryID: fmt.Sprint("directory-", id),
	}})
	w.must(err)
	w.must(dir.Close(true))
	return disk
}

// damage edits the first segment of a partition on a disk.
func (w *world) damage(disk *memfs.FS, topic string, i int32, edit func(vfs.File, int64)) {
	w.t.Helper()
	id := kafka.TopicIDPartition{ID: w.state.Image().Topic(topic).ID, Partition: i}
	f, err := disk.Open(commitlog.LogDir(id)+"/00000000000000000000.log", vfs.ReadWrite)
	w.must(err)
	size, err := f.Size()
	w.must(err)
	edit(f, size)
	w.must(errors.Join(f.Sync(), f.Close()))
}

func flip(f vfs.File, size int64) { flipAt(50)(f, size) }

// flipAt flips a bit at so many percent of a file.
func flipAt(percent int64) func(vfs.File, int64) {
	return func(f vfs.File, size int64) {
		b := make([]byte, 1)
		_, _ = f.ReadAt(b, size*percent/100)
		b[0] ^= 1
		_, _ = f.WriteAt(b, size*percent/100)
	}
}

func shorten(f vfs.File, size int64) { _ = f.Truncate(size / 2) }

func empty(f vfs.File, _ int64) { _ = f.Truncate(0) }

// inSync waits until a partition's ISR is as large as is wanted.
func (w *world) inSync(topic string, n int) {
	w.t.Helper()
	for range 600 {
		if len(w.members(topic, 0)) == n {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	w.t.Fatalf("in sync: %v, want %d", w.members(topic, 0), n)
}

// leaderOf returns a partition's leader, as decided.
func (w *world) leaderOf(topic string) kafka.BrokerID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Image().Topic(topic).Partitions[0].Leader
}

// readAll reads what a broker serves to consumers, from the log's start on, up to an error.
func (w *world) readAll(id kafka.BrokerID, topic string) (map[kafka.Offset]string, error) {
	w.t.Helper()
	p := w.at(id, topic, 0)
	values := map[kafka.Offset]string{}
	for from := p.Log().LogStartOffset(); from < p.HighWatermark(); {
		r, err := p.Read(partition.ReadOptions{
			From: from, MaxBytes: 200, MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch, Source: partition.Anything,
		})
		if err != nil {
			return values, err
		}
		data, err := r.Chunk.AppendTo(nil)
		next := r.Chunk.NextOffset()
		r.Chunk.Release()
		w.must(err)
		if next <= from {
			return values, fmt.Errorf("broker %d serves nothing at offset %d, below its high watermark", id, from)
		}
		from = next
		for offset, value := range valuesOf(w.t, data) {
			values[offset] = value
		}
	}
	return values, nil
}

func (w *world) fill(id kafka.BrokerID, topic string, n int) {
	w.t.Helper()
	for i := range n {
		w.acked(id, topic, 0, w.produce(id, topic, 0, fmt.Sprint("value-", i)))
	}
}

// intact checks that a broker serves n values, and all of them right.
func (w *world) intact(id kafka.BrokerID, topic string, n int) {
	w.t.Helper()
	values, err := w.readAll(id, topic)
	for range 20 { // A follower hears a moment later of the last ones.
		if len(values) == n {
			break
		}
		<-time.After(100 * time.Millisecond)
		values, err = w.readAll(id, topic)
	}
	if err != nil || len(values) != n {
		w.t.Errorf("broker %d serves %d values, want %d: %v", id, len(values), n, err)
	}
	for offset, value := range values {
		if want := fmt.Sprint("value-", offset); value != want {
			w.t.Errorf("broker %d serves %s at %d", id, value, offset)
		}
	}
}

// TestDamagedFollower: a follower of whose log a part in the middle is damaged stays in the
// ISR, and has it from its leader. One whose end is damaged is out of the ISR and not eligible
// before it touches anything; then the end is cut off and fetched again. So it is without
// anybody's help, and nothing else is fetched.
func TestDamagedFollower(t *testing.T) {
	for name, c := range map[string]struct {
		edit      func(vfs.File, int64)
		minInSync int
		eligible  bool // It is, and not in sync.
		line      string
	}{
		"a bit":                         {flip, 1, false, "mended from another replica"},
		"a file that is cut":            {shorten, 1, false, "was cut off and is fetched again"},
		"below min.insync.replicas too": {shorten, 3, false, "was cut off and is fetched again"},
		"eligible":                      {shorten, 3, true, "was cut off and is fetched again"},
		"nothing is left":               {empty, 3, false, "put aside and is fetched anew"},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				w.topic.MinInSync = c.minInSync
				w.create("orders", 1, 1, 2, 3)
				w.configure("orders", fmt.Sprint(c.minInSync))
				w.fill(1, "orders", 20)
				disk := w.stopClean(3)
				w.damage(disk, "orders", 0, c.edit)
				if c.eligible {
					w.change("orders", 0, func(p *metadata.Partition) {
						p.ISR, p.Eligible = []kafka.BrokerID{1, 2}, []kafka.BrokerID{3}
					})
				}
				w.restart(3, disk)
				<-time.After(time.Second)
				_, _ = w.readAll(3, "orders")
				for range 200 {
					// Before and after, because the log may be put aside or filled meanwhile.
					if w.lacks(3, "orders", 20) && w.electable(3, "orders") && w.lacks(3, "orders", 20) {
						t.Fatalf("it may be elected with a log up to %d", w.at(3, "orders", 0).Log().LogEndOffset())
					}
					<-time.After(50 * time.Millisecond)
				}
				w.inSync("orders", 3)
				mended := strings.Contains(c.line, "mended")
				if aside := w.asked[3] > 0; aside == mended {
					t.Errorf("it asked to be out of those who may lead: %v", aside)
				}
				w.same("orders", 0, 1, 2, 3)
				w.intact(3, "orders", 20)
				if w.at(3, "orders", 0).Damaged() {
					t.Error("it is taken for damaged on")
				}
				if _, err := disk.Stat("quarantine"); (err == nil) != strings.Contains(c.line, "anew") {
					t.Errorf("quarantine: %v", err)
				}
				if n := strings.Count(w.log.String(), c.line); n != 1 {
					t.Errorf("%d lines say so", n)
				}
			})
		})
	}
}

// TestDamagedInDifferentPlaces: where each replica has lost something else, each has it back
// from another, and the partition goes on: as long as every record is whole somewhere.
func TestDamagedInDifferentPlaces(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " replicas"), func(t *testing.T) {
			replicated(t, n, func(t *testing.T, w *world) {
				ids := []kafka.BrokerID{1, 2, 3}[:n]
				w.topic.MinInSync = n
				w.create("orders", 1, ids...)
				w.configure("orders", fmt.Sprint(n))
				w.fill(1, "orders", 30)
				disks := map[kafka.BrokerID]*memfs.FS{}
				for _, id := range ids {
					disks[id] = w.stopClean(id)
					w.damage(disks[id], "orders", 0, flipAt(int64(id)*20))
				}
				for _, id := range ids {
					w.restart(id, disks[id])
				}
				<-time.After(time.Second)
				for _, id := range ids {
					_, _ = w.readAll(id, "orders") // Somebody finds out.
				}
				w.acked(1, "orders", 0, w.produce(1, "orders", 0, "value-30"))
				<-time.After(10 * time.Second)
				w.same("orders", 0, ids...)
				for _, id := range ids {
					w.intact(id, "orders", 31)
					if _, err := disks[id].Stat("quarantine"); err == nil {
						t.Errorf("broker %d has put its log aside", id)
					}
				}
				if got := len(w.members("orders", 0)); got != n || w.leaderOf("orders") != 1 {
					t.Errorf("%d are in sync, and broker %d leads", got, w.leaderOf("orders"))
				}
				if got := strings.Count(w.log.String(), "mended from another replica"); got != n {
					t.Errorf("%d lines say so", got)
				}
			})
		})
	}
}

// TestDamagedInTheSamePlace: what nobody has is answered with an error, and nobody throws
// anything away for it. The partition goes on, with all replicas in sync.
func TestDamagedInTheSamePlace(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.fill(1, "orders", 30)
		disks := map[kafka.BrokerID]*memfs.FS{}
		for id := kafka.BrokerID(1); id <= 2; id++ {
			disks[id] = w.stopClean(id)
			w.damage(disks[id], "orders", 0, flipAt(50))
		}
		for id, disk := range disks {
			w.restart(id, disk)
		}
		<-time.After(time.Second)
		for id := range disks {
			values, err := w.readAll(id, "orders")
			var corrupt *commitlog.CorruptionError
			if !errors.As(err, &corrupt) {
				t.Errorf("broker %d serves %d values, %v", id, len(values), err)
			}
		}
		<-time.After(5 * time.Minute)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "value-30"))
		for id, disk := range disks {
			if end := w.at(id, "orders", 0).Log().LogEndOffset(); end != 31 {
				t.Errorf("the log of broker %d ends at %d", id, end)
			}
			if _, err := disk.Stat("quarantine"); err == nil {
				t.Errorf("broker %d has put its log aside", id)
			}
		}
		if n := strings.Count(w.log.String(), "no other replica gives them"); n != 2 {
			t.Errorf("%d lines say that nobody has it", n)
		}
		if len(w.members("orders", 0)) != 2 {
			t.Errorf("in sync: %v", w.members("orders", 0))
		}
	})
}

// lacks tells whether a broker has taken its log for whole and has less than n records.
func (w *world) lacks(id kafka.BrokerID, topic string, n kafka.Offset) bool {
	p := w.at(id, topic, 0)
	return !p.Damaged() && p.Log().LogEndOffset() < n
}

// electable tells whether a broker may be made the leader.
func (w *world) electable(id kafka.BrokerID, topic string) bool {
	p := w.partitionOf(topic)
	return slices.Contains(p.ISR, id) || slices.Contains(p.Eligible, id)
}

// configure sets min.insync.replicas at the controller.
func (w *world) configure(topic, minInSync string) {
	w.t.Helper()
	w.decide(&metadata.ConfigChanged{
		Resource: metadata.Resource{Type: metadata.TopicResource, Name: topic},
		Set:      map[string]string{"min.insync.replicas": minInSync},
	})
}

func (w *world) partitionOf(topic string) metadata.Partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Image().Topic(topic).Partitions[0]
}

// TestDamagedLeader: a leader that finds damage answers with an error, never with wrong
// bytes, until it has what was there from a follower, and leads on.
func TestDamagedLeader(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.fill(1, "orders", 20)
		disk := w.stopClean(1)
		w.damage(disk, "orders", 0, flip)
		w.restart(1, disk)
		found := false
		for range 600 {
			values, err := w.readAll(1, "orders")
			var corrupt *commitlog.CorruptionError
			if err != nil && !errors.As(err, &corrupt) && !errors.Is(err, partition.ErrDeleted) {
				t.Fatalf("reading what is damaged: %v", err)
			}
			for offset, value := range values {
				if value != fmt.Sprint("value-", offset) {
					t.Fatalf("it serves %s at %d", value, offset)
				}
			}
			// A follower that fetches may meet the damage first, and have it mended before.
			found = found || err != nil || strings.Contains(w.log.String(), "were mended from another replica")
			if found && err == nil && len(w.members("orders", 0)) == 3 {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		if !found || w.leaderOf("orders") != 1 {
			t.Errorf("damage found: %v; broker %d leads", found, w.leaderOf("orders"))
		}
		w.inSync("orders", 3)
		w.same("orders", 0, 1, 2, 3)
		w.intact(1, "orders", 20)
	})
}

// compact compacts a log that ends at an offset, and drops nothing. It appends one more.
func (w *world) compact(id kafka.BrokerID, topic string, to kafka.Offset) {
	w.t.Helper()
	log := w.at(id, topic, 0).Log()
	w.must(log.Roll())
	w.acked(1, topic, 0, w.produce(1, topic, 0, fmt.Sprint("value-", to)))
	_, err := log.Cleanable(to)
	w.must(err)
	rewrite, err := log.BeginRewrite(0)
	w.must(err)
	w.must(log.Batches(0, to, rewrite.Append))
	w.must(rewrite.Commit(to, to))
}

// TestMisfit: a log that was compacted can't be mended in its place. Its replica gets
// another one, and a leader has others lead first.
func TestMisfit(t *testing.T) {
	for _, id := range []kafka.BrokerID{1, 3} {
		t.Run(fmt.Sprint("broker ", id), func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				w.create("orders", 1, 1, 2, 3)
				w.fill(1, "orders", 20)
				w.compact(id, "orders", 20)
				disk := w.stopClean(id)
				w.damage(disk, "orders", 0, flip)
				w.restart(id, disk)
				<-time.After(time.Second)
				_, _ = w.readAll(id, "orders")
				<-time.After(20 * time.Second)
				w.inSync("orders", 3)
				w.same("orders", 0, 1, 2, 3)
				w.intact(id, "orders", 21)
				if _, err := disk.Stat("quarantine"); err != nil || w.leaderOf("orders") == id {
					t.Errorf("quarantine: %v; broker %d leads", err, w.leaderOf("orders"))
				}
			})
		})
	}
}

// TestDamagedAndAlone: where nobody else is in sync, a damaged replica keeps its log and
// goes on with what is intact, until there is somebody.
func TestDamagedAndAlone(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1)
		w.fill(1, "orders", 20)
		disk := w.stopClean(1)
		w.damage(disk, "orders", 0, flip)
		w.restart(1, disk)
		_, err := w.readAll(1, "orders")
		var corrupt *commitlog.CorruptionError
		if !errors.As(err, &corrupt) {
			t.Errorf("reading what is damaged: %v", err)
		}
		<-time.After(10 * time.Second)
		if leader := w.leaderOf("orders"); leader != 1 || w.at(1, "orders", 0).Log().LogEndOffset() != 20 {
			t.Errorf("broker %d leads", leader)
		}
	})
}

// TestHighWatermarkAfterARestart: a replica that comes back alone serves what it served
// before: high watermarks are kept.
func TestHighWatermarkAfterARestart(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.topic.MinInSync = 2
		w.create("orders", 1, 1, 2)
		w.configure("orders", "2")
		w.fill(1, "orders", 20)
		<-time.After(11 * time.Second) // Followers hear of it, and it is kept.
		for id := kafka.BrokerID(1); id <= 2; id++ {
			before := w.at(id, "orders", 0).HighWatermark()
			if before != 20 {
				t.Fatalf("high watermark %d of broker %d", before, id)
			}
		}
		first, second := w.crash(1, 0), w.crash(2, 0)
		w.restart(1, first)
		w.intact(1, "orders", 20)
		w.restart(2, second)
		w.intact(2, "orders", 20)
	})
}

// TestDeleteRecords: it is done when the followers that are alive begin where the leader
// begins; one that is away is waited for until it is fenced.
func TestDeleteRecords(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.fill(1, "orders", 20)
		<-time.After(time.Second)
		p := w.at(1, "orders", 0)
		await := func(to kafka.Offset, wait time.Duration) (kafka.Offset, error) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			w.must(p.DeleteRecords(to))
			return p.AwaitLowWatermark(ctx, to)
		}
		begin := time.Now()
		if low, err := await(7, time.Minute); err != nil || low != 7 {
			t.Errorf("low watermark %d, %v", low, err)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for id := kafka.BrokerID(1); id <= 3; id++ {
			if start := w.at(id, "orders", 0).Log().LogStartOffset(); start != 7 {
				t.Errorf("the log of %d begins at %d", id, start)
			}
		}
		disk := w.crash(3, 100)
		if low, err := await(9, 5*time.Second); !errors.Is(err, context.DeadlineExceeded) || low != 7 {
			t.Errorf("with a follower away: low watermark %d, %v", low, err)
		}
		w.mu.Lock()
		b, _ := w.state.Image().Broker(3)
		w.applyLocked([]metadata.Record{&metadata.BrokerChanged{ID: 3, Epoch: b.Epoch, Fenced: true}})
		w.mu.Unlock()
		if low, err := await(9, time.Minute); err != nil || low != 9 {
			t.Errorf("without the fenced one: low watermark %d, %v", low, err)
		}
		w.restart(3, disk)
		if low, err := await(11, time.Minute); err != nil || low != 11 {
			t.Errorf("with all: low watermark %d, %v", low, err)
		}
	})
}

// TestThrottle: a replica that is listed and not in sync copies no faster than allowed;
// members of the ISR do not wait.
func TestThrottle(t *testing.T) {
	for name, list := range map[string]func(*partition.Settings){
		"at the leader": func(s *partition.Settings) {
			s.LeaderThrottled.Some = []partition.ThrottledReplica{{Partition: 0, Broker: 1}}
			s.FollowerThrottled.Some = []partition.ThrottledReplica{{Partition: 0, Broker: 2}}
		},
		"at the follower": func(s *partition.Settings) {
			s.FollowerThrottled.All = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				w.throttle = 2000
				list(&w.topic)
				w.create("orders", 1, 1, 2)
				value := strings.Repeat("x", 900)
				for range 40 {
					info := w.produce(1, "orders", 0, value)
					if took := w.acked(1, "orders", 0, info); took > time.Second {
						t.Fatalf("a member of the ISR waits %v", took)
					}
				}
				w.change("orders", 0, func(p *metadata.Partition) {
					p.Replicas, p.Adding = []kafka.BrokerID{1, 2, 3}, []kafka.BrokerID{3}
				})
				begin := time.Now()
				w.inSync("orders", 3)
				if took := time.Since(begin); took < 10*time.Second || took > 40*time.Second {
					t.Errorf("40 KB at 2 KB a second took %v", took)
				}
				w.acked(1, "orders", 0, w.produce(1, "orders", 0, value))
			}, func(s *fetcher.Settings) { s.PartitionMaxBytes = 1000 })
		})
	}
}
