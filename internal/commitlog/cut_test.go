package commitlog_test

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
)

// read returns the bytes of a file.
func (x *loss) read(t fataler, name string) []byte {
	t.Helper()
	var content []byte
	x.rewrite(t, name, func(b []byte) []byte { content = slices.Clone(b); return b })
	return content
}

// all returns the bytes of all files with a suffix.
func (x *loss) all(t fataler, suffix string) []byte {
	t.Helper()
	var content []byte
	names, _ := x.files(t, suffix)
	for _, name := range names {
		content = append(content, x.read(t, name)...)
	}
	return content
}

// Rot in what own files alone have freezes the log, also above the checkpoint.
func TestRotInSyncedFilesFreezes(t *testing.T) {
	for _, survive := range []int{100, 0} {
		x := newLoss(t)
		for range 30 { // Several segments.
			x.append(t, 1)
		}
		x.must(t, x.journal.Round(true))
		x.crash(1, survive)
		names, sizes := x.files(t, ".log")
		x.flip(t, names[1], sizes[1]/2)
		before := x.all(t, ".log")
		x.open(t)
		content, frozen := x.check(t)
		if !frozen || len(content) != 30 || content[29] != "corrupt" || content[10] != x.values[10] {
			t.Fatalf("frozen: %v, content %q", frozen, content)
		}
		if len(x.events.corrupt) != 1 || !strings.Contains(x.events.corrupt[0], names[1]) ||
			!strings.Contains(x.events.corrupt[0], "up to 30 were durable") {
			t.Errorf("reported %q", x.events.corrupt)
		}
		x.restart(t, content, true)
		x.restart(t, content, true)
		x.restart(t, content, false)
		if !bytes.Equal(before, x.all(t, ".log")) {
			t.Error("the files of a frozen log were changed")
		}
		// Put back, it is as it was.
		x.flip(t, names[1], sizes[1]/2)
		x.must(t, x.dir.Close(true))
		x.open(t)
		if content, frozen := x.check(t); frozen || slices.Contains(content, "corrupt") {
			t.Errorf("frozen although the file was put back: %q", x.events.corrupt)
		}
		x.values = append(x.values, "probe") // Of check.
		x.append(t, 1)
		x.must(t, x.journal.Round(true))
		x.crash(2, 0)
		x.open(t)
		if content, _ := x.check(t); len(content) != 32 {
			t.Errorf("log ends at %d after it was put back and went on", len(content))
		}
	}
}

// Rot in what the journal has heals.
func TestRotInJournaledDataHeals(t *testing.T) {
	x := newLoss(t)
	for range 30 {
		x.append(t, 1)
		x.must(t, x.journal.Round(false))
	}
	x.crash(1, 100)
	names, sizes := x.files(t, ".log")
	x.flip(t, names[0], sizes[0]/2)
	x.open(t)
	content, frozen := x.check(t)
	if frozen || len(content) != 30 || slices.Contains(content, "corrupt") {
		t.Errorf("frozen: %v, reported %q, content %q", frozen, x.events.corrupt, content)
	}
	if n := len(x.events.recovered); n != 1 || x.events.recovered[0].HealedTo != 30 || !x.events.recovered[0].Rotten {
		t.Errorf("recovered %+v", x.events.recovered)
	}
}

