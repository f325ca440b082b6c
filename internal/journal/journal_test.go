package journal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// Whoever asks learns how long a round has waited for a disk that hangs.
func TestCommitting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		disk := errorfs.Wrap(memfs.New(), nil)
		j, _ := start(t, disk, small())
		if got := j.Committing(); got != 0 {
			t.Errorf("with nothing to do: %v", got)
		}
		disk.SetInjector(func(o errorfs.Op) error {
			if o.Kind == errorfs.Sync {
				<-goOn
			}
			return nil
		})
		l := openLog(t, disk, 1)
		if err := l.append(j, 1); err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if got := j.Committing(); got < 2*time.Second {
			t.Errorf("after three seconds: %v", got)
		}
		close(goOn)
		if err := l.wait(1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := j.Committing(); got != 0 {
			t.Errorf("when it is done: %v", got)
		}
	})
}

// small makes files of 16 blocks, so that tests roll and recycle soon.
func small() journal.Options {
	return journal.Options{FileBytes: 16 * 4096, MaxFiles: 3, FileSyncBytes: 8 << 10, FileSyncRate: 1}
}

// start opens a journal that holds nothing and runs it until stop is called.
func start(t testing.TB, fsys vfs.FS, opt journal.Options) (j *journal.Journal, stop func()) {
	t.Helper()
	if err := fsys.MkdirAll("journal"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(fsys, "journal", opt)
	if err != nil {
		t.Fatal(err)
	}
	return j, run(t, j)
}

// run runs a journal until stop is called.
func run(t testing.TB, j *journal.Journal) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }() // Ends with ctx; awaited by stop.
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return stop
}

// warmUp makes the journal write to files, which it prepares after the first
// round only.
func warmUp(t testing.TB, j *journal.Journal, l *fakeLog) {
	t.Helper()
	for i := uint64(1); j.Stats().JournalWrites == 0; i++ {
		if err := l.append(j, seal(1<<40+i)); err != nil {
			t.Fatal(err)
		}
		if err := l.wait(l.end); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Millisecond) // In a bubble, lets its time pass.
	}
}

func TestFirstAppendIsDurableBeforeAnyFileIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		j, stop := start(t, fsys, journal.Options{})
		l := openLog(t, fsys, 1)
		if err := l.append(j, 1, 2, 3); err != nil {
			t.Fatal(err)
		}
		if err := l.wait(3); err != nil {
			t.Fatal(err)
		}
		if s := j.Stats(); s.JournalWrites != 0 || s.FileSyncs != 1 {
			t.Errorf("stats after the first round: %+v", s)
		}
		<-time.After(time.Second)
		if s := j.Stats(); s.Files != 2 {
			t.Errorf("%d files after the first round, want 2", s.Files)
		}
		stop()
		if got := openLog(t, fsys.CrashClone(1, 0), 2).end; got != 0 {
			t.Errorf("another log ends at %d", got)
		}
	})
}

func TestReplayReturnsWhatWasEnqueued(t *testing.T) {
	fsys := memfs.New()
	j, stop := start(t, fsys, small())
	l := openLog(t, fsys, 1)
	warmUp(t, j, l)
	base := l.end
	for i := range uint64(5) {
		if err := l.append(j, seal(100+i)); err != nil {
			t.Fatal(err)
		}
		if err := l.wait(l.end); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	j2, err := journal.Open(fsys.CrashClone(1, 0), "journal", small())
	if err != nil {
		t.Fatal(err)
	}
	defer j2.Close()
	var got []uint64
	err = j2.Replay(func(e journal.Entry) error {
		if e.Kind == journal.Append && e.BaseOffset >= base {
			got = append(got, binary.BigEndian.Uint64(e.Data)>>16)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{100, 101, 102, 103, 104}, got); diff != "" {
		t.Error(diff)
	}
	if err := j2.Run(t.Context()); err == nil {
		t.Error("Run before Reset gave no error")
	}
}

func TestRoundsAreSpacedUnderLoadAndImmediateWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := slowFS{memfs.New(), time.Millisecond}
		var replicated atomic.Bool
		j, _ := start(t, fsys, journal.Options{MinGap: 4 * time.Millisecond, Replicated: replicated.Load})
		l := openLog(t, fsys, 1)
		for range 20 {
			began := time.Now()
			if err := l.append(j, 1); err != nil {
				t.Fatal(err)
			}
			if err := l.wait(l.end); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Millisecond {
				t.Fatalf("an idle journal took %v", took)
			}
			<-time.After(10 * time.Millisecond)
		}
		rounds := func(records int) uint64 {
			before, began := j.Stats().Rounds, time.Now()
			for time.Since(began) < time.Second {
				if err := l.append(j, make([]uint64, records)...); err != nil {
					t.Fatal(err)
				}
				<-time.After(100 * time.Microsecond)
			}
			return j.Stats().Rounds - before
		}
		if n := rounds(1); n < 200 || n > 251 {
			t.Errorf("%d rounds in a second, want one in 4 ms", n)
		}
		if n := rounds(200); n < 180 || n > 215 { // 16 MB/s: twice as far apart, but for the cost of a sync.
			t.Errorf("%d rounds in a second under a larger load, want one in 5 ms", n)
		}
		replicated.Store(true)
		if n := rounds(200); n < 110 || n > 150 { // A sync may be paid for with more time.
			t.Errorf("%d rounds in a second where records are replicated, want one in 8 ms", n)
		}
		synctest.Wait()
	})
}

