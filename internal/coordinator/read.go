package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// Reading is a step that changes nothing and is yet to run: see BeginRead.
type Reading[M shard.Machine] struct {
	c    *Coordinator[M]
	host *host[M]
	// wait waits for the replicas' word that this broker is the coordinator still; nil
	// where nobody need be asked.
	wait  func(context.Context) error
	until time.Time
	err   error
}

// Unread is a reading that can't be done.
func Unread[M shard.Machine](err error) Reading[M] { return Reading[M]{err: err} }

// BeginRead begins a step of a partition's machine that changes nothing, whose reply
// therefore waits for no other broker. Where another may have taken over meanwhile
// (Options.Leased), the replicas of the partition are asked, at once, so that who has
// several steps to run waits once: begin them all, then run them.
func (c *Coordinator[M]) BeginRead(number int32) Reading[M] {
	h := c.host(number)
	if h == nil {
		return Unread[M](c.notCoordinator(number))
	}
	r := Reading[M]{c: c, host: h}
	if c.o.Leased != nil && !c.o.Leased() {
		r.wait, r.until = h.partition.Confirm(), time.Now().Add(partition.ConfirmTimeout)
	}
	return r
}

// Run runs the step when it is known that this broker was the coordinator when the reading
// began. What the machine knows by then is what was committed before, and perhaps more.
// On an error the step did not run.
func (r Reading[M]) Run(ctx context.Context, step func(m M, nowMs int64, fx *shard.Effects)) error {
	if r.err != nil {
		return r.err
	}
	if r.wait != nil {
		ctx, cancel := context.WithDeadline(ctx, r.until)
		err := r.wait(ctx)
		cancel()
		if err != nil && !(errors.Is(err, context.DeadlineExceeded) && r.isLeased()) {
			return r.unconfirmed(err)
		}
	}
	return r.host.do(step)
}

// isLeased says that the controller was heard of after all, and the host is its
// partition's leader.
func (r Reading[M]) isLeased() bool {
	if !r.c.o.Leased() {
		return false
	}
	_, err := r.host.partition.HighWatermark()
	return err == nil
}

func (r Reading[M]) unconfirmed(err error) error {
	return &kafka.Error{
		Code: kafka.ErrNotCoordinator,
		Message: fmt.Sprintf("this broker has not heard from the active controller for longer than its session lasts, "+
			"and not all replicas of %s-%d say that it leads still (%v): another may coordinate by now, look for the "+
			"coordinator again", r.c.o.Topic, r.host.number, err),
	}
}
