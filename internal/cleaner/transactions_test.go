package cleaner_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// Scenario 36: compaction of a topic that transactions write to.

// txnWriter is a log with transactional producers, and what its committed records are.
type txnWriter struct {
	dir       *commitlog.Dir
	log       *commitlog.Log
	fs        *memfs.FS
	now       int64
	written   int
	latest    map[string]string       // By committed records, tombstones left out.
	decides   map[string]kafka.Offset // Where the latest committed record of a key is.
	open      map[kafka.ProducerID][]placed
	sequences map[kafka.ProducerID]int32
	epochs    map[kafka.ProducerID]kafka.ProducerEpoch
	aborted   map[string]bool // Values that nobody may see.
	test      testing.TB
}

// placed is a record with its offset.
type placed struct {
	write
	offset kafka.Offset
}

func newTxnWriter(t testing.TB) *txnWriter {
	w := &txnWriter{
		fs: memfs.New(), now: 1000, latest: map[string]string{}, decides: map[string]kafka.Offset{},
		open:      map[kafka.ProducerID][]placed{},
		sequences: map[kafka.ProducerID]int32{}, epochs: map[kafka.ProducerID]kafka.ProducerEpoch{},
		aborted: map[string]bool{}, test: t,
	}
	w.dir, w.log = openLog(t, w.fs)
	return w
}

func (w *txnWriter) value() string {
	w.written++
	return fmt.Sprintf("value %d", w.written)
}

// write writes a record outside of transactions, or as part of one.
func (w *txnWriter) write(t rapid.TB, id kafka.ProducerID, x write) {
	t.Helper()
	if id < 0 {
		b := buildBatch(record.CodecNone, w.now, []write{x}, -1, 0)
		info, err := w.log.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(w.now))
		if err != nil {
			t.Fatal(err)
		}
		w.apply(placed{x, info.BaseOffset})
		return
	}
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(id, w.epochs[id], w.sequences[id])
	b.SetTransactional()
	value := []byte(x.value)
	if x.tombstone {
		value = nil
	}
	b.Append(w.now, []byte(x.key), value, nil)
	batch, _, err := record.Next(bytes.Clone(b.Build()))
	if err != nil {
		t.Fatal(err)
	}
	end, needed, err := w.log.BeginVerification(id, w.epochs[id])
	if err != nil {
		t.Fatal(err)
	}
	v := commitlog.Verification{Verified: needed, LogEnd: end}
	info, err := w.log.AppendVerified([]record.Batch{batch}, 1, v, time.UnixMilli(w.now))
	if err != nil {
		t.Fatal(err)
	}
	w.sequences[id]++
	w.open[id] = append(w.open[id], placed{x, info.BaseOffset})
}

// apply takes in a committed record: of a key, the one that is last in the log counts,
// whichever transaction ended first.
func (w *txnWriter) apply(x placed) {
	if at, known := w.decides[x.key]; known && at > x.offset {
		return
	}
	w.decides[x.key] = x.offset
	if x.tombstone {
		delete(w.latest, x.key)
	} else {
		w.latest[x.key] = x.value
	}
}

// end ends a producer's transaction, if it has one.
func (w *txnWriter) end(t rapid.TB, id kafka.ProducerID, commit, bump bool) {
	t.Helper()
	if bump {
		w.epochs[id]++
		w.sequences[id] = 0
	}
	m := commitlog.Marker{ProducerID: id, ProducerEpoch: w.epochs[id], Commit: commit, Bumped: bump}
	if _, refused, err := w.log.AppendMarkers([]commitlog.Marker{m}, 1, time.UnixMilli(w.now)); err != nil || refused != nil {
		t.Fatal(refused, err)
	}
	for _, x := range w.open[id] {
		if commit {
			w.apply(x)
		} else if !x.tombstone {
			w.aborted[x.value] = true
		}
	}
	delete(w.open, id)
}

func (w *txnWriter) stable() kafka.Offset {
	w.log.Replicated(w.log.LogEndOffset())
	return w.log.StableBelow(w.log.LogEndOffset())
}

func (w *txnWriter) clean(t rapid.TB) cleaner.Stats {
	t.Helper()
	c := cleaner.New(cleaner.Options{})
	stats, err := c.Clean(w.test.Context(), cleaner.Target{Log: w.log, LastStableOffset: w.stable()}, time.UnixMilli(w.now))
	if err != nil {
		t.Fatalf("clean: %v", err)
	}
	return stats
}

// committedReader reads as Kafka's clients do: it is told the producer and the first
// offset of each aborted transaction, and finds the ends by the markers.
type committedReader struct {
	at      kafka.Offset
	aborted map[kafka.ProducerID]bool
	latest  map[string]string
	lastAt  int64 // When it read last.
}

