package partition

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Following is what the metadata image says about a partition that another
// broker leads, or none: then Leader is kafka.NoBroker.
type Following struct {
	Leader      kafka.BrokerID
	LeaderEpoch kafka.LeaderEpoch
	// Who may be elected, as of a partition epoch: the ISR, and who is eligible beside it
	// (KIP-966).
	ISR, Eligible  []kafka.BrokerID
	PartitionEpoch kafka.PartitionEpoch
}

// place is what the metadata says of a follower's partition beside its leader.
type place struct {
	isr, eligible  []kafka.BrokerID
	partitionEpoch kafka.PartitionEpoch
}

// Contact is when a leader was last heard of, shared by the partitions that are
// fetched from it together. It keeps the monotonic reading: a wall clock that is set back
// must not make an old sign of life a fresh one.
type Contact struct{ at atomic.Pointer[time.Time] }

// Heard notes an answer of the leader.
func (c *Contact) Heard(now time.Time) { c.at.Store(&now) }

// BecomeFollower makes the replica follow a leader, or wait for one. It reports
// whether that is news.
func (p *Partition) BecomeFollower(f Following) (bool, error) {
	p.role.Lock()
	fresh, err := p.becomeFollowerLocked(f)
	p.role.Unlock()
	if fresh {
		p.wakeAll()
	}
	return fresh, err
}

func (p *Partition) becomeFollowerLocked(f Following) (bool, error) {
	switch {
	case p.deleted:
		return false, ErrDeleted
	case f.LeaderEpoch < p.leaderEpoch:
		return false, &FencedEpochError{f.LeaderEpoch, p.leaderEpoch}
	}
	p.place = place{f.ISR, f.Eligible, f.PartitionEpoch}
	if p.standing == following && p.leader == f.Leader && p.leaderEpoch == f.LeaderEpoch {
		return false, nil
	}
	p.standing, p.leader, p.leaderEpoch = following, f.Leader, f.LeaderEpoch
	p.shared.Store(true)
	p.leadNoMoreLocked()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	// A replica that starts knows at least this much of the high watermark.
	p.raiseLocked(p.log.LogStartOffset())
	return true, nil
}

// Following returns whom the replica follows; false if it follows nobody.
func (p *Partition) Following() (Following, bool) {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.followingLocked(), p.standing == following && p.leader != kafka.NoBroker && !p.broken.Load()
}

func (p *Partition) followingLocked() Following {
	return Following{
		Leader: p.leader, LeaderEpoch: p.leaderEpoch,
		ISR: p.place.isr, Eligible: p.place.eligible, PartitionEpoch: p.place.partitionEpoch,
	}
}

// followsLocked returns nil if the replica follows a leader of that epoch.
func (p *Partition) followsLocked(epoch kafka.LeaderEpoch) error {
	switch {
	case p.deleted:
		return ErrDeleted
	case p.standing != following || p.leaderEpoch != epoch || p.leader == kafka.NoBroker || p.broken.Load():
		return ErrNotFollower
	}
	return nil
}

// Position is where a follower fetches on.
type Position struct {
	// Offset is the end of its log. It may be told to a leader only while the log
	// is synced up to there.
	Offset kafka.Offset
	Synced bool
	// LastEpoch is the leader epoch of the record before Offset, or
	// kafka.NoLeaderEpoch if the log has none.
	LastEpoch      kafka.LeaderEpoch
	LogStartOffset kafka.Offset
	HighWatermark  kafka.Offset
}

// Position returns where to fetch on under a leader epoch.
func (p *Partition) Position(epoch kafka.LeaderEpoch) (Position, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.followsLocked(epoch); err != nil {
		return Position{}, err
	}
	if !p.aside.mayFetch(epoch) {
		return Position{}, ErrDamaged
	}
	at := Position{
		Offset: p.log.LogEndOffset(), LogStartOffset: p.log.LogStartOffset(),
		LastEpoch: kafka.NoLeaderEpoch, HighWatermark: p.HighWatermark(),
	}
	at.Synced = p.log.ReportedEnd() >= at.Offset
	if at.Offset > at.LogStartOffset {
		var err error
		if at.LastEpoch, err = p.log.EpochAt(at.Offset - 1); err != nil {
			return Position{}, fmt.Errorf("leader epoch of the last record of %s-%d: %w", p.topic, p.id.Partition, err)
		}
	}
	return at, nil
}

// Fetched is what a leader answered to a fetch of a partition.
type Fetched struct {
	// Batches continue the follower's log; those that it has already are left out.
	Batches        []record.Batch
	HighWatermark  kafka.Offset // The leader's.
	LogStartOffset kafka.Offset // The leader's.
}

