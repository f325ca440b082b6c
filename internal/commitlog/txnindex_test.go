package commitlog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// openTxnLog opens a log in a directory whose appends are durable with a clean stop.
func openTxnLog(t *testing.T, fsys vfs.FS) (*commitlog.Dir, *commitlog.Log) {
	t.Helper()
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	new(commitlog.JournalModel).Use(&o)
	d, err := commitlog.OpenDir(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

// appendCoordinated appends a batch to a producer's transaction.
func appendCoordinated(t *testing.T, l *commitlog.Log, id kafka.ProducerID) kafka.Offset {
	t.Helper()
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(id, 0, record.NoSequence)
	b.SetTransactional()
	b.Append(1, nil, []byte("v"), nil)
	batch, _, err := record.Next(b.Build())
	if err != nil {
		t.Fatal(err)
	}
	end, needed, err := l.BeginVerification(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	v := commitlog.Verification{Verified: needed, LogEnd: end}
	info, err := l.AppendVerified([]record.Batch{batch}, 1, v, time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	return info.BaseOffset
}

func appendMarker(t *testing.T, l *commitlog.Log, id kafka.ProducerID, commit bool) {
	t.Helper()
	_, refused, err := l.AppendMarkers([]commitlog.Marker{{ProducerID: id, Commit: commit}}, 1, time.UnixMilli(1))
	if err != nil || refused != nil {
		t.Fatal(refused, err)
	}
}

// TestDamagedTxnIndex is scenario 6: an index of aborted transactions that is not what
// was written is made again from the log, also if what it tells of began in an earlier
// segment.
func TestDamagedTxnIndex(t *testing.T) {
	disk := memfs.New()
	d, l := openTxnLog(t, disk)
	for range 3 {
		appendCoordinated(t, l, 1)
		for id := range kafka.ProducerID(4) {
			appendCoordinated(t, l, 10+id)
			appendMarker(t, l, 10+id, id == 2)
		}
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
		appendMarker(t, l, 1, false)
	}
	end := l.LogEndOffset()
	want, err := l.AbortedTxns(0, end)
	if err != nil || len(want) != 12 {
		t.Fatalf("%d transactions, %v", len(want), err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	names := txnIndexes(t, disk)
	if len(names) != 4 {
		t.Fatalf("files: %q", names)
	}
	for what, change := range map[string]func(old []byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"zeros":          func(old []byte) []byte { return make([]byte, len(old)) },
		"part of one":    func(old []byte) []byte { return old[:len(old)-1] },
		"other version":  func(old []byte) []byte { old[1]++; return old },
		"in other order": func(old []byte) []byte { return append(slices.Clone(old[len(old)-34:]), old...) },
		"of before":      func(old []byte) []byte { old[24], old[25] = 0, 0; return old },
		"garbage":        func(old []byte) []byte { return append(old, fmt.Sprintf("%034d", 7)...) },
	} {
		for i, name := range names {
			if what == "of before" && i == 0 {
				continue // There is no before.
			}
			clone := disk.CrashClone(1, 100)
			rewriteFile(t, clone, name, change)
			for range 2 { // The second time it is as good as new.
				d, l := openTxnLog(t, clone)
				got, err := l.AbortedTxns(0, end)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s in %s: %+v, %v, want %+v", what, name, got, err, want)
				}
				if err := d.Close(true); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// txnIndexes lists the indexes of aborted transactions of the log.
func txnIndexes(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	dir := commitlog.LogDir(logID(1))
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if len(e.Name()) > 20 && e.Name()[20:] == ".txnindex" {
			names = append(names, dir+"/"+e.Name())
		}
	}
	slices.Sort(names)
	return names
}

func rewriteFile(t *testing.T, fsys vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	old := make([]byte, size)
	if _, err := f.ReadAt(old, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(change(old), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenTransactionsAreKnownAtOnce: a log that is opened after a clean stop, or whose
// truncation was the last thing that happened, knows what is open before anything is
// read or appended.
func TestOpenTransactionsAreKnownAtOnce(t *testing.T) {
	disk := memfs.New()
	d, l := openTxnLog(t, disk)
	appendMarker(t, l, 2, true)
	first := appendCoordinated(t, l, 1)
	appendMarker(t, l, 3, true)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d, l = openTxnLog(t, disk)
	if at := l.StableBelow(l.LogEndOffset()); at != first {
		t.Errorf("stable below %d after a stop, want %d", at, first)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	base := l.LogEndOffset()
	appendMarker(t, l, 3, true)
	if err := l.SyncFiles(); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(base); err != nil {
		t.Fatal(err)
	}
	crashed := disk.CrashClone(1, 0)
	if err := d.Close(false); err != nil {
		t.Fatal(err)
	}
	d, l = openTxnLog(t, crashed)
	if at := l.StableBelow(l.LogEndOffset()); at != first || l.LogEndOffset() != base {
		t.Errorf("stable below %d after a truncation and a crash, want %d; the log ends at %d, want %d",
			at, first, l.LogEndOffset(), base)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}

// TestMarkerOfNobody: a marker that no producer could have is refused, in a log that knows
// none as well, and what is known of the others is read back.
func TestMarkerOfNobody(t *testing.T) {
	disk := memfs.New()
	d, l := openTxnLog(t, disk)
	for _, m := range []commitlog.Marker{
		{ProducerID: -1},
		{ProducerID: 7, ProducerEpoch: -7},
		{ProducerID: 7, CoordinatorEpoch: -2},
		{ProducerID: 8},
		{ProducerID: -1},
		{ProducerID: 8, ProducerEpoch: -1},
	} {
		m.Decision = 3
		wants := m.ProducerID >= 0 && m.ProducerEpoch >= 0 && m.CoordinatorEpoch >= 0
		_, refused, err := l.AppendMarkers([]commitlog.Marker{m}, 1, time.UnixMilli(1))
		if err != nil || (refused == nil) != wants {
			t.Errorf("marker %+v: %v, %v", m, refused, err)
		}
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d, l = openTxnLog(t, disk)
	known, err := l.Producers()
	if err != nil || len(known) != 1 || known[0].ProducerID != 8 || l.LogEndOffset() != 1 {
		t.Errorf("read back %+v, %v; the log ends at %d", known, err, l.LogEndOffset())
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}
