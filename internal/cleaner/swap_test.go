package cleaner_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func changes(o errorfs.Op) bool { return o.Kind.Changes() }

// crashes calls fn with what a power loss leaves before each changing operation
// of work, and after the last, and returns how many operations there were.
func crashes(disk *memfs.FS, watched *errorfs.FS, work func(), fn func(n int, left *memfs.FS)) int {
	n := 0
	var clones []*memfs.FS
	watched.SetInjector(func(o errorfs.Op) error {
		if changes(o) {
			n++
			clones = append(clones, disk.CrashClone(uint64(n), 0), disk.CrashClone(uint64(n), 50),
				disk.CrashClone(uint64(n), 100))
		}
		return nil
	})
	work()
	watched.SetInjector(nil)
	clones = append(clones, disk.CrashClone(0, 0), disk.CrashClone(0, 100))
	for i, clone := range clones {
		fn(i/3+1, clone)
	}
	return n
}

// dirtyLog is a log of several sealed segments on a disk that is watched.
func dirtyLog(t *testing.T, disk *memfs.FS) (*errorfs.FS, *commitlog.Log) {
	t.Helper()
	watched := errorfs.Wrap(disk, nil)
	_, l := openLog(t, watched)
	fill(t, l, 1000, 24)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if err := l.SyncFiles(); err != nil {
		t.Fatal(err)
	}
	return watched, l
}

// The power goes at any point of a compaction, and again at any point of the
// start that finishes it: the values, the log's end and the producers' place in
// the log are what they were, and a later compaction still works.
func TestPowerLossAtEveryPoint(t *testing.T) {
	disk := memfs.New()
	watched, l := dirtyLog(t, disk)
	want, end := fmt.Sprint(readLog(t, l).latest), l.LogEndOffset()
	check := func(where string, left *memfs.FS) *commitlog.Log {
		t.Helper()
		_, l := openLog(t, left)
		if got := fmt.Sprint(readLog(t, l).latest); got != want || l.LogEndOffset() != end || l.Err() != nil {
			t.Fatalf("%s: %s, want %s; log end %d, want %d; %v", where, got, want, l.LogEndOffset(), end, l.Err())
		}
		return l
	}
	seen := map[string]bool{}
	n := crashes(disk, watched, func() { clean(t, l, 2000, 0) }, func(n int, left *memfs.FS) {
		where := fmt.Sprintf("operation %d", n)
		names, err := left.ReadDir(commitlog.LogDir(logID))
		if err != nil {
			t.Fatal(err)
		}
		if key := fmt.Sprint(names); !seen[key] { // A start that was cut off, once for each state.
			seen[key] = true
			again := left.CrashClone(0, 100)
			start := errorfs.Wrap(again, nil)
			crashes(again, start, func() { openLog(t, start) }, func(m int, left *memfs.FS) {
				check(fmt.Sprintf("%s, operation %d of the start", where, m), left)
			})
		}
		l := check(where, left)
		clean(t, l, 3000, 0)
		if got := readLog(t, l); len(got.offsets) != 5 {
			t.Fatalf("%s: %d records after another compaction", where, len(got.offsets))
		}
	})
	if n < 20 || len(seen) < 5 {
		t.Errorf("only %d operations and %d states of the directory", n, len(seen))
	}
}

// Readers go on while segments are replaced under them: offsets rise, checksums
// hold, and no latest value is missed.
func TestReadersDuringCompactions(t *testing.T) {
	_, l := openLog(t, memfs.New())
	fill(t, l, 1000, 60)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := readAll(l); err != nil {
					t.Error(err)
					return
				}
				if _, _, err := l.OffsetForTimestamp(1000, l.LogEndOffset()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 30 {
		fill(t, l, 1000+int64(i), 10)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		clean(t, l, 5000, 0)
	}
	close(stop)
	readers.Wait()
}

// readAll reads the log as a consumer does, up to where it ends at last: below an
// end of before, compaction may have left nothing.
func readAll(l *commitlog.Log) error {
	last := kafka.Offset(-1)
	keys := map[string]bool{}
	for at := l.LogStartOffset(); at < l.LogEndOffset(); {
		end := l.LogEndOffset()
		c, err := l.Read(at, 700, end, true)
		if err != nil {
			return err
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			return err
		}
		if len(data) == 0 {
			if l.LogEndOffset() == end {
				return fmt.Errorf("nothing in [%d, %d), the end of the log", at, end)
			}
			continue // It was compacted away in favour of what came since.
		}
		for at = c.NextOffset(); len(data) > 0; {
			b, rest, err := record.Next(data)
			if err = errors.Join(err, b.CheckCRC()); err != nil {
				return err
			}
			if b.BaseOffset() <= last {
				return fmt.Errorf("batch at %d after %d", b.BaseOffset(), last)
			}
			for r := range b.Records(1 << 20) {
				keys[string(r.Key)] = true
			}
			data, last = rest, b.LastOffset()
		}
	}
	if len(keys) != 5 {
		return fmt.Errorf("%d keys up to %d", len(keys), last)
	}
	return nil
}

// A log of which nothing can be dropped is read once and then left alone.
func TestCleanLogIsLeftAlone(t *testing.T) {
	disk := memfs.New()
	watched, l := dirtyLog(t, disk)
	clean(t, l, 2000, 0)
	if l.HasDirt() {
		t.Error("dirt is left")
	}
	watched.Record()
	stats := clean(t, l, 3000, 0)
	if stats.BytesBefore != stats.BytesAfter || stats.RecordsDropped != 0 {
		t.Errorf("%+v", stats)
	}
	for _, op := range watched.Transcript() {
		if len(op) > 6 && op[:6] == "rename" {
			t.Errorf("a segment without a change was replaced: %s", op)
		}
	}
}

func TestMaxCompactionLagForces(t *testing.T) {
	_, l := openLog(t, memfs.New())
	cfg := compactConfig()
	cfg.MinCleanableDirtyRatio, cfg.MaxCompactionLagMs = 1.1, 60_000
	l.SetConfig(cfg)
	run := func(nowMs int64) int {
		fill(t, l, nowMs, 20)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		e := newEvents()
		runUntilQuiet(t, cleaner.Options{Events: e}, l)
		return e.count("cleaned")
	}
	if n := run(time.Now().UnixMilli()); n != 0 {
		t.Errorf("%d passes over what is neither dirty enough nor old", n)
	}
	if n := run(time.Now().UnixMilli() - 120_000); n == 0 {
		t.Error("no pass although max.compaction.lag.ms is over")
	}
}
