package partition

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
)

// A replica steps aside when it can't do its part, although its broker runs: its log is
// damaged beyond what can be mended in its place, or offline until a restart. It asks the controller to be out of the
// ISR and not eligible (package insync), and another leads if there is one in sync. Then it
// may throw its log away, or the end of it (Mender); one that is offline is left as it is.
//
// What would break without that order: a replica that is in the ISR, or eligible beside
// it, may be elected at any moment, because it has all that was acknowledged. So it
// touches nothing of its log before the metadata says that it is neither. And a fetch may
// still be on its way that says how far the old log reached: counted by the leader after
// the change, it would have the empty log in the ISR. So a resignation has a new leader
// epoch, under which no fetch of the old log was sent, and the leader refuses those of the
// epochs before.

// ErrDamaged says that the replica's log is damaged, so that it does not follow until its
// end was cut off or it was replaced.
var ErrDamaged = errors.New("the replica's log is damaged")

// aside is why a replica steps aside.
type aside struct {
	troubled func(*Partition)
	// reported says that damage was found that nobody has looked at since, or that is
	// still there. The replica plays its part: it has holes, and the log's end is right.
	reported atomic.Bool
	// damaged says that the log can't be mended in its place: its end is not what was
	// acknowledged, or what others have does not fit.
	damaged atomic.Bool
	// fetched is the last leader epoch under which a fetch of this log may have been sent.
	fetched atomic.Int32
}

// mayFetch reports whether a fetch may go out under a leader epoch, and notes it before:
// who finds the log damaged finds the epoch as well. A log that is known to be damaged
// leaves the epoch alone, or each new one would be taken for one that was used.
func (a *aside) mayFetch(epoch kafka.LeaderEpoch) bool {
	if a.damaged.Load() {
		return false
	}
	a.fetched.Store(int32(epoch))
	return !a.damaged.Load()
}

// damaged is the log's report that stored bytes are not what was written.
func (p *Partition) damaged(error) {
	// A read may hold the role: nothing that waits for it may be done here.
	if !p.aside.reported.Swap(true) && p.aside.troubled != nil {
		p.aside.troubled(p)
	}
}

// Damaged reports whether the replica's log is damaged, or offline.
func (p *Partition) Damaged() bool {
	return p.aside.reported.Load() || p.aside.damaged.Load() || p.broken.Load()
}

// examine notes what the log says of itself when it is opened: a log whose end is not
// what was acknowledged takes no appends, and can't be followed with.
func (p *Partition) examine() {
	if p.log.Damaged() != nil {
		p.aside.reported.Store(true)
	}
	if p.log.Corrupt() || p.log.Err() != nil {
		p.aside.damaged.Store(true)
	}
}

// StepAside asks for what a replica in trouble needs: that it leads no more, if others
// are in sync, and that it is neither in sync nor eligible. It reports whether that is
// so already.
func (p *Partition) StepAside(now time.Time) bool {
	wants, done := p.stepAside(now)
	if wants && p.wants != nil {
		p.wants(p)
	}
	return done
}

func (p *Partition) stepAside(now time.Time) (wants, done bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	if p.standing == leading {
		p.progress.mu.Lock()
		defer p.progress.mu.Unlock()
		return p.progress.leader != nil && p.progress.leader.Resign(now) != nil, false
	}
	_, wants = p.wantsOutLocked()
	return wants, p.standing == following && p.leader != kafka.NoBroker && p.isOutLocked()
}

// isOutLocked reports whether nobody counts on a follower's log, and no fetch that is on
// its way can change that.
func (p *Partition) isOutLocked() bool {
	return !p.electableLocked() && p.leaderEpoch > kafka.LeaderEpoch(p.aside.fetched.Load())
}

// electableLocked reports whether the metadata counts a follower among those who may
// lead.
func (p *Partition) electableLocked() bool {
	return slices.Contains(p.place.isr, p.self) || slices.Contains(p.place.eligible, p.self)
}

// wantsOutLocked returns the ISR that a follower in trouble asks for: the same without
// itself. It does not ask where nobody would be left.
func (p *Partition) wantsOutLocked() (WantedISR, bool) {
	if !p.aside.damaged.Load() && !p.broken.Load() || p.standing != following || p.isOutLocked() {
		return WantedISR{}, false
	}
	want := WantedISR{p.leaderEpoch, isr.Change{PartitionEpoch: p.place.partitionEpoch}}
	for _, id := range p.place.isr {
		if id != p.self {
			want.ISR = append(want.ISR, isr.Member{ID: id, BrokerEpoch: isr.NoBrokerEpoch})
		}
	}
	return want, len(want.ISR) > 0
}

// mayBeReplaced reports whether the replica's log can't be mended and nobody counts on it: it
// follows a leader, under the epoch that is returned too, and has stepped aside.
func (p *Partition) mayBeReplaced() (Following, bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.followingLocked(), p.aside.damaged.Load() && !p.deleted && p.standing == following &&
		p.leader != kafka.NoBroker && p.isOutLocked()
}
