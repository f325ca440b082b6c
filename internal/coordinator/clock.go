package coordinator

import (
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
)

// maxDrift is how far the wall clock may part from one that nobody sets before it
// counts as set.
const maxDrift = time.Second

// wallClock notices when somebody sets the wall clock, or the machine slept.
//
// Machines reckon in wall time, because what they write down must mean something
// after a restart. But a session is a length of time: a clock that is set an hour
// ahead must not end those of all members at once, and one that is set back must not
// keep the dead for an hour.
type wallClock struct {
	// elapsed is a clock that nobody sets.
	elapsed func() time.Duration
	// What the two showed when they were compared last.
	wallMs int64
	at     time.Duration
}

// start begins to compare.
func (w *wallClock) start(now time.Time) { w.wallMs, w.at = now.UnixMilli(), w.elapsed() }

// set returns by how much the wall clock was set since it was compared last.
func (w *wallClock) set(now time.Time) (byMs int64) {
	at := w.elapsed()
	by := now.UnixMilli() - w.wallMs - (at - w.at).Milliseconds()
	if most := maxDrift.Milliseconds(); -most < by && by < most {
		return 0
	}
	w.wallMs, w.at = now.UnixMilli(), at
	return by
}

// followClockLocked moves all deadlines along with a clock that was set.
func (h *host[M]) followClockLocked(now time.Time) {
	by := h.clock.set(now)
	if by == 0 {
		return
	}
	h.parked.shift(by)
	if m, ok := any(h.machine).(shard.Clocked); ok {
		m.ClockSet(by)
	}
	h.publishDeadlineLocked()
	h.c.poke() // What serve waits for is reckoned by the clock as it was.
}