// No crash leaves what a flipped bit does. So the log is frozen also where nobody
// knows what was acknowledged: in the first moments of a journal, and in the last
// ones before a crash.
func TestRotInWhatNobodyKnowsOf(t *testing.T) {
	x := newLoss(t)
	for range 8 {
		x.append(t, 1)
	}
	x.journal.Forget(x.log) // All of it.
	x.crash(0, 100)
	whole := x.fs
	names, sizes := x.files(t, ".log")
	if len(names) != 1 {
		t.Fatalf("%d segments", len(names))
	}
	x.safe = kafka.Offset(len(x.values))
	silent := 0
	for at := range sizes[0] {
		for _, zeroed := range []bool{false, true} {
			x.fs, x.journal = whole.CrashClone(1, 100), &commitlog.JournalModel{}
			x.flip(t, names[0], at)
			if zeroed { // The length of the file reached the disk before what is at its end.
				x.rewrite(t, names[0], func(b []byte) []byte { return append(b, make([]byte, 600)...) })
			}
			x.open(t)
			content := x.content(t)
			frozen := x.frozen()
			if !frozen && (len(content) < 8 || slices.Contains(content[:8], "corrupt")) {
				silent++
			}
		}
	}
	if silent > int(sizes[0])/8 { // In the last batch before the zeros, at most.
		t.Errorf("%d of %d flips cut the log without a word", silent, 2*sizes[0])
	}
}

// Nobody was told that it is durable, so it may be cut; whole batches are kept.
func TestWhatIsCutIsPutAside(t *testing.T) {
	x := newLoss(t)
	x.append(t, 1)
	x.must(t, x.journal.Round(true))
	for range 30 {
		x.append(t, 1)
	}
	x.crash(0, 100)
	x.journal = &commitlog.JournalModel{}
	names, _ := x.files(t, ".log")
	lost := x.read(t, names[0])
	x.rewrite(t, names[0], func(b []byte) []byte { // A sector from the time of two batches.
		clear(b[2*len(b)/10 : 512])
		return b
	})
	x.open(t)
	content, frozen := x.check(t)
	if frozen || len(content) < 2 || len(content) > 4 {
		t.Fatalf("frozen: %v, reported %q, %d records", frozen, x.events.corrupt, len(content))
	}
	r := x.events.recovered[0]
	if len(r.PutAside) != len(names) || r.CutPath != names[0] {
		t.Fatalf("recovered %+v", r)
	}
	kept := x.read(t, r.PutAside[len(r.PutAside)-1])
	if !bytes.Equal(kept[512-r.CutPosition:], lost[512:]) {
		t.Error("the tail that was put aside is not what was cut")
	}
	if cuts, _ := x.files(t, ".log.cut"); len(cuts) != len(names) {
		t.Errorf("put aside: %q", cuts)
	}
	x.must(t, x.dir.Close(true))
	x.open(t)
	if len(x.events.corrupt)+len(x.events.alarms) > 0 {
		t.Errorf("the next start reports %q, %q", x.events.corrupt, x.events.alarms)
	}
	x.must(t, x.log.DeleteRecords(x.log.LogEndOffset()), x.dir.Close(true))
	x.open(t)
	if cuts, _ := x.files(t, ".log.cut"); len(cuts) != len(names)-1 {
		t.Errorf("put aside after the log start passed the first: %q", cuts)
	}
}

// A half of a batch is nothing to keep.
func TestTornTailIsNotPutAside(t *testing.T) {
	x := newLoss(t)
	x.append(t, 1)
	x.append(t, 1)
	x.crash(0, 100)
	x.journal = &commitlog.JournalModel{}
	names, sizes := x.files(t, ".log")
	x.rewrite(t, names[0], func(b []byte) []byte { return b[:sizes[0]-3] })
	x.open(t)
	if cuts, _ := x.files(t, ".cut"); len(cuts) > 0 || x.log.LogEndOffset() != 1 {
		t.Errorf("put aside %q, log ends at %d", cuts, x.log.LogEndOffset())
	}
}

func TestPutAsideOnAFullDisk(t *testing.T) {
	x := newLoss(t)
	for range 9 {
		x.append(t, 1)
	}
	x.crash(0, 100)
	x.journal = &commitlog.JournalModel{}
	names, _ := x.files(t, ".log")
	x.rewrite(t, names[0], func(b []byte) []byte { clear(b[:512]); return b })
	full := errorfs.Wrap(x.fs, errorfs.From(1, syscall.ENOSPC, func(o errorfs.Op) bool {
		return o.Kind == errorfs.Write && strings.HasSuffix(o.Name, ".cut")
	}))
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, Events: &x.events}
	x.journal.Use(&o)
	if _, err := commitlog.OpenDir(full, o); err != nil {
		t.Fatal(err)
	}
	if len(x.events.alarms) != 1 || !strings.Contains(x.events.alarms[0], "no space") {
		t.Errorf("alarms %q", x.events.alarms)
	}
}

