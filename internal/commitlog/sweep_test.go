package commitlog_test

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// sweep runs a fixed story on a disk on which one operation fails, and then
// looks at what a restart makes of it. Whatever fails: the log opens, has
// everything that was reported durable and nothing that was refused, and takes
// appends.
type sweep struct {
	t       *testing.T
	disk    *memfs.FS
	faulty  *errorfs.FS
	journal *commitlog.JournalModel
	dir     *commitlog.Dir
	log     *commitlog.Log

	values  []string // By offset, as far as the log took them.
	durable kafka.Offset
	start   kafka.Offset
	txn     sweptTxn
	aborted []sweptTxn
	// before, if not nil, is called before the directory is closed.
	before func()
	// refused is why the last append that was refused was.
	refused error
}

// sweptTxn is a transaction of the story.
type sweptTxn struct {
	open          bool
	first, marker kafka.Offset
}

func (s *sweep) config() commitlog.Config {
	c := commitlog.DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes = 400, 100
	c.RetentionBytes = 1200
	return c
}

// run plays the story until something fails for good; it returns false if the
// directory did not open.
func (s *sweep) run() bool {
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
	s.journal.Use(&o)
	var err error
	if s.dir, err = commitlog.OpenDir(s.faulty, o); err != nil {
		return false
	}
	s.log, err = s.dir.Log(logID(1), commitlog.Options{Config: s.config(), OnDurable: func(end kafka.Offset) {
		s.durable = max(s.durable, end)
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range 12 {
		s.append(i)
		switch i {
		case 1, 4, 8:
			s.appendInTxn()
		case 3, 5:
			s.abort()
		}
		switch i % 4 {
		case 0:
			_ = s.journal.Round(false)
		case 2:
			_ = s.journal.Round(true)
			_ = s.dir.Checkpoint()
		}
	}
	_ = s.log.Tidy(0)
	s.truncate(kafka.Offset(len(s.values)) - 3)
	for i := range 4 {
		s.append(20 + i)
	}
	s.abort()
	_ = s.journal.Round(true)
	if err := s.log.DeleteRecords(min(4, s.durable)); err == nil {
		s.start = max(s.start, min(4, s.durable))
	}
	_ = s.log.ApplyRetention(time.UnixMilli(2000), s.durable)
	_ = s.dir.Checkpoint()
	if s.before != nil {
		s.before()
	}
	_ = s.dir.Close(true)
	return true
}

func (s *sweep) append(i int) {
	value := fmt.Sprintf("value-%d", i)
	info, err := s.log.AppendAsLeader([]record.Batch{makeBatch(s.t, 1000+int64(i), value)}, 1, time.UnixMilli(2000))
	if err != nil {
		s.refused = err
		return
	}
	if info.BaseOffset != kafka.Offset(len(s.values)) {
		s.t.Fatalf("append went to %d, want %d", info.BaseOffset, len(s.values))
	}
	s.values = append(s.values, value)
}

// appendInTxn appends a batch to producer 7's transaction.
func (s *sweep) appendInTxn() {
	end, needed, err := s.log.BeginVerification(7, 0)
	if err != nil {
		return
	}
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(7, 0, record.NoSequence) // As a coordinator's, which needs no order.
	b.SetTransactional()
	b.Append(1000, nil, []byte("in transaction"), nil)
	batch, _, err := record.Next(b.Build())
	if err != nil {
		s.t.Fatal(err)
	}
	v := commitlog.Verification{Verified: needed, LogEnd: end}
	info, err := s.log.AppendVerified([]record.Batch{batch}, 1, v, time.UnixMilli(2000))
	if err != nil {
		return
	}
	if !s.txn.open {
		s.txn = sweptTxn{open: true, first: info.BaseOffset}
	}
	s.values = append(s.values, "in transaction")
}

// abort ends producer 7's transaction.
func (s *sweep) abort() {
	info, _, err := s.log.AppendMarkers([]commitlog.Marker{{ProducerID: 7}}, 1, time.UnixMilli(2000))
	if err != nil {
		return
	}
	s.values = append(s.values, string(make([]byte, 6))) // A marker of coordinator epoch 0.
	if s.txn.open {
		s.txn.marker = info.BaseOffset
		s.aborted = append(s.aborted, s.txn)
	}
	s.txn.open = false
}

// verifyTxns checks that what was durably aborted is known to be, and that nothing of
// an open transaction is stable.
func (s *sweep) verifyTxns(what string, l *commitlog.Log) {
	end := l.LogEndOffset()
	for _, x := range s.aborted {
		if x.marker >= s.durable || x.marker < l.LogStartOffset() {
			continue
		}
		txns, err := l.AbortedTxns(max(x.first, l.LogStartOffset()), x.marker+1)
		known := slices.ContainsFunc(txns, func(a commitlog.AbortedTxn) bool {
			return a.ProducerID == 7 && a.FirstOffset == x.first && a.LastOffset == x.marker
		})
		if err != nil || !known {
			s.t.Fatalf("%s: the transaction of [%d, %d] was aborted, and the log says %+v, %v", what, x.first, x.marker, txns, err)
		}
	}
	if first := s.txn.first; s.txn.open && first < s.durable && l.StableBelow(end) > max(first, l.LogStartOffset()) {
		s.t.Fatalf("%s: stable below %d, and a transaction is open from %d on", what, l.StableBelow(end), first)
	}
}

func (s *sweep) truncate(to kafka.Offset) {
	if to < 0 {
		return
	}
	err := s.log.TruncateTo(to)
	end := s.log.LogEndOffset()
	if err == nil && end != to {
		s.t.Fatalf("log ends at %d after truncation to %d", end, to)
	}
	s.durable = min(s.durable, to)
	if err == nil {
		s.values = s.values[:to]
	} else if int(end) < len(s.values) {
		s.values = s.values[:end]
	}
	left := kafka.Offset(len(s.values))
	s.txn.open = s.txn.open && s.txn.first < left
	for n := len(s.aborted); n > 0 && s.aborted[n-1].marker >= left; n-- {
		s.txn = s.aborted[n-1] // Open again without its marker.
		s.txn.open = s.txn.first < left
		s.aborted = s.aborted[:n-1]
	}
}

// verify restarts on a good disk.
func (s *sweep) verify(what string, disk *memfs.FS, lost bool) {
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1}
	journal := s.journal.Clone()
	journal.Use(&o)
	d, err := commitlog.OpenDir(disk, o)
	if err != nil {
		s.t.Fatalf("%s: open after the fault: %v", what, err)
	}
	l, err := d.Log(logID(1), commitlog.Options{Config: s.config()})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		s.t.Fatalf("%s: log is offline after a restart: %v", what, err)
	}
	s.verifyTxns(what, l)
	start, end := l.LogStartOffset(), l.LogEndOffset()
	if end < s.durable || start < s.start || start > max(s.durable, s.start) {
		s.t.Fatalf("%s: log has [%d, %d), durable below %d, started at %d", what, start, end, s.durable, s.start)
	}
	for at := start; at < min(end, kafka.Offset(len(s.values))); {
		c, err := l.Read(at, 1, end, true)
		if err != nil || c.Size() == 0 {
			s.t.Fatalf("%s: read at %d: %d bytes, %v", what, at, c.Size(), err)
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			s.t.Fatal(err)
		}
		b, _, err := record.Next(data)
		if err != nil || b.CheckCRC() != nil || b.BaseOffset() != at {
			s.t.Fatalf("%s: read at %d: %v", what, at, err)
		}
		for r := range b.Records(1 << 20) {
			if at < s.durable && string(r.Value) != s.values[at] {
				s.t.Fatalf("%s: at %d %q, want %q", what, at, r.Value, s.values[at])
			}
		}
		at = c.NextOffset()
	}
	if _, err := l.AppendAsLeader([]record.Batch{makeBatch(s.t, 1, "after")}, 9, time.UnixMilli(2000)); err != nil {
		s.t.Fatalf("%s: append after the fault: %v", what, err)
	}
	if err := d.Close(true); err != nil {
		s.t.Fatalf("%s: close: %v", what, err)
	}
}

func runSweep(t *testing.T, fault error, lasting bool) int {
	for n := int64(1); ; n++ {
		s := &sweep{t: t, disk: memfs.New(), journal: &commitlog.JournalModel{}}
		hit, op := false, ""
		match := func(o errorfs.Op) bool { return o.Kind != errorfs.Close && o.Kind != errorfs.Usage }
		inject := errorfs.Nth(n, fault, match)
		if lasting {
			inject = errorfs.From(n, fault, func(o errorfs.Op) bool { return match(o) && o.Kind.Changes() })
		}
		s.faulty = errorfs.Wrap(s.disk, func(o errorfs.Op) error {
			err := inject(o)
			if err != nil && !hit {
				hit, op = true, o.String()
			}
			return err
		})
		s.run()
		if !hit {
			return int(n)
		}
		s.verify(fmt.Sprintf("fault %d (%s), process killed", n, op), s.disk.CrashClone(uint64(n), 100), false)
		s.verify(fmt.Sprintf("fault %d (%s), power lost", n, op), s.disk.CrashClone(uint64(n), 0), true)
		s.verify(fmt.Sprintf("fault %d (%s), power lost in part", n, op), s.disk.CrashClone(uint64(n), 60), true)
	}
}

func TestEveryOperationFailsOnce(t *testing.T) {
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		if n := runSweep(t, fault, false); n < 100 {
			t.Errorf("the story has only %d operations", n)
		}
	}
}

