package controlplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Lifecycle is this broker's way through the cluster: it joins, says that it runs,
// and leaves.
//
//	          Join                    Run, first heartbeat
//	[stopped] -----> [registered, fenced] -----------> [serving]
//	    ^                        ^  ^                    |   | Leave
//	    |                        |  +- no heartbeats ----+   v
//	    |                        |                       [shutting down]
//	    +------ Leave returns ---+--- leads nothing more ----+
//
// A node that is alone goes through it too, and none of it takes a heartbeat.
type Lifecycle struct {
	plane        *ControlPlane
	registration Registration
	incarnation  [16]byte
	clusterID    string
	epoch        atomic.Int64
	fenced       atomic.Bool

	begun  time.Time
	leased atomic.Int64 // Until when: nanoseconds since begun.
	// promised is the lease that begins when this broker knows what the controller knew.
	promised atomic.Pointer[lease]

	// held is a lock for the time of a heartbeat, and leaving is behind it. It can be
	// waited for with a context.
	held    chan struct{}
	leaving bool
}

// lease is a lease that holds until some time, in nanoseconds since begun, for who knows the
// metadata up to an index.
type lease struct{ until, upTo int64 }

// NewLifecycle returns the lifecycle of this process.
func (c *ControlPlane) NewLifecycle(r Registration) *Lifecycle {
	l := &Lifecycle{plane: c, registration: r, incarnation: c.uuid(), held: make(chan struct{}, 1), begun: time.Now()}
	l.fenced.Store(c.remote != nil)
	return l
}

// Fenced says whether the active controller holds this broker for unable to serve,
// as far as it has told.
func (l *Lifecycle) Fenced() bool { return l.fenced.Load() }

// OutOfTouch reports whether this node has not heard of the active controller for so long
// that the controller, if there is one, holds its broker for failed and has others lead.
// It is so on a broker that is cut off from the others, and on all when the quorum is lost.
func (c *ControlPlane) OutOfTouch() bool { return c.inTouchFor() <= 0 }

// inTouchFor returns for how long this node may still hear nothing until it is OutOfTouch.
func (c *ControlPlane) inTouchFor() time.Duration {
	answered, session := c.answered.Load(), c.BrokerConfig().SessionTimeout
	if answered == nil || c.leads() {
		return session
	}
	return session - time.Since(*answered)
}

// Hangs reports whether this broker has found its disk to hang, so that it asks to be
// fenced.
func (c *ControlPlane) Hangs() bool { return c.hung.Load() }

// Leased says that no other broker can have been elected in this one's place without its
// knowledge. The controller may do that when the broker is silent for its patience, and
// one that is elected anew is impatient with the node that led before: the shorter of the
// two counts, from when the last answered heartbeat was sent, on this broker's clock.
//
// A broker that was silent for longer, was replaced and is heard of again may be answered
// before the metadata reaches it that says so. So an answer tells up to where the controller
// knew the metadata, and the lease begins when this broker has acted on them.
//
// The active controller answers itself, also when the others have elected another. As
// that has heard from some of them, this one has not heard from all.
//
// Who is told to hand over while it can't hear is the exception: it finds out when the
// lease ends.
func (l *Lifecycle) Leased() bool {
	c := l.plane
	switch {
	case c.remote == nil || c.isOnlyBroker():
		return true
	case l.fenced.Load():
		return false
	case !c.leads():
		if p := l.promised.Load(); p != nil && c.toldUpTo.Load() >= p.upTo {
			return time.Since(l.begun) < time.Duration(p.until)
		}
		return time.Since(l.begun) < time.Duration(l.leased.Load())
	}
	return c.hearsAll()
}

// hearsAll reports whether the active controller, which this node is, has heard of all
// brokers a moment ago.
func (c *ControlPlane) hearsAll() (heard bool) {
	c.duty.with(c.leadership.Load().controllerEpoch, func(live *controller.Liveness) {
		heard = live.AllHeard(time.Now().Add(-c.patience().Grace))
	})
	return heard
}

// Join waits for the cluster, or founds it where there is none and this node leads;
// registers this broker; and returns when the metadata is known here up to that and
// those who watch it are told. It tries until ctx ends, and returns the cluster's
// id.
func (l *Lifecycle) Join(ctx context.Context) (string, error) {
	c := l.plane
	if c.remote == nil {
		return c.Boot(ctx, l.registration)
	}
	c.incarnation.Store(&l.incarnation)
	var err error
	if l.clusterID, err = l.findCluster(ctx); err != nil {
		return "", err
	}
	if err := l.register(ctx); err != nil {
		return "", err
	}
	err = c.await(ctx, func(image *metadata.Image) bool {
		b, ok := image.Broker(c.controller.Self)
		return ok && b.Incarnation == l.incarnation
	})
	return l.clusterID, err
}

