package partition

import (
	"slices"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
)

// ReplicaFetch is a follower's fetch.
type ReplicaFetch struct {
	Replica     kafka.BrokerID
	BrokerEpoch kafka.BrokerEpoch
	// LeaderEpoch is the epoch under which it follows.
	LeaderEpoch kafka.LeaderEpoch
	// From is its synced log end, and LastEpoch the epoch of the record before, or
	// kafka.NoLeaderEpoch.
	From      kafka.Offset
	LastEpoch kafka.LeaderEpoch
	// LogStartOffset is where its log begins; kafka.NoOffset if it did not say.
	LogStartOffset kafka.Offset
	// Answers is the round that it answers, if any.
	Answers     kafka.Round
	MaxBytes    int
	MinOneBatch bool // Return the first batch even if it is larger than MaxBytes.
	Now         time.Time
}

// ReadAsReplica answers a follower: with whole batches from where its log ends, up
// to the end of this one, or with where the two part. A fetch from where both agree
// acknowledges everything below. The caller releases the result's chunk.
func (p *Partition) ReadAsReplica(f ReplicaFetch) (ReadResult, error) {
	r, wants, err := p.readAsReplica(f)
	if wants && p.wants != nil {
		p.wants(p)
	}
	return r, err
}

func (p *Partition) readAsReplica(f ReplicaFetch) (r ReadResult, wants bool, err error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(f.LeaderEpoch); err != nil {
		return r, false, err
	}
	end := p.log.LogEndOffset()
	r.LogStartOffset, r.LogEndOffset = p.log.LogStartOffset(), end
	r.HighWatermark = p.HighWatermark()
	r.LastStableOffset = p.log.StableBelow(r.HighWatermark)
	if f.LastEpoch > p.leaderEpoch {
		// Somebody led after this one, and the follower has records of that. It knows of no
		// other leader than this one all the same: it has just started. Nothing of it may be cut.
		return r, false, &UnknownEpochError{Requested: f.LastEpoch, Current: p.leaderEpoch}
	}
	// A log that ends in a record of this very epoch is a prefix of this one.
	if f.LastEpoch != kafka.NoLeaderEpoch && (f.LastEpoch != p.leaderEpoch || f.From > end) {
		if r.Diverging, err = p.parting(f); err != nil || r.Diverging != nil {
			return r, false, err
		}
	}
	if f.From < r.LogStartOffset || f.From > end {
		return r, false, &commitlog.OffsetOutOfRangeError{Offset: f.From, Start: r.LogStartOffset, End: end}
	}
	moved, wants, err := p.acknowledge(f, end, &r)
	if err != nil {
		return r, false, err
	}
	if moved {
		p.risen()
	}
	p.rounds.advance()
	r.HighWatermark = p.HighWatermark()
	r.LastStableOffset = p.log.StableBelow(r.HighWatermark)
	p.noteLogStart()
	may, counts := p.sends(r.Outside, f.Now)
	if f.From < end && may {
		if r.Chunk, err = p.log.Read(f.From, f.MaxBytes, end, f.MinOneBatch); counts {
			p.throttles.Leader.Spend(r.Chunk.Size(), f.Now)
		}
	}
	return r, wants, err
}

// parting returns where a follower's log and this one part, nil if one is a prefix
// of the other.
func (p *Partition) parting(f ReplicaFetch) (*EpochEnd, error) {
	epoch, end, err := p.log.EndOffsetForEpoch(f.LastEpoch)
	switch {
	case err != nil:
		return nil, err
	case epoch == kafka.NoLeaderEpoch || end == kafka.NoOffset:
		return nil, &commitlog.OffsetOutOfRangeError{
			Offset: f.From, Start: p.log.LogStartOffset(), End: p.log.LogEndOffset(),
		}
	case epoch < f.LastEpoch || end < f.From:
		return &EpochEnd{epoch, end}, nil
	}
	return nil, nil
}

// acknowledge counts a fetch.
func (p *Partition) acknowledge(f ReplicaFetch, end kafka.Offset, r *ReadResult) (moved, wants bool, err error) {
	eligible := p.eligible == nil || p.eligible(f.Replica, f.BrokerEpoch)
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	fetch := isr.Fetch{
		From: f.Replica, BrokerEpoch: f.BrokerEpoch, SyncedEnd: f.From, LogEndOffset: end,
		LogStartOffset: f.LogStartOffset, Eligible: eligible, Now: f.Now,
	}
	if f.Answers.LeaderEpoch == p.leaderEpoch {
		fetch.Answers = f.Answers.Number
	}
	moved, change, err := p.progress.leader.Fetched(fetch)
	if moved || fetch.Answers > 0 {
		p.publishLocked()
	}
	r.Asked = p.progress.leader.Asked()
	if n := p.progress.leader.ToAnswer(f.Replica); n > 0 {
		r.Round = kafka.Round{LeaderEpoch: p.leaderEpoch, Number: n}
	}
	r.Outside = !slices.Contains(p.progress.leader.ISR(), f.Replica)
	return moved, change != nil, err
}

