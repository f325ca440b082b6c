package wire

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// sweepInterval is how often time limits are looked at. They are limits of
// seconds for peers that misbehave; a timer a request would cost all the others.
const sweepInterval = 500 * time.Millisecond

// trimInterval is how often memory that nobody needed meanwhile is given back.
const trimInterval = 2 * time.Second

// sweepLoop enforces the time limits of all connections and gives unused memory
// back.
func (s *Server) sweepLoop(ctx context.Context) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	seen := map[*Conn]progress{}
	for sweeps := 1; ; sweeps++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		seen = s.sweep(seen)
		if sweeps%int(trimInterval/sweepInterval) == 0 {
			s.blocks.trim()
		}
	}
}

// progress is when a connection was last seen to move on.
type progress struct {
	in, out     int64
	inAt, outAt int64
	// The same over the last sweeps, for when memory is scarce.
	inPace, outPace pace
}

// sweep looks at every connection once, given what was seen last time.
func (s *Server) sweep(seen map[*Conn]progress) map[*Conn]progress {
	now := s.clock()
	s.requestPressure.note(&s.blocks.budget)
	s.answerPressure.note(&s.answers)
	pressed := s.answerPressure.sweeps > 0
	s.pressed.Store(pressed)
	next := make(map[*Conn]progress, len(seen))
	var requests, answers []idler
	s.eachConn(func(c *Conn) {
		p, known := seen[c]
		if in := c.activity.bytesIn.Load(); !known || in != p.in {
			p.in, p.inAt = in, now
		}
		if out := c.activity.bytesOut.Load(); !known || out != p.out {
			p.out, p.outAt = out, now
		}
		requests, answers = c.idlers(requests, answers, p.inPace.moved(p.in), p.outPace.moved(p.out), now)
		next[c] = p
		if reason, err := c.overdue(p, now); err != nil {
			c.kill(reason, err)
		}
		if pressed && c.out.holds() >= earlyPollBytes {
			c.wake()
		}
	})
	relieve(&s.blocks.budget, requests)
	relieve(&s.answers, answers)
	return next
}

// overdue says why the connection has to go, if it has to.
func (c *Conn) overdue(p progress, now int64) (CloseReason, error) {
	l, a := c.server.limits.Load(), &c.activity
	since := func(t int64) time.Duration { return time.Duration(now - t) }
	if began := a.writeSince.Load(); began != 0 && since(max(began, p.outAt)) > l.StallTimeout {
		return ClosedSlow, fmt.Errorf("the client took no byte of an answer for %s", l.StallTimeout)
	}
	switch {
	case c.starved(now):
		return ClosedSlow, errStarved
	case a.noMemory.Load():
		return 0, nil
	}
	if a.requests.Load() == 0 && since(a.opened.Load()) > l.FirstRequestTimeout {
		return ClosedSlow, fmt.Errorf("no request within %s of connecting", l.FirstRequestTimeout)
	}
	if began := a.frameSince.Load(); began != 0 {
		if since(max(began, p.inAt)) > l.StallTimeout {
			return ClosedSlow, fmt.Errorf("the client sent part of a request, then nothing for %s",
				l.StallTimeout)
		}
		if late := since(began) - l.FrameTimeout; late > 0 {
			want := int64(late.Seconds() * float64(l.MinBytesPerSecond))
			if have := a.frameBytes.Load(); have < want {
				return ClosedSlow, fmt.Errorf("the client sent %d bytes of a request in %s", have, since(began))
			}
		}
	}
	if since(a.lastRead.Load()) > l.MaxIdle && c.out.idle() {
		return ClosedIdle, errIdle
	}
	return 0, nil
}

var errIdle = errors.New("idle for longer than connections.max.idle.ms")