// findCluster returns the cluster's id.
func (l *Lifecycle) findCluster(ctx context.Context) (string, error) {
	c := l.plane
	founding := l.registration.ClusterID
	if founding == "" {
		founding = kafka.TopicID(c.uuid()).String()
	}
	for {
		elected, changed := c.leader()
		published := c.published.wait()
		if id := c.Image().ClusterID(); id != "" {
			return id, l.registration.checkCluster(id)
		}
		if elected.leader == c.controller.Self {
			_, _, err := decide(ctx, c, "found the cluster", founding, found)
			if err == nil {
				continue
			}
		}
		timer := time.NewTimer(maxPause)
		select {
		case <-changed:
		case <-published:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", fmt.Errorf("wait for a cluster: %w", ctx.Err())
		}
		timer.Stop()
	}
}

// register registers until it is done, or can't be.
func (l *Lifecycle) register(ctx context.Context) error {
	c := l.plane
	waiting := false
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		req := c.registration(c.Image(), l.clusterID, l.incarnation, l.registration)
		asking, cancel := context.WithTimeout(ctx, c.BrokerConfig().SessionTimeout)
		resp, err := ask(asking, c, c.brokerRegistration(), req)
		cancel()
		if err == nil {
			switch kafka.Code(resp.ErrorCode) {
			case kafka.ErrNone:
				l.epoch.Store(resp.BrokerEpoch)
				return nil
			case kafka.ErrDuplicateBrokerRegistration:
				if !waiting {
					c.log.Warn("another process runs as this broker, or did a moment ago: waiting for the end "+
						"of its session", "broker", c.controller.Self)
				}
				waiting = true
			case kafka.ErrRequestTimedOut:
			default:
				return c.mayJoin(resp, l.clusterID, l.registration)
			}
		}
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("register with the active controller: %w", ctx.Err()), err)
		}
		_, changed := c.leader()
		_ = c.pause(ctx, changed, pause)
	}
}

