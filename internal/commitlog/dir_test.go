package commitlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func TestTwoBrokersOnOneDirectory(t *testing.T) {
	fsys := memfs.New()
	d := openDir(t, fsys)
	if _, err := commitlog.OpenDir(fsys, commitlog.DirOptions{Fresh: testMeta}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, fsys)
	if d.Meta() != testMeta {
		t.Errorf("meta %+v", d.Meta())
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	fsys := memfs.New()
	if err := openDir(t, fsys).Close(true); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("meta.properties", vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("version=9"), 0); err != nil {
		t.Fatal(err)
	}
	watched := errorfs.Wrap(fsys, nil)
	watched.Record()
	var newer *commitlog.NewerFormatError
	if _, err := commitlog.OpenDir(watched, commitlog.DirOptions{Fresh: testMeta}); !errors.As(err, &newer) || newer.Version != 9 {
		t.Fatalf("open: %v", err)
	}
	for _, op := range watched.Transcript() {
		switch kind, _, _ := strings.Cut(op, " "); kind {
		case "lock", "open", "read", "close":
		default:
			t.Errorf("the newer directory was touched: %s", op)
		}
	}
}

func TestForeignDirectory(t *testing.T) {
	fsys := memfs.New()
	if err := openDir(t, fsys).Close(true); err != nil {
		t.Fatal(err)
	}
	other := testMeta
	other.NodeID = 7
	if _, err := commitlog.OpenDir(fsys, commitlog.DirOptions{Fresh: other}); err == nil ||
		!strings.Contains(err.Error(), "node.id 1") {
		t.Errorf("open as node 7: %v", err)
	}
}

// TestDeleteThenCrash checks that a log which was deleted after the checkpoint
// told of it is not taken for lost by the next starts.
func TestDeleteThenCrash(t *testing.T) {
	fsys := memfs.New()
	events := &lossEvents{}
	open := func() *commitlog.Dir {
		t.Helper()
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, Events: events}
		(&commitlog.JournalModel{}).Use(&o)
		d, err := commitlog.OpenDir(fsys, o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open()
	for id := range byte(2) {
		l, err := d.Log(logID(id), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		if err := l.SyncFiles(); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Delete(logID(0)), d.Quarantine(logID(1))); err != nil {
		t.Fatal(err)
	}
	for range 3 { // The second start crashes before anything, the third after its checkpoint.
		fsys = fsys.CrashClone(1, 0)
		if logs := open().Logs(); len(logs) != 0 {
			t.Errorf("logs after a crash: %v", logs)
		}
	}
	if len(events.corrupt) != 0 {
		t.Errorf("reported as corrupt: %v", events.corrupt)
	}
	if left, err := fsys.ReadDir("topics"); err != nil || len(left) != 0 {
		t.Errorf("left in topics: %v, %v", left, err)
	}
}

func TestDirectoryOfAnotherProgram(t *testing.T) {
	for name, refused := range map[string]bool{"main.go": true, "bin": true, "lost+found": false, ".gitkeep": false} {
		fsys := memfs.New()
		if err := fsys.MkdirAll(name); err != nil {
			t.Fatal(err)
		}
		d, err := commitlog.OpenDir(fsys, commitlog.DirOptions{Fresh: testMeta})
		if refused != (err != nil && strings.Contains(err.Error(), name)) {
			t.Errorf("open beside %s: %v", name, err)
		}
		if d != nil {
			if err := d.Close(true); err != nil {
				t.Error(err)
			}
		}
		if _, err := fsys.Stat("meta.properties"); refused == (err == nil) {
			t.Errorf("beside %s: meta.properties: %v", name, err)
		}
	}
}

func TestNothingOnDiskBeforeTheFirstAppend(t *testing.T) {
	watched := errorfs.Wrap(memfs.New(), nil)
	d := openDir(t, watched)
	watched.Record()
	for i := range byte(100) {
		l, err := d.Log(logID(i), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.BeginEpoch(1); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Read(0, 100, 100, true); err != nil {
			t.Fatal(err)
		}
		if epoch, end, err := l.EndOffsetForEpoch(1); epoch != 1 || end != 0 || err != nil {
			t.Fatalf("end of epoch 1: %d, %d, %v", epoch, end, err)
		}
	}
	if ops := watched.Transcript(); len(ops) > 0 {
		t.Errorf("operations: %q", ops)
	}
}

func TestDeleteAndQuarantine(t *testing.T) {
	fsys := memfs.New()
	d := openDir(t, fsys)
	for i := range byte(3) {
		l, err := d.Log(logID(i), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := d.Lookup(logID(1))
	c, err := l.Read(0, 100, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Delete(logID(1)); err != nil {
		t.Fatal(err)
	}
	if data, err := c.AppendTo(nil); err != nil || len(data) == 0 {
		t.Errorf("a chunk of a deleted log: %d bytes, %v", len(data), err)
	}
	c.Release()
	if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); !errors.Is(err, commitlog.ErrDeleted) {
		t.Errorf("append to a deleted log: %v", err)
	}
	if _, err := l.Read(0, 100, 1, true); !errors.Is(err, commitlog.ErrDeleted) {
		t.Errorf("read of a deleted log: %v", err)
	}
	if err := d.Quarantine(logID(2)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Stat("quarantine/02000000000000000000000000000000-2/00000000000000000000.log"); err != nil {
		t.Error(err)
	}
	d = openDir(t, fsys)
	if ids := d.Logs(); len(ids) != 1 || ids[0] != logID(0) {
		t.Errorf("logs after restart: %v", ids)
	}
}

// A replica that goes, comes back and goes again within one interval of checkpoints leaves
// nothing behind: what comes after that is no log of its past.
func TestDeleteAgain(t *testing.T) {
	fsys := memfs.New()
	d := openDir(t, fsys)
	for i := range 3 {
		l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if end := l.LogEndOffset(); end != 0 {
			t.Errorf("log %d begins with %d records of the one before", i, end)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		if err := d.Delete(logID(1)); err != nil {
			t.Errorf("delete log %d: %v", i, err)
		}
		d.Bury()
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	if left, err := fsys.ReadDir("topics"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	d = openDir(t, fsys)
	if ids := d.Logs(); len(ids) > 0 {
		t.Errorf("logs after restart: %v", ids)
	}
}

// A log that is deleted while a checkpoint is written that has it keeps its directory until the next,
// though one of a log before with the same id was to go with this one.
func TestDeletedWhileACheckpointIsWritten(t *testing.T) {
	fsys := errorfs.Wrap(memfs.New(), nil)
	d := openDir(t, fsys)
	remove := func() {
		if err := d.Delete(logID(1)); err != nil {
			t.Error(err)
		}
		d.Bury()
	}
	for i := range 2 {
		l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			remove()
		}
	}
	once := sync.OnceFunc(remove)
	fsys.SetInjector(func(o errorfs.Op) error {
		if o.Kind == errorfs.Sync && strings.HasPrefix(o.Name, "checkpoint") {
			once()
		}
		return nil
	})
	for i, want := range []error{nil, fs.ErrNotExist} {
		if err := d.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Stat(commitlog.LogDir(logID(1)) + ".deleted"); !errors.Is(err, want) {
			t.Errorf("its directory, after checkpoint %d: %v, want %v", i, err, want)
		}
	}
	if err := d.Close(true); err != nil {
		t.Error(err)
	}
}

// With not a byte free a start works, thanks to the ballast, and what is there
// can be read.
func TestStartWithAFullDisk(t *testing.T) {
	fsys := memfs.New()
	fsys.SetCapacity(32 << 20)
	open := func() *commitlog.Dir {
		d, err := commitlog.OpenDir(fsys, commitlog.DirOptions{
			Fresh: testMeta, BallastBytes: 2 << 20, Journal: commitlog.JournalOptions{WithoutFiles: true},
		})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return d
	}
	d := open()
	d.Maintain()
	l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 100_000)
	for {
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, big)}, 1, time.UnixMilli(1)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
	}
	end := l.LogEndOffset()
	if err := d.Close(false); err != nil {
		t.Fatal(err)
	}
	d = open()
	l, _ = d.Lookup(logID(1))
	if l == nil || l.LogEndOffset() != end {
		t.Fatalf("log after a start with a full disk: %v", l)
	}
	if err := l.DeleteRecords(end); err != nil {
		t.Fatalf("make room: %v", err)
	}
}

// A directory has its reserves from the first moment on, and a full disk that keeps
// a checkpoint from growing takes a little of them.
func TestReserves(t *testing.T) {
	disk := memfs.New()
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: 2 << 20}
	commitlog.DiscardJournal(&o)
	d, err := commitlog.OpenDir(disk, o)
	if err != nil {
		t.Fatal(err)
	}
	held := func() int64 {
		t.Helper()
		info, err := disk.Stat("ballast")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if held() != 2<<20 {
		t.Errorf("the ballast has %d bytes", held())
	}
	for i := range 2000 {
		id := kafka.TopicIDPartition{ID: kafka.TopicID{1}, Partition: int32(i)}
		l, err := d.Log(id, commitlog.Options{Config: commitlog.DefaultConfig()})
		if err == nil {
			_, err = l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1))
		}
		if err == nil {
			err = l.SyncFiles()
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%500 != 0 {
			continue
		}
		free, total, err := disk.Usage()
		if err != nil {
			t.Fatal(err)
		}
		disk.SetCapacity(int64(total - free))
		if err := d.Checkpoint(); err != nil {
			t.Fatalf("checkpoint of %d logs on a full disk: %v", i+1, err)
		}
		disk.SetCapacity(-1)
	}
	if held() >= 2<<20 || held() < 1<<20 {
		t.Errorf("the ballast has %d bytes after checkpoints grew on a full disk", held())
	}
	d.Maintain()
	if held() != 2<<20 {
		t.Errorf("the ballast has %d bytes again", held())
	}
	if err := d.Close(false); err != nil {
		t.Fatal(err)
	}
	if d, err = commitlog.OpenDir(disk, o); err != nil || len(d.Logs()) != 2000 {
		t.Fatalf("open again: %v", err)
	}
}

// A disk passes for full from the first append that it refuses, to a leader or to a
// follower, until it has room for more than the next.
func TestFull(t *testing.T) {
	disk, told := memfs.New(), 0
	d, err := commitlog.OpenDir(disk, commitlog.DirOptions{
		Fresh: testMeta, BallastBytes: -1, OnFull: func() { told++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, write := range []func(*commitlog.Log, record.Batch) error{
		func(l *commitlog.Log, b record.Batch) error {
			_, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1))
			return err
		},
		func(l *commitlog.Log, b record.Batch) error { return l.AppendAsFollower([]record.Batch{b}) },
	} {
		l, err := d.Log(kafka.TopicIDPartition{ID: kafka.TopicID{1}, Partition: int32(i)},
			commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if err := write(l, makeBatch(t, 1, "x")); err != nil || d.Full() {
			t.Fatalf("an append with room: %v, full: %v", err, d.Full())
		}
		free, total, err := disk.Usage()
		if err != nil {
			t.Fatal(err)
		}
		disk.SetCapacity(int64(total - free))
		if d.Full() {
			t.Error("full before anything was refused")
		}
		large := makeBatch(t, 1, strings.Repeat("x", 100_000))
		large.Stamp(l.LogEndOffset(), 1)
		for range 3 {
			if err := write(l, large); !vfs.IsFull(err) || !d.Full() || told != i+1 {
				t.Errorf("an append without room: %v, full: %v, told %d times", err, d.Full(), told)
			}
		}
		disk.SetCapacity(int64(total-free) + 1<<20)
		if !d.Full() {
			t.Error("not full with room for a few records")
		}
		disk.SetCapacity(-1)
		if d.Full() {
			t.Error("full with room")
		}
	}
}

// Appends, reads, retention and the journal's rounds at the same time.
func TestReadersAndWriters(t *testing.T) {
	d := openDir(t, memfs.New())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	cfg := commitlog.DefaultConfig()
	cfg.SegmentBytes, cfg.IndexIntervalBytes, cfg.RetentionBytes = 5000, 200, 20_000
	const appends = 2000
	durable := make(chan struct{}, 1)
	l, err := d.Log(logID(1), commitlog.Options{Config: cfg, OnDurable: func(end kafka.Offset) {
		select {
		case durable <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range appends {
			if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, int64(i), fmt.Sprint(i))}, 1, time.UnixMilli(1)); err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				if err := l.ApplyRetention(time.UnixMilli(1), l.DurableEnd()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for at := kafka.Offset(0); at < appends; {
				c, err := l.Read(at, 3000, l.DurableEnd(), true)
				var outside *commitlog.OffsetOutOfRangeError
				if errors.As(err, &outside) {
					at = outside.Start
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if c.Size() == 0 {
					<-durable
					continue
				}
				data, err := c.AppendTo(nil)
				c.Release()
				if err != nil {
					t.Error(err)
					return
				}
				at = checkValues(t, data, at)
			}
			select { // Whoever is done passes the news on.
			case durable <- struct{}{}:
			default:
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l.DurableEnd() != appends {
		t.Errorf("durable end %d", l.DurableEnd())
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}

// checkValues checks that records hold their own offset, from at on, and
// returns where they end.
func checkValues(t *testing.T, data []byte, at kafka.Offset) kafka.Offset {
	t.Helper()
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil || b.CheckCRC() != nil || b.BaseOffset() != at {
			t.Errorf("batch at %d where %d was due: %v", b.BaseOffset(), at, err)
			return b.LastOffset() + 1
		}
		for r := range b.Records(1 << 20) {
			if string(r.Value) != fmt.Sprint(at) {
				t.Errorf("at %d: %q", at, r.Value)
			}
		}
		at, data = b.LastOffset()+1, rest
	}
	return at
}

// TestStartAfterACrashSyncsNoLog checks that a start takes acknowledged records
// from the journal and the files as they are, that the next crash finds them all
// the same, and that a log with more than the journal has is synced.
func TestStartAfterACrashSyncsNoLog(t *testing.T) {
	const logs = 20
	fsys := memfs.New()
	j := &commitlog.JournalModel{Keeps: true}
	open := func(fsys vfs.FS) *commitlog.Dir {
		t.Helper()
		o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
		j.Use(&o)
		d, err := commitlog.OpenDir(fsys, o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := open(fsys)
	appendTo := func(id byte) {
		t.Helper()
		l, err := d.Log(logID(id), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	for id := range byte(logs) {
		appendTo(id)
	}
	if err := j.Round(false); err != nil {
		t.Fatal(err)
	}
	appendTo(0) // On the disk by chance, and nobody was told that it is durable.
	j.Crash(nil)
	for _, survive := range []int{100, 0, 0} {
		fsys = fsys.CrashClone(1, survive)
		watched := errorfs.Wrap(fsys, nil)
		watched.Record()
		d = open(watched)
		synced := 0
		for _, op := range watched.Transcript() {
			if strings.HasPrefix(op, "sync ") && strings.HasSuffix(op, ".log") {
				synced++
			}
		}
		if want := survive / 100; synced != want {
			t.Errorf("%d logs were synced, want %d", synced, want)
		}
		for id := range byte(logs) {
			l, ok := d.Lookup(logID(id))
			if !ok || l.LogEndOffset() < 1 || l.DurableEnd() != l.LogEndOffset() {
				t.Fatalf("log %d, survival of %d %%: it ends at %d, durable below %d", id, survive, l.LogEndOffset(), l.DurableEnd())
			}
		}
	}
	if l, _ := d.Lookup(logID(0)); l.LogEndOffset() != 2 {
		t.Errorf("log 0 ends at %d: what a start served was lost by the next crash", l.LogEndOffset())
	}
}

func TestRelaxedFlush(t *testing.T) {
	fsys := memfs.New()
	j := &commitlog.JournalModel{}
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	j.Use(&o)
	d, err := commitlog.OpenDir(fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := commitlog.DefaultConfig()
	cfg.FlushMessages, cfg.FlushMs = 10, 1000
	l, err := d.Log(logID(1), commitlog.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	start := time.UnixMilli(1_000_000)
	append1 := func() {
		t.Helper()
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, start); err != nil {
			t.Fatal(err)
		}
	}
	for range 9 {
		append1()
	}
	if l.ReportedEnd() != 9 || l.DurableEnd() != 0 || j.Pending() != 0 {
		t.Errorf("reported %d, durable %d, %d syncs asked for", l.ReportedEnd(), l.DurableEnd(), j.Pending())
	}
	append1()
	if j.Pending() != 1 {
		t.Errorf("%d syncs asked for after flush.messages", j.Pending())
	}
	if err := j.Round(false); err != nil || l.DurableEnd() != 10 {
		t.Errorf("durable end %d, %v", l.DurableEnd(), err)
	}
	append1()
	d.FlushDue(start.Add(999 * time.Millisecond))
	if j.Pending() != 0 {
		t.Error("synced before flush.ms")
	}
	d.FlushDue(start.Add(1000 * time.Millisecond))
	if j.Pending() != 1 {
		t.Error("not synced after flush.ms")
	}
}

// syncingAll is a disk that can be synced as a whole, as a real one can.
type syncingAll struct {
	vfs.FS
	times int
}

func (s *syncingAll) SyncAll() error {
	s.times++
	return nil
}

func TestStopOfManyLogsSyncsOnce(t *testing.T) {
	watched := errorfs.Wrap(memfs.New(), nil)
	disk := &syncingAll{FS: watched}
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	commitlog.DiscardJournal(&o)
	d, err := commitlog.OpenDir(disk, o)
	if err != nil {
		t.Fatal(err)
	}
	const logs = 100
	for i := range byte(logs) {
		l, err := d.Log(logID(i), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	watched.Record()
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	for _, op := range watched.Transcript() {
		if strings.HasPrefix(op, "sync") && strings.Contains(op, "topics") {
			t.Errorf("one by one: %s", op)
		}
	}
	if disk.times != 1 {
		t.Errorf("everything was synced %d times", disk.times)
	}
	if d, err = commitlog.OpenDir(disk, o); err != nil || !d.WasClean() {
		t.Fatalf("open again: %v", err)
	}
	for i := range byte(logs) {
		if l, ok := d.Lookup(logID(i)); !ok || l.DurableEnd() != 1 {
			t.Errorf("log %d: %v", i, ok)
		}
	}
}

// TestDeletedFilesGoLater: who deletes a log does not wait for its files, and may delete the
// next one of the same id before they are gone. Run removes them.
func TestDeletedFilesGoLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New()
		d := openDir(t, fsys)
		files := func() int {
			entries, err := fsys.ReadDir(commitlog.LogDir(logID(1)) + ".deleted")
			if err != nil {
				t.Error(err)
			}
			return len(entries)
		}
		for range 2 {
			l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 1, time.UnixMilli(1)); err != nil {
				t.Fatal(err)
			}
			if err := d.Delete(logID(0), logID(1)); err != nil {
				t.Fatal(err)
			}
			if files() == 0 {
				t.Error("the files went at once")
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }() // Ends with stop.
		synctest.Wait()
		if n := files(); n > 0 {
			t.Errorf("%d files are left", n)
		}
		stop()
		if err := errors.Join(<-ended, d.Close(true)); err != nil {
			t.Error(err)
		}
	})
}
