package partition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// A log with holes is as good as any but for them: its end, its leader epochs and what
// producers it knows are right, and it takes appends. So its replica does its part while
// they are mended: it leads or follows, stays in the ISR, reports its end, and is fetched
// from up to the first hole. To step aside would give up a copy of all the rest, and the
// hole is filled in the time of one fetch.
//
// What is asked for is committed: other replicas answer up to their high watermarks. So
// whoever has it may be asked, in sync or not, the leader first. What comes is held
// against the log's own leader epochs (commitlog.Mending), not believed.
//
// Where what others have does not fit, the replica needs another log. It steps aside for
// that only when its leader has shown that it can read all of the range: a log that lacks
// a few records is not thrown away for one that lacks them too.

// Peers read what other replicas of a partition have.
type Peers interface {
	// Replicas returns the other brokers that have a replica and are there, the leader
	// first.
	Replicas(*Partition) []kafka.BrokerID
	// ReadFrom returns whole batches of a broker's replica from the one that reaches
	// an offset on, below its high watermark; none if it has no more. They may be kept.
	ReadFrom(ctx context.Context, id kafka.BrokerID, p *Partition, from kafka.Offset) ([]record.Batch, error)
}

// errNothingThere says that another replica has nothing yet where a hole is.
var errNothingThere = errors.New("it knows of no committed records there")

// holesBudget bounds the time that is spent on one replica before others have their turn.
const holesBudget = 30 * time.Second

// mendHoles fills what can be filled of a log's holes, and reports whether none is left.
func (m *Mender) mendHoles(ctx context.Context, p *Partition, c *patient) bool {
	p.aside.reported.Store(false) // Damage that is found from now on is told again.
	holes, err := p.log.Holes()
	if err != nil {
		m.Logger.Error("a damaged log can't be read: trying again", "topic", p.topic,
			"partition", p.id.Partition, "error", err)
	}
	left := err != nil
	for began := m.Now(); len(holes) > 0 && ctx.Err() == nil && m.Now().Sub(began) < holesBudget; holes = holes[1:] {
		h := holes[0]
		err := m.mendHole(ctx, p, h)
		if err == nil {
			continue
		}
		left = true
		var misfit *commitlog.UnfitError
		switch {
		case errors.As(err, &misfit):
			m.Logger.Warn("a damaged replica can't be mended in its place: it needs another log", "topic", p.topic,
				"partition", p.id.Partition, "from", h.From, "to", h.To, "error", err)
			p.aside.damaged.Store(true)
			return false
		case !c.told && ctx.Err() == nil && !errors.Is(err, commitlog.ErrBusy):
			c.told = true
			m.Logger.Error("damaged records are not mended: no other replica gives them; trying again", "topic", p.topic,
				"partition", p.id.Partition, "from", h.From, "to", h.To, "error", err)
		}
	}
	if !left && len(holes) == 0 {
		return !p.aside.reported.Load()
	}
	p.aside.reported.Store(true)
	if left {
		c.wait = min(max(2*c.waited, mendRetry), lastMendRetry)
		c.waited = c.wait
	}
	return false
}

// mendHole fills one hole from whoever has what was there. A *commitlog.UnfitError says
// that the replica needs another log, and can have one.
func (m *Mender) mendHole(ctx context.Context, p *Partition, h commitlog.Hole) error {
	var failed error
	for _, id := range m.Peers.Replicas(p) {
		err := m.fill(ctx, p, h, id)
		if err == nil {
			return nil
		}
		var misfit *commitlog.UnfitError
		if errors.As(err, &misfit) && p.followsOrLeads(id) && m.reads(ctx, p, h, id) == nil {
			return fmt.Errorf("what broker %d has %w", id, err)
		}
		if errors.Is(err, commitlog.ErrBusy) {
			return err
		}
		// A misfit of a replica that does not count is no verdict.
		failed = errors.Join(failed, fmt.Errorf("broker %d: %s", id, err))
	}
	if failed == nil {
		failed = errors.New("no other replica is there")
	}
	return failed
}

// followsOrLeads reports whether a broker's log is the one to have: the leader's, or, for a
// leader, that of any other.
func (p *Partition) followsOrLeads(id kafka.BrokerID) bool {
	p.role.RLock()
	defer p.role.RUnlock()
	return p.standing == leading || p.standing == following && p.leader == id
}

// fill fills a hole from one replica.
func (m *Mender) fill(ctx context.Context, p *Partition, h commitlog.Hole, id kafka.BrokerID) error {
	mending, err := p.log.BeginMend(h)
	if err != nil {
		return err
	}
	for mending.Next() < h.To {
		next := mending.Next()
		bs, err := m.Peers.ReadFrom(ctx, id, p, next)
		if err == nil {
			err = mending.Write(bs)
		}
		if err == nil && mending.Next() == next {
			err = errNothingThere
		}
		if err != nil {
			mending.Abort()
			return err
		}
	}
	return mending.Commit(id)
}

// reads returns nil if a replica can be read from where a hole begins to where it ends.
func (m *Mender) reads(ctx context.Context, p *Partition, h commitlog.Hole, id kafka.BrokerID) error {
	for next := h.From; next < h.To; {
		bs, err := m.Peers.ReadFrom(ctx, id, p, next)
		if err != nil {
			return err
		}
		if len(bs) == 0 {
			return errNothingThere
		}
		next = max(next, bs[len(bs)-1].LastOffset()) + 1
	}
	return nil
}

// cutDamage cuts the damaged end off the log of a replica on which nobody counts. It
// reports false if there is nothing whole before it.
func (p *Partition) cutDamage() (bool, error) {
	p.role.Lock()
	defer p.role.Unlock()
	to, ok, err := p.log.DamagedFrom()
	if err != nil || !ok {
		return false, err
	}
	if err := p.lowerHighWatermarkTo(to); err != nil {
		return false, err
	}
	if err := p.log.CutDamage(); err != nil {
		return false, err
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	if end := p.log.LogEndOffset(); p.HighWatermark() > end {
		p.highWatermark.Store(int64(end))
	}
	p.raiseLocked(p.log.LogStartOffset())
	p.aside.damaged.Store(false)
	p.aside.reported.Store(p.log.Damaged() != nil)
	return true, nil
}
