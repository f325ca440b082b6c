package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/test/seeds"
)

// TestCrashAtEverySyncPoint runs writers against a journal on a disk in memory
// and cuts the power before operations of the journal chosen at random, the
// recovery of an earlier crash included. What is found afterwards must be a
// prefix of what was written and hold all that was acknowledged.
func TestCrashAtEverySyncPoint(t *testing.T) {
	runs := 8
	var recycled, kept atomic.Uint64
	t.Cleanup(func() {
		if recycled.Load() == 0 || kept.Load() == 0 {
			t.Errorf("%d files were recycled, and %d recoveries kept the journal", recycled.Load(), kept.Load())
		}
	})
	if testing.Short() {
		runs = 2
	}
	for seed := range seeds.Of(t, runs) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(memfs.New(), seed)
			w.open(t, nil)
			w.work(t)
			recycled.Add(w.j.Stats().Recycled)
			if len(w.snapshots) == 0 {
				t.Error("no crash was tried")
			}
			for i, s := range w.snapshots {
				kept.Add(uint64(s.check(t, seed<<8|uint64(i), 2)))
			}
		})
	}
}

const crashLogs = 4

// world is one life of the disk: from opening the journal to a crash.
type world struct {
	mem  *memfs.FS
	fs   *errorfs.FS
	logs [crashLogs]*crashLog
	j    *journal.Journal

	value atomic.Uint64
	// quiet keeps the logs from syncing their own files, so that the journal
	// is all there is until it recycles.
	quiet bool
	// keeps has recoveries end with Keep if they can; kept says that one did.
	keeps, kept bool

	// pause is held for reading while a log and what is known of it change,
	// and for writing while a snapshot is taken.
	pause     sync.RWMutex
	rnd       *rand.Rand // Of snapshots; guarded by pause.
	snapshots []snapshot
}

// crashLog is a fakeLog and what is known of it.
type crashLog struct {
	*fakeLog
	written []uint64
	// earlier is what was written in earlier lives. Where nothing was acknowledged
	// in its place, it may come back.
	earlier [][]uint64
	// cutTo is the end that a truncation in flight wants, or -1.
	cutTo int
}

// snapshot is a disk after a crash and what must be found on it.
type snapshot struct {
	mem  *memfs.FS
	want [crashLogs]expectation
	at   string
}

type expectation struct {
	written []uint64
	earlier [][]uint64
	least   int
}

// mayBe reports whether a record may be found at a place.
func (x expectation) mayBe(i int, v uint64) bool {
	if i < len(x.written) && x.written[i] == v {
		return true
	}
	return i >= x.least && slices.ContainsFunc(x.earlier, func(e []uint64) bool { return i < len(e) && e[i] == v })
}

func newWorld(mem *memfs.FS, seed uint64) *world {
	w := &world{mem: mem, rnd: rand.New(rand.NewPCG(seed, 1)), quiet: seed%2 == 1, keeps: seed%4 < 3}
	w.value.Store(seed << 20 & (1<<47 - 1))
	w.fs = errorfs.Wrap(mem, w.beforeOp)
	return w
}

// beforeOp takes a snapshot now and then. Operations of the writers are left
// out: the changes that they make are seen by those of the journal.
func (w *world) beforeOp(o errorfs.Op) error {
	ofJournal := strings.HasPrefix(o.Name, "journal") || o.Kind == errorfs.Sync
	if !ofJournal || !o.Kind.Changes() {
		return nil
	}
	w.pause.Lock()
	defer w.pause.Unlock()
	if w.rnd.IntN(8) != 0 || len(w.snapshots) >= 16 {
		return nil
	}
	s := snapshot{at: o.String()}
	for i, l := range w.logs {
		if l == nil {
			return nil // Still opening.
		}
		l.mu.Lock()
		least := int(l.durable)
		l.mu.Unlock()
		if l.cutTo >= 0 {
			least = min(least, l.cutTo)
		}
		s.want[i] = expectation{slices.Clone(l.written), l.earlier, least}
	}
	s.mem = w.mem.CrashClone(w.rnd.Uint64(), []int{0, 10, 50, 90, 100}[w.rnd.IntN(5)])
	w.snapshots = append(w.snapshots, s)
	return nil
}

// open recovers what the disk holds. With want it checks the result.
func (w *world) open(t *testing.T, want *[crashLogs]expectation) {
	t.Helper()
	if err := errors.Join(w.fs.MkdirAll("journal"), w.fs.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	for i := range w.logs {
		l := &crashLog{fakeLog: openLog(t, w.fs, i), cutTo: -1}
		if want != nil {
			// Crashes of the recovery itself are to find no less.
			l.written, l.durable = want[i].written, kafka.Offset(want[i].least)
			l.earlier = append(slices.Clone(want[i].earlier), want[i].written)
		}
		w.pause.Lock()
		w.logs[i] = l
		w.pause.Unlock()
	}
	var err error
	if w.j, err = journal.Open(w.fs, "journal", small()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.j.Close() })
	err = w.j.Replay(func(e journal.Entry) error { return w.logs[e.ID.Partition].replay(e) })
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	for i, l := range w.logs {
		if want != nil {
			w.compare(t, l, want[i])
		}
	}
	w.settle(t)
	w.pause.Lock()
	defer w.pause.Unlock()
	for _, l := range w.logs {
		// What was found is durable only now: until then more of what was
		// written may show up after another crash.
		l.durable, l.written = l.end, l.content(t)
	}
}

