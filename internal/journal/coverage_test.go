package journal_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// covered reopens a journal and returns what it knows of a log.
func covered(t *testing.T, fsys vfs.FS, id kafka.TopicIDPartition) journal.Coverage {
	t.Helper()
	j, err := journal.Open(fsys, "journal", small())
	must(t, err)
	defer func() { must(t, j.Close()) }()
	return j.Coverage(id)
}

// appendLarge appends more than is journaled, so that own files are synced.
func appendLarge(t *testing.T, j *journal.Journal, l *fakeLog) {
	t.Helper()
	values := make([]uint64, 1500)
	for i := range values {
		values[i] = seal(uint64(l.end) + uint64(i))
	}
	must(t, l.append(j, values...), l.wait(l.end))
}

func TestRunsOfAppends(t *testing.T) {
	fsys := memfs.New()
	j, stop := start(t, fsys, small())
	l, other := openLog(t, fsys, 1), openLog(t, fsys, 2)
	warmUp(t, j, other)
	appendAndWait(t, j, l, 1, 2, 3)
	must(t, j.Truncate(l, 2))
	l.end, l.durable = 2, 2
	appendAndWait(t, j, l, 4, 5)
	clone := fsys.CrashClone(1, 0)
	want := journal.Coverage{Runs: []journal.Run{{Base: 0, End: 4}}}
	got := covered(t, clone, l.id)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.End() != 4 || !got.Covers(1, 4) || got.Covers(1, 5) {
		t.Errorf("coverage %+v", got)
	}
	j.Forget(l)
	appendAndWait(t, j, other, 6)
	if got := covered(t, fsys.CrashClone(1, 0), l.id); got.End() != 0 {
		t.Errorf("coverage of a deleted log: %+v", got)
	}
	stop()
	again, err := journal.Open(clone, "journal", small())
	must(t, err, again.Reset())
	if got := again.Coverage(l.id); got.End() != 0 {
		t.Errorf("coverage after a reset: %+v", got)
	}
	must(t, again.Close())
	if got := covered(t, clone, l.id); got.End() != 0 {
		t.Errorf("coverage after a reset and a restart: %+v", got)
	}
}

// What own files alone have is noted, in the next frame or in one of its own.
func TestFileSyncsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		j, stop := start(t, fsys, small())
		l, other := openLog(t, fsys, 1), openLog(t, fsys, 2)
		warmUp(t, j, other)
		<-time.After(time.Second)

		appendLarge(t, j, l)
		appendAndWait(t, j, other, 1)
		if got := covered(t, fsys.CrashClone(1, 0), l.id); got.Durable != l.end || got.Runs != nil {
			t.Errorf("coverage %+v, want durable below %d, by the frame of another log", got, l.end)
		}

		before := j.Stats().JournalWrites
		began := time.Now()
		for time.Since(began) < 500*time.Millisecond {
			appendLarge(t, j, l)
			<-time.After(2 * time.Millisecond)
		}
		if n := j.Stats().JournalWrites - before; n < 4 || n > 6 {
			t.Errorf("%d frames for notes alone in 500 ms, want one per 100 ms", n)
		}
		<-time.After(150 * time.Millisecond)
		if got := covered(t, fsys.CrashClone(1, 0), l.id); got.Durable != l.end {
			t.Errorf("coverage %+v, want durable below %d, by a frame of its own", got, l.end)
		}
		before = j.Stats().JournalWrites
		<-time.After(10 * time.Second)
		if n := j.Stats().JournalWrites - before; n != 0 {
			t.Errorf("%d frames while nothing happened", n)
		}
		stop()
	})
}

