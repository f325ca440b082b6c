package cleaner_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

var logID = kafka.TopicIDPartition{ID: kafka.TopicID{1}, Partition: 3}

const deleteRetentionMs = 1000

func compactConfig() commitlog.Config {
	c := commitlog.DefaultConfig()
	c.Compact, c.Delete = true, false
	c.SegmentBytes, c.IndexIntervalBytes = 1000, 100
	c.DeleteRetentionMs = deleteRetentionMs
	return c
}

func openLog(t testing.TB, fsys vfs.FS) (*commitlog.Dir, *commitlog.Log) {
	t.Helper()
	d, err := commitlog.OpenDir(fsys, commitlog.DirOptions{
		Fresh: commitlog.Meta{ClusterID: "c", NodeID: 1, DirectoryID: "d"}, BallastBytes: -1, RecoveryThreads: 1,
		Journal: commitlog.JournalOptions{WithoutFiles: true},
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	l, err := d.Log(logID, commitlog.Options{Config: compactConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

// write is one record of a test.
type write struct {
	key, value string
	tombstone  bool
}

func buildBatch(codec record.Codec, nowMs int64, writes []write, producer kafka.ProducerID, sequence int32) record.Batch {
	b := record.NewBuilder(codec, 0)
	for _, w := range writes {
		value := []byte(w.value)
		if w.tombstone {
			value = nil
		}
		b.Append(nowMs, []byte(w.key), value, nil)
	}
	if producer >= 0 {
		b.SetProducer(producer, 0, sequence)
	}
	batch, _, err := record.Next(append([]byte(nil), b.Build()...))
	if err != nil {
		panic(err)
	}
	return batch
}

// content is what a log holds.
type content struct {
	offsets  []kafka.Offset
	latest   map[string]string // Keys whose latest record is no tombstone.
	byOffset map[kafka.Offset]string
	deleted  map[string]bool // Keys whose latest record is a tombstone.
}

func readLog(t testing.TB, l *commitlog.Log) content {
	t.Helper()
	c := content{latest: map[string]string{}, byOffset: map[kafka.Offset]string{}, deleted: map[string]bool{}}
	last := kafka.Offset(-1)
	err := l.Batches(l.LogStartOffset(), l.LogEndOffset(), func(b record.Batch) error {
		if b.BaseOffset() <= last {
			t.Fatalf("batch at %d after %d", b.BaseOffset(), last)
		}
		last = b.LastOffset()
		for r, err := range b.Records(1 << 20) {
			if err != nil {
				return err
			}
			offset := b.BaseOffset() + kafka.Offset(r.OffsetDelta)
			c.offsets = append(c.offsets, offset)
			c.byOffset[offset] = string(r.Key) + "=" + string(r.Value)
			delete(c.latest, string(r.Key))
			delete(c.deleted, string(r.Key))
			if r.Value == nil {
				c.deleted[string(r.Key)] = true
			} else {
				c.latest[string(r.Key)] = string(r.Value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return c
}

func clean(t testing.TB, l *commitlog.Log, nowMs, dedupeBytes int64) cleaner.Stats {
	t.Helper()
	c := cleaner.New(cleaner.Options{DedupeBytes: dedupeBytes})
	stats, err := c.Clean(t.Context(), cleaner.Target{Log: l, LastStableOffset: l.LogEndOffset()}, time.UnixMilli(nowMs))
	if err != nil {
		t.Fatalf("clean: %v", err)
	}
	return stats
}

// Compaction never changes what the latest values are, keeps offsets, and
// survives restarts, with small maps and large ones.
func TestCompactionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fsys := memfs.New()
		d, l := openLog(t, fsys)
		model := map[string]string{}
		written := map[kafka.Offset]string{}
		nowMs := int64(1_000_000)
		next := map[kafka.ProducerID]int32{}
		codec := rapid.SampledFrom([]record.Codec{record.CodecNone, record.CodecLZ4, record.CodecZstd}).Draw(rt, "codec")
		dedupe := rapid.SampledFrom([]int64{1, 1 << 20}).Draw(rt, "dedupe")
		check := func() {
			got := readLog(t, l)
			if len(got.latest) != len(model) {
				rt.Fatalf("latest values %v, want %v", got.latest, model)
			}
			for k, v := range model {
				if got.latest[k] != v {
					rt.Fatalf("%s is %q, want %q", k, got.latest[k], v)
				}
			}
			for o, kv := range got.byOffset {
				if written[o] != kv {
					rt.Fatalf("at %d %q, was written as %q", o, kv, written[o])
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var writes []write
				for range rapid.IntRange(1, 4).Draw(rt, "records") {
					writes = append(writes, write{
						key:       fmt.Sprint("k", rapid.IntRange(0, 9).Draw(rt, "key")),
						value:     fmt.Sprint("v", rapid.IntRange(0, 1<<20).Draw(rt, "value")),
						tombstone: rapid.IntRange(0, 4).Draw(rt, "tombstone") == 0,
					})
				}
				producer := kafka.ProducerID(rapid.IntRange(-1, 1).Draw(rt, "producer"))
				b := buildBatch(codec, nowMs, writes, producer, next[producer])
				info, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(nowMs))
				if err != nil {
					rt.Fatal(err)
				}
				next[producer] += int32(len(writes))
				for i, w := range writes {
					if w.tombstone {
						w.value = ""
						delete(model, w.key)
					} else {
						model[w.key] = w.value
					}
					written[info.BaseOffset+kafka.Offset(i)] = w.key + "=" + w.value
				}
			},
			"roll":  func(rt *rapid.T) { _ = l.Roll() },
			"clean": func(rt *rapid.T) { clean(t, l, nowMs, dedupe) },
			"wait":  func(rt *rapid.T) { nowMs += rapid.Int64Range(1, deleteRetentionMs).Draw(rt, "ms") },
			"restart": func(rt *rapid.T) {
				if err := d.Close(true); err != nil {
					rt.Fatal(err)
				}
				d, l = openLog(t, fsys)
			},
			"crash": func(rt *rapid.T) {
				// The journal's rounds do not run: sync, then lose the power.
				if err := l.SyncFiles(); err != nil {
					rt.Fatal(err)
				}
				fsys = fsys.CrashClone(rapid.Uint64().Draw(rt, "seed"), rapid.SampledFrom([]int{0, 50, 100}).Draw(rt, "survive"))
				d, l = openLog(t, fsys)
			},
			"": func(*rapid.T) { check() },
		})
	})
}

// fill appends versions of the same keys over several segments.
func fill(t testing.TB, l *commitlog.Log, nowMs int64, rounds int) {
	t.Helper()
	for i := range rounds {
		var writes []write
		for k := range 5 {
			writes = append(writes, write{key: fmt.Sprint("k", k), value: fmt.Sprintf("v%d-%d", i, k)})
		}
		if _, err := l.AppendAsLeader([]record.Batch{buildBatch(record.CodecNone, nowMs, writes, -1, -1)}, 1, time.UnixMilli(nowMs)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCompactionKeepsTheLatest(t *testing.T) {
	_, l := openLog(t, memfs.New())
	fill(t, l, 1000, 50)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	stats := clean(t, l, 2000, 0)
	got := readLog(t, l)
	if len(got.offsets) != 5 || got.offsets[0] != 245 || stats.SegmentsAfter != 1 || stats.RecordsDropped != 245 {
		t.Errorf("offsets %v, %+v", got.offsets, stats)
	}
	if l.LogStartOffset() != 0 || l.LogEndOffset() != 250 {
		t.Errorf("log has [%d, %d)", l.LogStartOffset(), l.LogEndOffset())
	}
}

func TestTombstonesWaitForReaders(t *testing.T) {
	_, l := openLog(t, memfs.New())
	fill(t, l, 1000, 20)
	b := buildBatch(record.CodecNone, 1000, []write{{key: "k0", tombstone: true}, {key: "k1", value: "last"}}, -1, -1)
	if _, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1000)); err != nil {
		t.Fatal(err)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	clean(t, l, 5000, 0)
	if got := readLog(t, l); !got.deleted["k0"] || len(got.latest) != 4 {
		t.Fatalf("after the first pass: deleted %v, latest %v", got.deleted, got.latest)
	}
	clean(t, l, 5000+deleteRetentionMs-1, 0)
	if got := readLog(t, l); !got.deleted["k0"] {
		t.Fatal("the tombstone went before delete.retention.ms")
	}
	clean(t, l, 5000+deleteRetentionMs, 0)
	if got := readLog(t, l); got.deleted["k0"] || len(got.latest) != 4 || got.latest["k1"] != "last" {
		t.Fatalf("after delete.retention.ms: deleted %v, latest %v", got.deleted, got.latest)
	}
}

func TestProducersOutliveTheirRecords(t *testing.T) {
	fsys := memfs.New()
	d, l := openLog(t, fsys)
	b := buildBatch(record.CodecNone, 1000, []write{{key: "k0", value: "a"}, {key: "k1", value: "b"}}, 7, 0)
	if _, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1000)); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1000, 20)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	clean(t, l, 2000, 0)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	names, err := fsys.ReadDir(commitlog.LogDir(logID))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range names { // Without snapshots the log itself must tell.
		if name := e.Name(); len(name) > 9 && name[len(name)-9:] == ".snapshot" {
			if err := fsys.Remove(commitlog.LogDir(logID) + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, l = openLog(t, fsys)
	b = buildBatch(record.CodecNone, 1000, []write{{key: "k0", value: "c"}}, 7, 2)
	if _, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1000)); err != nil {
		t.Errorf("the producer's next batch: %v", err)
	}
}

// A reader that began before a compaction goes on with what it was given.
func TestReadersKeepTheirSegments(t *testing.T) {
	_, l := openLog(t, memfs.New())
	fill(t, l, 1000, 50)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	c, err := l.Read(0, 1<<20, l.LogEndOffset(), true)
	if err != nil {
		t.Fatal(err)
	}
	clean(t, l, 2000, 0)
	data, err := c.AppendTo(nil)
	c.Release()
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil || b.CheckCRC() != nil {
			t.Fatalf("chunk from before the compaction: %v, %v", err, b.CheckCRC())
		}
		data = rest
	}
}

// Whichever disk operation of a compaction fails, or is the last before the
// power goes: the latest values are there after a restart.
func TestEveryOperationOfACompactionFails(t *testing.T) {
	for n := int64(1); ; n++ {
		disk := memfs.New()
		faulty := errorfs.Wrap(disk, nil)
		_, l := openLog(t, faulty)
		fill(t, l, 1000, 40)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		if err := l.SyncFiles(); err != nil {
			t.Fatal(err)
		}
		want := readLog(t, l).latest
		hit := false
		var clones []*memfs.FS
		inject := errorfs.Nth(n, syscall.EIO, func(o errorfs.Op) bool { return o.Kind.Changes() })
		faulty.SetInjector(func(o errorfs.Op) error {
			err := inject(o)
			if err != nil {
				hit = true
				clones = append(clones, disk.CrashClone(uint64(n), 0), disk.CrashClone(uint64(n), 50))
			}
			return err
		})
		_, err := cleaner.New(cleaner.Options{DedupeBytes: 1 << 16}).Clean(
			t.Context(), cleaner.Target{Log: l, LastStableOffset: l.LogEndOffset()}, time.UnixMilli(2000))
		if !hit {
			if err != nil {
				t.Fatal(err)
			}
			if n < 20 {
				t.Errorf("a compaction has only %d operations", n)
			}
			return
		}
		clones = append(clones, disk.CrashClone(uint64(n), 100), disk.CrashClone(uint64(n), 0))
		for i, clone := range clones {
			_, l := openLog(t, clone)
			got := readLog(t, l).latest
			if fmt.Sprint(got) != fmt.Sprint(want) || l.LogEndOffset() != 200 {
				t.Fatalf("operation %d, clone %d: latest %v, want %v; log end %d", n, i, got, want, l.LogEndOffset())
			}
		}
	}
}

func TestRunCompactsWhatIsDirty(t *testing.T) {
	_, l := openLog(t, memfs.New())
	fill(t, l, 1000, 50)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	c := cleaner.New(cleaner.Options{Backoff: time.Millisecond, Targets: func() []cleaner.Target {
		if calls++; calls == 3 {
			cancel()
		}
		return []cleaner.Target{{Log: l, LastStableOffset: l.LogEndOffset()}}
	}})
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := readLog(t, l); len(got.offsets) != 5 {
		t.Errorf("%d records left", len(got.offsets))
	}
}
