package commitlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// storedBatch is a batch as it was written.
type storedBatch struct {
	file       string
	position   int
	base, last kafka.Offset
	data       []byte
}

// ruin is a stopped directory with a log of several segments, from which any
// number of damaged copies are made.
type ruin struct {
	*stored
	pristine *memfs.FS
	batches  []storedBatch
}

func newRuin(t *testing.T) *ruin {
	t.Helper()
	r := &ruin{stored: &stored{t: t, fs: memfs.New()}}
	d, l := r.open()
	at := 0
	for i := range 24 {
		values := make([]string, 1+i%3)
		for n := range values {
			values[n] = fmt.Sprint("value-", at)
			at++
		}
		b := makeBatch(t, 1000+int64(i), values...)
		_, err := l.AppendAsLeader([]record.Batch{b}, kafka.LeaderEpoch(2*(i/8)), time.UnixMilli(1))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.Checkpoint(), d.Close(true)); err != nil {
		t.Fatal(err)
	}
	r.end, r.pristine = l.LogEndOffset(), r.fs.CrashClone(1, 100)
	for _, name := range r.files(".log") {
		r.change(name, func(data []byte) []byte {
			for rest := data; len(rest) > 0; {
				b, next, err := record.Next(rest)
				if err != nil {
					t.Fatal(err)
				}
				r.batches = append(r.batches, storedBatch{
					name, len(data) - len(rest), b.BaseOffset(), b.LastOffset(), bytes.Clone(b.Bytes()),
				})
				rest = next
			}
			return data
		})
	}
	return r
}

// again starts over with an undamaged copy.
func (r *ruin) again() {
	r.fs, r.events.reports = r.pristine.CrashClone(1, 100), nil
}

// check opens the log and reads it in several ways: every batch but the lost ones
// is served as it was, and the lost ones are refused.
func (r *ruin) check(what string, lost func(storedBatch) bool) {
	r.t.Helper()
	for _, way := range []string{"forwards", "backwards", "at random", "in large pieces"} {
		r.events.reports = nil
		fsys := r.fs
		r.fs = fsys.CrashClone(1, 100)
		_, l := r.open()
		r.fs = fsys
		maxBytes := 1
		if way == "in large pieces" {
			maxBytes = 1 << 20
		}
		offsets := make([]kafka.Offset, r.end)
		for i := range offsets {
			offsets[i] = kafka.Offset(i)
		}
		switch way {
		case "backwards":
			slices.Reverse(offsets)
		case "at random":
			rand.New(rand.NewPCG(1, 2)).Shuffle(len(offsets), func(i, j int) {
				offsets[i], offsets[j] = offsets[j], offsets[i]
			})
		}
		for _, offset := range offsets {
			r.checkRead(what+", "+way, l, offset, maxBytes, lost)
		}
		if len(r.events.reports) == 0 && slices.ContainsFunc(r.batches, lost) {
			r.t.Fatalf("%s, %s: nothing was reported", what, way)
		}
		for _, report := range r.events.reports {
			if n := len(slices.DeleteFunc(slices.Clone(r.events.reports), func(o string) bool { return o != report })); n > 1 {
				r.t.Fatalf("%s, %s: reported %d times: %s", what, way, n, report)
			}
		}
	}
}

// checkRead reads from an offset on.
func (r *ruin) checkRead(what string, l *commitlog.Log, offset kafka.Offset, maxBytes int, lost func(storedBatch) bool) {
	r.t.Helper()
	i := slices.IndexFunc(r.batches, func(b storedBatch) bool { return b.base <= offset && offset <= b.last })
	c, err := l.Read(offset, maxBytes, r.end, true)
	var corrupt *commitlog.CorruptionError
	if lost(r.batches[i]) {
		if !errors.As(err, &corrupt) || corrupt.Path != r.batches[i].file {
			r.t.Fatalf("%s: read at %d, which is lost: %d bytes, %v", what, offset, c.Size(), err)
		}
		return
	}
	if errors.As(err, &corrupt) && i > 0 && i+1 < len(r.batches) && lost(r.batches[i-1]) && lost(r.batches[i+1]) {
		return // Nothing tells what its offset should be.
	}
	if err != nil || c.Size() == 0 {
		r.t.Fatalf("%s: read at %d: %d bytes, %v\nreports %q", what, offset, c.Size(), err, r.events.reports)
	}
	data, err := c.AppendTo(nil)
	c.Release()
	if err != nil {
		r.t.Fatal(err)
	}
	for ; len(data) > 0; i++ {
		if !bytes.HasPrefix(data, r.batches[i].data) {
			r.t.Fatalf("%s: read at %d served something else than was written at %d", what, offset, r.batches[i].base)
		}
		data = data[len(r.batches[i].data):]
	}
	if c.NextOffset() != r.batches[i-1].last+1 {
		r.t.Fatalf("%s: read at %d goes on at %d", what, offset, c.NextOffset())
	}
}