// slowFS has files that take a while to sync.
type slowFS struct {
	vfs.FS
	delay time.Duration
}

func (f slowFS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return slowFile{file, f.delay}, nil
}

type slowFile struct {
	vfs.File
	delay time.Duration
}

func (f slowFile) Sync() error {
	<-time.After(f.delay)
	return f.File.Sync()
}

func TestLargeAppendsSyncTheirOwnFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		j, _ := start(t, fsys, small())
		large, light := openLog(t, fsys, 1), openLog(t, fsys, 2)
		warmUp(t, j, light)
		synctest.Wait()
		before := j.Stats()
		if err := large.append(j, make([]uint64, 2000)...); err != nil {
			t.Fatal(err)
		}
		if err := light.append(j, 1); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(large.wait(large.end), light.wait(light.end)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		after := j.Stats()
		if n := after.FileSyncs - before.FileSyncs; n != 1 {
			t.Errorf("%d logs synced, want the large one", n)
		}
		if n := after.JournalBytes - before.JournalBytes; n != 4096 {
			t.Errorf("%d bytes journaled, want a block for the light one", n)
		}
	})
}

func TestFullDiskLeavesTheJournalWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		j, _ := start(t, fsys, small())
		l := openLog(t, fsys, 1)
		fsys.SetCapacity(64 << 10) // Room for the log, none for a journal file.
		for i := range uint64(100) {
			if err := l.append(j, seal(i+1)); err != nil {
				t.Fatal(err)
			}
			if err := l.wait(l.end); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if s := j.Stats(); s.Files != 0 || s.FileSyncs != 100 {
			t.Errorf("stats on a full disk: %+v", s)
		}
		fsys.SetCapacity(-1)
		<-time.After(time.Minute)
		warmUp(t, j, l)
	})
}

func TestFailureIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := syscall.EIO
		fsys := &failingFS{FS: memfs.New()}
		var failures []error
		opt := small()
		opt.Logger = slog.New(slog.DiscardHandler)
		opt.OnFailure = func(err error) { failures = append(failures, err) }
		j, stop := start(t, fsys, opt)
		a, b := openLog(t, fsys, 1), openLog(t, fsys, 2)
		warmUp(t, j, a)
		synctest.Wait()
		fsys.fail(boom)
		if err := errors.Join(a.append(j, 1), b.append(j, 2)); err != nil {
			t.Fatal(err)
		}
		for _, l := range []*fakeLog{a, b} {
			if err := l.wait(l.end); !errors.Is(err, boom) {
				t.Errorf("log %v failed with %v, want %v", l.id, err, boom)
			}
		}
		fsys.fail(nil) // The disk seems well again: nothing may be believed.
		b.mu.Lock()
		b.failed = nil
		b.mu.Unlock()
		if err := b.append(j, 3); err != nil {
			t.Fatal(err)
		}
		if err := b.wait(b.end); !errors.Is(err, boom) {
			t.Errorf("after the failure: %v, want %v", err, boom)
		}
		if err := j.Truncate(a, 0); !errors.Is(err, boom) {
			t.Errorf("truncate after the failure: %v, want %v", err, boom)
		}
		j.Forget(a)
		stop()
		if len(failures) != 1 || !errors.Is(failures[0], boom) {
			t.Errorf("OnFailure got %v, want one %v", failures, boom)
		}
	})
}

// failingFS has files whose Sync fails on command.
type failingFS struct {
	vfs.FS
	mu  sync.Mutex
	err error
}

func (f *failingFS) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failingFS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return failingFile{file, f}, nil
}

type failingFile struct {
	vfs.File
	fs *failingFS
}

func (f failingFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.err != nil {
		return f.fs.err
	}
	return f.File.Sync()
}
