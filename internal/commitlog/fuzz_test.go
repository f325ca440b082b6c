package commitlog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func writeFile(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// fuzzedLog opens a directory with one segment of given files.
func fuzzedLog(t testing.TB, log, index, timeIndex []byte) (*commitlog.Dir, *commitlog.Log) {
	t.Helper()
	fsys := memfs.New()
	dir := commitlog.LogDir(logID(1))
	if err := fsys.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	base := dir + "/00000000000000000000"
	writeFile(t, fsys, base+".log", log)
	if index != nil {
		writeFile(t, fsys, base+".index", index)
		writeFile(t, fsys, base+".timeindex", timeIndex)
		writeFile(t, fsys, dir+"/00000000000000100000.log", nil) // Seals the first.
	}
	writeFile(t, fsys, "meta.properties", []byte("version=1\ncluster.id=cluster\nnode.id=1\ndirectory.id=directory\n"))
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
	(&commitlog.JournalModel{}).Use(&o)
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

// readEverything reads to the end; what is served must be good.
func readEverything(t testing.TB, l *commitlog.Log) {
	t.Helper()
	end := l.LogEndOffset()
	for at := l.LogStartOffset(); at < end; {
		c, err := l.Read(at, 4096, end, true)
		var corrupt *commitlog.CorruptionError
		if errors.As(err, &corrupt) {
			return
		}
		if err != nil {
			t.Fatalf("read at %d: %v", at, err)
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		for len(data) > 0 {
			b, rest, err := record.Next(data)
			if err != nil || b.CheckCRC() != nil {
				t.Fatalf("a bad batch was served at %d", at)
			}
			data = rest
		}
		if c.NextOffset() <= at {
			return // Nothing more: the end is in a gap.
		}
		at = c.NextOffset()
	}
}

func goodSegment(t testing.TB, n int) []byte {
	t.Helper()
	var out []byte
	for i := range n {
		b := record.NewBuilder(record.CodecNone, 0)
		b.SetBase(kafka.Offset(i), 1)
		b.Append(int64(1000+i), []byte("key"), make([]byte, 30), nil)
		out = append(out, b.Build()...)
	}
	return out
}

// FuzzOpenSegment opens arbitrary bytes as a segment: it never panics, serves
// no bad batch, ends, and takes appends unless it is frozen.
func FuzzOpenSegment(f *testing.F) {
	good := goodSegment(f, 5)
	f.Add([]byte{})
	f.Add(good)
	f.Add(good[:len(good)-7])
	f.Add(append(append([]byte{}, good...), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, log []byte) {
		_, l := fuzzedLog(t, log, nil, nil)
		readEverything(t, l)
		end := l.LogEndOffset()
		info, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1<<30, time.UnixMilli(1))
		if errors.Is(err, commitlog.ErrFrozen) {
			return
		}
		if err != nil || info.BaseOffset != end {
			t.Fatalf("append at %d: %+v, %v", end, info, err)
		}
		readEverything(t, l)
	})
}

// FuzzIndexes reads a good sealed segment through arbitrary indexes: every
// record is found all the same.
func FuzzIndexes(f *testing.F) {
	const batches = 200
	log := goodSegment(f, batches)
	f.Add([]byte{0, 0, 0, 50, 0, 0, 20, 0}, []byte{0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 50})
	f.Add([]byte{}, []byte{})
	f.Add([]byte("\x00\x0000\x00\x0000"), []byte("000000000000")) // Well formed and wrong.
	f.Fuzz(func(t *testing.T, index, timeIndex []byte) {
		if index == nil {
			index = []byte{}
		}
		_, l := fuzzedLog(t, log, index, timeIndex)
		checkIndexed(t, l, batches)
		d2, l2 := reopenSealed(t, log, index, timeIndex)
		checkIndexed(t, l2, batches)
		_ = d2.Close(false)
	})
}

// reopenSealed opens the segment below a checkpoint, so that recovery does not
// make its indexes anew.
func reopenSealed(t testing.TB, log, index, timeIndex []byte) (*commitlog.Dir, *commitlog.Log) {
	t.Helper()
	fsys := memfs.New()
	open := func() (*commitlog.Dir, *commitlog.Log) {
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
		(&commitlog.JournalModel{}).Use(&o)
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
	d, l := open()
	for rest := log; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		copied, _, _ := record.Next(append([]byte(nil), b.Bytes()...))
		if _, err := l.AppendAsLeader([]record.Batch{copied}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		rest = next
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	base := commitlog.LogDir(logID(1)) + "/00000000000000000000"
	writeFile(t, fsys, base+".index", index)
	writeFile(t, fsys, base+".timeindex", timeIndex)
	return open()
}

func checkIndexed(t testing.TB, l *commitlog.Log, batches int) {
	t.Helper()
	for i := range batches {
		at := kafka.Offset(i)
		c, err := l.Read(at, 1, kafka.Offset(batches), true)
		if err != nil || c.Size() == 0 || c.NextOffset() != at+1 {
			t.Fatalf("read at %d: %d bytes, next %d, %v", at, c.Size(), c.NextOffset(), err)
		}
		c.Release()
		got, ok, err := l.OffsetForTimestamp(int64(1000+i), kafka.Offset(batches))
		if err != nil || !ok || got.Offset != at {
			t.Fatalf("offset for timestamp %d: %+v, %v, %v", 1000+i, got, ok, err)
		}
	}
}

// FuzzSmallFiles decodes arbitrary checkpoints, epoch histories and meta files.
func FuzzSmallFiles(f *testing.F) {
	f.Add([]byte("0\n1\n3 5\n"))
	f.Add([]byte("version=1\ncluster.id=a\nnode.id=1\ndirectory.id=b\n"))
	f.Add(commitlog.SampleCheckpoint())
	f.Fuzz(func(t *testing.T, data []byte) {
		commitlog.DecodeSmallFiles(t, data)
	})
}