func isBatch(b storedBatch) func(storedBatch) bool {
	return func(o storedBatch) bool { return o.base == b.base }
}

func noBatch(storedBatch) bool { return false }

// Every bit of the bytes that the CRC leaves out, with the indexes there and gone.
func TestEveryFlippedBitOutsideOfTheCRC(t *testing.T) {
	r := newRuin(t)
	if len(r.files(".log")) < 3 {
		t.Fatalf("only %d segments", len(r.files(".log")))
	}
	for n, b := range r.batches {
		for bit := range 8 * 21 {
			if (n+bit)%11 != 0 {
				continue // Each bit is flipped in some batch of each place.
			}
			r.again()
			r.change(b.file, func(data []byte) []byte {
				data[b.position+bit/8] ^= 1 << (bit % 8)
				return data
			})
			if bit%3 == 0 {
				for _, suffix := range []string{".index", ".timeindex"} {
					for _, name := range r.files(suffix) {
						if err := r.fs.Remove(name); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			r.check(fmt.Sprintf("batch %d at offset %d, byte %d, bit %d", n, b.base, bit/8, bit%8), isBatch(b))
		}
	}
}

// A sealed segment that is cut anywhere serves what is left of it, and nothing
// skips what is gone.
func TestSealedSegmentCutShort(t *testing.T) {
	r := newRuin(t)
	file := r.batches[8].file
	if logs := r.files(".log"); file == logs[0] || file == logs[len(logs)-1] {
		t.Fatalf("%s is not in the middle of %q", file, logs)
	}
	size, ends := 0, map[int]bool{}
	for _, b := range r.batches {
		if b.file == file {
			ends[b.position] = true
			size = b.position + len(b.data)
		}
	}
	for cut := range size {
		if cut%7 != 0 && !ends[cut] {
			continue
		}
		r.again()
		r.change(file, func(data []byte) []byte { return data[:cut] })
		r.check(fmt.Sprintf("cut at %d", cut), func(b storedBatch) bool {
			return b.file == file && b.position+len(b.data) > cut
		})
	}
}

// A segment that is missing in the middle is not skipped.
func TestSegmentMissingInTheMiddle(t *testing.T) {
	r := newRuin(t)
	file := r.batches[8].file
	r.again()
	if err := r.fs.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, l := r.open()
	for _, b := range r.batches {
		c, err := l.Read(b.base, 1<<20, r.end, true)
		c.Release()
		var corrupt *commitlog.CorruptionError
		if (b.file == file) != errors.As(err, &corrupt) || b.file != file && c.Size() == 0 {
			t.Errorf("read at %d of %s: %d bytes, %v", b.base, b.file, c.Size(), err)
		}
	}
}

// What follows the last batch of a sealed segment is reported, and all batches
// are served.
func TestJunkBehindASealedSegment(t *testing.T) {
	r := newRuin(t)
	file := r.batches[8].file
	old := r.batches[3].data
	for what, junk := range map[string][]byte{
		"zeros": make([]byte, 100), "one byte": {7}, "text": []byte(strings.Repeat("junk", 50)),
		"a batch of before": old, "part of a batch": old[:len(old)-3],
	} {
		r.again()
		r.change(file, func(data []byte) []byte { return append(data, junk...) })
		r.check(what, noBatch)
		if len(r.events.reports) != 1 || !strings.Contains(r.events.reports[0], "last batch") {
			t.Errorf("%s: reports %q", what, r.events.reports)
		}
	}
}

// Any single byte of the leader epoch history, which has no checksum, may rot:
// the batches are served.
func TestDamagedEpochHistoryHidesNothing(t *testing.T) {
	r := newRuin(t)
	name := r.files("leader-epoch-checkpoint")[0]
	size := 0
	r.change(name, func(data []byte) []byte { size = len(data); return data })
	for i := range size {
		for bit := range 8 {
			r.again()
			r.change(name, func(data []byte) []byte { data[i] ^= 1 << bit; return data })
			r.check(fmt.Sprintf("byte %d, bit %d", i, bit), noBatch)
		}
	}
}

// Several damages at once, of the kinds that resemble one another.
func TestSeveralDamages(t *testing.T) {
	r := newRuin(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		r.again()
		hit := map[kafka.Offset]bool{}
		for range 1 + rnd.IntN(4) {
			b := r.batches[rnd.IntN(len(r.batches))]
			if hit[b.base] {
				continue
			}
			hit[b.base] = true
			at := b.position + rnd.IntN(len(b.data))
			if rnd.IntN(2) == 0 {
				at = b.position + rnd.IntN(12) // Not the epoch: two of them outvote the history.
			}
			r.change(b.file, func(data []byte) []byte { data[at] ^= 1 << rnd.IntN(8); return data })
		}
		r.check(fmt.Sprint("damaged ", slices.Sorted(maps.Keys(hit))), func(b storedBatch) bool { return hit[b.base] })
	}
}

// A consumer that tries again and again does not fill the log.
func TestDamageIsReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRuin(t)
		b := r.batches[5]
		r.change(b.file, func(data []byte) []byte { data[b.position+30] ^= 1; return data })
		r.events.reports = nil
		d, l := r.open()
		for i := range 20 {
			if _, err := l.Read(b.base, 100, r.end, true); err == nil {
				t.Fatal("a damaged batch was served")
			}
			if want := 1 + i/12; len(r.events.reports) != want {
				t.Fatalf("read %d: %d reports, want %d", i, len(r.events.reports), want)
			}
			<-time.After(5 * time.Second)
		}
		found := d.Corruptions()
		if len(found) != 1 || found[0].ID != logID(1) || found[0].Found.Path != b.file ||
			found[0].Found.Position != int64(b.position) {
			t.Errorf("corruptions %+v", found)
		}
		if err := l.DeleteRecords(r.end); err != nil {
			t.Fatal(err)
		}
		if found := d.Corruptions(); len(found) != 0 {
			t.Errorf("after the segment was deleted: %+v", found)
		}
	})
}

