package coordinator

import (
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Mark ends a transaction in a partition that this broker is the coordinator of, and
// lets the machine know. The caller gets a *shard.Outcome when the marker is committed,
// or when nobody here can tell any more; an error says that it was not written, as where
// the leader epoch is another than who sent it believed.
func (c *Coordinator[M]) Mark(
	partition int32, believed kafka.LeaderEpoch, m commitlog.Marker, to shard.Caller,
) error {
	h := c.host(partition)
	if h == nil {
		return c.notCoordinator(partition)
	}
	return h.mark(believed, m, to)
}

func (h *host[M]) mark(believed kafka.LeaderEpoch, m commitlog.Marker, to shard.Caller) error {
	return h.step(func(now time.Time) error {
		offset, err := h.partition.AppendMarker(believed, m, now)
		if err != nil {
			return fmt.Errorf("append a marker to %s-%d: %w", h.c.o.Topic, h.number, err)
		}
		if machine, ok := any(h.machine).(shard.Transactional); ok {
			machine.EndTransaction(m.ProducerID, m.Commit, offset)
		}
		h.fx.WaitFor(offset)
		h.fx.Reply(to, new(shard.Outcome))
		return nil
	})
}
