package partition

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// DeleteRecords is done when no replica has the records any more that could lead next:
// the low watermark, the least log start offset of the replicas that are alive, has
// reached what was asked for. Followers take the leader's log start offset over with
// their next answer and say so in the fetch after it.

// lowWatermarkCheck is how often somebody who waits looks whether a replica that holds
// the low watermark back has failed, of which nobody is woken.
const lowWatermarkCheck = 100 * time.Millisecond

// LowWatermark returns the offset below which no replica that is alive has records any
// more, kafka.NoOffset while that is not known. It fails where this broker does not lead.
func (p *Partition) LowWatermark() (kafka.Offset, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(kafka.NoLeaderEpoch); err != nil {
		return kafka.NoOffset, err
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	return p.lowWatermarkLocked(), nil
}

func (p *Partition) lowWatermarkLocked() kafka.Offset {
	return p.progress.leader.LowWatermark(p.log.LogStartOffset(), p.isAlive)
}

func (p *Partition) isAlive(id kafka.BrokerID) bool { return p.alive == nil || p.alive(id) }

// noteLogStart wakes who waits for the low watermark after a fetch; role is held, and the
// broker leads. It costs one load where nobody waits.
func (p *Partition) noteLogStart() {
	if !p.deleting.any.Load() {
		return
	}
	p.progress.mu.Lock()
	low := p.lowWatermarkLocked()
	p.progress.mu.Unlock()
	p.deleting.advance(low)
}

// DeleteRecords makes everything below to unreadable here, durably, and tells the
// followers. See AwaitLowWatermark.
func (p *Partition) DeleteRecords(to kafka.Offset) error {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(kafka.NoLeaderEpoch); err != nil {
		return err
	}
	if err := p.log.DeleteRecords(to); err != nil {
		return err
	}
	p.appended.wakeAll() // Followers' fetches are answered with the new log start offset.
	return nil
}

// AwaitLowWatermark returns when the low watermark has reached target, and what it is.
// It fails when ctx ends and when this broker does not lead any more.
func (p *Partition) AwaitLowWatermark(ctx context.Context, target kafka.Offset) (kafka.Offset, error) {
	var w Waiter
	woken := make(wakeup, 1)
	ticker := time.NewTicker(lowWatermarkCheck)
	defer ticker.Stop()
	for {
		p.deleting.add(&w, woken, target, func() kafka.Offset { return kafka.NoOffset })
		low, err := p.LowWatermark()
		if err != nil || low >= target {
			p.StopWaiting(&w)
			return low, err
		}
		select {
		case <-woken:
		case <-ticker.C:
		case <-ctx.Done():
			p.StopWaiting(&w)
			return low, ctx.Err()
		}
		p.StopWaiting(&w)
	}
}
