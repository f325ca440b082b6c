package journal

import (
	"testing"
	"time"
)

// TestWaitsThatGatherNothing: where each wish waits for the answer to the one before,
// rounds start at once; they are spaced again as soon as waiting would gather something.
func TestWaitsThatGatherNothing(t *testing.T) {
	now := time.Now()
	p := pace{maxGap: time.Millisecond, perSync: 5, cost: time.Second, last: now}
	waits := func(rounds int, gathers func(round int) bool) (n int) {
		for i := range rounds {
			if d := p.wait(now); d > 0 {
				n++
				p.waited(d, gathers(i))
			}
		}
		return n
	}
	never := func(int) bool { return false }
	always := func(int) bool { return true }
	if n := waits(1000, always); n != 1000 {
		t.Errorf("where waits gather, %d of 1000 rounds waited", n)
	}
	if n := waits(1000, func(i int) bool { return i%2 == 0 }); n != 1000 {
		t.Errorf("where every other wait gathers, %d of 1000 rounds waited", n)
	}
	if n := waits(1000, never); n > vainMost+1000/(1<<(vainMost-vainWaits)) {
		t.Errorf("where no wait gathers, %d of 1000 rounds waited", n)
	}
	if n := waits(1000, func(i int) bool { return i%5 == 0 }); n > 50 {
		t.Errorf("where few waits gather, %d of 1000 rounds waited", n)
	}
	if n := waits(1000, always); n < 700 {
		t.Errorf("where waits gather again, %d of 1000 rounds waited", n)
	}
}

// TestShortWaitsProveNothing: a wait that is over soon gathers nothing in any case.
func TestShortWaitsProveNothing(t *testing.T) {
	now := time.Now()
	p := pace{maxGap: time.Millisecond, perSync: 5, cost: time.Second, last: now.Add(-900 * time.Microsecond)}
	for i := range 100 {
		d := p.wait(now)
		if d != 100*time.Microsecond {
			t.Fatalf("wait %d took %v, want what is left of the gap", i, d)
		}
		p.waited(d, false)
	}
}

// TestGaps: where records are replicated rounds are further apart, and where much comes in.
func TestGaps(t *testing.T) {
	now := time.Now()
	replicated := false
	opt := Options{MinGap: time.Millisecond, GapPerSync: 5, Replicated: func() bool { return replicated }}
	p := pace{last: now, cost: time.Second}
	for _, c := range []struct {
		replicated bool
		rate       float64
		want       time.Duration
	}{
		{false, 0, opt.MinGap},
		{false, busyRate, busyGaps * opt.MinGap},
		{true, 0, replicatedGap},
		{true, busyRate, replicatedBusyGap},
	} {
		replicated = c.replicated
		p.space(&opt, c.rate)
		if got := p.room(now); got != c.want {
			t.Errorf("replicated %t, %.0f bytes per second: gap %v, want %v", c.replicated, c.rate, got, c.want)
		}
	}
	p.cost = time.Microsecond
	if got := p.room(now); got != replicatedPerSync*time.Microsecond {
		t.Errorf("a sync of 1 us has a gap of %v, want %d us", got, replicatedPerSync)
	}
}

// TestNotesWaitForFiles: notes that no file can take are not due again at once, or the
// committer would go round and round until there is a file, on a full disk for ever.
func TestNotesWaitForFiles(t *testing.T) {
	j := &Journal{notes: []*logState{{}}, notesSince: time.Now().Add(-2 * noteDelay)}
	if !j.notesDue() {
		t.Fatal("old notes are not due")
	}
	j.stageNotes(&round{})
	if j.notesDue() || len(j.notes) != 1 {
		t.Fatalf("notes that found no file: due %t, %d of 1 kept", j.notesDue(), len(j.notes))
	}
}
