// Package isr is the leader's view of one partition's replicas: how far each
// has got, where the high watermark stands, and which change of the in-sync
// replica set (ISR) the leader wants.
//
// A Leader assumes that its owner calls it under one lock and passes the time.
// It never shrinks or grows the ISR by itself: it says what it wants, the
// controller decides, and Committed tells it the outcome. Until then a wanted
// expansion already counts for the high watermark (the maximal ISR), so that a
// follower that the controller has just let in can never miss an acknowledged
// record (KIP-497).
//
// Invariants:
//
//	highWatermark = least synced log end offset in the maximal ISR, once that
//	                has passed the highWatermark known before; it never falls
//	isr is a subset of maximalISR, which is a subset of the assigned replicas
//	the leader itself is always in both
//
// Deliberately absent: fetching, timers, and any word to the controller.
package isr

import (
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Options describe the partition at the moment this broker became its leader.
type Options struct {
	Self           kafka.BrokerID
	Replicas       []kafka.BrokerID // Assigned replicas; copied.
	ISR            []kafka.BrokerID // Committed ISR; copied.
	PartitionEpoch kafka.PartitionEpoch
	HighWatermark  kafka.Offset  // Known from before; the new one starts here.
	LogEndOffset   kafka.Offset  // The leader's log end, synced or not.
	SyncedEnd      kafka.Offset  // The leader's synced log end.
	MaxLag         time.Duration // replica.lag.time.max.ms.
	Now            time.Time
}

// replica is what the leader knows of one assigned replica.
type replica struct {
	id           kafka.BrokerID
	syncedEnd    kafka.Offset // Unknown is kafka.NoOffset.
	lastCaughtUp time.Time
	// lastFetchEnd is the leader's log end at the previous fetch: a follower
	// that reaches it was caught up at the time of that fetch, however fast
	// the log grows.
	lastFetchEnd  kafka.Offset
	lastFetchTime time.Time
}

// Change is an ISR that the leader wants; the controller compares and sets it
// on PartitionEpoch.
type Change struct {
	ISR            []kafka.BrokerID
	PartitionEpoch kafka.PartitionEpoch
}

// Leader holds the replication state of one partition on its leader. It is not
// safe for concurrent use.
type Leader struct {
	self           kafka.BrokerID
	replicas       []replica
	isr            []kafka.BrokerID // Committed.
	pending        []kafka.BrokerID // Wanted and not yet decided; nil if none.
	partitionEpoch kafka.PartitionEpoch
	highWatermark  kafka.Offset
	logEndOffset   kafka.Offset
	maxLag         time.Duration
}

// NewLeader starts a leader's view.
func NewLeader(o Options) *Leader {
	l := &Leader{
		self:           o.Self,
		isr:            slices.Clone(o.ISR),
		partitionEpoch: o.PartitionEpoch,
		highWatermark:  o.HighWatermark,
		logEndOffset:   o.LogEndOffset,
		maxLag:         o.MaxLag,
	}
	for _, id := range o.Replicas {
		r := replica{id: id, syncedEnd: kafka.NoOffset}
		if slices.Contains(o.ISR, id) {
			r.lastCaughtUp = o.Now
		}
		if id == o.Self {
			r.syncedEnd = o.SyncedEnd
		}
		l.replicas = append(l.replicas, r)
	}
	l.maybeAdvance()
	l.check()
	return l
}

// HighWatermark returns the first offset not known to be on every member of
// the maximal ISR.
func (l *Leader) HighWatermark() kafka.Offset { return l.highWatermark }

// ISR returns the committed ISR; the caller must not change it.
func (l *Leader) ISR() []kafka.BrokerID { return l.isr }

// InSync returns how many replicas the committed ISR has: what
// min.insync.replicas is compared with.
func (l *Leader) InSync() int { return len(l.isr) }

// Appended records that the leader's log now ends at logEndOffset and that
// everything below syncedEnd is on the leader's disk. It reports whether the
// high watermark moved.
func (l *Leader) Appended(logEndOffset, syncedEnd kafka.Offset) bool {
	l.logEndOffset = max(l.logEndOffset, logEndOffset)
	self := l.find(l.self)
	self.syncedEnd = max(self.syncedEnd, syncedEnd)
	return l.maybeAdvance()
}

// Fetched records a follower's fetch at syncedEnd, which acknowledges
// everything below it. It reports whether the high watermark moved, and the ISR
// change that is wanted now, if any. A fetch of a broker that is no replica is
// ignored.
func (l *Leader) Fetched(from kafka.BrokerID, syncedEnd kafka.Offset, now time.Time) (bool, *Change) {
	r := l.find(from)
	if r == nil || from == l.self {
		return false, nil
	}
	r.syncedEnd = syncedEnd
	switch {
	case syncedEnd >= l.logEndOffset:
		r.lastCaughtUp = now
	case syncedEnd >= r.lastFetchEnd && !r.lastFetchTime.IsZero():
		r.lastCaughtUp = later(r.lastCaughtUp, r.lastFetchTime)
	}
	r.lastFetchEnd, r.lastFetchTime = l.logEndOffset, now
	moved := l.maybeAdvance()
	if l.pending == nil && !slices.Contains(l.isr, from) && syncedEnd >= l.highWatermark &&
		r.caughtUpWithin(l.maxLag, now) {
		l.pending = append(slices.Clone(l.isr), from)
		l.check()
		return moved, &Change{ISR: slices.Clone(l.pending), PartitionEpoch: l.partitionEpoch}
	}
	return moved, nil
}

// Tick looks for members that have fallen behind and returns the smaller ISR
// that is wanted, if any. The returned members stay in the ISR until Committed.
func (l *Leader) Tick(now time.Time) *Change {
	if l.pending != nil {
		return nil
	}
	var stay []kafka.BrokerID
	for _, id := range l.isr {
		r := l.find(id)
		if id == l.self || r.syncedEnd >= l.logEndOffset || r.caughtUpWithin(l.maxLag, now) {
			stay = append(stay, id)
		}
	}
	if len(stay) == len(l.isr) {
		return nil
	}
	l.pending = stay
	return &Change{ISR: slices.Clone(stay), PartitionEpoch: l.partitionEpoch}
}

// Committed records what the controller decided: the ISR of partitionEpoch. An
// older decision is ignored. It reports whether the high watermark moved.
func (l *Leader) Committed(isr []kafka.BrokerID, partitionEpoch kafka.PartitionEpoch) bool {
	if partitionEpoch <= l.partitionEpoch {
		return false
	}
	l.isr, l.pending, l.partitionEpoch = slices.Clone(isr), nil, partitionEpoch
	l.check()
	return l.maybeAdvance()
}

// Refused records that the wanted change did not happen and may be asked for
// again.
func (l *Leader) Refused() { l.pending = nil }

// SyncedEnd returns what a replica has acknowledged, or kafka.NoOffset.
func (l *Leader) SyncedEnd(id kafka.BrokerID) kafka.Offset {
	if r := l.find(id); r != nil {
		return r.syncedEnd
	}
	return kafka.NoOffset
}

// maybeAdvance raises the high watermark to the least synced end of the
// maximal ISR and reports whether it moved.
func (l *Leader) maybeAdvance() bool {
	least := l.find(l.self).syncedEnd
	for i := range l.replicas {
		r := &l.replicas[i]
		if slices.Contains(l.isr, r.id) || slices.Contains(l.pending, r.id) {
			least = min(least, r.syncedEnd)
		}
	}
	if least <= l.highWatermark {
		return false
	}
	l.highWatermark = least
	return true
}

// check panics on a broken invariant.
func (l *Leader) check() {
	if l.find(l.self) == nil || !slices.Contains(l.isr, l.self) {
		panic("isr: the leader is not in its own ISR")
	}
	for _, id := range l.isr {
		if l.find(id) == nil {
			panic("isr: a member is no assigned replica")
		}
	}
}

func (l *Leader) find(id kafka.BrokerID) *replica {
	for i := range l.replicas {
		if l.replicas[i].id == id {
			return &l.replicas[i]
		}
	}
	return nil
}

func (r *replica) caughtUpWithin(maxLag time.Duration, now time.Time) bool {
	return !r.lastCaughtUp.IsZero() && now.Sub(r.lastCaughtUp) <= maxLag
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