func newCommittedReader(w *txnWriter) *committedReader {
	return &committedReader{aborted: map[kafka.ProducerID]bool{}, latest: map[string]string{}, lastAt: w.now}
}

// read reads some of what there is, or all.
func (r *committedReader) read(t rapid.TB, w *txnWriter, chunks int) {
	t.Helper()
	r.lastAt = w.now
	for end := w.stable(); r.at < end && chunks > 0; chunks-- {
		c, err := w.log.Read(r.at, 300, end, true)
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		txns, err := w.log.AbortedTxns(r.at, c.NextOffset())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(txns, func(a, b commitlog.AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
		for len(data) > 0 {
			var b record.Batch
			if b, data, err = record.Next(data); err != nil {
				t.Fatal(err)
			}
			for len(txns) > 0 && txns[0].FirstOffset <= b.LastOffset() {
				r.aborted[txns[0].ProducerID] = true
				txns = txns[1:]
			}
			r.take(t, w, b)
		}
		if c.NextOffset() == r.at {
			return // The rest is a gap.
		}
		r.at = c.NextOffset()
	}
}

func (r *committedReader) take(t rapid.TB, w *txnWriter, b record.Batch) {
	t.Helper()
	switch m, ok, err := b.EndMarker(); {
	case err != nil:
		t.Fatal(err)
	case b.IsControl():
		if ok && !m.Commit {
			delete(r.aborted, b.ProducerID())
		}
		return
	case b.IsTransactional() && r.aborted[b.ProducerID()]:
		return
	}
	for x, err := range b.Records(1 << 20) {
		switch {
		case err != nil:
			t.Fatal(err)
		case w.aborted[string(x.Value)]:
			t.Fatalf("aborted record %q at %d was read", x.Value, x.Offset)
		case x.Value == nil:
			delete(r.latest, string(x.Key))
		default:
			r.latest[string(x.Key)] = string(x.Value)
		}
	}
}

// check compares what a reader knows after it has read all.
func (r *committedReader) check(t rapid.TB, w *txnWriter) {
	t.Helper()
	r.read(t, w, 1<<30)
	if len(w.open) == 0 && !maps.Equal(r.latest, w.latest) {
		t.Fatalf("latest values %v, want %v", r.latest, w.latest)
	}
}

func TestCompactionOfTransactions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newTxnWriter(t)
		slow := newCommittedReader(w)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id := kafka.ProducerID(rapid.IntRange(-1, 2).Draw(rt, "producer"))
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			default:
				key := fmt.Sprintf("key %d", rapid.IntRange(0, 4).Draw(rt, "key"))
				x := write{key: key, tombstone: rapid.IntRange(0, 5).Draw(rt, "tombstone") == 0}
				if !x.tombstone {
					x.value = w.value()
				}
				w.write(rt, id, x)
			case 5, 6:
				if id >= 0 {
					w.end(rt, id, rapid.Bool().Draw(rt, "commit"), rapid.Bool().Draw(rt, "bump"))
				}
			case 7:
				if err := w.log.Roll(); err != nil {
					rt.Fatal(err)
				}
				w.now += rapid.Int64Range(0, 2*deleteRetentionMs).Draw(rt, "later")
				if w.now-slow.lastAt >= deleteRetentionMs {
					slow = newCommittedReader(w) // It may have missed tombstones and markers.
				}
				w.clean(rt)
				newCommittedReader(w).check(rt, w)
			case 8:
				slow.read(rt, w, rapid.IntRange(1, 3).Draw(rt, "chunks"))
			case 9:
				if err := w.dir.Close(true); err != nil {
					rt.Fatal(err)
				}
				w.dir, w.log = openLog(t, w.fs)
			}
		}
		for id := range w.open {
			w.end(rt, id, true, true)
		}
		newCommittedReader(w).check(rt, w)
		slow.check(rt, w)
	})
}

