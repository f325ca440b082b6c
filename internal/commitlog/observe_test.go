package commitlog_test

import (
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// A batch's age is found wherever in the log it is, also after a reopen and
// below a log start that has moved.
func TestBatchTimestamp(t *testing.T) {
	fsys := memfs.New()
	d := openDir(t, fsys)
	cfg := commitlog.DefaultConfig()
	cfg.SegmentBytes = 300
	l, err := d.Log(logID(1), commitlog.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.BatchTimestamp(0); ok || err != nil {
		t.Errorf("an empty log has a first batch: %v", err)
	}
	for i := range 20 { // Batch i holds the offsets 2i and 2i+1.
		if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, int64(1000*i), "a", "b")}, 3, time.UnixMilli(5)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.Segments()); n < 3 {
		t.Fatalf("%d segments, want several", n)
	}
	check := func(l *commitlog.Log, offset kafka.Offset, want int64) {
		t.Helper()
		got, ok, err := l.BatchTimestamp(offset)
		if err != nil || ok != (want >= 0) || ok && got != want {
			t.Errorf("offset %d: %d, %v, %v; want %d", offset, got, ok, err, want)
		}
	}
	checkAll := func(l *commitlog.Log) {
		t.Helper()
		for offset := range kafka.Offset(40) {
			check(l, offset, int64(1000*(offset/2)))
		}
		check(l, 40, -1)
		check(l, 99, -1)
	}
	checkAll(l)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d = openDir(t, fsys)
	if l, err = d.Log(logID(1), commitlog.Options{Config: cfg}); err != nil {
		t.Fatal(err)
	}
	checkAll(l)
	if err := l.DeleteRecords(11); err != nil {
		t.Fatal(err)
	}
	check(l, 0, 5000) // The first that is left is in the batch of 10 and 11.
	check(l, 12, 6000)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}

// Where the broker stamps the time, that time counts.
func TestBatchTimestampOfLogAppendTime(t *testing.T) {
	d := openDir(t, memfs.New())
	cfg := commitlog.DefaultConfig()
	cfg.LogAppendTime = true
	l, err := d.Log(logID(1), commitlog.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "a")}, 0, time.UnixMilli(777)); err != nil {
		t.Fatal(err)
	}
	if ms, ok, err := l.BatchTimestamp(0); ms != 777 || !ok || err != nil {
		t.Errorf("%d, %v, %v", ms, ok, err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
}
