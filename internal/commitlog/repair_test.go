package commitlog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Whatever happened before and whichever bits flipped: after a repair the log takes
// appends at its old end, all of it can be read, what could be read before is
// still there, and what is not was named. So it is after every later start.
func TestRepair(t *testing.T) {
	repaired, restored := 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		x := newLoss(t)
		x.live(t)
		x.end(t)
		names, sizes := x.files(t, ".log")
		// One for each file: the first fields of a batch are checked by its neighbours alone.
		flipped := map[int]bool{}
		for range rapid.IntRange(0, 3).Draw(t, "flips") {
			if i := len(names) - 1 - rapid.IntRange(0, 3).Draw(t, "file"); i >= 0 && sizes[i] > 0 && !flipped[i] {
				flipped[i] = true
				x.flip(t, names[i], rapid.Int64Range(0, sizes[i]-1).Draw(t, "position"))
			}
		}
		if i := rapid.IntRange(0, 20).Draw(t, "missing file"); i < len(names) {
			x.must(t, x.fs.Remove(names[i]))
		}
		x.open(t)
		frozen := x.log.LogEndOffset() < x.safe || len(x.events.corrupt) > 0
		if x.log.LogEndOffset() > kafka.Offset(len(x.values)) {
			return // A flip in an offset, and a segment is missing: nobody knows where the log ended.
		}
		before, end := x.content(t), x.log.LogEndOffset()
		r, err := x.log.Examine()
		x.must(t, err)
		if r == nil {
			if slices.Contains(before, "corrupt") || frozen {
				t.Fatalf("nothing to repair in %q, reported %q", before, x.events.corrupt)
			}
			return
		}
		repaired++
		restored += r.Restored
		x.must(t, r.Apply())
		for range 2 {
			if rapid.Bool().Draw(t, "clean") {
				x.must(t, x.dir.Close(true))
			} else {
				x.crash(1, rapid.SampledFrom([]int{0, 100}).Draw(t, "survive"))
			}
			x.open(t)
			x.checkRepaired(t, r, before)
			if got := x.log.LogEndOffset(); got != end {
				t.Fatalf("the log ends at %d, it was %d", got, end)
			}
		}
		info, err := x.log.AppendAsLeader([]record.Batch{batchOf("after")}, 7, time.UnixMilli(1))
		if err != nil || info.BaseOffset != end {
			t.Fatalf("append at %d: %+v, %v", end, info, err)
		}
		x.must(t, x.journal.Round(rapid.Bool().Draw(t, "files")))
		x.crash(1, 0)
		x.open(t)
		x.checkRepaired(t, r, before)
		if got := x.content(t); len(got) != int(end)+1 || got[end] != "after" {
			t.Fatalf("after an append at %d: %q", end, got)
		}
	})
	t.Logf("%d repairs, %d records restored from the journal", repaired, restored)
}

// checkRepaired holds the log against what it had before it was repaired.
func (x *loss) checkRepaired(t fataler, r *commitlog.Repair, before []string) {
	t.Helper()
	if len(x.events.corrupt) > 0 {
		t.Fatalf("reported after the repair: %q", x.events.corrupt)
	}
	got := x.content(t)
	isLost := func(at kafka.Offset) bool {
		return slices.ContainsFunc(r.Lost, func(l commitlog.LostRange) bool { return l.From <= at && at < l.To })
	}
	for at := x.log.LogStartOffset(); int(at) < len(before); at++ {
		switch {
		case got[at] == "corrupt":
			_, err := x.log.Read(at, 1, x.log.LogEndOffset(), true)
			t.Fatalf("at %d it is still corrupt: %v; repaired %+v", at, err, r)
		case before[at] != "corrupt" && before[at] != "" && got[at] != before[at]:
			t.Fatalf("at %d there was %q, and is %q", at, before[at], got[at])
		case at < x.safe && got[at] != x.values[at] && !isLost(at):
			t.Fatalf("at %d %q, want %q, and it was not named as lost: %+v", at, got[at], x.values[at], r.Lost)
		}
	}
}

// TestRepairOfSealedSegments: damage that does not freeze the log stops its readers.
// A repair takes them past it, drops the damaged batch alone, and keeps the old
// file.
func TestRepairOfSealedSegments(t *testing.T) {
	r := newRuin(t)
	r.again()
	bad := r.batches[4]
	r.change(bad.file, flip(bad.position+70))
	d, l := r.open()
	repair, err := l.Examine()
	if err != nil || repair == nil || repair.Frozen != nil {
		t.Fatalf("examined: %+v, %v", repair, err)
	}
	if len(repair.Lost) != 1 || repair.Lost[0].From != bad.base || repair.Lost[0].To != bad.last+1 {
		t.Errorf("lost %+v, want [%d, %d]", repair.Lost, bad.base, bad.last)
	}
	if err := repair.Apply(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.files(".cut")); n != 1 || len(repair.PutAside) != 1 || !strings.HasSuffix(repair.PutAside[0], ".cut") {
		t.Errorf("%d files, put aside %q", n, repair.PutAside)
	}
	if err := d.Close(true); err != nil {
		t.Fatal(err)
	}
	d, l = r.open()
	defer func() {
		if err := d.Close(true); err != nil {
			t.Error(err)
		}
	}()
	var got, want []string
	for _, b := range r.batches {
		if b.base != bad.base {
			want = append(want, fmt.Sprint(b.base, "-", b.last, " ", b.data))
		} else {
			want = append(want, fmt.Sprint(b.base, "-", b.last, " 0 records"))
		}
	}
	err = l.Batches(0, r.end, func(b record.Batch) error {
		if b.BaseOffset() == bad.base {
			got = append(got, fmt.Sprint(b.BaseOffset(), "-", b.LastOffset(), " ", b.RecordCount(), " records"))
		} else {
			got = append(got, fmt.Sprint(b.BaseOffset(), "-", b.LastOffset(), " ", b.Bytes()))
		}
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %v\nwant %v", err, got, want)
	}
	if again, err := l.Examine(); again != nil || err != nil {
		t.Errorf("after the repair: %+v, %v", again, err)
	}
}
