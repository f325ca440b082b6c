package commitlog_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

type marks = map[kafka.TopicIDPartition]kafka.Offset

func save(t *testing.T, w *commitlog.Watermarks, m marks) {
	t.Helper()
	if err := w.Save(func() marks { return maps.Clone(m) }); err != nil {
		t.Fatal(err)
	}
}

// What was kept is there after a loss of power, and what was lowered is not higher again.
func TestWatermarksAreKept(t *testing.T) {
	disk := memfs.New()
	w := openDir(t, disk).Watermarks()
	if got := w.Recall(logID(1)); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
	save(t, w, marks{logID(1): 100, logID(2): 7})
	if err := w.Lower(logID(1), 60); err != nil {
		t.Fatal(err)
	}
	if err := w.Lower(logID(2), 60); err != nil {
		t.Fatal(err)
	}
	w = openDir(t, disk.CrashClone(1, 0)).Watermarks()
	if one, two := w.Recall(logID(1)), w.Recall(logID(2)); one != 60 || two != 7 {
		t.Errorf("recalled %d and %d", one, two)
	}
	if err := w.Lower(logID(2), 3); err != nil {
		t.Fatal(err)
	}
	if got := w.Recall(logID(2)); got != 3 {
		t.Errorf("a replica that begins anew recalls %d", got)
	}
}

// A damaged file is told of and left out, byte by byte.
func TestWatermarksDamaged(t *testing.T) {
	disk := memfs.New()
	save(t, openDir(t, disk).Watermarks(), marks{logID(1): 100})
	f, err := disk.Open("high-watermarks", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	for i := range size {
		clone := disk.CrashClone(1, 0)
		f, err := clone.Open("high-watermarks", vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		_, _ = f.ReadAt(b, i)
		b[0] ^= 1
		_, _ = f.WriteAt(b, i)
		if got := openDir(t, clone).Watermarks().Recall(logID(1)); got != 0 {
			t.Fatalf("with byte %d flipped: %d", i, got)
		}
	}
}

// Nothing is written when nothing has moved, and a log is not cut before the file was
// written that vouches for less.
func TestWatermarksAndFailures(t *testing.T) {
	disk := memfs.New()
	fails := errors.New("no")
	refuse, writes := false, 0
	d := openDir(t, errorfs.Wrap(disk, func(op errorfs.Op) error {
		if op.Name == "high-watermarks.tmp" && op.Kind == errorfs.Write {
			if writes++; refuse {
				return fails
			}
		}
		return nil
	}))
	w := d.Watermarks()
	save(t, w, marks{logID(1): 100})
	save(t, w, marks{logID(1): 100})
	if writes != 1 {
		t.Errorf("%d writes", writes)
	}
	refuse = true
	if err := w.Lower(logID(1), 60); !errors.Is(err, fails) {
		t.Errorf("lowered: %v", err)
	}
	refuse = false
	if err := w.Lower(logID(1), 60); err != nil {
		t.Error(err)
	}
	if got := openDir(t, disk.CrashClone(1, 0)).Watermarks().Recall(logID(1)); got != 60 {
		t.Errorf("recalled %d", got)
	}
}
