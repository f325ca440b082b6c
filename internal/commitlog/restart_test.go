package commitlog_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// fill appends one batch for each offset of [from, to).
func fillLog(t *testing.T, l *commitlog.Log, from, to kafka.Offset, epoch kafka.LeaderEpoch) {
	t.Helper()
	for o := from; o < to; o++ {
		if err := l.AppendAsFollower([]record.Batch{batchAt(t, o, epoch)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRestartAt: nothing of the log is left, it goes on at another offset, and a
// crash does not change that.
func TestRestartAt(t *testing.T) {
	for _, c := range []struct{ had, start, restart kafka.Offset }{
		{0, 0, 40}, {0, 0, 0}, {9, 0, 40}, {9, 4, 40}, {9, 9, 40}, {9, 9, 3}, {9, 4, 9},
	} {
		for _, round := range []bool{true, false} {
			fsys, j := memfs.New(), &commitlog.JournalModel{}
			_, l := followerLog(t, fsys, j, false)
			fillLog(t, l, 0, c.had, 3)
			if err := j.Round(round); err != nil {
				t.Fatal(err)
			}
			if c.start > 0 {
				if err := l.DeleteRecords(c.start); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.RestartAt(c.restart); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			check := func(what string, l *commitlog.Log, end kafka.Offset) {
				t.Helper()
				if l.LogStartOffset() != c.restart || l.LogEndOffset() != end || l.Err() != nil || l.Corrupt() {
					t.Fatalf("%+v, %s: log has [%d, %d), want [%d, %d), %v, corrupt %v", c, what, l.LogStartOffset(),
						l.LogEndOffset(), c.restart, end, l.Err(), l.Corrupt())
				}
			}
			check("at once", l, c.restart)
			if epochs, err := l.Epochs(); err != nil || len(epochs) != 0 {
				t.Errorf("%+v: epochs %v, %v", c, epochs, err)
			}
			_, again := followerLog(t, fsys.CrashClone(1, 0), j.Clone(), false)
			check("after a crash", again, c.restart)
			fillLog(t, l, c.restart, c.restart+5, 5)
			checkOffsets(t, l, c.restart, c.restart+5)
			if err := j.Round(false); err != nil {
				t.Fatal(err)
			}
			if l.DurableEnd() != c.restart+5 {
				t.Errorf("%+v: durable to %d", c, l.DurableEnd())
			}
			for survive := 0; survive <= 100; survive += 50 {
				_, again = followerLog(t, fsys.CrashClone(2, survive), j.Clone(), false)
				check(fmt.Sprintf("after appends and a crash, %d%% survive", survive), again, c.restart+5)
				checkOffsets(t, again, c.restart, c.restart+5)
				if epoch, end, err := again.EndOffsetForEpoch(5); epoch != 5 || end != c.restart+5 || err != nil {
					t.Errorf("%+v: epoch 5 ends at %d (%d), %v", c, end, epoch, err)
				}
			}
		}
	}
}

// TestCrashDuringRestart: a crash at any operation leaves the log as it was, or a part
// of it, or empty at the old or the new start.
func TestCrashDuringRestart(t *testing.T) {
	for n := int64(1); ; n++ {
		disk, j := memfs.New(), &commitlog.JournalModel{}
		var crashed []*memfs.FS
		var journals []*commitlog.JournalModel
		inject := errorfs.Nth(n, syscall.EIO, func(o errorfs.Op) bool { return o.Kind.Changes() })
		armed := false
		faulty := errorfs.Wrap(disk, func(o errorfs.Op) error {
			if !armed {
				return nil
			}
			err := inject(o)
			if err != nil {
				crashed = append(crashed, disk.CrashClone(uint64(n), 0), disk.CrashClone(uint64(n), 100))
				journals = append(journals, j.Clone(), j.Clone())
			}
			return err
		})
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
		j.Use(&o)
		d, err := commitlog.OpenDir(faulty, o)
		if err != nil {
			t.Fatal(err)
		}
		c := commitlog.DefaultConfig()
		c.SegmentBytes, c.IndexIntervalBytes = 300, 0
		l, err := d.Log(logID(1), commitlog.Options{Config: c})
		if err != nil {
			t.Fatal(err)
		}
		fillLog(t, l, 0, 9, 3)
		if err := errors.Join(j.Round(true), d.Checkpoint()); err != nil {
			t.Fatal(err)
		}
		armed = true
		err = l.RestartAt(40)
		armed = false
		if len(crashed) == 0 {
			if err != nil || n < 8 {
				t.Fatalf("a restart changes the disk %d times: %v", n-1, err)
			}
			return
		}
		for i, clone := range crashed {
			_, again := followerLog(t, clone, journals[i], false)
			start, end := again.LogStartOffset(), again.LogEndOffset()
			if ok := start == 0 && end <= 9 || start == 40 && end == 40; !ok || again.Corrupt() || again.Err() != nil {
				t.Fatalf("crash at operation %d: log has [%d, %d), corrupt %v, %v", n, start, end, again.Corrupt(), again.Err())
			}
			if err := again.RestartAt(40); err != nil {
				t.Fatalf("crash at operation %d: again: %v", n, err)
			}
			fillLog(t, again, 40, 43, 4)
			checkOffsets(t, again, 40, 43)
		}
	}
}

func TestFollowLogStart(t *testing.T) {
	_, l := followerLog(t, memfs.New(), &commitlog.JournalModel{}, false)
	fillLog(t, l, 0, 9, 1)
	for _, to := range []kafka.Offset{4, 2, 9} {
		if err := l.FollowLogStart(to); err != nil {
			t.Fatal(err)
		}
	}
	if l.LogStartOffset() != 9 {
		t.Errorf("log starts at %d", l.LogStartOffset())
	}
	var outOf *commitlog.OffsetOutOfRangeError
	if err := l.FollowLogStart(10); !errors.As(err, &outOf) {
		t.Errorf("above the log's end: %v", err)
	}
}
