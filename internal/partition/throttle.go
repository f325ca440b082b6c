package partition

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Throttle bounds how many bytes a second a broker copies, as a leader or as a follower
// (KIP-73). Only replicas that are listed for it and not in sync are bound: those in sync
// never wait. It lets a second's worth through at once, and what is sent may overdraw that.
type Throttle struct {
	// Rate returns the bytes a second; math.MaxInt64 for no bound.
	Rate func() int64

	mu   sync.Mutex
	left float64 // May be negative.
	at   time.Time
}

// Allows reports whether something may be copied now.
func (t *Throttle) Allows(now time.Time) bool {
	if t == nil {
		return true
	}
	rate := t.Rate()
	if rate == math.MaxInt64 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refillLocked(float64(rate), now)
	return t.left > 0
}

// Spend counts what was copied.
func (t *Throttle) Spend(bytes int, now time.Time) {
	if t == nil || bytes == 0 {
		return
	}
	rate := t.Rate()
	if rate == math.MaxInt64 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refillLocked(float64(rate), now)
	t.left -= float64(bytes)
}

func (t *Throttle) refillLocked(rate float64, now time.Time) {
	if t.at.IsZero() {
		t.left = rate
	} else if passed := now.Sub(t.at); passed > 0 {
		t.left += rate * passed.Seconds()
	}
	t.left, t.at = min(t.left, rate), now
}

// ThrottledReplicas are the replicas of a topic that a throttle binds.
type ThrottledReplicas struct {
	All  bool
	Some []ThrottledReplica
}

// ThrottledReplica names one.
type ThrottledReplica struct {
	Partition int32
	Broker    kafka.BrokerID
}

// Has reports whether a replica is among them.
func (r ThrottledReplicas) Has(partition int32, broker kafka.BrokerID) bool {
	return r.All || slices.Contains(r.Some, ThrottledReplica{partition, broker})
}

// Throttles are a broker's: of what it sends as a leader, and of what it copies as a
// follower. nil binds nothing.
type Throttles struct{ Leader, Follower *Throttle }

// sends reports whether a follower that is not in sync may be sent records now, and
// whether what it is sent counts; role is held.
func (p *Partition) sends(outside bool, now time.Time) (may, counts bool) {
	if !outside || p.throttles.Leader == nil || !p.settings.LeaderThrottled.Has(p.id.Partition, p.self) {
		return true, false
	}
	return p.throttles.Leader.Allows(now), true
}

// MayCopy reports whether the replica may fetch now: it may not while it is a follower
// that is not in sync, listed in follower.replication.throttled.replicas, and more was
// copied than follower.replication.throttled.rate.
func (p *Partition) MayCopy(now time.Time) bool {
	return !p.copiesThrottled() || p.throttles.Follower.Allows(now)
}

func (p *Partition) copiesThrottled() bool {
	if p.throttles.Follower == nil {
		return false
	}
	p.role.RLock()
	defer p.role.RUnlock()
	return p.settings.FollowerThrottled.Has(p.id.Partition, p.self) && !slices.Contains(p.place.isr, p.self)
}

// NoteCopied counts stored bytes that were fetched from the leader.
func (p *Partition) NoteCopied(bytes int, now time.Time) {
	if bytes == 0 {
		return
	}
	p.traffic.copiedIn.Add(uint64(bytes))
	if p.copiesThrottled() {
		p.throttles.Follower.Spend(bytes, now)
	}
}

// NoteCopiedOut counts stored bytes that a follower was sent.
func (p *Partition) NoteCopiedOut(bytes int) { p.traffic.copiedOut.Add(uint64(bytes)) }
