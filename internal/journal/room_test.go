package journal_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// gate holds back syncs of the journal's files on command.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: nothing is held back.
}

func (g *gate) inject(o errorfs.Op) error {
	if o.Kind != errorfs.Sync || !strings.HasPrefix(o.Name, "journal/") {
		return nil
	}
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
	return nil
}

func (g *gate) shut() (open func()) {
	c := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = c
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open = nil
		close(c)
	}
}

// TestRoundLongerThanAnyRoom enqueues more in one round than a file takes: it
// becomes several frames, and what no file has room for is synced in the logs'
// own files. Either way all that is acknowledged survives.
func TestRoundLongerThanAnyRoom(t *testing.T) {
	for _, test := range []struct {
		name      string
		before    int // Records in the current file.
		syncFiles bool
	}{
		{"several frames", 0, false},
		{"frames and files", 3500, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testLongRound(t, test.before, test.syncFiles) })
		})
	}
}

func testLongRound(t *testing.T, inCurrent int, syncFiles bool) {
	mem := memfs.New()
	var g gate
	fsys := errorfs.Wrap(mem, g.inject)
	opt := small()
	opt.MaxFiles, opt.FileSyncBytes = 2, 1<<20
	j, stop := start(t, fsys, opt)
	logs := make([]*fakeLog, 6)
	for i := range logs {
		logs[i] = openLog(t, fsys, i)
	}
	must(t, fsys.SyncDir("."))
	warmUp(t, j, logs[0])
	filler := make([]uint64, inCurrent)
	for i := range filler {
		filler[i] = seal(1<<30 + uint64(i))
	}
	must(t, logs[1].append(j, filler...), logs[1].wait(logs[1].end))
	<-time.After(time.Second)
	before := j.Stats()

	open := g.shut()
	must(t, logs[0].append(j, seal(1)))
	synctest.Wait()          // The committer is held back with this round.
	for i, l := range logs { // The last is in the last frame only.
		for round := range uint64(10) {
			values := make([]uint64, 120)
			for k := range values {
				values[k] = seal(1000*round + uint64(200*i+k))
			}
			must(t, l.append(j, values...))
		}
	}
	open()
	for _, l := range logs {
		must(t, l.wait(l.end))
	}
	synctest.Wait()
	after := j.Stats()
	if n := after.JournalWrites - before.JournalWrites; n < 3 {
		t.Errorf("%d frames, want several", n)
	}
	if synced := after.FileSyncs > before.FileSyncs; synced != syncFiles {
		t.Errorf("own files synced: %v, want %v", synced, syncFiles)
	}
	want := make([][]uint64, len(logs))
	for i, l := range logs {
		want[i] = l.content(t)
	}
	checkRecovered(t, mem.CrashClone(1, 0), want)

	// All files are recycled in turn: what only the copies had is synced first.
	for n := uint64(1); j.Stats().Recycled < after.Recycled+3; n++ {
		appendAndWait(t, j, logs[0], 1<<31+n)
		synctest.Wait()
	}
	want[0] = logs[0].content(t)
	checkRecovered(t, mem.CrashClone(1, 0), want)
	stop()
}

// checkRecovered replays a journal into logs and compares these.
func checkRecovered(t *testing.T, fsys *memfs.FS, want [][]uint64) {
	t.Helper()
	j, err := journal.Open(fsys, "journal", small())
	must(t, err)
	defer func() { must(t, j.Close()) }()
	logs := make([]*fakeLog, len(want))
	for i := range logs {
		logs[i] = openLog(t, fsys, i)
	}
	must(t, j.Replay(func(e journal.Entry) error { return logs[e.ID.Partition].replay(e) }))
	for i, l := range logs {
		got := l.content(t)
		if len(got) < len(want[i]) {
			t.Errorf("log %d: %d records found, %d were acknowledged", i, len(got), len(want[i]))
			continue
		}
		for k, v := range want[i] {
			if got[k] != v {
				t.Errorf("log %d: record %d is %#x, want %#x", i, k, got[k], v)
				break
			}
		}
	}
}

// TestFileIsWrittenOverOnlyAfterItsRelease fills both files so that the first
// is free and no frame says so yet, and crashes while it is written over.
func TestFileIsWrittenOverOnlyAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New()
		var armed atomic.Bool
		var crashed []*memfs.FS // Of the committer while armed.
		fsys := errorfs.Wrap(mem, func(o errorfs.Op) error {
			if armed.Load() && o.Kind == errorfs.Sync && strings.HasPrefix(o.Name, "journal/") {
				for seed := range uint64(8) {
					crashed = append(crashed, mem.CrashClone(seed, 50))
				}
			}
			return nil
		})
		opt := small()
		opt.MaxFiles, opt.FileSyncBytes = 2, 1<<20
		j, stop := start(t, fsys, opt)
		l := openLog(t, fsys, 0)
		must(t, fsys.SyncDir("."))
		warmUp(t, j, l)
		var n uint64
		large := func() {
			values := make([]uint64, 5400) // All that a file takes.
			for i := range values {
				n++
				values[i] = seal(n)
			}
			must(t, l.append(j, values...), l.wait(l.end))
			<-time.After(time.Second) // The recycler is done.
		}
		large() // Into the second file; the first becomes free.
		if got := j.Stats().Recycled; got != 1 {
			t.Fatalf("%d files recycled, want 1", got)
		}
		want := l.content(t)
		armed.Store(true)
		large() // Over the first file.
		armed.Store(false)
		stop()
		if len(crashed) < 16 {
			t.Fatalf("%d crashes, want those of the release and of the frame", len(crashed))
		}
		for _, c := range crashed {
			checkRecovered(t, c, [][]uint64{want})
		}
	})
}
