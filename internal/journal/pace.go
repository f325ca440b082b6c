package journal

import "time"

// Where busyRate bytes per second and more come in, rounds start busyGaps times as
// far apart. Half as many syncs save a sixth of the broker's CPU at 20 MB/s, and
// add half of a gap to the median latency; at 5 MB/s latency is worth more.
const (
	busyRate = 12 << 20
	busyGaps = 2
)

// The gap, and its bound as a multiple of a sync's duration, where records are replicated:
// several brokers sync each of them one after the other, and at each sync followers fetch
// and are answered.
const (
	replicatedGap     = 3 * time.Millisecond
	replicatedPerSync = 15
)

// pace spaces rounds: the first after a pause starts at once, and under load
// they start a gap apart. The gap follows what a sync costs: a disk or a
// memory that syncs in no time gets no gap, and one that takes long is spaced
// by its own slowness and waits no more than the maximum.
type pace struct {
	maxGap  time.Duration
	perSync int           // The gap is no longer than so many times a sync.
	cost    time.Duration // Of one sync: moving average.
	last    time.Time     // Start of the last round.
	// inVain is how many waits in a row brought nothing more to commit, or would have,
	// and due how many rounds in a row went without one since.
	inVain, due int
}

// Waiting pays where it gathers. A client that sends its next record when it has the
// answer to the last, as a transaction does four times over, has nothing to add, and
// waits for nothing: after vainWaits of them rounds start at once, but for one in
// probeEvery, or in probeCrowd where several wishes are there at once, which finds out
// whether more would come.
const (
	vainWaits  = 4
	probeEvery = 16
	probeCrowd = 4
)

// isWorthWaiting reports whether a wait is likely to gather more than the wishes
// that are there.
func (p *pace) isWorthWaiting(wishes int) bool {
	if p.inVain < vainWaits {
		return true
	}
	p.due++
	if wishes > 1 { // Several came while the last round was under way: so may others.
		return p.due%probeCrowd == 0
	}
	return p.due%probeEvery == 0
}

// waited notes how many wishes came during a wait.
func (p *pace) waited(more int) {
	if more > 0 {
		p.inVain, p.due = 0, 0
		return
	}
	p.inVain++
}

// wait returns how long the next round should wait.
func (p *pace) wait(now time.Time) time.Duration {
	return p.last.Add(min(p.maxGap, p.cost*time.Duration(p.perSync))).Sub(now)
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
