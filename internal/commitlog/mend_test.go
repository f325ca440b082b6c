package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// from returns batches of the undamaged log from the one that reaches an offset on, as
// another replica would give them: a few at once.
func (r *ruin) from(offset kafka.Offset, count int) []record.Batch {
	r.t.Helper()
	var bs []record.Batch
	for _, stored := range r.batches {
		if stored.last < offset || len(bs) == count {
			continue
		}
		b, _, err := record.Next(bytes.Clone(stored.data))
		if err != nil {
			r.t.Fatal(err)
		}
		bs = append(bs, b)
	}
	return bs
}

// mend fills all holes, and returns how many there were.
func (r *ruin) mend(l *commitlog.Log) int {
	r.t.Helper()
	holes, err := l.Holes()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range holes {
		r.fill(l, h)
	}
	return len(holes)
}

func (r *ruin) fill(l *commitlog.Log, h commitlog.Hole) {
	r.t.Helper()
	m, err := l.BeginMend(h)
	if err != nil {
		r.t.Fatalf("%+v: %v", h, err)
	}
	for m.Next() < h.To {
		if err := m.Write(r.from(m.Next(), 2)); err != nil {
			r.t.Fatalf("%+v: %v", h, err)
		}
	}
	if err := m.Commit(2); err != nil {
		r.t.Fatalf("%+v: %v", h, err)
	}
}

// readAll reads the whole log, and on behind what is damaged.
func (r *ruin) readAll(l *commitlog.Log) {
	r.t.Helper()
	for at := l.LogStartOffset(); at < l.LogEndOffset(); {
		c, err := l.Read(at, 100, l.LogEndOffset(), true)
		var corrupt *commitlog.CorruptionError
		switch {
		case errors.As(err, &corrupt):
			at++
		case err != nil:
			r.t.Fatal(err)
		default:
			at = c.NextOffset()
			c.Release()
		}
	}
}

// whole checks that the files are as they were, and that nothing is damaged for whoever
// opens the log anew.
func (r *ruin) whole(what string) {
	r.t.Helper()
	for _, name := range r.files(".log") {
		var want []byte
		for _, b := range r.batches {
			if b.file == name {
				want = append(want, b.data...)
			}
		}
		r.change(name, func(got []byte) []byte {
			if !bytes.HasPrefix(got, want) {
				r.t.Fatalf("%s: %s is not what it was", what, name)
			}
			return got
		})
	}
	r.check(what, noBatch)
}

// mended checks a log in use after all of its holes were filled.
func (r *ruin) mended(what string, l *commitlog.Log) {
	r.t.Helper()
	if holes, err := l.Holes(); err != nil || len(holes) > 0 || l.Damaged() != nil {
		r.t.Fatalf("%s: holes %+v, %v, damaged %v", what, holes, err, l.Damaged())
	}
	for _, b := range r.batches {
		r.checkRead(what, l, b.base, 1, noBatch)
	}
	for i := range kafka.Offset(24) {
		got, ok, err := l.OffsetForTimestamp(1000+int64(i), r.end)
		if err != nil || !ok || got.Offset != r.batches[i].base {
			r.t.Fatalf("%s: offset for timestamp %d: %+v, %v, %v", what, 1000+i, got, ok, err)
		}
	}
}

// append appends a record behind what the ruin has, and reports whether it could.
func (r *ruin) append(l *commitlog.Log) error {
	_, err := l.AppendAsLeader([]record.Batch{makeBatch(r.t, 5000, "later")}, 9, time.UnixMilli(1))
	return err
}

// After any flip, in any batch, in sealed segments and in the last one, with the log in use
// or not: what is filled in is what was there, byte by byte.
func TestMendFlips(t *testing.T) {
	r := newRuin(t)
	for n, b := range r.batches {
		for k, at := range []int{0, 7, 9, 11, 13, 16, 18, 22, 26, 40, 50, 57, 60, len(b.data) - 1} {
			if (n+k)%4 != 0 {
				continue // Each byte is flipped in some batch of each segment.
			}
			what := fmt.Sprintf("batch %d at offset %d, byte %d", n, b.base, at)
			r.again()
			r.change(b.file, flip(b.position+at))
			d, l := r.open()
			inUse := (n+k)%8 == 0 && r.append(l) == nil
			r.readAll(l)
			if l.Corrupt() || r.mend(l) == 0 {
				t.Fatalf("%s: frozen %v, reports %q", what, l.Corrupt(), r.events.reports)
			}
			r.mended(what, l)
			if err := r.append(l); err != nil {
				t.Fatalf("%s: append: %v", what, err)
			}
			if err := d.Close(true); err != nil {
				t.Fatal(err)
			}
			r.whole(fmt.Sprint(what, ", in use ", inUse))
		}
	}
}

