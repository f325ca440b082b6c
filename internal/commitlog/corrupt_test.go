package commitlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// corruptEvents collects reports of damage.
type corruptEvents struct {
	modelEvents
	reports []string
}

func (e *corruptEvents) Corrupt(_ kafka.TopicIDPartition, err *commitlog.CorruptionError) {
	e.reports = append(e.reports, err.Error())
}

// stored is a stopped directory with one log of several segments.
type stored struct {
	t      *testing.T
	fs     *memfs.FS
	events corruptEvents
	end    kafka.Offset
}

func storeLog(t *testing.T, clean bool) *stored {
	t.Helper()
	s := &stored{t: t, fs: memfs.New()}
	d, l := s.open()
	for i := range 30 {
		b := makeBatch(t, 1000+int64(i), fmt.Sprint("value-", i))
		if _, err := l.AppendAsLeader([]record.Batch{b}, kafka.LeaderEpoch(i/10), time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SyncFiles(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // Both files.
		if err := d.Checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	s.end = l.LogEndOffset()
	if clean {
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
	} else {
		s.fs = s.fs.CrashClone(1, 100)
	}
	return s
}

func (s *stored) open() (*commitlog.Dir, *commitlog.Log) {
	s.t.Helper()
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, Events: &s.events}
	(&commitlog.JournalModel{}).Use(&o)
	d, err := commitlog.OpenDir(s.fs, o)
	if err != nil {
		s.t.Fatal(err)
	}
	c := commitlog.DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes = 800, 100
	l, err := d.Log(logID(1), commitlog.Options{Config: c})
	if err != nil {
		s.t.Fatal(err)
	}
	return d, l
}

// change rewrites a file of the log, or of the directory.
func (s *stored) change(name string, fn func([]byte) []byte) {
	s.t.Helper()
	f, err := s.fs.Open(name, vfs.ReadWrite)
	if err != nil {
		s.t.Fatal(err)
	}
	size, _ := f.Size()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, 0); err != nil {
		s.t.Fatal(err)
	}
	data = fn(data)
	if err := f.Truncate(int64(len(data))); err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stored) files(suffix string) []string {
	s.t.Helper()
	entries, err := s.fs.ReadDir(commitlog.LogDir(logID(1)))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, commitlog.LogDir(logID(1))+"/"+e.Name())
		}
	}
	return names
}

func flip(position int) func([]byte) []byte {
	return func(b []byte) []byte {
		if position < 0 {
			position += len(b)
		}
		b[position] ^= 0x10
		return b
	}
}

func TestFlippedBitIsNeverServed(t *testing.T) {
	for _, clean := range []bool{true, false} {
		s := storeLog(t, clean)
		logs := s.files(".log")
		if len(logs) < 3 {
			t.Fatalf("only %d segments", len(logs))
		}
		s.change(logs[1], flip(-5))
		_, l := s.open()
		at, bad := kafka.Offset(0), kafka.NoOffset
		for at < s.end {
			c, err := l.Read(at, 1<<20, s.end, true)
			var corrupt *commitlog.CorruptionError
			if errors.As(err, &corrupt) {
				if corrupt.Path != logs[1] {
					t.Fatalf("damage reported in %s", corrupt.Path)
				}
				bad = at
				at++ // Behind the damage all is well.
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			data, err := c.AppendTo(nil)
			c.Release()
			if err != nil {
				t.Fatal(err)
			}
			for rest := data; len(rest) > 0; {
				b, next, err := record.Next(rest)
				if err != nil || b.CheckCRC() != nil {
					t.Fatalf("a bad batch was served at %d", at)
				}
				rest = next
			}
			at = c.NextOffset()
		}
		if bad < 0 {
			t.Fatal("the damage was not noticed")
		}
	}
}

// Damage below the checkpoint stops appends, cuts nothing and is reported.
func TestDamageBelowTheCheckpoint(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"last batch flipped": flip(-3),
		"file cut":           func(b []byte) []byte { return b[:len(b)-10] },
		"file cut at a batch": func(b []byte) []byte {
			_, rest, err := record.Next(b)
			if err != nil {
				t.Fatal(err)
			}
			return b[:len(b)-len(rest)]
		},
		"file empty": func(b []byte) []byte { return b[:0] },
	} {
		t.Run(name, func(t *testing.T) {
			s := storeLog(t, false)
			logs := s.files(".log")
			last := logs[len(logs)-1]
			var size int
			s.change(last, func(b []byte) []byte {
				b = damage(b)
				size = len(b)
				return b
			})
			_, l := s.open()
			if len(s.events.reports) != 1 {
				t.Fatalf("reports %q", s.events.reports)
			}
			if l.LogEndOffset() != s.end {
				t.Errorf("log ends at %d, want %d", l.LogEndOffset(), s.end)
			}
			var corrupt *commitlog.CorruptionError
			_, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 9, time.UnixMilli(1))
			if !errors.As(err, &corrupt) {
				t.Errorf("append: %v", err)
			}
			if _, err := l.Read(s.end-1, 1000, s.end, true); !errors.As(err, &corrupt) {
				t.Errorf("read of what is damaged: %v", err)
			}
			checkOffsets(t, l, 0, 10)
			s.change(last, func(b []byte) []byte {
				if len(b) != size {
					t.Errorf("the damaged file was changed from %d to %d bytes", size, len(b))
				}
				return b
			})
		})
	}
}