// AppendAsFollower appends what the leader of an epoch answered, as it is, and
// follows the leader's high watermark and log start offset. The bytes are not
// kept. It returns where the log ends now; what it appended is synced later
// (AwaitSynced).
func (p *Partition) AppendAsFollower(epoch kafka.LeaderEpoch, f Fetched) (kafka.Offset, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.followsLocked(epoch); err != nil {
		return 0, err
	}
	end := p.log.LogEndOffset()
	for len(f.Batches) > 0 && f.Batches[0].LastOffset() < end {
		f.Batches = f.Batches[1:]
	}
	if len(f.Batches) > 0 {
		if last := f.Batches[len(f.Batches)-1]; last.LeaderEpoch() > epoch {
			return end, fmt.Errorf("batch at %d of %s-%d has leader epoch %d, and its leader's is %d",
				last.BaseOffset(), p.topic, p.id.Partition, last.LeaderEpoch(), epoch)
		}
		if err := p.log.AppendAsFollower(f.Batches); err != nil {
			return end, err
		}
		end = p.log.LogEndOffset()
		p.synced.advance(p.log.ReportedEnd())
		p.appended.advance(end)
	}
	p.behind.Store(max(0, int64(f.HighWatermark-end)))
	p.follow(min(f.HighWatermark, end))
	if start := min(f.LogStartOffset, p.HighWatermark()); start > p.log.LogStartOffset() {
		if err := p.log.FollowLogStart(start); err != nil {
			return end, err
		}
	}
	return end, nil
}

// follow raises a follower's high watermark.
func (p *Partition) follow(highWatermark kafka.Offset) {
	p.progress.mu.Lock()
	moved := p.raiseLocked(highWatermark)
	p.progress.mu.Unlock()
	if moved {
		p.risen()
	}
}

// raiseLocked raises the high watermark; progress.mu is held.
func (p *Partition) raiseLocked(to kafka.Offset) bool {
	if int64(to) <= p.highWatermark.Load() {
		return false
	}
	p.highWatermark.Store(int64(to))
	return true
}

// EpochEnd says where a leader epoch ends in a log.
type EpochEnd struct {
	LeaderEpoch kafka.LeaderEpoch
	EndOffset   kafka.Offset
}

// Cut is what a truncation took away.
type Cut struct {
	From, To kafka.Offset // Where the log ended, and ends.
	// LostFrom is the high watermark of before, if it was above To: what lies
	// between may have been acknowledged and read. Only a leader that was elected
	// unclean lacks it.
	LostFrom kafka.Offset
}

// Lost reports whether something below the high watermark is gone.
func (c Cut) Lost() bool { return c.LostFrom > c.To }

// TruncateTo cuts the follower's log where it and its leader's part, by what the
// leader of an epoch says of its own: the epoch it has at or below that of the
// follower's last record, and where that ends there (KIP-279). Where they part
// may lie further down still: the next fetch tells.
func (p *Partition) TruncateTo(epoch kafka.LeaderEpoch, diverging EpochEnd) (Cut, error) {
	p.role.Lock()
	defer p.role.Unlock()
	if err := p.followsLocked(epoch); err != nil {
		return Cut{}, err
	}
	to := diverging.EndOffset
	if diverging.LeaderEpoch != kafka.NoLeaderEpoch {
		_, end, err := p.log.EndOffsetForEpoch(diverging.LeaderEpoch)
		if err != nil {
			return Cut{}, err
		}
		if end != kafka.NoOffset {
			to = min(to, end)
		}
	}
	return p.cutLocked(max(to, p.log.LogStartOffset()), p.log.TruncateTo)
}

// RestartAt throws the follower's log away and begins it anew at the leader's log
// start offset: all that it had is older than what the leader still has.
func (p *Partition) RestartAt(epoch kafka.LeaderEpoch, start kafka.Offset) (Cut, error) {
	p.role.Lock()
	defer p.role.Unlock()
	if err := p.followsLocked(epoch); err != nil {
		return Cut{}, err
	}
	return p.cutLocked(start, p.log.RestartAt)
}

func (p *Partition) cutLocked(to kafka.Offset, cut func(kafka.Offset) error) (Cut, error) {
	c := Cut{From: p.log.LogEndOffset(), LostFrom: p.HighWatermark()}
	if c.LostFrom > to && p.losing != nil {
		p.losing(p, to, c.LostFrom)
	}
	if err := p.lowerHighWatermarkTo(to); err != nil {
		c.To = c.From
		return c, err
	}
	err := cut(to)
	c.To = p.log.LogEndOffset()
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if c.LostFrom > c.To {
		p.highWatermark.Store(int64(c.To))
	}
	p.raiseLocked(p.log.LogStartOffset())
	return c, err
}

// AwaitSynced returns when the follower's log is synced up to target. It fails
// when ctx ends and when the replica does not follow the leader of that epoch any
// more.
func (p *Partition) AwaitSynced(ctx context.Context, epoch kafka.LeaderEpoch, target kafka.Offset) error {
	err := await(ctx, nil, func(w *Waiter, woken Waker) bool {
		return p.WaitSynced(w, woken, target)
	}, func() error { return p.follows(epoch) }, p.StopWaiting)
	if err != nil {
		return err
	}
	return p.follows(epoch)
}

func (p *Partition) follows(epoch kafka.LeaderEpoch) error {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.followsLocked(epoch)
}

// InContact says what tells when the leader of an epoch was last heard of; nil if
// it is not fetched from.
func (p *Partition) InContact(epoch kafka.LeaderEpoch, c *Contact) {
	p.role.RLock()
	defer p.role.RUnlock()
	if p.followsLocked(epoch) == nil {
		p.contact.Store(c)
	}
}

// Heard returns when the high watermark was last known to be the leader's, or a
// moment before: zero if it never was. A leader knows it itself.
func (p *Partition) Heard() time.Time {
	if c := p.contact.Load(); c != nil {
		if at := c.at.Load(); at != nil {
			return *at
		}
	}
	return time.Time{}
}