// A segment in the middle that is cut anywhere gets back what it lacks, and one that is
// missing is made up by the one before.
func TestMendShortSegments(t *testing.T) {
	r := newRuin(t)
	file := r.batches[8].file
	size := 0
	for _, b := range r.batches {
		if b.file == file {
			size = b.position + len(b.data)
		}
	}
	for cut := 0; cut < size; cut += 29 {
		what := fmt.Sprintf("cut at %d", cut)
		r.again()
		r.change(file, func(data []byte) []byte { return data[:cut] })
		d, l := r.open()
		r.readAll(l)
		if r.mend(l) != 1 {
			t.Fatalf("%s: reports %q", what, r.events.reports)
		}
		r.mended(what, l)
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
		r.whole(what)
	}
	r.again()
	r.change(file, func(data []byte) []byte { return append(data, "what a broken disk wrote"...) })
	d, l := r.open()
	r.readAll(l)
	r.mend(l)
	r.mended("too long", l)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	r.whole("too long")
	r.again()
	if err := r.fs.Remove(file); err != nil {
		t.Fatal(err)
	}
	d, l = r.open()
	r.readAll(l)
	if r.mend(l) != 1 {
		t.Fatalf("missing: reports %q", r.events.reports)
	}
	r.mended("missing", l)
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	_, l = r.open()
	r.readAll(l)
	r.mended("missing, opened again", l)
}

// sync has a file survive a loss of power as it is.
func (r *ruin) sync(name string) {
	r.t.Helper()
	f, err := r.fs.Open(name, vfs.ReadWrite)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		r.t.Fatal(err)
	}
}

