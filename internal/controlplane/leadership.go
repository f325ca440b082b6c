package controlplane

import (
	"sync"
	"time"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
)

// leadership is who leads the quorum, and so is the active controller.
type leadership struct {
	leader          kafka.BrokerID
	controllerEpoch uint64 // The quorum's term.
}

// leader returns the leadership and a channel that is closed when it changes.
func (c *ControlPlane) leader() (leadership, <-chan struct{}) {
	changed := c.elected.wait()
	return *c.leadership.Load(), changed
}

// LeaderChanged tells who leads the quorum, kafka.NoBroker for nobody, and in which
// of its terms. It must be called for every change, in their order, and may be
// called on the quorum's loop. A node that is alone need not be told.
func (c *ControlPlane) LeaderChanged(leader kafka.BrokerID, controllerEpoch uint64) {
	next := leadership{leader, controllerEpoch}
	if last := c.leadership.Swap(&next); last.leader != kafka.NoBroker && last.leader != leader {
		c.duty.lost(last.leader)
	}
	c.elected.ring()
}

// ActiveController returns the active controller, and false while none is known.
func (c *ControlPlane) ActiveController() (kafka.BrokerID, bool) {
	if c.remote == nil {
		return c.controller.Self, true
	}
	leader := c.leadership.Load().leader
	return leader, leader != kafka.NoBroker
}

// leads says whether this node is the active controller as far as it knows.
func (c *ControlPlane) leads() bool {
	return c.remote == nil || c.leadership.Load().leader == c.controller.Self
}

// duty is what this node knows of the others as the active controller, and what it
// has noticed in case it becomes it.
type duty struct {
	// announced is the last controller epoch that was logged, by Run alone.
	announced uint64

	mu              sync.Mutex
	controllerEpoch uint64               // Of live.
	live            *controller.Liveness // Nil before this node first leads.
	// previous led before.
	previous kafka.BrokerID
	// fencing says that it was looked who has failed, and that what follows is not in effect
	// yet: who is heard of meanwhile is to be answered after it.
	fencing bool
	// refused has when connections to a broker were refused, the last two times.
	refused map[kafka.BrokerID][controller.Refusals]time.Time
	// news wakes whoever looks after sessions.
	news bell
}

func (d *duty) lost(leader kafka.BrokerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.previous = leader
}

// with calls f with the liveness of a controller epoch, if this node leads in it and
// has begun to.
func (d *duty) with(controllerEpoch uint64, f func(*controller.Liveness)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live == nil || d.controllerEpoch != controllerEpoch {
		return false
	}
	f(d.live)
	return true
}

// takeOver makes this node begin its duty as the active controller, the first time
// that it decides in a controller epoch. It is called on the quorum's loop.
//
// Every broker gets a fresh session. But the node that led before is missed by
// the quorum, and others may have been refused connections: what was noticed of them
// just now counts.
func (c *ControlPlane) takeOver() {
	if c.remote == nil {
		return
	}
	elected, now := *c.leadership.Load(), time.Now()
	d := &c.duty
	d.mu.Lock()
	defer d.mu.Unlock()
	if elected.leader != c.controller.Self || d.live != nil && d.controllerEpoch == elected.controllerEpoch {
		return
	}
	var brokers []kafka.BrokerID
	for _, b := range c.state.Image().Brokers() {
		if !b.Fenced {
			brokers = append(brokers, b.ID)
		}
	}
	p := c.patience()
	d.controllerEpoch, d.live, d.fencing = elected.controllerEpoch, controller.NewLiveness(p, brokers, now), false
	if d.previous != c.controller.Self {
		d.live.Down(d.previous, now)
	}
	for id, at := range d.refused {
		for _, t := range at {
			if !t.IsZero() && now.Sub(t) < p.Session {
				d.live.Refused(id, now)
			}
		}
	}
	d.news.ring()
}

func (c *ControlPlane) patience() controller.Patience {
	b := c.BrokerConfig()
	return controller.Patience{
		Session: b.SessionTimeout, Grace: min(2*b.HeartbeatInterval, b.SessionTimeout), Tick: dutyTick,
	}
}

// seen implements controller.Options.Seen.
func (c *ControlPlane) seen(id kafka.BrokerID) bool {
	c.duty.mu.Lock()
	defer c.duty.mu.Unlock()
	return c.duty.live != nil && c.duty.live.Seen(id)
}

// heard says that a broker's process was heard of. It returns false if it can't be answered
// by what is in effect.
func (c *ControlPlane) heard(id kafka.BrokerID, epoch kafka.BrokerEpoch) bool {
	fencing := false
	ok := c.duty.with(c.leadership.Load().controllerEpoch, func(l *controller.Liveness) {
		l.Heartbeat(id, epoch, time.Now())
		fencing = c.duty.fencing
	})
	return ok && !fencing
}

// ReportDown says that the connection to another broker was closed by it, or, with
// refused, that a new one was refused. It is worth telling on every node, also on
// those that do not lead: the next to lead knows then that the last is gone.
func (c *ControlPlane) ReportDown(id kafka.BrokerID, refused bool) {
	if refused {
		c.report(id, 1)
	} else {
		c.report(id, 0)
	}
}

// ReportDead says that another broker's process is known to be gone, however its
// caller knows. Otherwise it is as ReportDown.
func (c *ControlPlane) ReportDead(id kafka.BrokerID) { c.report(id, controller.Refusals) }

func (c *ControlPlane) report(id kafka.BrokerID, refusals int) {
	now := time.Now()
	if refusals > 0 {
		c.duty.mu.Lock()
		last := c.duty.refused[id]
		for range refusals {
			last = [controller.Refusals]time.Time{last[1], now}
		}
		c.duty.refused[id] = last
		c.duty.mu.Unlock()
	}
	told := c.duty.with(c.leadership.Load().controllerEpoch, func(l *controller.Liveness) {
		l.Down(id, now)
		for range refusals {
			l.Refused(id, now)
		}
	})
	if told {
		c.duty.news.ring()
	}
}

// registered forgets what was noticed of brokers' processes that others have
// taken the place of.
func (d *duty) registered(ids []kafka.BrokerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		delete(d.refused, id)
	}
}

// expired returns the brokers whose sessions are over.
func (d *duty) expired(controllerEpoch uint64, now time.Time) (ids []kafka.BrokerID) {
	d.with(controllerEpoch, func(l *controller.Liveness) { ids = l.Expired(now) })
	return ids
}
