package controlplane

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// dutyTick is how often the active controller looks at brokers' sessions.
const dutyTick = 50 * time.Millisecond

// preferAtOnce is how many partitions go back to their preferred leaders at a time.
const preferAtOnce = 200

// Run does what the active controller does by itself, while this node is it: it
// fences brokers that have failed, and gives partitions back to their preferred
// leaders. A node that is alone does nothing, and so does one that does not lead.
func (c *ControlPlane) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		elected, changed := c.leader()
		if c.remote != nil && elected.leader == c.controller.Self {
			c.govern(ctx, elected.controllerEpoch, changed)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// govern does the active controller's duty in one controller epoch.
func (c *ControlPlane) govern(ctx context.Context, controllerEpoch uint64, changed <-chan struct{}) {
	if !c.begin(ctx, controllerEpoch, changed) {
		return
	}
	ticker := time.NewTicker(dutyTick)
	defer ticker.Stop()
	preferred := time.Now()
	for {
		news, published := c.duty.news.wait(), c.published.wait()
		if c.isOnlyBroker() { // Then there is nobody to look after.
			select {
			case <-published:
				continue
			case <-changed:
				return
			case <-ctx.Done():
				return
			}
		}
		now := time.Now()
		if ids := c.duty.expired(controllerEpoch, now); len(ids) > 0 {
			c.fence(ctx, controllerEpoch)
		}
		if now.Sub(preferred) >= c.BrokerConfig().LeaderImbalanceCheckInterval {
			c.rebalance(ctx)
			preferred = time.Now()
		}
		select {
		case <-ticker.C:
		case <-news:
		case <-changed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// isOnlyBroker says that no other broker is registered.
func (c *ControlPlane) isOnlyBroker() bool {
	brokers := c.Image().Brokers()
	return len(brokers) == 1 && brokers[0].ID == c.controller.Self
}

// begin makes a first decision of no consequence, which waits until everything
// decided before is known here, and takes over.
func (c *ControlPlane) begin(ctx context.Context, controllerEpoch uint64, changed <-chan struct{}) bool {
	for {
		_, _, err := decide(ctx, c, "take over", struct{}{},
			func(*controller.State, struct{}) (struct{}, []metadata.Record) { return struct{}{}, nil })
		if err == nil && c.duty.with(controllerEpoch, func(*controller.Liveness) {}) {
			if c.duty.announced != controllerEpoch { // It begins anew when it learns more of its own lead.
				c.duty.announced = controllerEpoch
				c.log.Info("active controller", "node", c.controller.Self, "controller_epoch", controllerEpoch)
			}
			return true
		}
		timer := time.NewTimer(firstPause)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// fence fences the brokers whose sessions are over. Who was heard of until the
// decision is made is let be.
func (c *ControlPlane) fence(ctx context.Context, controllerEpoch uint64) {
	type result struct {
		over, fenced []kafka.BrokerID
		partitions   int
	}
	done, _, err := decide(ctx, c, "fence brokers", struct{}{},
		func(s *controller.State, _ struct{}) (r result, records []metadata.Record) {
			c.duty.with(controllerEpoch, func(l *controller.Liveness) {
				r.over = l.Overdue(time.Now())
				c.duty.fencing = len(r.over) > 0
			})
			records = s.FenceBrokers(r.over)
			r.partitions = moved(records)
			for _, record := range records {
				if b, ok := record.(*metadata.BrokerChanged); ok {
					r.fenced = append(r.fenced, b.ID)
				}
			}
			return r, records
		})
	c.duty.with(controllerEpoch, func(*controller.Liveness) { c.duty.fencing = false })
	if err != nil {
		c.log.Warn("brokers are not fenced", "error", err)
		return
	}
	for _, id := range done.over {
		if b, ok := c.Image().Broker(id); ok && !b.Fenced {
			continue // More of its partitions are to be moved first.
		}
		c.duty.with(controllerEpoch, func(l *controller.Liveness) { l.Forget(id, time.Now()) })
	}
	if len(done.fenced) > 0 || done.partitions > 0 {
		c.log.Warn("brokers failed and are fenced", "brokers", done.fenced, "partitions", done.partitions)
	}
}

// moved counts the partitions that records change.
func moved(records []metadata.Record) (n int) {
	for _, r := range records {
		if r, ok := r.(*metadata.PartitionsChanged); ok {
			n += len(r.Changes)
		}
	}
	return n
}

// rebalance gives partitions back to their preferred leaders, and leaders to
// partitions that could have one.
func (c *ControlPlane) rebalance(ctx context.Context) {
	type result struct{ settled, preferred int }
	prefer := c.BrokerConfig().AutoLeaderRebalanceEnable
	done, _, err := decide(ctx, c, "balance leaders", struct{}{},
		func(s *controller.State, _ struct{}) (r result, records []metadata.Record) {
			if records = s.SettleLeaderless(); len(records) > 0 {
				r.settled = moved(records)
				return r, records
			}
			if prefer {
				records = s.PreferLeaders(preferAtOnce)
				r.preferred = moved(records)
			}
			return r, records
		})
	switch {
	case err != nil:
		c.log.Warn("leaders are not balanced", "error", err)
	case done.settled > 0:
		c.log.Warn("leaders elected for partitions that had none", "partitions", done.settled)
	case done.preferred > 0:
		c.log.Info("partitions are back at their preferred leaders", "partitions", done.preferred)
	}
}