// A truncation lowers a note, whether it was written by then or not, and a log
// that was never journaled is no exception.
func TestTruncationLowersNotes(t *testing.T) {
	for _, wait := range []time.Duration{0, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			fsys := memfs.New()
			j, stop := start(t, fsys, small())
			l, other := openLog(t, fsys, 1), openLog(t, fsys, 2)
			warmUp(t, j, other)
			<-time.After(time.Second)
			appendLarge(t, j, l)
			<-time.After(wait)
			must(t, j.Truncate(l, 10))
			l.end, l.durable = 10, 10
			<-time.After(time.Second)
			if got := covered(t, fsys.CrashClone(1, 0), l.id); got.End() != 10 {
				t.Errorf("after %v: coverage %+v, want durable below 10", wait, got)
			}
			appendLarge(t, j, l) // Brings a synced entry.
			if got := covered(t, fsys.CrashClone(1, 0), l.id); got.End() != l.end {
				t.Errorf("after %v: coverage %+v, want durable below %d", wait, got, l.end)
			}
			j.Forget(l)
			<-time.After(time.Second)
			if got := covered(t, fsys.CrashClone(1, 0), l.id); got.End() != 0 {
				t.Errorf("after %v: coverage of a deleted log: %+v", wait, got)
			}
			stop()
		})
	}
}

func TestOwnerIsToldBeforeARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		opt := small()
		opt.MaxFiles = 2
		var l *fakeLog
		told := 0
		opt.Checkpoint = func() {
			if told++; told == 1 {
				return // Before files were ready.
			}
			if got := covered(t, fsys.CrashClone(1, 0), l.id); got.End() == 0 {
				t.Error("the journal had forgotten the log before its owner was told")
			}
		}
		j, stop := start(t, fsys, opt)
		l = openLog(t, fsys, 1)
		must(t, fsys.SyncDir("."))
		warmUp(t, j, l)
		for n := uint64(1); j.Stats().Recycled < 3; n++ {
			appendAndWait(t, j, l, n)
			synctest.Wait()
		}
		if told < 2 {
			t.Error("files were released and nobody was told")
		}
		stop()
	})
}

// versioned returns a file of another version whose header is right.
func versioned(version uint16, blocks []byte) []byte {
	b := fileOf(blocks)
	binary.BigEndian.PutUint16(b[8:], version)
	binary.BigEndian.PutUint32(b[32:], crc32.Checksum(b[:32], fuzzTable))
	return b
}

func TestVersions(t *testing.T) {
	blocks := frameOf(1, 1, 2, append(entryOf(1, 0, 1, "record"), entryOf(3, 0, 0, "")...))
	blocks = append(blocks, frameOf(2, 1, 1, entryOf(1, 1, 2, "record"))...)
	fsys := memfs.New()
	must(t, fsys.MkdirAll("journal"))
	write := func(content []byte) {
		f, err := fsys.Open("journal/00000000.journal", vfs.ReadWrite|vfs.Create)
		must(t, err)
		_, err = f.WriteAt(content, 0)
		must(t, err, f.Sync(), f.Close())
	}
	write(versioned(3, blocks))
	_, err := journal.Open(fsys, "journal", small())
	var version *journal.VersionError
	if !errors.As(err, &version) || version.Version != 3 {
		t.Errorf("a newer version: %v", err)
	}
	write(versioned(0, blocks))
	_, err = journal.Open(fsys, "journal", small())
	var corrupt *journal.CorruptionError
	if !errors.As(err, &corrupt) {
		t.Errorf("no version: %v", err)
	}
	write(versioned(1, blocks))
	j, err := journal.Open(fsys, "journal", small())
	must(t, err)
	want := journal.Coverage{Durable: 1, Runs: []journal.Run{{Base: 1, End: 2}}}
	if diff := cmp.Diff(want, j.Coverage(logID(1))); diff != "" {
		t.Error(diff)
	}
	must(t, j.Reset(), j.Close())
	f, err := fsys.Open("journal/00000000.journal", vfs.ReadOnly)
	must(t, err)
	var b [10]byte
	_, err = f.ReadAt(b[:], 0)
	must(t, err, f.Close())
	if b[9] != 2 {
		t.Errorf("version %d after a reset, want 2", b[9])
	}
	j, err = journal.Open(fsys, "journal", small())
	must(t, err, j.Close())
}
