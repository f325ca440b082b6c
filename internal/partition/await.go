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
	err := await(ctx, expired, func(w *Waiter, woken Waker) bool { return p.Wait(w, woken, target) },
		func() error { return p.Leads(under) }, p.StopWaiting)
	if err != nil {
		return err
	}
	return p.Acknowledged(under, target)
}

// await waits until arm, which arranges for one wake, reports that there is nothing left
// to wait for. It fails when ctx ends, with context.DeadlineExceeded when expired fires,
// and when sense says that what is waited for will not come.
func await(
	ctx context.Context, expired <-chan time.Time, arm func(*Waiter, Waker) bool, sense func() error,
	stop func(*Waiter),
) error {
	var w Waiter
	woken := make(wakeup, 1)
	for arm(&w, woken) {
		// Only now: a partition that changed its role before the line above wakes nobody.
		if err := sense(); err != nil {
			stop(&w)
			return err
		}
		select {
		case <-woken:
		case <-expired:
			stop(&w)
			return context.DeadlineExceeded
		case <-ctx.Done():
			stop(&w)
			return ctx.Err()
		}
	}
	return nil
}