// A crash at any moment of a mending leaves a hole that is mended later, and nothing that
// is wrong is served.
func TestMendCrashes(t *testing.T) {
	r := newRuin(t)
	first, last := r.batches[7], r.batches[11]
	if first.file != last.file {
		last = first
	}
	for steps := range 6 {
		for _, percent := range []int{0, 50, 100} {
			what := fmt.Sprintf("%d batches written, %d%% survive", steps, percent)
			r.again()
			r.change(first.file, func(data []byte) []byte {
				for i := first.position; i < last.position+len(last.data); i++ {
					data[i] ^= 0x55
				}
				return data
			})
			r.sync(first.file)
			_, l := r.open()
			r.readAll(l)
			holes, err := l.Holes()
			if err != nil || len(holes) != 1 {
				t.Fatalf("%s: %+v, %v", what, holes, err)
			}
			m, err := l.BeginMend(holes[0])
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n < steps && m.Next() < holes[0].To; n++ {
				if err := m.Write(r.from(m.Next(), 1)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.Read(first.base, 1, r.end, true); err == nil {
				t.Fatalf("%s: a hole is served before all of it is there", what)
			}
			m.Abort()
			r.fs = r.fs.CrashClone(uint64(steps), percent)
			_, l = r.open()
			r.readAll(l)
			r.mend(l)
			r.mended(what, l)
			r.fs = r.fs.CrashClone(1, 0)
			_, l = r.open() // What a process wrote that was killed may be lost now.
			r.readAll(l)
			r.mend(l)
			r.mended(what, l)
			r.fs = r.fs.CrashClone(1, 0)
			r.whole(what + ", and power lost")
		}
	}
}

// What is not what was there is refused, and changes nothing that is whole.
func TestMendRefusesWhatDoesNotFit(t *testing.T) {
	r := newRuin(t)
	bad := r.batches[9]
	next := r.batches[10]
	restamped := func(base kafka.Offset, epoch kafka.LeaderEpoch) func(record.Batch) record.Batch {
		return func(b record.Batch) record.Batch {
			b.Stamp(base, epoch)
			return b
		}
	}
	for what, c := range map[string]struct {
		other func(record.Batch) record.Batch
		unfit bool
	}{
		"another leader epoch": {restamped(bad.base, 7), true},
		"other offsets":        {restamped(bad.base+1, 2), true},
		"a damaged batch": {func(b record.Batch) record.Batch {
			b.Bytes()[len(b.Bytes())-1] ^= 1
			return b
		}, false},
		"a smaller batch": {func(record.Batch) record.Batch {
			values := make([]string, bad.last-bad.base+1)
			b := makeBatch(t, 1, values...)
			b.Stamp(bad.base, 2)
			return b
		}, true},
		"a larger batch": {func(record.Batch) record.Batch {
			values := make([]string, bad.last-bad.base+1)
			values[0] = "more than there is room for, and some more to be sure"
			b := makeBatch(t, 1, values...)
			b.Stamp(bad.base, 2)
			return b
		}, true},
		"more records": {func(record.Batch) record.Batch {
			b := makeBatch(t, 1, make([]string, next.last-bad.base+1)...)
			b.Stamp(bad.base, 2)
			return b
		}, true},
	} {
		r.again()
		r.change(bad.file, flip(bad.position+65))
		d, l := r.open()
		r.readAll(l)
		holes, m := r.beginMend(what, l)
		err := m.Write([]record.Batch{c.other(r.from(bad.base, 1)[0])})
		if err == nil {
			err = m.Commit(2)
		} else {
			m.Abort()
		}
		var misfit *commitlog.UnfitError
		if err == nil || errors.As(err, &misfit) != c.unfit {
			t.Errorf("%s: %v", what, err)
		}
		if again, _ := l.Holes(); !slices.EqualFunc(again, holes, func(a, b commitlog.Hole) bool { return a.From == b.From && a.To == b.To }) {
			t.Errorf("%s: holes %+v, had %+v", what, again, holes)
		}
		r.mend(l)
		r.mended(what, l)
		if err := d.Close(true); err != nil {
			t.Fatal(err)
		}
		r.whole(what)
	}
}

// beginMend begins to mend the only hole of a log.
func (r *ruin) beginMend(what string, l *commitlog.Log) ([]commitlog.Hole, *commitlog.Mending) {
	r.t.Helper()
	holes, err := l.Holes()
	if err != nil || len(holes) != 1 {
		r.t.Fatalf("%s: %+v, %v", what, holes, err)
	}
	m, err := l.BeginMend(holes[0])
	if err != nil {
		r.t.Fatal(err)
	}
	return holes, m
}

// A mending that a truncation or a deletion overtakes writes nothing more.
func TestMendOvertaken(t *testing.T) {
	r := newRuin(t)
	bad := r.batches[9]
	for what, overtake := range map[string]func(*commitlog.Log) error{
		"truncated": func(l *commitlog.Log) error { return l.TruncateTo(bad.last + 1) },
		"deleted":   func(l *commitlog.Log) error { return l.DeleteRecords(r.end - 1) },
	} {
		r.again()
		r.change(bad.file, flip(bad.position+65))
		_, l := r.open()
		r.readAll(l)
		_, m := r.beginMend(what, l)
		if err := overtake(l); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := m.Write(r.from(bad.base, 1)); err == nil {
			t.Errorf("%s: a mending goes on", what)
		}
		m.Abort()
	}
}

// Where compaction may have left gaps nothing is filled in.
func TestMendCompacted(t *testing.T) {
	r := newRuin(t)
	r.again()
	d, l := r.open()
	from := r.batches[0]
	segments, err := l.Cleanable(r.end)
	if err != nil || len(segments) < 2 {
		t.Fatalf("%+v, %v", segments, err)
	}
	rewrite, err := l.BeginRewrite(from.base)
	if err != nil {
		t.Fatal(err)
	}
	end := segments[1].EndOffset
	for _, b := range r.batches {
		if b.base < end && b.base != r.batches[2].base {
			kept, _, err := record.Next(bytes.Clone(b.data))
			if err != nil {
				t.Fatal(err)
			}
			if err := rewrite.Append(kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := rewrite.Commit(end, end); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	r.change(from.file, flip(70))
	_, l = r.open()
	r.readAll(l)
	holes, err := l.Holes()
	if err != nil || len(holes) == 0 {
		t.Fatalf("%+v, %v", holes, err)
	}
	var misfit *commitlog.UnfitError
	if _, err := l.BeginMend(holes[0]); !errors.As(err, &misfit) {
		t.Errorf("mending a compacted log: %v", err)
	}
}