// An entry whose first batches are in the segment is taken from the first on
// that is not.
func TestEntryThatIsThereInPart(t *testing.T) {
	x := newLoss(t)
	bs := []record.Batch{batchOf("a"), batchOf("b", "c"), batchOf("d")}
	_, err := x.log.AppendAsLeader(bs, 1, time.UnixMilli(1))
	x.must(t, err, x.journal.Round(false))
	x.values = []string{"a", "b", "c", "d"}
	x.crash(0, 100)
	names, _ := x.files(t, ".log")
	x.rewrite(t, names[0], func(b []byte) []byte {
		_, rest, err := record.Next(b)
		x.must(t, err)
		return b[:len(b)-len(rest)+30] // The second is torn.
	})
	x.open(t)
	if content, frozen := x.check(t); frozen || len(content) != 4 {
		t.Errorf("frozen: %v, content %q", frozen, content)
	}
}

// A log that cannot take what the journal has is frozen, and keeps it; others
// take theirs.
func TestEntryThatDoesNotContinueItsLog(t *testing.T) {
	x := newLoss(t)
	other, err := x.dir.Log(logID(2), commitlog.Options{Config: x.config})
	x.must(t, err)
	for range 3 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true), x.journal.Recycle(x.dir)) // The checkpoint has these.
	x.append(t, 1)
	_, err = other.AppendAsLeader([]record.Batch{batchOf("of another log")}, 1, time.UnixMilli(1))
	x.must(t, err, x.journal.Round(false))
	lost := x.values[3]
	x.crash(0, 0)
	names, _ := x.files(t, ".log")
	x.must(t, x.fs.Remove(names[0]))
	x.open(t)
	content, frozen := x.check(t)
	if !frozen || len(content) != 4 || slices.ContainsFunc(content, func(s string) bool { return s != "corrupt" }) {
		t.Errorf("frozen: %v, content %q", frozen, content)
	}
	l, _ := x.dir.Lookup(logID(2))
	if l.LogEndOffset() != 1 {
		t.Errorf("the other log ends at %d", l.LogEndOffset())
	}
	if got := x.all(t, ".journal.cut"); !bytes.Contains(got, []byte(lost)) {
		t.Errorf("what the journal has was not put aside: %q", got)
	}
	x.restart(t, content, false)
	x.restart(t, content, true)
	if got := x.all(t, ".journal.cut"); !bytes.Contains(got, []byte(lost)) {
		t.Errorf("what was put aside is gone: %q", got)
	}
}

// The directory of a log vanished after the last checkpoint.
func TestMissingDirectory(t *testing.T) {
	x := newLoss(t)
	x.append(t, 2)
	x.must(t, x.journal.Round(true))
	x.crash(0, 100)
	x.must(t, x.fs.RemoveAll(commitlog.LogDir(logID(1))))
	x.open(t)
	content, frozen := x.check(t)
	if !frozen || len(content) != 2 {
		t.Errorf("frozen: %v, content %q", frozen, content)
	}
	x.restart(t, content, false)

	x = newLoss(t)
	x.append(t, 2)
	x.must(t, x.journal.Round(true), x.dir.Delete(logID(1)))
	x.crash(0, 100)
	x.open(t)
	if len(x.events.corrupt) > 0 || x.log.LogEndOffset() != 0 {
		t.Errorf("a deleted log is missed: %q", x.events.corrupt)
	}
}

