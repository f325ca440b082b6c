package commitlog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// real opens a directory with the real journal and runs it until stop.
func real(t *testing.T, fsys vfs.FS, events commitlog.Events) (d *commitlog.Dir, stop func()) {
	t.Helper()
	d, err := commitlog.OpenDir(fsys, commitlog.DirOptions{
		Fresh: testMeta, BallastBytes: -1, CheckpointInterval: time.Hour, Events: events,
		Journal: journal.Options{FileBytes: 64 << 10, FileSyncBytes: 4 << 10, FileSyncRate: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }() // Ends with ctx; awaited by stop.
	return d, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The real journal, its notes, its rounds and its recycling: rot anywhere in the
// data is healed or reported, without a checkpoint but those that recycling asks
// for.
func TestRotWithTheRealJournal(t *testing.T) {
	var healed, frozen int
	for _, n := range []int{300, 304, 308} {
		synctest.Test(t, func(t *testing.T) { rot(t, 100, n, &healed, &frozen) }) // Journaled.
	}
	if healed == 0 {
		t.Error("nothing was healed")
	}
	healed, frozen = 0, 0
	synctest.Test(t, func(t *testing.T) { rot(t, 20_000, 300, &healed, &frozen) }) // Own files synced.
	if frozen < 5 || healed > 0 {
		t.Errorf("frozen %d times of 20, healed %d times", frozen, healed)
	}
}

// rot writes values of a size, and looks at what a start makes of rot in them
// after a kill of the process.
func rot(t *testing.T, size, records int, healed, frozen *int) {
	mem := memfs.New()
	d, stop := real(t, mem, nil)
	l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", size)
	for range records {
		if _, err := l.AppendAsLeader([]record.Batch{batchOf(value)}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
	<-time.After(200 * time.Millisecond)
	crashed := mem.CrashClone(1, 100)
	stop()
	end := l.LogEndOffset()
	name := commitlog.LogDir(logID(1)) + "/00000000000000000000.log"
	info, err := crashed.Stat(name)
	if err != nil || l.DurableEnd() != end {
		t.Fatalf("durable below %d of %d: %v", l.DurableEnd(), end, err)
	}
	for i := range int64(20) { // More of them near the end.
		x := &loss{fs: crashed.CrashClone(1, 100)}
		x.flip(t, name, info.Size()-1-info.Size()*i*i/400)
		d, stop := real(t, x.fs, &x.events)
		l, _ := d.Lookup(logID(1))
		if l.LogEndOffset() != end || l.DurableEnd() != end {
			t.Errorf("value of %d bytes, flip %d: log ends at %d, want %d", size, i, l.LogEndOffset(), end)
		}
		_, err := l.AppendAsLeader([]record.Batch{batchOf("probe")}, 1, time.UnixMilli(1))
		switch {
		case errors.Is(err, commitlog.ErrFrozen) && len(x.events.corrupt) == 1:
			*frozen++
		case err != nil:
			t.Error(err)
		case readable(l, end) == nil: // Otherwise it lies below the checkpoint, and the read said so.
			*healed++
		}
		stop()
	}
}

func readable(l *commitlog.Log, end kafka.Offset) error {
	for at := kafka.Offset(0); at < end; {
		c, err := l.Read(at, 1<<20, end, true)
		if err != nil {
			return err
		}
		at = c.NextOffset()
		c.Release()
	}
	return nil
}

// After a clean stop nothing in the journal is needed; otherwise all of it may be.
func TestDamagedJournal(t *testing.T) {
	for _, clean := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			x := &loss{fs: memfs.New()}
			d, stop := real(t, x.fs, &x.events)
			l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
			x.must(t, err)
			for range 50 {
				_, err := l.AppendAsLeader([]record.Batch{batchOf("value")}, 1, time.UnixMilli(1))
				x.must(t, err)
				<-time.After(20 * time.Millisecond)
			}
			stop()
			x.must(t, d.Close(clean))
			if !clean {
				x.fs = x.fs.CrashClone(1, 100)
			}
			x.flip(t, "journal/00000000.journal", 17)
			x.events = lossEvents{}
			if !clean {
				_, err := commitlog.OpenDir(x.fs, commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1})
				var corrupt *journal.CorruptionError
				if !errors.As(err, &corrupt) {
					t.Errorf("open after a crash: %v", err)
				}
				return
			}
			d, stop = real(t, x.fs, &x.events)
			defer stop()
			l, _ = d.Lookup(logID(1))
			if l.LogEndOffset() != 50 || len(x.events.alarms) != 1 {
				t.Errorf("log ends at %d, alarms %q", l.LogEndOffset(), x.events.alarms)
			}
			if _, err := x.fs.Stat("quarantine/journal/00000000.journal"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A log falls silent, and the journal goes round over what it had of it: the
// checkpoint that is written before says how far the log was durable.
func TestRotAfterTheJournalWentRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New()
		d, stop := real(t, mem, nil)
		appendTo := func(n int, partition byte) *commitlog.Log {
			l, err := d.Log(logID(partition), commitlog.Options{Config: commitlog.DefaultConfig()})
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				if _, err := l.AppendAsLeader([]record.Batch{batchOf("value")}, 1, time.UnixMilli(1)); err != nil {
					t.Fatal(err)
				}
				<-time.After(5 * time.Millisecond)
			}
			return l
		}
		appendTo(100, 2)
		appendTo(3, 1)
		appendTo(100, 2)
		crashed := mem.CrashClone(1, 100)
		stop()
		x := &loss{fs: crashed}
		name := commitlog.LogDir(logID(1)) + "/00000000000000000000.log"
		info, err := crashed.Stat(name)
		x.must(t, err)
		x.flip(t, name, info.Size()-1)
		d, stop = real(t, crashed, &x.events)
		defer stop()
		l, ok := d.Lookup(logID(1))
		if !ok || l.LogEndOffset() != 3 || len(x.events.corrupt) != 1 {
			t.Errorf("log ends at %d, reported %q", l.LogEndOffset(), x.events.corrupt)
		}
	})
}
