package journal_test

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// must fails the test on an error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// appendAndWait appends records one by one, each a round of its own.
func appendAndWait(t testing.TB, j *journal.Journal, l *fakeLog, numbers ...uint64) {
	t.Helper()
	for _, n := range numbers {
		must(t, l.append(j, seal(n)), l.wait(l.end))
	}
}

// replayed reopens a journal and returns what it replays of a log, from an
// offset on: numbers of records, and truncations as negative offsets.
func replayed(t testing.TB, fsys vfs.FS, id kafka.TopicIDPartition, from kafka.Offset) []int64 {
	t.Helper()
	j, err := journal.Open(fsys, "journal", small())
	must(t, err)
	defer func() { must(t, j.Close()) }()
	var got []int64
	must(t, j.Replay(func(e journal.Entry) error {
		switch {
		case e.ID != id || e.BaseOffset < from:
		case e.Kind == journal.Truncate:
			got = append(got, -int64(e.EndOffset))
		default:
			for b := e.Data; len(b) > 0; b = b[8:] {
				got = append(got, int64(binary.BigEndian.Uint64(b)>>16))
			}
		}
		return nil
	}))
	return got
}

// written returns a disk with a journal of five rounds, and where they begin.
func written(t *testing.T) (fsys *memfs.FS, id kafka.TopicIDPartition, base kafka.Offset) {
	t.Helper()
	fsys = memfs.New()
	j, stop := start(t, fsys, small())
	l := openLog(t, fsys, 1)
	warmUp(t, j, l)
	base = l.end
	appendAndWait(t, j, l, 101, 102, 103, 104, 105)
	stop()
	return fsys.CrashClone(1, 0), l.id, base
}

