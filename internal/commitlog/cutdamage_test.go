package commitlog_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// A damaged end is cut off and can be written to again, whatever is wrong with it, and a
// crash at any step leaves a frozen log or one that is cut.
func TestCutDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		stops  []bool // Clean or not: after a clean stop, the last batch is not looked at.
		kept   int    // Files that are put aside.
	}{
		"last batch flipped":             {flip(-3), []bool{false}, 1},
		"the length of the last flipped": {flip(-66), []bool{false}, 1},
		"file cut":                       {func(b []byte) []byte { return b[:len(b)-10] }, []bool{false, true}, 1},
		"file empty":                     {func(b []byte) []byte { return b[:0] }, []bool{false, true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, clean := range c.stops {
				s := storeLog(t, clean)
				logs := s.files(".log")
				s.change(logs[len(logs)-1], c.damage)
				d, l := s.open()
				checkCut(t, l, s.end)
				if kept := s.files(".cut"); len(kept) != c.kept {
					t.Errorf("put aside: %q, want %d", kept, c.kept)
				}
				if err := d.Close(true); err != nil {
					t.Fatal(err)
				}
				s.events.reports = nil
				_, l = s.open()
				if l.Corrupt() || len(s.events.reports) > 0 || l.LogEndOffset() != s.end {
					t.Errorf("opened again: frozen %v, ends at %d, %q", l.Corrupt(), l.LogEndOffset(), s.events.reports)
				}
			}
		})
	}
}

// A crash at each step of cutting a damaged end off leaves a log that is frozen as before, or
// that is cut. It takes what is missing in either case.
func TestCutDamageCrashes(t *testing.T) {
	for n := int64(1); ; n++ {
		s := storeLog(t, false)
		logs := s.files(".log")
		last := logs[len(logs)-1]
		s.change(last, func(b []byte) []byte { return b[:len(b)/2] })
		disk := s.fs
		f, err := disk.Open(last, vfs.ReadWrite)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		var crashed []*memfs.FS
		inject := errorfs.Nth(n, syscall.EIO, func(o errorfs.Op) bool { return o.Kind.Changes() })
		armed := false
		faulty := errorfs.Wrap(disk, func(o errorfs.Op) error {
			if !armed {
				return nil
			}
			err := inject(o)
			if err != nil {
				crashed = append(crashed, disk.CrashClone(uint64(n), 0), disk.CrashClone(uint64(n), 50), disk.CrashClone(uint64(n), 100))
			}
			return err
		})
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
		(&commitlog.JournalModel{}).Use(&o)
		d, err := commitlog.OpenDir(faulty, o)
		if err != nil {
			t.Fatal(err)
		}
		l, ok := d.Lookup(logID(1))
		if !ok || !l.Corrupt() {
			t.Fatal("the log is not frozen")
		}
		armed = true
		err = l.CutDamage()
		armed = false
		if len(crashed) == 0 {
			if err != nil || n < 5 {
				t.Fatalf("cutting changes the disk %d times: %v", n-1, err)
			}
			return
		}
		for _, s.fs = range crashed {
			_, l := s.open()
			if l.Corrupt() {
				checkCut(t, l, s.end)
				continue
			}
			to := l.LogEndOffset()
			checkOffsets(t, l, 0, to)
			fillAgain(t, l, to, s.end)
		}
	}
}

// checkCut cuts the damaged end of a frozen log, and fills it again.
func checkCut(t *testing.T, l *commitlog.Log, end kafka.Offset) {
	t.Helper()
	if !l.Corrupt() {
		t.Fatal("the log is not frozen")
	}
	to, ok, err := l.DamagedFrom()
	if err != nil || !ok || to < end-10 || to >= end {
		t.Fatalf("whole up to %d of %d, %v, %v", to, end, ok, err)
	}
	if err := l.CutDamage(); err != nil {
		t.Fatal(err)
	}
	if l.Corrupt() || l.Damaged() != nil || l.LogEndOffset() != to || l.DurableEnd() > to {
		t.Errorf("frozen %v, damaged %v, ends at %d, durable up to %d", l.Corrupt(), l.Damaged(), l.LogEndOffset(), l.DurableEnd())
	}
	checkOffsets(t, l, 0, to)
	fillAgain(t, l, to, end)
}

// fillAgain appends what a log has lost of its end, as a follower does.
func fillAgain(t *testing.T, l *commitlog.Log, to, end kafka.Offset) {
	t.Helper()
	for at := to; at < end; at++ {
		b := makeBatch(t, 1000+int64(at), fmt.Sprint("value-", at))
		b.Stamp(at, kafka.LeaderEpoch(at/10))
		if err := l.AppendAsFollower([]record.Batch{b}); err != nil {
			t.Fatal(err)
		}
	}
	checkOffsets(t, l, 0, end)
	if err := l.SyncFiles(); err != nil {
		t.Fatal(err)
	}
}