// A record of an aborted transaction goes, and the committed one before it, of the same
// key, stays.
func TestAbortedReplacesNothing(t *testing.T) {
	w := newTxnWriter(t)
	w.write(t, -1, write{key: "key", value: w.value()})
	w.write(t, 0, write{key: "key", value: w.value()})
	w.end(t, 0, false, false)
	if err := w.log.Roll(); err != nil {
		t.Fatal(err)
	}
	w.clean(t)
	newCommittedReader(w).check(t, w)
	err := w.log.Batches(w.log.LogStartOffset(), w.log.LogEndOffset(), func(b record.Batch) error {
		if !b.IsControl() && b.IsTransactional() && b.RecordCount() > 0 {
			t.Errorf("the aborted batch at %d has records still", b.BaseOffset())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// markersIn counts the control batches of a log, and the batches of a producer that
// have no records.
func markersIn(t testing.TB, l *commitlog.Log) (markers, empty int) {
	t.Helper()
	err := l.Batches(l.LogStartOffset(), l.LogEndOffset(), func(b record.Batch) error {
		if b.IsControl() {
			markers++
		} else if b.RecordCount() == 0 {
			empty++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return markers, empty
}

// A marker outlives the records of its transaction by delete.retention.ms, and goes
// then; but for that of a producer that wrote nothing since.
func TestMarkersAreDropped(t *testing.T) {
	w := newTxnWriter(t)
	for i := range 3 {
		w.write(t, 1, write{key: fmt.Sprint("of ", i), value: w.value()})
		w.end(t, 1, i != 1, true)
		if i != 1 {
			w.write(t, -1, write{key: fmt.Sprint("of ", i), tombstone: true})
		}
		w.write(t, -1, write{key: "a", value: w.value()})
	}
	fill := func() {
		w.write(t, -1, write{key: "a", value: w.value()})
		if err := w.log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want int) {
		t.Helper()
		if got, empty := markersIn(t, w.log); got != want || empty > 0 {
			t.Errorf("%s: %d markers, %d empty batches, want %d", what, got, empty, want)
		}
	}
	fill()
	w.clean(t)
	expect("the pass that drops the records", 3)
	for offset, x := range readLog(t, w.log).byOffset {
		if strings.HasSuffix(x, "=value 2") {
			t.Errorf("aborted record at %d is still there", offset)
		}
	}
	fill()
	w.clean(t)
	expect("the pass that finds the markers alone", 3)
	w.now += deleteRetentionMs - 1
	fill()
	w.clean(t)
	expect("a pass before delete.retention.ms is over", 3)
	w.now++
	fill()
	w.clean(t)
	expect("a pass after that", 1)
	newCommittedReader(w).check(t, w)
	if txns, err := w.log.AbortedTxns(0, w.stable()); err != nil || len(txns) != 0 {
		t.Errorf("aborted transactions without records: %v, %v", txns, err)
	}
}

// Nothing at or above the last stable offset is compacted: an open transaction holds
// up the pass, and what it wrote replaces nothing when it is aborted.
func TestOpenTransactionsHoldUpCompaction(t *testing.T) {
	w := newTxnWriter(t)
	w.write(t, -1, write{key: "a", value: w.value()})
	if err := w.log.Roll(); err != nil {
		t.Fatal(err)
	}
	w.write(t, 1, write{key: "a", value: w.value()})
	if err := w.log.Roll(); err != nil {
		t.Fatal(err)
	}
	first := w.log.LogEndOffset() - 1
	if stats := w.clean(t); stats.CleanedTo > first {
		t.Errorf("cleaned to %d, and the open transaction begins at %d", stats.CleanedTo, first)
	}
	w.end(t, 1, false, true)
	if err := w.log.Roll(); err != nil {
		t.Fatal(err)
	}
	w.clean(t)
	newCommittedReader(w).check(t, w)
	if w.latest["a"] != "value 1" {
		t.Fatalf("latest %v", w.latest)
	}
}

// What lies beyond the map of keys stays as it is, aborted or not, and its segment's
// index says which it is.
func TestAbortedBeyondTheMap(t *testing.T) {
	w := newTxnWriter(t)
	for range 2 { // So that there is something to drop.
		w.write(t, -1, write{key: "key 0", value: w.value()})
	}
	for n := range 2 {
		var writes []write
		for i := range 30 {
			writes = append(writes, write{key: fmt.Sprint("key ", n, i), value: "x"})
		}
		b := buildBatch(record.CodecGzip, w.now, writes, -1, 0)
		info, err := w.log.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(w.now))
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range writes {
			w.apply(placed{x, info.BaseOffset + kafka.Offset(i)})
		}
	}
	w.write(t, 1, write{key: "key 0", value: w.value()})
	w.end(t, 1, false, true)
	w.write(t, 1, write{key: "key 1", value: w.value()})
	w.end(t, 1, true, true)
	if err := w.log.Roll(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		end := w.stable()
		c := cleaner.New(cleaner.Options{DedupeBytes: 1})
		if _, err := c.Clean(t.Context(), cleaner.Target{Log: w.log, LastStableOffset: end}, time.UnixMilli(w.now)); err != nil {
			t.Fatal(err)
		}
		newCommittedReader(w).check(t, w)
	}
	if w.log.CleanedTo() != w.log.LogEndOffset() {
		t.Errorf("cleaned to %d of %d", w.log.CleanedTo(), w.log.LogEndOffset())
	}
}