func TestEveryOperationFailsFromThereOn(t *testing.T) {
	runSweep(t, syscall.EIO, true)
	runSweep(t, syscall.ENOSPC, true)
}

// needsRoom tells of operations that a full disk refuses.
func needsRoom(o errorfs.Op) bool {
	switch o.Kind {
	case errorfs.MkdirAll, errorfs.Rename, errorfs.Write, errorfs.Allocate:
		return true
	default:
		return o.Kind == errorfs.Open && o.Flag&vfs.Create != 0
	}
}

// A disk that is full from any moment on takes no log offline, whatever was under way:
// when there is room the log goes on, without a restart.
func TestFullDiskTakesNoLogOffline(t *testing.T) {
	for n := int64(1); ; n++ {
		s := &sweep{t: t, disk: memfs.New(), journal: &commitlog.JournalModel{}}
		hit := ""
		inject := errorfs.From(n, syscall.ENOSPC, needsRoom)
		s.faulty = errorfs.Wrap(s.disk, func(o errorfs.Op) error {
			err := inject(o)
			if err != nil && hit == "" {
				hit = o.String()
			}
			return err
		})
		s.before = func() {
			s.faulty.SetInjector(nil)
			what := fmt.Sprintf("full from operation %d on (%s), and with room again", n, hit)
			if err := errors.Join(s.log.Err(), s.dir.Checkpoint(), s.log.Err()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if to := kafka.Offset(len(s.values)) - 1; to >= s.log.LogStartOffset() {
				s.truncate(to)
			}
			end := len(s.values)
			s.append(100)
			if len(s.values) != end+1 {
				t.Fatalf("%s: an append is refused: %v", what, s.refused)
			}
			if err := errors.Join(s.journal.Round(true), s.dir.Checkpoint(), s.log.Err()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if len(s.values) != int(s.durable) {
				t.Fatalf("%s: durable below %d, want %d", what, s.durable, len(s.values))
			}
			s.verify(what+", process killed", s.disk.CrashClone(uint64(n), 100), false)
			s.verify(what+", power lost", s.disk.CrashClone(uint64(n), 0), true)
		}
		s.run()
		if hit == "" {
			if n < 30 {
				t.Errorf("the story has only %d operations that need room", n)
			}
			return
		}
	}
}

// A full disk refuses appends, lets readers read on, and takes appends again as
// soon as there is room, without a restart.
func TestFullDisk(t *testing.T) {
	disk := memfs.New()
	s := &sweep{t: t, disk: disk, journal: &commitlog.JournalModel{}}
	s.faulty = errorfs.Wrap(disk, nil)
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	s.journal.Use(&o)
	d, err := commitlog.OpenDir(s.faulty, o)
	if err != nil {
		t.Fatal(err)
	}
	if s.log, err = d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		s.append(i)
	}
	end := s.log.LogEndOffset()
	torn := &errorfs.TornWrite{N: 30, Err: syscall.ENOSPC}
	s.faulty.SetInjector(errorfs.Matching(errorfs.Write, "", torn))
	for range 3 {
		_, err := s.log.AppendAsLeader([]record.Batch{makeBatch(t, 1, "refused")}, 1, time.UnixMilli(2000))
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("append on a full disk: %v", err)
		}
	}
	checkOffsets(t, s.log, 0, end)
	s.faulty.SetInjector(nil)
	for i := range 5 {
		s.append(10 + i)
	}
	checkOffsets(t, s.log, 0, end+5)
	s.verify("after a full disk", disk.CrashClone(1, 100), false)
}