// WantedISR is an ISR that the leader of an epoch asks the controller for.
type WantedISR struct {
	LeaderEpoch kafka.LeaderEpoch
	isr.Change
}

// WantedISR returns the change that waits for a decision, if any.
func (p *Partition) WantedISR() (WantedISR, bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.standing != leading || p.progress.leader == nil {
		return p.wantsOutLocked()
	}
	change := p.progress.leader.Wanted()
	if change == nil {
		return WantedISR{}, false
	}
	return WantedISR{p.leaderEpoch, *change}, true
}

// mayLetIn is told of brokers that are not fenced, as they may have been until now. Their
// fetches may have come before and wait for records, and only a fetch brings a follower
// into the ISR: so they are looked at again.
func (p *Partition) mayLetIn(back []kafka.BrokerID) {
	if p.isOutside(back) {
		p.appended.wakeAll()
	}
}

// isOutside reports whether this broker leads and one of the others is a replica outside
// of the ISR.
func (p *Partition) isOutside(others []kafka.BrokerID) bool {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	l := p.progress.leader
	return p.standing == leading && l != nil && slices.ContainsFunc(others, func(id kafka.BrokerID) bool {
		return l.IsReplica(id) && !slices.Contains(l.ISR(), id)
	})
}

// CheckLag looks for members of the ISR that have fallen behind, or are severed from this
// broker, and reports whether there may be any, now or later: the replica leads others.
func (p *Partition) CheckLag(now time.Time, unheard isr.Unheard) bool {
	leads, wants := p.checkLag(now, unheard)
	if wants && p.wants != nil {
		p.wants(p)
	}
	return leads
}

// Lacks reports whether some record is not below the high watermark yet. It costs next to
// nothing.
func (p *Partition) Lacks() bool { return p.HighWatermark() < p.log.LogEndOffset() }

func (p *Partition) checkLag(now time.Time, unheard isr.Unheard) (leads, wants bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.standing != leading || p.progress.leader == nil {
		return false, false
	}
	l := p.progress.leader
	return l.Replicas() > 1, l.Tick(p.log.LogEndOffset(), now, unheard) != nil
}

// ISRCommitted takes in what the controller answered to the leader of an epoch. A smaller
// ISR counts when the metadata has it, a moment later: only that says who is eligible
// beside it, and the high watermark may have to stand still for them.
func (p *Partition) ISRCommitted(under kafka.LeaderEpoch, members []kafka.BrokerID, at kafka.PartitionEpoch) {
	p.role.RLock()
	moved := p.decided(under, func(l *isr.Leader) bool {
		left := slices.ContainsFunc(l.ISR(), func(id kafka.BrokerID) bool { return !slices.Contains(members, id) })
		return !left && l.Committed(nil, members, at)
	})
	p.role.RUnlock()
	p.regrouped(moved)
}

// ISRRefused notes that a wanted change did not happen. Those that it would have
// let in are not wanted again before a time.
func (p *Partition) ISRRefused(w WantedISR, notBefore time.Time) {
	p.role.RLock()
	p.decided(w.LeaderEpoch, func(l *isr.Leader) bool {
		l.Refused(w.PartitionEpoch, notBefore)
		return false
	})
	p.role.RUnlock()
	p.rounds.advance()
}

// decided passes a decision on to the leader of an epoch; role is held.
func (p *Partition) decided(under kafka.LeaderEpoch, fn func(*isr.Leader) bool) bool {
	if p.leadsLocked(under) != nil {
		return false
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	moved := fn(p.progress.leader)
	p.publishLocked()
	return moved
}

// Nearest returns a replica in sync that a reader with its own idea of distance
// should read from an offset on: the first, among those that near picks, with the
// most records. The leader itself wins if it is near. It returns false if no such
// replica is there, or this broker does not lead (KIP-392).
func (p *Partition) Nearest(near func(kafka.BrokerID) bool, from kafka.Offset) (kafka.BrokerID, bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if p.standing != leading || p.progress.leader == nil {
		return kafka.NoBroker, false
	}
	if near(p.self) {
		return p.self, true
	}
	best, most := kafka.NoBroker, from-1
	for _, id := range p.progress.leader.ISR() {
		if end := p.progress.leader.SyncedEnd(id); end > most && id != p.self && near(id) {
			best, most = id, end
		}
	}
	return best, best != kafka.NoBroker
}