// settle ends a recovery: by Keep, or by syncing everything and Reset.
func (w *world) settle(t *testing.T) {
	t.Helper()
	var unsynced [crashLogs]bool
	for i, l := range w.logs {
		unsynced[i] = !l.wasCut && l.end <= w.j.Coverage(l.id).End()
	}
	kept, err := false, error(nil)
	if w.keeps {
		kept, err = w.j.Keep(func(id kafka.TopicIDPartition) journal.Log { return w.logs[id.Partition].fakeLog })
	}
	for i, l := range w.logs {
		if !kept || !unsynced[i] {
			err = errors.Join(err, l.file.Sync())
		}
	}
	err = errors.Join(err, w.fs.SyncDir("."))
	if !kept {
		err = errors.Join(err, w.j.Reset())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.kept = w.kept || kept
}

// compare checks a recovered log against what must be there.
func (w *world) compare(t *testing.T, l *crashLog, want expectation) {
	t.Helper()
	got := l.content(t)
	if c := w.j.Coverage(l.id); int(c.End()) > len(got) {
		t.Errorf("log %d: %d records found, and the journal takes it for durable below %d", l.id.Partition, len(got), c.End())
	}
	if len(got) < want.least {
		t.Errorf("log %d: %d records found, %d were acknowledged", l.id.Partition, len(got), want.least)
	}
	for i, v := range got {
		if !want.mayBe(i, v) {
			t.Errorf("log %d: record %d of %d is %#x, which was not written there (%d were, %d acknowledged)",
				l.id.Partition, i, len(got), v, len(want.written), want.least)
			break
		}
	}
}

// check recovers from a crash, goes on and crashes again, depth times. It returns
// how many recoveries kept the journal.
func (s snapshot) check(t *testing.T, seed uint64, depth int) (kept int) {
	t.Helper()
	w := newWorld(s.mem, seed)
	w.open(t, &s.want)
	if t.Failed() {
		t.Fatalf("crash before %s, seed %#x, depth %d", s.at, seed, depth)
	}
	if w.kept {
		kept++
	}
	if depth == 0 || seed%4 > 1 {
		return kept
	}
	w.work(t)
	for i, again := range w.snapshots {
		if i%4 == 0 {
			kept += again.check(t, seed<<4|uint64(i), depth-1)
		}
	}
	return kept
}

// work lets all logs be written to at once for a while.
func (w *world) work(t *testing.T) {
	t.Helper()
	stop := run(t, w.j)
	var g sync.WaitGroup
	for i, l := range w.logs {
		rnd := rand.New(rand.NewPCG(w.value.Load(), uint64(i)))
		g.Go(func() {
			for range 100 {
				if err := w.step(l, rnd, w.quiet); err != nil {
					t.Errorf("log %d: %v", i, err)
					return
				}
			}
		})
	}
	g.Wait()
	stop()
}

// step does one random thing to a log.
func (w *world) step(l *crashLog, rnd *rand.Rand, quiet bool) error {
	n := rnd.IntN(20)
	if quiet {
		n = 3 + rnd.IntN(17)
	}
	switch {
	case n == 0:
		return w.truncate(l, rnd)
	case n == 1: // More than is journaled.
		return w.append(l, 1500, false)
	case n == 2:
		return w.append(l, 1+rnd.IntN(3), true)
	case n < 8:
		return l.wait(l.end)
	default:
		return w.append(l, 1+rnd.IntN(200), false)
	}
}

func (w *world) append(l *crashLog, n int, syncFiles bool) error {
	values := make([]uint64, n)
	for i := range values {
		values[i] = seal(w.value.Add(1))
	}
	w.pause.RLock()
	defer w.pause.RUnlock()
	l.written = append(l.written, values...)
	if !syncFiles {
		return l.append(w.j, values...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.writeLocked(encode(values))
	w.j.EnqueueSync(l.fakeLog, l.end)
	return err
}

func (w *world) truncate(l *crashLog, rnd *rand.Rand) error {
	to := kafka.Offset(rnd.IntN(int(l.end) + 1))
	w.pause.RLock()
	l.cutTo = int(to)
	w.pause.RUnlock()
	if err := w.j.Truncate(l.fakeLog, to); err != nil {
		return err
	}
	if err := errors.Join(l.file.Truncate(int64(to)*8), l.file.Sync()); err != nil {
		return err
	}
	w.pause.RLock()
	defer w.pause.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end, l.durable = to, min(l.durable, to)
	l.written, l.cutTo = l.written[:to], -1
	return nil
}
