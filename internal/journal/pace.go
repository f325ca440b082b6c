package journal

import "time"

// Where busyRate bytes per second and more come in, rounds start busyGaps times as
// far apart. Half as many syncs save a sixth of the broker's CPU at 20 MB/s, and
// add half of a gap to the median latency; at 5 MB/s latency is worth more.
const (
	busyRate = 12 << 20
	busyGaps = 2
)

// The gaps, and their bound as a multiple of a sync's duration, where records are replicated:
// several brokers sync each of them one after the other, and at each sync followers fetch
// and are answered.
const (
	replicatedGap     = 4 * time.Millisecond
	replicatedBusyGap = 6 * time.Millisecond
	replicatedPerSync = 20
)

// pace spaces rounds: the first after a pause starts at once, and under load
// they start a gap apart. The gap follows what a sync costs: a disk or a
// memory that syncs in no time gets no gap, and one that takes long is spaced
// by its own slowness and waits no more than the maximum.
//
// Waiting pays where it gathers. A client that sends its next record when it has the
// answer to the last, as a transaction does four times over, has nothing to add: where
// most waits were in vain rounds start at once, but for one in 2, 4, 8 and so on, which
// finds out whether more would come.
type pace struct {
	maxGap  time.Duration
	perSync int           // The gap is no longer than so many times a sync.
	cost    time.Duration // Of one sync: moving average.
	last    time.Time     // Start of the last round.
	vain    int           // Grows by one with a wait in vain, shrinks by vainWorth with another.
	skipped int           // Rounds in a row that could have waited.
}

const (
	// vainWorth is how many waits in vain one is worth that gathers something: it saves a sync.
	vainWorth = 2
	// vainWaits are so many in vain that not every round waits.
	vainWaits = 4
	// vainMost bounds how many rounds it takes to see that waiting pays again: one in 128
	// still waits, some 50 ms where rounds follow each other.
	vainMost = vainWaits + 6
)

// wait returns how long the next round should wait for more wishes, 0 if it is not worth
// its while.
func (p *pace) wait(now time.Time) time.Duration {
	room := p.room(now)
	if room <= 0 || p.vain < vainWaits {
		return room
	}
	p.skipped++
	if p.skipped < 2<<(p.vain-vainWaits) {
		return 0
	}
	p.skipped = 0
	return room
}

// space sets the gap by what comes in.
func (p *pace) space(opt *Options, bytesPerSecond float64) {
	busy := bytesPerSecond >= busyRate
	p.maxGap, p.perSync = opt.MinGap, opt.GapPerSync
	if busy {
		p.maxGap *= busyGaps
	}
	if opt.Replicated() {
		least := replicatedGap
		if busy {
			least = replicatedBusyGap
		}
		p.maxGap, p.perSync = max(p.maxGap, least), max(p.perSync, replicatedPerSync)
	}
}

// room returns how long it is until a gap has passed since the last round's start.
func (p *pace) room(now time.Time) time.Duration {
	return p.last.Add(p.gap()).Sub(now)
}

func (p *pace) gap() time.Duration { return min(p.maxGap, p.cost*time.Duration(p.perSync)) }

// waited notes whether more wishes came during a wait of d. Of a short one nothing follows.
func (p *pace) waited(d time.Duration, more bool) {
	switch {
	case more:
		p.vain = max(0, p.vain-vainWorth)
	case 2*d >= p.gap():
		p.vain = min(p.vain+1, vainMost)
	}
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