// The first segment of a log vanished that the checkpoint does not know.
func TestMissingFirstSegment(t *testing.T) {
	x := newLoss(t)
	for range 30 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true))
	x.crash(0, 100)
	names, _ := x.files(t, ".log")
	x.must(t, x.fs.Remove(names[0]))
	for range 3 {
		x.open(t)
		if len(x.events.corrupt) != 1 || !strings.Contains(x.events.corrupt[0], names[0]) {
			t.Fatalf("reported %q", x.events.corrupt)
		}
		if content, frozen := x.check(t); frozen || content[29] != x.values[29] {
			t.Errorf("frozen: %v, content %q", frozen, content)
		}
		x.values = append(x.values, "probe")
		x.must(t, x.dir.Close(true))
	}
}

// Where both checkpoints were lost, a log begins at its oldest segment. Later starts
// know that.
func TestLogStartBehindALostCheckpoint(t *testing.T) {
	x := newLoss(t)
	for range 30 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true), x.log.DeleteRecords(12), x.dir.Checkpoint(), x.dir.Close(true))
	names, _ := x.files(t, ".log")
	x.flip(t, "checkpoint-0", 10)
	x.flip(t, "checkpoint-1", 10)
	for i := range 3 {
		x.open(t)
		if got := x.log.LogStartOffset(); got == 0 || got > 12 || x.frozen() || len(x.events.corrupt) > 0 {
			t.Fatalf("start %d: the log starts at %d, the oldest segment is %s; reported %q", i, got, names[0], x.events.corrupt)
		}
		x.must(t, x.dir.Close(true))
	}
}

func TestCheckpointsThatCannotBeRead(t *testing.T) {
	x := newLoss(t)
	for range 30 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true), x.dir.Checkpoint(), x.dir.Checkpoint(), x.dir.Close(true))
	stopped := x.fs.CrashClone(1, 100)
	for i := range 32 {
		x.fs = stopped.CrashClone(1, 100)
		x.flip(t, "checkpoint-0", int64(i))
		x.flip(t, "checkpoint-1", int64(i))
		x.open(t)
		if i >= 28 { // Zeros without a meaning, but under the CRC.
			continue
		}
		if len(x.events.alarms) != 1 || !strings.Contains(x.events.alarms[0], "neither checkpoint") {
			t.Fatalf("byte %d of both flipped: alarms %q", i, x.events.alarms)
		}
		if content, frozen := x.check(t); frozen || len(content) != 30 {
			t.Errorf("byte %d of both flipped: frozen: %v, content %q", i, frozen, content)
		}
	}

	x.fs = stopped.CrashClone(1, 100)
	x.rewrite(t, "checkpoint-1", func([]byte) []byte { return commitlog.NewerCheckpoint() })
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	x.journal.Use(&o)
	var newer *commitlog.NewerFormatError
	if _, err := commitlog.OpenDir(x.fs, o); !errors.As(err, &newer) || newer.Path != "checkpoint-1" {
		t.Errorf("a newer checkpoint: %v", err)
	}
}

func TestCheckpointOfVersion1(t *testing.T) {
	x := newLoss(t)
	for range 30 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true), x.log.DeleteRecords(12), x.dir.Close(true))
	for _, name := range []string{"checkpoint-0", "checkpoint-1"} {
		x.rewrite(t, name, commitlog.CheckpointAsVersion1)
	}
	x.open(t)
	if x.log.LogStartOffset() != 12 || x.log.LogEndOffset() != 30 || !x.dir.WasClean() {
		t.Errorf("log has [%d, %d), clean: %v", x.log.LogStartOffset(), x.log.LogEndOffset(), x.dir.WasClean())
	}
}

func TestMissingMetaFile(t *testing.T) {
	x := newLoss(t)
	x.append(t, 1)
	x.must(t, x.journal.Round(true), x.dir.Close(true), x.fs.Remove("meta.properties"))
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	x.journal.Use(&o)
	if _, err := commitlog.OpenDir(x.fs, o); err == nil || !strings.Contains(err.Error(), "meta.properties is missing") {
		t.Errorf("open: %v", err)
	}
	if _, err := x.fs.Stat("meta.properties"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a meta file was made: %v", err)
	}
}
