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
//	it stands still while the ISR is smaller than min.insync.replicas, and while
//	replicas outside of the ISR are eligible to lead (KIP-966)
//	isr is a subset of maximalISR, which is a subset of the assigned replicas
//	the leader itself is always in both
//
// What would break without the rules that look odd:
//
//   - A new leader knows a high watermark that may be older than what readers
//     saw of its predecessor. A follower is let in only when it has all that the
//     leader had when its epoch began: comparing with the high watermark alone
//     would let one in that lacks acknowledged records, and elect it later.
//   - A change that nobody has answered is neither forgotten nor taken for done:
//     the controller may have granted it, and the answer may be lost.
//   - The high watermark moves on while fewer replicas are in sync than
//     min.insync.replicas asks for, and then the last of them fails too: one of those
//     that left before it could not lead without losing what readers saw. So it stands
//     still, and they can (KIP-966). Who is eligible the metadata says, not an answer
//     of the controller: a smaller ISR counts only when both are known.
//   - A fetch of an earlier registration of a broker (KIP-903) may have been on
//     its way since before that broker lost its disk. It counts for nothing.
//   - A leader that can't hear the controller asks those that could have been elected in
//     its place (Ask). Who is not in the ISR can't; who is eligible beside it can, and who
//     is wanted in may be in it already.
//
// Deliberately absent: fetching, timers, and any word to the controller.
package isr

