package commitlog_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// newGappy returns a log of 30 batches whose first segment, which ends at an
// offset, has lost its last batches to compaction.
func newGappy(t *testing.T, dropped kafka.Offset) (x *loss, upTo kafka.Offset) {
	t.Helper()
	x = newLoss(t)
	for range 30 {
		x.append(t, 1)
	}
	x.must(t, x.journal.Round(true), x.dir.Checkpoint())
	upTo = x.log.Segments()[1].BaseOffset
	w, err := x.log.BeginRewrite(0)
	x.must(t, err)
	x.must(t, x.log.Batches(0, upTo-dropped, w.Append))
	x.must(t, w.Commit(upTo, upTo), x.dir.Checkpoint(), x.dir.Checkpoint())
	return x, upTo
}

// readable returns what a reader gets: batches, and the offsets that are refused.
func (x *loss) readable(t *testing.T) (got []string) {
	t.Helper()
	for at, end := x.log.LogStartOffset(), x.log.LogEndOffset(); at < end; {
		c, err := x.log.Read(at, 1, end, true)
		var corrupt *commitlog.CorruptionError
		if errors.As(err, &corrupt) {
			got = append(got, fmt.Sprint(at, " corrupt"))
			at++
			continue
		}
		x.must(t, err)
		data, err := c.AppendTo(nil)
		c.Release()
		x.must(t, err)
		b, _, err := record.Next(data)
		x.must(t, err, b.CheckCRC())
		got = append(got, fmt.Sprint(b.BaseOffset(), " to ", b.LastOffset()))
		at = b.LastOffset() + 1
	}
	return got
}

// Where both checkpoints were lost, the gaps of compaction are found, and written
// down. A log that is frozen by damage behind them is found the same at each later
// start: the checkpoint then has no more of it than that there are gaps.
func TestGapsBehindALostCheckpoint(t *testing.T) {
	x, upTo := newGappy(t, 1)
	x.must(t, x.dir.Close(true))
	x.flip(t, "checkpoint-0", 10)
	x.flip(t, "checkpoint-1", 10)
	names, sizes := x.files(t, ".log")
	x.flip(t, names[len(names)-2], sizes[len(names)-2]/2)
	x.open(t)
	first := x.readable(t)
	if slices.Contains(first, fmt.Sprint(upTo-1, " corrupt")) {
		t.Errorf("the gap counts as damage: %q", first)
	}
	if !x.frozen() || !slices.Contains(first, fmt.Sprint(upTo, " to ", upTo)) || !slices.Contains(first, "29 corrupt") {
		t.Fatalf("the first start has %q, reported %q", first, x.events.corrupt)
	}
	for i, clean := range []bool{true, false, false, true} {
		if clean {
			x.must(t, x.dir.Close(true))
		} else {
			x.crash(1, 100)
		}
		x.open(t)
		if again := x.readable(t); !slices.Equal(again, first) || !x.frozen() {
			t.Fatalf("start %d has %q, the first had %q; reported %q", i+2, again, first, x.events.corrupt)
		}
	}
}

// Without damage nothing is reported there, and all of it is read.
func TestGapsBehindALostCheckpointAreRead(t *testing.T) {
	x, _ := newGappy(t, 2)
	want := x.readable(t)
	x.must(t, x.dir.Close(true))
	x.flip(t, "checkpoint-0", 10)
	x.flip(t, "checkpoint-1", 10)
	for i := range 3 {
		x.open(t)
		if got := x.readable(t); !slices.Equal(got, want) || len(x.events.corrupt) > 0 {
			t.Fatalf("start %d has %q, want %q; reported %q", i+1, got, want, x.events.corrupt)
		}
		x.must(t, x.dir.Close(i == 1))
	}
}

// A log that is truncated to an offset in a gap ends there or before it, and a crash
// does not make damage of that.
func TestTruncateIntoAGap(t *testing.T) {
	for _, survive := range []int{0, 100} {
		for back := kafka.Offset(0); back <= 3; back++ {
			x, upTo := newGappy(t, 3)
			to := upTo - back
			x.must(t, x.log.TruncateTo(to))
			end := x.log.LogEndOffset()
			if end > to {
				t.Fatalf("truncated to %d, the log ends at %d", to, end)
			}
			x.crash(1, survive)
			x.open(t)
			if len(x.events.corrupt) > 0 || x.log.LogEndOffset() > to {
				t.Fatalf("truncated to %d, %d%% survive: the log ends at %d, was %d; reported %q",
					to, survive, x.log.LogEndOffset(), end, x.events.corrupt)
			}
			x.values = x.values[:x.log.LogEndOffset()]
			x.append(t, 1)
			x.must(t, x.journal.Round(false))
			want := x.readable(t)
			x.crash(1, survive)
			x.open(t)
			if got := x.readable(t); !slices.Equal(got, want) || len(x.events.corrupt) > 0 {
				t.Fatalf("truncated to %d, %d%% survive, and appended: %q, want %q; reported %q",
					to, survive, got, want, x.events.corrupt)
			}
		}
	}
}