// Run sends heartbeats until ctx ends, or Leave takes them over. Its error says
// that another process has taken this broker's place.
func (l *Lifecycle) Run(ctx context.Context) error {
	c := l.plane
	if c.remote == nil {
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if c.stranded != nil {
		watching.Go(func() { c.watchTouch(ctx) }) // Ends with ctx.
	}
	pause := firstPause
	for ctx.Err() == nil {
		_, changed := c.leader()
		published, urgent := c.published.wait(), c.urgent.wait()
		err := l.beat(ctx)
		var replaced *replacedError
		wait := c.BrokerConfig().HeartbeatInterval
		switch {
		case errors.As(err, &replaced):
			return err
		case err != nil:
			wait, pause = min(wait, pause), min(2*pause, maxPause)
		case c.leads() && c.isOnlyBroker(): // Nobody wants to know.
			select {
			case <-published:
			case <-changed:
			case <-ctx.Done():
			}
			continue
		default:
			pause = firstPause
		}
		// A new controller wants to hear at once who runs, and any who can't.
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-urgent:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// strandedTick is how often those who may wait in vain are told to look, while this node is
// OutOfTouch.
const strandedTick = 100 * time.Millisecond

// watchTouch tells them until ctx ends. A heartbeat that nobody answers takes too long to
// do it behind.
func (c *ControlPlane) watchTouch(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := c.leader()
		wait := c.inTouchFor()
		if wait <= 0 {
			c.stranded()
			wait = strandedTick
		}
		_ = c.pause(ctx, changed, wait)
	}
}

// Urge has the next heartbeat sent at once: what Hangs or Full report has changed, and the
// time until the next one would be time in which nobody leads what this broker can't.
func (c *ControlPlane) Urge() { c.urgent.ring() }

// replacedError says that another process has registered as this broker.
type replacedError struct {
	broker kafka.BrokerID
	epoch  kafka.BrokerEpoch
}

// Error implements error.
func (e *replacedError) Error() string {
	return fmt.Sprintf("another process has registered as broker %d (epoch %d): give every broker a "+
		"node id of its own", e.broker, e.epoch)
}

// hold takes the lock.
func (l *Lifecycle) hold(ctx context.Context) error {
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lifecycle) release() { <-l.held }

// beat sends one heartbeat, unless the broker is leaving.
func (l *Lifecycle) beat(ctx context.Context) error {
	if err := l.hold(ctx); err != nil {
		return err
	}
	defer l.release()
	if l.leaving {
		return nil
	}
	until, led := time.Since(l.begun)+l.plane.patience().Grace, l.plane.leads()
	resp, err := l.heartbeat(ctx, false)
	if err != nil {
		return err
	}
	switch code := kafka.Code(resp.ErrorCode); code {
	case kafka.ErrNone:
		own := led || l.plane.leads() // Its own answer says nothing.
		if !own {
			l.promise(lease{int64(until), upToOf(resp)})
		}
		if !own || l.plane.hearsAll() {
			l.plane.answered.Store(new(time.Now()))
		}
		if l.fenced.Swap(resp.IsFenced) != resp.IsFenced {
			l.plane.log.Info("the controller has decided about this broker", "fenced", resp.IsFenced)
		}
		return nil
	case kafka.ErrBrokerIDNotRegistered:
		l.plane.log.Warn("this broker was unregistered while it runs: it registers again")
		return l.register(ctx)
	case kafka.ErrStaleBrokerEpoch:
		if b, ok := l.plane.Image().Broker(l.plane.controller.Self); ok &&
			b.Incarnation != l.incarnation && int64(b.Epoch) > l.epoch.Load() {
			return &replacedError{broker: b.ID, epoch: b.Epoch}
		}
		return &kafka.Error{Code: code, Message: "the controller knows another epoch of this broker"}
	default:
		return &kafka.Error{Code: code, Message: "heartbeat refused"}
	}
}

// promise notes a lease; one that was promised before and has begun goes on until it ends.
func (l *Lifecycle) promise(next lease) {
	if p := l.promised.Load(); p != nil && l.plane.toldUpTo.Load() >= p.upTo {
		l.leased.Store(p.until)
	}
	l.promised.Store(&next)
}

// upToTag is a tagged field of ours in the answer to a heartbeat: up to where the controller
// knew the metadata.
const upToTag = 10_000

func (c *ControlPlane) tellUpTo(resp *kmsg.BrokerHeartbeatResponse) {
	resp.UnknownTags.Set(upToTag, binary.BigEndian.AppendUint64(nil, uint64(c.toldUpTo.Load())))
}

// upToOf returns what tellUpTo told, 0 if nobody did.
func upToOf(resp *kmsg.BrokerHeartbeatResponse) (upTo int64) {
	resp.UnknownTags.Each(func(tag uint32, value []byte) {
		if tag == upToTag && len(value) == 8 {
			upTo = int64(binary.BigEndian.Uint64(value))
		}
	})
	return upTo
}

func (l *Lifecycle) heartbeat(ctx context.Context, shutdown bool) (*kmsg.BrokerHeartbeatResponse, error) {
	c := l.plane
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.Version = req.MaxVersion()
	req.BrokerID, req.BrokerEpoch = int32(c.controller.Self), l.epoch.Load()
	req.CurrentMetadataOffset = c.applied.Load()
	req.WantShutdown, req.WantFence = shutdown, !shutdown && (l.hangs() || l.full())
	// One that gets no answer for so long is not worth waiting for.
	ctx, cancel := context.WithTimeout(ctx, c.BrokerConfig().SessionTimeout)
	defer cancel()
	return ask(ctx, c, c.heartbeat(), req)
}

// hangs says that this broker can't serve now: it asks to be fenced. A line says so
// when it begins.
func (l *Lifecycle) hangs() bool {
	c := l.plane
	hangs := c.hangs != nil && c.hangs()
	if c.hung.Swap(hangs) != hangs {
		if hangs {
			c.log.Error("the disk hangs: others are to lead what this broker leads", "broker", c.controller.Self)
			if c.stranded != nil {
				c.stranded()
			}
		} else {
			c.log.Warn("the disk goes on", "broker", c.controller.Self)
		}
	}
	return hangs
}

// full is hangs for a disk that has no room.
func (l *Lifecycle) full() bool {
	c := l.plane
	full := c.full != nil && c.full()
	if c.filled.Swap(full) != full {
		if full {
			c.log.Error("the disk is full: others are to lead what this broker leads", "broker", c.controller.Self)
		} else {
			c.log.Warn("the disk has room again", "broker", c.controller.Self)
		}
	}
	return full
}

// leavePause is the pause between heartbeats of a broker that leaves: what it led
// is at others by then, and they know it.
const leavePause = 50 * time.Millisecond

// Leave has others lead what this broker leads, as far as they can, and returns
// when that is so and the active controller holds the broker for stopped. The
// broker is to serve until then. It gives up when ctx ends; the broker may stop all
// the same, and will be missed.
func (l *Lifecycle) Leave(ctx context.Context) error {
	c := l.plane
	if c.remote == nil {
		return nil
	}
	if err := l.hold(ctx); err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	defer l.release()
	l.leaving = true
	for {
		resp, err := l.heartbeat(ctx, true)
		switch {
		case err == nil && resp.ShouldShutdown:
			l.fenced.Store(true)
			return nil
		case err == nil && kafka.Code(resp.ErrorCode) == kafka.ErrStaleBrokerEpoch,
			err == nil && kafka.Code(resp.ErrorCode) == kafka.ErrBrokerIDNotRegistered:
			return nil // There is nothing to leave.
		case ctx.Err() != nil:
			return errors.Join(fmt.Errorf("leave the cluster: %w", ctx.Err()), err)
		}
		_, changed := c.leader()
		_ = c.pause(ctx, changed, leavePause)
	}
}