func TestMissingSegments(t *testing.T) {
	s := storeLog(t, false)
	for _, name := range s.files("") {
		if err := s.fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	_, l := s.open()
	if len(s.events.reports) == 0 {
		t.Error("nothing was reported")
	}
	var corrupt *commitlog.CorruptionError
	if _, err := l.Read(0, 1000, s.end, true); !errors.As(err, &corrupt) {
		t.Errorf("read: %v", err)
	}
	s = storeLog(t, false)
	if err := s.fs.Remove(s.files(".log")[0]); err != nil {
		t.Fatal(err)
	}
	s.open()
	if len(s.events.reports) == 0 {
		t.Error("the first segment is missing and nothing was reported")
	}
}

// What can be made again is made again: indexes, epochs, producer snapshots,
// and one of the two checkpoints.
func TestDamagedHelpersAreRebuilt(t *testing.T) {
	for _, suffix := range []string{".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"} {
		for _, damage := range []func([]byte) []byte{
			func(b []byte) []byte { return b[:len(b)/2] },
			func(b []byte) []byte { return nil },
			func(b []byte) []byte { clear(b); return b },
			func(b []byte) []byte {
				for i := range b {
					b[i] = 0xff
				}
				return b
			},
			func(b []byte) []byte {
				if len(b) > 7 {
					b[7] ^= 0x04
				}
				return b
			},
		} {
			s := storeLog(t, true)
			for _, name := range s.files(suffix) {
				s.change(name, damage)
			}
			_, l := s.open()
			checkOffsets(t, l, 0, s.end)
			for i := range kafka.Offset(30) {
				got, ok, err := l.OffsetForTimestamp(1000+int64(i), s.end)
				if err != nil || !ok || got.Offset != i {
					t.Errorf("%s: offset for timestamp %d: %+v, %v, %v", suffix, 1000+i, got, ok, err)
				}
			}
			if suffix != "leader-epoch-checkpoint" {
				continue
			}
			for i := range kafka.Offset(30) {
				// A flip that leaves the file well formed can't be noticed.
				if _, err := l.EpochAt(i); err != nil {
					t.Errorf("epoch at %d: %v", i, err)
				}
			}
		}
	}
	for _, name := range []string{"checkpoint-0", "checkpoint-1"} {
		s := storeLog(t, false)
		s.change(name, flip(40))
		_, l := s.open()
		checkOffsets(t, l, 0, s.end)
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 9, time.UnixMilli(1)); err != nil {
			t.Errorf("%s flipped: append: %v", name, err)
		}
	}
}

func TestTornTail(t *testing.T) {
	s := storeLog(t, false)
	logs := s.files(".log")
	next := makeBatch(t, 1, "a value that is torn")
	next.Stamp(s.end, 1)
	s.change(logs[len(logs)-1], func(b []byte) []byte { return append(b, next.Bytes()[:next.Size()-4]...) })
	_, l := s.open()
	if l.LogEndOffset() != s.end || len(s.events.reports) != 0 {
		t.Fatalf("log ends at %d, reports %q", l.LogEndOffset(), s.events.reports)
	}
	checkOffsets(t, l, 0, s.end)
	if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 9, time.UnixMilli(1)); err != nil {
		t.Fatal(err)
	}
	checkOffsets(t, l, 0, s.end+1)
}
