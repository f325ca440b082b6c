package partition

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// wakeup is a Waker for one goroutine that waits.
type wakeup chan struct{}

// Wake implements Waker.
func (w wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Await returns when the high watermark has reached target: what was appended
// below it under the leader epoch is as safe as acks=all promises. It fails when
// ctx ends, with context.DeadlineExceeded when expired fires, and when the
// partition is not led under that epoch any more, for then nobody here knows what
// becomes of the records.
func (p *Partition) Await(
	ctx context.Context, expired <-chan time.Time, under kafka.LeaderEpoch, target kafka.Offset,
) error {
	if p.HighWatermark() >= target {
		return p.Acknowledged(under, target)
	}
	var w Waiter
	woken := make(wakeup, 1)
	for p.Wait(&w, woken, target) {
		// Only now: a partition that resigned before the line above wakes nobody.
		if err := p.Leads(under); err != nil {
			p.StopWaiting(&w)
			return err
		}
		select {
		case <-woken:
		case <-expired:
			p.StopWaiting(&w)
			return context.DeadlineExceeded
		case <-ctx.Done():
			p.StopWaiting(&w)
			return ctx.Err()
		}
	}
	return p.Acknowledged(under, target)
}
