package journal

import "time"

// gapPerSync is how many times the duration of a sync lies between the starts
// of two rounds under load. A sync's CPU time is about half of its duration
// where syncs are fast, so that they take at most a tenth of a core.
const gapPerSync = 5

// Where busyRate bytes per second and more come in, rounds start busyGaps times as
// far apart. Half as many syncs save a sixth of the broker's CPU at 20 MB/s, and
// add half of a gap to the median latency; at 5 MB/s latency is worth more.
const (
	busyRate = 12 << 20
	busyGaps = 2
)

// pace spaces rounds: the first after a pause starts at once, and under load
// they start a gap apart. The gap follows what a sync costs: a disk or a
// memory that syncs in no time gets no gap, and one that takes long is spaced
// by its own slowness and waits no more than the maximum.
type pace struct {
	maxGap time.Duration
	cost   time.Duration // Of one sync: moving average.
	last   time.Time     // Start of the last round.
}

// wait returns how long the next round should wait.
func (p *pace) wait(now time.Time) time.Duration {
	return p.last.Add(min(p.maxGap, p.cost*gapPerSync)).Sub(now)
}

// started notes the start of a round.
func (p *pace) started(now time.Time) { p.last = now }

// synced notes how long a sync took.
func (p *pace) synced(took time.Duration) {
	if p.cost == 0 {
		p.cost = took
		return
	}
	p.cost += (took - p.cost) / 16
}

// inflow is how many bytes per second are appended: a moving average over
// inflowWindow.
type inflow struct {
	rate float64
	last time.Time
}

const inflowWindow = 100 * time.Millisecond

// add notes the bytes appended since the last call.
func (f *inflow) add(n int, now time.Time) {
	elapsed := max(now.Sub(f.last), time.Microsecond)
	f.last = now
	weight := min(1, float64(elapsed)/float64(inflowWindow))
	f.rate += (float64(n)/elapsed.Seconds() - f.rate) * weight
}

func (f *inflow) perSecond() float64 { return f.rate }