// findFrames returns the positions of frames in the journal's first used file.
func findFrames(t *testing.T, fsys vfs.FS) (name string, frames []int64, content []byte) {
	t.Helper()
	list, err := fsys.ReadDir("journal")
	must(t, err)
	for _, d := range list {
		name = "journal/" + d.Name()
		f, err := fsys.Open(name, vfs.ReadOnly)
		must(t, err)
		size, err := f.Size()
		must(t, err)
		content = make([]byte, size)
		if _, err := f.ReadAt(content, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		must(t, f.Close())
		for at := 4096; at < len(content); at += 4096 {
			if binary.BigEndian.Uint32(content[at:]) == 0x534a4652 {
				frames = append(frames, int64(at))
			}
		}
		if len(frames) > 0 {
			return name, frames, content
		}
	}
	t.Fatal("no frame on disk")
	return "", nil, nil
}

// flip changes one bit on the disk.
func flip(t *testing.T, fsys vfs.FS, name string, content []byte, at int64) {
	t.Helper()
	f, err := fsys.Open(name, vfs.ReadWrite)
	must(t, err)
	_, err = f.WriteAt([]byte{content[at] ^ 1}, at)
	must(t, err, f.Sync(), f.Close())
}

func TestDamageInTheMiddleIsCorruption(t *testing.T) {
	clean, _, _ := written(t)
	name, frames, content := findFrames(t, clean)
	for _, at := range []int64{0, 4, 8, 12, 16, 24, 32, 40, 50} {
		fsys := clean.CrashClone(1, 100)
		flip(t, fsys, name, content, frames[len(frames)-3]+at)
		_, err := journal.Open(fsys, "journal", small())
		var corrupt *journal.CorruptionError
		if !errors.As(err, &corrupt) {
			t.Errorf("byte %d of a frame in the middle flipped: %v", at, err)
		}
	}
}

// TestKeepMakesTheNewestFrameDurable kills the process between the write of a
// frame and its sync, and cuts the power after the next start: what that start
// took for durable must still be there.
func TestKeepMakesTheNewestFrameDurable(t *testing.T) {
	mem := memfs.New()
	fsys := errorfs.Wrap(mem, nil)
	j, stop := start(t, fsys, small())
	l := openLog(t, fsys, 1)
	must(t, fsys.SyncDir("."))
	warmUp(t, j, l)
	fsys.SetInjector(errorfs.Matching("sync", "journal/*", syscall.EIO)) // It never comes to it.
	must(t, l.append(j, seal(101)))
	if err := l.wait(l.end); err == nil {
		t.Fatal("acknowledged without a sync")
	}
	stop()

	j, err := journal.Open(mem, "journal", small())
	must(t, err)
	l = openLog(t, mem, 1)
	must(t, j.Replay(l.replay))
	durable := j.Coverage(l.id).End()
	if durable != l.end {
		t.Fatalf("durable below %d of %d: the frame was not found", durable, l.end)
	}
	kept, err := j.Keep(func(kafka.TopicIDPartition) journal.Log { return l })
	must(t, err, j.Close())
	if !kept {
		t.Fatal("not kept")
	}
	after, err := journal.Open(mem.CrashClone(1, 0), "journal", small())
	must(t, err)
	defer func() { must(t, after.Close()) }()
	if got := after.Coverage(l.id).End(); got != durable {
		t.Errorf("durable below %d after a loss of power, %d before", got, durable)
	}
}

// TestKeepReadsNothingAgain: what Keep needs, Replay has seen.
func TestKeepReadsNothingAgain(t *testing.T) {
	mem := memfs.New()
	j, stop := start(t, mem, small())
	l := openLog(t, mem, 1)
	warmUp(t, j, l)
	appendAndWait(t, j, l, 101, 102)
	stop()
	fsys := errorfs.Wrap(mem, nil)
	j, err := journal.Open(fsys, "journal", small())
	must(t, err)
	l = openLog(t, mem, 1)
	must(t, j.Replay(l.replay))
	fsys.SetInjector(errorfs.Matching(errorfs.Read, "journal/*", syscall.EIO))
	kept, err := j.Keep(func(kafka.TopicIDPartition) journal.Log { return l })
	must(t, err, j.Close())
	if !kept {
		t.Fatal("not kept")
	}
}

func TestTornLastFrameEndsTheJournal(t *testing.T) {
	clean, id, base := written(t)
	name, frames, content := findFrames(t, clean)
	if diff := cmp.Diff([]int64{101, 102, 103, 104, 105}, replayed(t, clean, id, base)); diff != "" {
		t.Fatal(diff)
	}
	for _, at := range []int64{0, 4, 8, 12, 16, 24, 32, 40, 50} {
		fsys := clean.CrashClone(1, 100)
		flip(t, fsys, name, content, frames[len(frames)-1]+at)
		if diff := cmp.Diff([]int64{101, 102, 103, 104}, replayed(t, fsys, id, base)); diff != "" {
			t.Errorf("byte %d flipped: %s", at, diff)
		}
	}
}

func TestDamagedHeaders(t *testing.T) {
	clean, _, _ := written(t)
	name, _, content := findFrames(t, clean)
	for at := int64(0); at < 36; at++ {
		fsys := clean.CrashClone(1, 100)
		flip(t, fsys, name, content, at)
		_, err := journal.Open(fsys, "journal", small())
		var corrupt *journal.CorruptionError
		if !errors.As(err, &corrupt) { // The version's bytes too: the checksum is wrong.
			t.Errorf("byte %d of the header flipped: %v", at, err)
		}
	}
}

func TestResetDropsEverything(t *testing.T) {
	fsys, id, base := written(t)
	j, err := journal.Open(fsys, "journal", small())
	must(t, err, j.Reset(), j.Reset(), j.Close(), j.Close())
	if got := replayed(t, fsys.CrashClone(1, 0), id, base); got != nil {
		t.Errorf("replayed %v after Reset", got)
	}
}

func TestTruncationIsReplayedAndDropsWhatItCuts(t *testing.T) {
	fsys := memfs.New()
	j, stop := start(t, fsys, small())
	l := openLog(t, fsys, 1)
	warmUp(t, j, l)
	base := l.end
	appendAndWait(t, j, l, 1, 2, 3)
	must(t, j.Truncate(l, base+1))
	l.mu.Lock()
	l.end, l.durable = base+1, base+1
	l.mu.Unlock()
	appendAndWait(t, j, l, 4)
	stop()
	want := []int64{1, -int64(base + 1), 4}
	if diff := cmp.Diff(want, replayed(t, fsys.CrashClone(1, 0), l.id, base)); diff != "" {
		t.Error(diff)
	}
}

func TestForgottenLogIsNotReplayed(t *testing.T) {
	fsys := memfs.New()
	j, stop := start(t, fsys, small())
	gone, kept := openLog(t, fsys, 1), openLog(t, fsys, 2)
	warmUp(t, j, gone)
	appendAndWait(t, j, gone, 1, 2)
	j.Forget(gone)
	appendAndWait(t, j, kept, 3)
	again := openLog(t, fsys, 1)
	again.end, again.durable = 0, 0
	appendAndWait(t, j, again, 4)
	stop()
	clone := fsys.CrashClone(1, 0)
	if diff := cmp.Diff([]int64{4}, replayed(t, clone, gone.id, 0)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{3}, replayed(t, clone, kept.id, 0)); diff != "" {
		t.Error(diff)
	}
}

func TestResetIsRefusedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := &failingFS{FS: memfs.New()}
		j, stop := start(t, fsys, small())
		l := openLog(t, fsys, 1)
		warmUp(t, j, l)
		fsys.fail(io.ErrUnexpectedEOF)
		must(t, l.append(j, seal(1)))
		if err := l.wait(l.end); err == nil {
			t.Fatal("an append was durable without a sync")
		}
		stop()
		fsys.fail(nil)
		if err := j.Reset(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reset after a failure: %v", err)
		}
	})
}