import (
	"errors"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// NoBrokerEpoch stands for a broker epoch that is not known.
const NoBrokerEpoch kafka.BrokerEpoch = -1

// The reasons for which a fetch counts for nothing.
var (
	ErrNotReplica = errors.New("the broker is no replica of the partition")
	ErrStaleFetch = errors.New("the fetch is of an earlier registration of the broker")
)

// Options describe the partition at the moment this broker became its leader.
type Options struct {
	Self           kafka.BrokerID
	Replicas       []kafka.BrokerID // Assigned replicas; copied.
	ISR            []kafka.BrokerID // Committed ISR; copied.
	Eligible       []kafka.BrokerID // Who may lead beside the ISR; copied.
	MinInSync      int              // min.insync.replicas.
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
	brokerEpoch  kafka.BrokerEpoch // Of its last fetch.
	syncedEnd    kafka.Offset      // Unknown is kafka.NoOffset.
	logStart     kafka.Offset      // The same.
	lastCaughtUp time.Time
	// lastFetchEnd is the leader's log end at the previous fetch: a follower
	// that reaches it was caught up at the time of that fetch, however fast
	// the log grows.
	lastFetchEnd  kafka.Offset
	lastFetchTime time.Time
	// notBefore is when it may be wanted in again after a refusal.
	notBefore time.Time
	// answered is the last round that it has answered: see Ask.
	answered int64
}

// Member is a member of an ISR, with the registration that the leader knows it
// by, if any.
type Member struct {
	ID          kafka.BrokerID
	BrokerEpoch kafka.BrokerEpoch
}

// Change is an ISR that the leader wants; the controller compares and sets it
// on PartitionEpoch.
type Change struct {
	ISR            []Member
	PartitionEpoch kafka.PartitionEpoch
}

// Fetch is a follower's fetch as the leader counts it.
type Fetch struct {
	From        kafka.BrokerID
	BrokerEpoch kafka.BrokerEpoch
	// SyncedEnd is where it fetches on: everything below is on its disk.
	SyncedEnd kafka.Offset
	// LogStartOffset is where its log begins; kafka.NoOffset if it did not say.
	LogStartOffset kafka.Offset
	// LogEndOffset is where the leader's log ends now.
	LogEndOffset kafka.Offset
	// Eligible says that the broker may become a member: it is not fenced, and
	// BrokerEpoch is its registration now.
	Eligible bool
	// Answers is a round that the broker was told of before it sent the fetch, 0 for none.
	Answers int64
	Now     time.Time
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
	// epochStart is where the log ended when this epoch began. Whatever was
	// acknowledged under an earlier epoch lies below.
	epochStart kafka.Offset
	maxLag     time.Duration
	minInSync  int
	eligible   []kafka.BrokerID
	// resigning says that the leader wants to be out of the ISR, and others to lead;
	// after a refusal not before a time.
	resigning       bool
	resignNotBefore time.Time
	// asked is the last round that was begun.
	asked int64
}

// NewLeader starts a leader's view.
func NewLeader(o Options) *Leader {
	l := &Leader{
		self:           o.Self,
		isr:            slices.Clone(o.ISR),
		partitionEpoch: o.PartitionEpoch,
		highWatermark:  o.HighWatermark,
		logEndOffset:   o.LogEndOffset,
		epochStart:     o.LogEndOffset,
		maxLag:         o.MaxLag,
		minInSync:      o.MinInSync,
		eligible:       slices.Clone(o.Eligible),
	}
	for _, id := range o.Replicas {
		r := newReplica(id)
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

func newReplica(id kafka.BrokerID) replica {
	return replica{id: id, syncedEnd: kafka.NoOffset, logStart: kafka.NoOffset, brokerEpoch: NoBrokerEpoch}
}

// HighWatermark returns the first offset not known to be on every member of
// the maximal ISR.
func (l *Leader) HighWatermark() kafka.Offset { return l.highWatermark }

// Settled reports whether the high watermark has reached what the log had when
// this epoch began. Before that it may be lower than what readers were told by
// the leader before (KIP-207).
func (l *Leader) Settled() bool { return l.highWatermark >= l.epochStart }

// ISR returns the committed ISR; the caller must not change it.
func (l *Leader) ISR() []kafka.BrokerID { return l.isr }

// InSync returns how many replicas the committed ISR has: what
// min.insync.replicas is compared with.
func (l *Leader) InSync() int { return len(l.isr) }

// Replicas returns how many replicas are assigned.
func (l *Leader) Replicas() int { return len(l.replicas) }

// IsReplica reports whether a broker is an assigned replica.
func (l *Leader) IsReplica(id kafka.BrokerID) bool { return l.find(id) != nil }

// SetMaxLag replaces replica.lag.time.max.ms.
func (l *Leader) SetMaxLag(d time.Duration) { l.maxLag = d }

// Appended records that the leader's log now ends at logEndOffset and that
// everything below syncedEnd is on the leader's disk. It reports whether the
// high watermark moved.
func (l *Leader) Appended(logEndOffset, syncedEnd kafka.Offset) bool {
	l.logEndOffset = max(l.logEndOffset, logEndOffset)
	self := l.find(l.self)
	self.syncedEnd = max(self.syncedEnd, syncedEnd)
	return l.maybeAdvance()
}

// Fetched records a follower's fetch, which acknowledges everything below its
// synced end. It reports whether the high watermark moved, and the ISR change
// that is wanted from now on, if any.
func (l *Leader) Fetched(f Fetch) (moved bool, wanted *Change, err error) {
	r := l.find(f.From)
	switch {
	case r == nil || f.From == l.self:
		return false, nil, ErrNotReplica
	case f.BrokerEpoch < r.brokerEpoch:
		return false, nil, ErrStaleFetch
	}
	l.logEndOffset = max(l.logEndOffset, f.LogEndOffset)
	r.brokerEpoch, r.syncedEnd, r.logStart = f.BrokerEpoch, f.SyncedEnd, f.LogStartOffset
	r.answered = max(r.answered, f.Answers)
	switch {
	case f.SyncedEnd >= l.logEndOffset:
		r.lastCaughtUp = f.Now
	case f.SyncedEnd >= r.lastFetchEnd && !r.lastFetchTime.IsZero():
		r.lastCaughtUp = later(r.lastCaughtUp, r.lastFetchTime)
	}
	r.lastFetchEnd, r.lastFetchTime = l.logEndOffset, f.Now
	moved = l.maybeAdvance()
	if l.pending == nil && f.Eligible && !slices.Contains(l.isr, f.From) && l.isInSync(r, f.Now) {
		l.pending = append(slices.Clone(l.isr), f.From)
		l.check()
		return moved, l.Wanted(), nil
	}
	return moved, l.maybeResign(f.Now), nil
}

// isInSync reports whether a follower may join: it has everything that can have
// been acknowledged, under this leader or before it, and keeps up.
func (l *Leader) isInSync(r *replica, now time.Time) bool {
	return r.syncedEnd >= l.highWatermark && r.syncedEnd >= l.epochStart &&
		r.caughtUpWithin(l.maxLag, now) && !now.Before(r.notBefore)
}

// Unheard says for how long a follower has had no connection to this broker; 0 if it has
// one, or never had.
type Unheard func(kafka.BrokerID) time.Duration

// The times after which a member that can't be heard holds up nobody any more: since it lost
// its last connection, and since it fetched last, or this broker leads. They are longer than
// it takes to connect again, and to hear of a leader.
const (
	unheardPatience = 500 * time.Millisecond
	silentPatience  = 2 * time.Second
)

// Tick looks for members that have fallen behind, and for those that lack records and can't
// come for them, and returns the smaller ISR that is wanted, if any. Until Committed all stay
// in the ISR. It must be called more often than the lag that is allowed.
func (l *Leader) Tick(logEndOffset kafka.Offset, now time.Time, unheard Unheard) *Change {
	l.logEndOffset = max(l.logEndOffset, logEndOffset)
	for i := range l.replicas {
		// One that has everything need not fetch to say so again.
		if r := &l.replicas[i]; r.syncedEnd >= l.logEndOffset {
			r.lastCaughtUp = now
		}
	}
	if l.pending != nil {
		return nil
	}
	if c := l.maybeResign(now); c != nil {
		return c
	}
	var stay []kafka.BrokerID
	for _, id := range l.isr {
		r := l.find(id)
		if id == l.self || r.caughtUpWithin(l.maxLag, now) && !l.isSevered(r, now, unheard) {
			stay = append(stay, id)
		}
	}
	if len(stay) == len(l.isr) {
		return nil
	}
	l.pending = stay
	return l.Wanted()
}

// isSevered reports whether a follower lacks records and has no way to this broker, as where
// the link between the two is cut. The controller may hear both, and then fences neither.
func (l *Leader) isSevered(r *replica, now time.Time, unheard Unheard) bool {
	return r.syncedEnd < l.logEndOffset && unheard(r.id) >= unheardPatience &&
		now.Sub(later(r.lastCaughtUp, r.lastFetchTime)) >= silentPatience
}

// Wanted returns the change that waits for the controller's decision, or nil.
func (l *Leader) Wanted() *Change {
	if l.pending == nil {
		return nil
	}
	c := &Change{PartitionEpoch: l.partitionEpoch}
	for _, id := range l.pending {
		c.ISR = append(c.ISR, Member{id, l.find(id).brokerEpoch})
	}
	return c
}

// Committed records what the controller decided: the ISR of partitionEpoch, and
// the assigned replicas, nil for those that were. An older decision is ignored.
// It reports whether the high watermark moved.
func (l *Leader) Committed(replicas, isr []kafka.BrokerID, partitionEpoch kafka.PartitionEpoch) bool {
	if partitionEpoch <= l.partitionEpoch {
		return false
	}
	if replicas != nil {
		l.assign(replicas)
	}
	l.isr, l.pending, l.partitionEpoch = slices.Clone(isr), nil, partitionEpoch
	l.check()
	return l.maybeAdvance()
}

// Decision is the state of a partition as the metadata has it.
type Decision struct {
	Replicas       []kafka.BrokerID
	ISR            []kafka.BrokerID
	Eligible       []kafka.BrokerID
	PartitionEpoch kafka.PartitionEpoch
}

// Learned records what the metadata says; an older state is ignored. It reports whether
// the high watermark moved.
func (l *Leader) Learned(d Decision) bool {
	if d.PartitionEpoch < l.partitionEpoch {
		return false
	}
	l.eligible = slices.Clone(d.Eligible)
	if d.PartitionEpoch == l.partitionEpoch {
		return l.maybeAdvance()
	}
	return l.Committed(d.Replicas, d.ISR, d.PartitionEpoch)
}

// SetMinInSync replaces min.insync.replicas. It reports whether the high watermark
// moved.
func (l *Leader) SetMinInSync(n int) bool {
	l.minInSync = n
	return l.maybeAdvance()
}

// Resign has the leader want others to lead, and not to be in the ISR any more: with the
// change that is returned, or later, when others are in sync.
func (l *Leader) Resign(now time.Time) *Change {
	l.resigning = true
	return l.maybeResign(now)
}

func (l *Leader) maybeResign(now time.Time) *Change {
	if !l.resigning || l.pending != nil || len(l.isr) < 2 || now.Before(l.resignNotBefore) {
		return nil
	}
	l.pending = slices.DeleteFunc(slices.Clone(l.isr), func(id kafka.BrokerID) bool { return id == l.self })
	return l.Wanted()
}

// assign keeps what is known of the replicas that stay.
func (l *Leader) assign(replicas []kafka.BrokerID) {
	next := make([]replica, 0, len(replicas))
	for _, id := range replicas {
		if r := l.find(id); r != nil {
			next = append(next, *r)
		} else {
			next = append(next, newReplica(id))
		}
	}
	l.replicas = next
}

// Refused records that the change that was wanted at a partition epoch did not
// happen. Those that it would have let in are not wanted again before a time.
func (l *Leader) Refused(partitionEpoch kafka.PartitionEpoch, notBefore time.Time) {
	if partitionEpoch != l.partitionEpoch {
		return
	}
	for _, id := range l.pending {
		if !slices.Contains(l.isr, id) {
			l.find(id).notBefore = notBefore
		}
	}
	l.pending, l.resignNotBefore = nil, notBefore
}

// SyncedEnd returns what a replica has acknowledged, or kafka.NoOffset.
func (l *Leader) SyncedEnd(id kafka.BrokerID) kafka.Offset {
	if r := l.find(id); r != nil {
		return r.syncedEnd
	}
	return kafka.NoOffset
}

// held reports whether the high watermark stands still.
func (l *Leader) held() bool {
	return len(l.eligible) > 0 || len(l.isr) < min(l.minInSync, len(l.replicas))
}

// LowWatermark returns the offset below which no replica that is alive has records any
// more: the least log start offset of all, the leader's own among them. It is
// kafka.NoOffset while one has not said where its log begins.
func (l *Leader) LowWatermark(own kafka.Offset, alive func(kafka.BrokerID) bool) kafka.Offset {
	low := own
	for i := range l.replicas {
		if r := &l.replicas[i]; r.id != l.self && alive(r.id) {
			low = min(low, r.logStart)
		}
	}
	return low
}

// maybeAdvance raises the high watermark to the least synced end of the
// maximal ISR, unless it is held, and reports whether it moved.
func (l *Leader) maybeAdvance() bool {
	if l.held() {
		return false
	}
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