// The gaps of compaction are right, also after a crash that took the checkpoint
// behind it, and a batch that claims to be somewhere else is still noticed where
// it can be: offsets rise and stay within the segment.
func TestGapsOfCompaction(t *testing.T) {
	r := newRuin(t)
	d, l := r.open()
	from, to := r.batches[0].base, kafka.Offset(0)
	w, err := l.BeginRewrite(from)
	if err != nil {
		t.Fatal(err)
	}
	logs := r.files(".log")
	var kept []storedBatch
	at := 0
	for i, b := range r.batches {
		if b.file == logs[len(logs)-1] {
			kept = append(kept, b)
			continue
		}
		to = b.last + 1
		if i%3 == 1 {
			continue
		}
		stored, _, err := record.Next(bytes.Clone(b.data))
		if err == nil {
			err = w.Append(stored)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.file, b.position = logs[0], at
		at += len(b.data)
		kept = append(kept, b)
	}
	if err := w.Commit(to, to); err != nil {
		t.Fatal(err)
	}
	r.batches, r.pristine = kept, r.fs.CrashClone(1, 100)
	if err := d.Close(false); err != nil {
		t.Fatal(err)
	}
	read := func(what string) (offsets []kafka.Offset) {
		t.Helper()
		_, l := r.open()
		for at := kafka.Offset(0); at < r.end; {
			c, err := l.Read(at, 1, r.end, true)
			var corrupt *commitlog.CorruptionError
			if errors.As(err, &corrupt) {
				at++
				continue
			}
			if err != nil || c.Size() == 0 {
				t.Fatalf("%s: read at %d: %v", what, at, err)
			}
			data, err := c.AppendTo(nil)
			c.Release()
			b, _, nextErr := record.Next(data)
			if err != nil || nextErr != nil || b.CheckCRC() != nil || b.LastOffset() < at || b.LastOffset() >= r.end {
				t.Fatalf("%s: read at %d served [%d, %d], %v", what, at, b.BaseOffset(), b.LastOffset(), err)
			}
			offsets = append(offsets, b.BaseOffset())
			at = b.LastOffset() + 1
		}
		return offsets
	}
	r.again()
	var want []kafka.Offset
	for _, b := range kept {
		want = append(want, b.base)
	}
	if got := read("undamaged"); !slices.Equal(got, want) || len(r.events.reports) > 0 {
		t.Fatalf("offsets %v, want %v; reports %q", got, want, r.events.reports)
	}
	for n, b := range kept {
		for bit := range 64 {
			if (n+bit)%3 != 0 {
				continue
			}
			r.again()
			r.change(b.file, func(data []byte) []byte { data[b.position+bit/8] ^= 1 << (bit % 8); return data })
			what := fmt.Sprintf("batch %d at %d, bit %d", n, b.base, bit)
			got := read(what)
			lies := slices.DeleteFunc(slices.Clone(got), func(o kafka.Offset) bool { return slices.Contains(want, o) })
			if len(r.events.reports) == 0 && len(lies) != 1 || !slices.IsSorted(got) || len(got) < len(want)-2 {
				t.Fatalf("%s: offsets %v, want %v; reports %q", what, got, want, r.events.reports)
			}
		}
	}
}

// Behind a damaged end nothing is written, and the refusal is reported.
func TestNoAppendBehindADamagedEnd(t *testing.T) {
	r := newRuin(t)
	b := r.batches[len(r.batches)-1]
	r.again()
	r.change(b.file, func(data []byte) []byte { data[b.position+7] ^= 4; return data })
	_, l := r.open()
	for range 3 {
		_, err := l.AppendAsLeader([]record.Batch{makeBatch(t, 1, "x")}, 9, time.UnixMilli(1))
		var corrupt *commitlog.CorruptionError
		if !errors.As(err, &corrupt) || corrupt.Path != b.file {
			t.Fatalf("append: %v", err)
		}
	}
	if len(r.events.reports) != 1 {
		t.Errorf("reports %q", r.events.reports)
	}
	if l.LogEndOffset() != r.end {
		t.Errorf("log ends at %d, want %d", l.LogEndOffset(), r.end)
	}
}

// What a producer sent may look like batches of the very log: it is not taken for
// them when the batch around it is damaged.
func TestBatchesWithinADamagedBatch(t *testing.T) {
	r := &ruin{stored: &stored{t: t, fs: memfs.New()}}
	d, l := r.open()
	inner := ""
	for i := range kafka.Offset(4) { // At offsets that the log will have.
		b := makeBatch(t, 5000, "within")
		b.Stamp(3+i, 0)
		inner += string(b.Bytes())
	}
	for i := range 8 {
		value := "plain"
		if i == 1 {
			value = inner
		}
		b := makeBatch(t, 1000, value)
		if _, err := l.AppendAsLeader([]record.Batch{b}, 0, time.UnixMilli(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Roll(), d.Close(true)); err != nil {
		t.Fatal(err)
	}
	first := len(makeBatch(t, 1000, "plain").Bytes())
	for position := range 12 { // Its offset, its length.
		r := &ruin{stored: &stored{t: t, fs: r.fs.CrashClone(1, 100)}}
		r.change(r.files(".log")[0], flip(first+position))
		_, l := r.open()
		for at := kafka.Offset(0); at < 8; at++ {
			c, err := l.Read(at, 1, 8, true)
			if (err != nil) != (at == 1) {
				t.Fatalf("byte %d: read at %d: %v", position, at, err)
			}
			data, _ := c.AppendTo(nil)
			c.Release()
			if strings.Contains(string(data), "within") {
				t.Fatalf("byte %d: read at %d served what is within a batch", position, at)
			}
		}
	}
}
