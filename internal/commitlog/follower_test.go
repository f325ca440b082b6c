package commitlog_test

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// followerLog opens a log of a compacted or a plain topic.
func followerLog(
	t *testing.T, fsys *memfs.FS, j *commitlog.JournalModel, compact bool,
) (*commitlog.Dir, *commitlog.Log) {
	t.Helper()
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
	j.Use(&o)
	d, err := commitlog.OpenDir(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	c := commitlog.DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.Compact = 300, 0, compact
	l, err := d.Log(logID(1), commitlog.Options{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

func batchAt(t *testing.T, offset kafka.Offset, epoch kafka.LeaderEpoch) record.Batch {
	t.Helper()
	b := makeBatch(t, int64(offset), fmt.Sprint("at-", offset))
	b.Stamp(offset, epoch)
	return b
}

func TestFollowerKeepsTheLeadersOffsets(t *testing.T) {
	_, l := followerLog(t, memfs.New(), &commitlog.JournalModel{}, false)
	bs := []record.Batch{batchAt(t, 0, 1), batchAt(t, 1, 1), batchAt(t, 2, 2)}
	if err := l.AppendAsFollower(bs); err != nil {
		t.Fatal(err)
	}
	checkOffsets(t, l, 0, 3)
	if epoch, end, err := l.EndOffsetForEpoch(1); epoch != 1 || end != 2 || err != nil {
		t.Errorf("epoch 1 ends at %d (%d), %v", end, epoch, err)
	}
	var unexpected *commitlog.UnexpectedOffsetError
	err := l.AppendAsFollower([]record.Batch{batchAt(t, 1, 2)})
	if !errors.As(err, &unexpected) || unexpected.LogEndOffset != 3 {
		t.Errorf("append at 1: %v", err)
	}
	bad := batchAt(t, 3, 2)
	bad.Bytes()[len(bad.Bytes())-1] ^= 1
	if err := l.AppendAsFollower([]record.Batch{bad}); err == nil || l.LogEndOffset() != 3 {
		t.Errorf("a batch with a wrong CRC: %v, log end %d", err, l.LogEndOffset())
	}
}

// What a leader sends at once may be more than a segment holds, and a batch may be larger than segments are now.
func TestFollowerTakesMoreThanASegment(t *testing.T) {
	_, l := followerLog(t, memfs.New(), &commitlog.JournalModel{}, false)
	var bs []record.Batch
	for i := range kafka.Offset(20) {
		bs = append(bs, batchAt(t, i, 1))
	}
	large := makeBatch(t, 20, strings.Repeat("x", 1000))
	large.Stamp(20, 1)
	if err := l.AppendAsFollower(append(bs, large, batchAt(t, 21, 1))); err != nil {
		t.Fatal(err)
	}
	checkOffsets(t, l, 0, 22)
	if n := len(l.Segments()); n < 7 {
		t.Errorf("%d segments", n)
	}
	large.Stamp(22, 1)
	var tooLarge *commitlog.BatchTooLargeError
	if _, err := l.AppendAsLeader([]record.Batch{large}, 2, time.Now()); !errors.As(err, &tooLarge) {
		t.Errorf("a leader takes it: %v", err)
	}
}

// A follower of a compacted log has its gaps, also after crashes that leave all
// in the files, all in the journal, or some of each; and whether the topic is
// compacted still or was once.
func TestFollowerOfACompactedLog(t *testing.T) {
	for _, compact := range []bool{true, false} {
		t.Run(fmt.Sprint("compact=", compact), func(t *testing.T) { testGapsOfALeader(t, compact) })
	}
}

func testGapsOfALeader(t *testing.T, compact bool) {
	for _, files := range []bool{true, false} {
		for survive := 0; survive <= 100; survive += 25 {
			fsys, j := memfs.New(), &commitlog.JournalModel{}
			_, l := followerLog(t, fsys, j, compact)
			offsets := []kafka.Offset{3, 4, 9, 20, 21, 40, 41, 60}
			for _, offset := range offsets {
				if err := l.AppendAsFollower([]record.Batch{batchAt(t, offset, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Round(files); err != nil {
				t.Fatal(err)
			}
			clone := fsys.CrashClone(uint64(survive), survive)
			_, l = followerLog(t, clone, j.Clone(), compact)
			if l.LogEndOffset() != 61 {
				t.Fatalf("files %v, %d%% survive: log ends at %d", files, survive, l.LogEndOffset())
			}
			var got []kafka.Offset
			err := l.Batches(0, 61, func(b record.Batch) error {
				got = append(got, b.BaseOffset())
				return nil
			})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(offsets) {
				t.Fatalf("files %v, %d%% survive: %v, %v", files, survive, got, err)
			}
		}
	}
}

// A crash at any operation of a recovery, and again of the recovery after it,
// leaves what was durable.
func TestCrashDuringRecovery(t *testing.T) {
	for n := int64(1); ; n++ {
		disk, j := memfs.New(), &commitlog.JournalModel{}
		s := &sweep{t: t, disk: disk, faulty: errorfs.Wrap(disk, nil), journal: j}
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
		j.Use(&o)
		d, err := commitlog.OpenDir(s.faulty, o)
		if err != nil {
			t.Fatal(err)
		}
		s.log, err = d.Log(logID(1), commitlog.Options{
			Config:    s.config(),
			OnDurable: func(end kafka.Offset) { s.durable = max(s.durable, end) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 14 {
			s.append(i)
			if i == 3 {
				if err := errors.Join(j.Round(true), d.Checkpoint()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := j.Round(false); err != nil {
			t.Fatal(err)
		}
		first := disk.CrashClone(uint64(n), 60)
		faulty := errorfs.Wrap(first, nil)
		var second []*memfs.FS
		inject := errorfs.Nth(n, syscall.EIO, func(o errorfs.Op) bool { return o.Kind.Changes() })
		faulty.SetInjector(func(o errorfs.Op) error {
			err := inject(o)
			if err != nil {
				second = append(second, first.CrashClone(uint64(n), 0), first.CrashClone(uint64(n), 50))
			}
			return err
		})
		again := j.Clone()
		again.Use(&o)
		if d, err := commitlog.OpenDir(faulty, o); err == nil {
			_ = d.Close(false)
		}
		if len(second) == 0 {
			if n < 8 {
				t.Errorf("a recovery changes the disk only %d times", n-1)
			}
			return
		}
		for _, clone := range second {
			s.verify(fmt.Sprintf("crash at operation %d of a recovery", n), clone, true)
		}
	}
}

func TestRetentionByTime(t *testing.T) {
	_, l := followerLog(t, memfs.New(), &commitlog.JournalModel{}, false)
	c := l.Config()
	c.RetentionMs = 5
	l.SetConfig(c)
	for i := range kafka.Offset(12) {
		if err := l.AppendAsFollower([]record.Batch{batchAt(t, i, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.ApplyRetention(time.UnixMilli(10), 3); err != nil || l.LogStartOffset() > 3 {
		t.Errorf("retention went above the high watermark: start %d, %v", l.LogStartOffset(), err)
	}
	if err := l.ApplyRetention(time.UnixMilli(12), 12); err != nil || l.LogStartOffset() == 0 || l.LogStartOffset() > 7 {
		t.Errorf("start %d, %v", l.LogStartOffset(), err)
	}
	if err := l.ApplyRetention(time.UnixMilli(1000), 12); err != nil || l.LogStartOffset() != 12 || l.LogEndOffset() != 12 {
		t.Errorf("log has [%d, %d), %v", l.LogStartOffset(), l.LogEndOffset(), err)
	}
}
