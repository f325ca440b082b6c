package wire

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Memory that others wait for is not left to those who hardly use it: a client
// that sends a large frame slowly, or does not take its answers. While a budget
// is used up for longer than a moment, who holds some of it and moved less than
// MinBytesPerSecond meanwhile is closed, those that hold most first, until a
// quarter of it is free. Nobody is closed for being slow while there is enough.

// pressureSweeps is how many sweeps in a row must find somebody waiting.
const pressureSweeps = 4

// pressureWindow is how long that takes, and over which a client's pace counts.
const pressureWindow = pressureSweeps * sweepInterval

// pressure counts the sweeps in a row that found somebody waiting for a budget.
type pressure struct{ sweeps int }

func (p *pressure) note(b *budget) {
	if b.waiting.Load() == 0 {
		p.sweeps = 0
		return
	}
	p.sweeps++
}

func (p *pressure) high() bool { return p.sweeps >= pressureSweeps }

// pace remembers a counter at the last few sweeps.
type pace [pressureSweeps]int64

// moved returns how much a counter grew over the window, given what it is now.
func (p *pace) moved(now int64) int64 {
	moved := now - p[0]
	copy(p[:], p[1:])
	p[pressureSweeps-1] = now
	return moved
}

// idler is a connection that holds memory and hardly moved.
type idler struct {
	conn   *Conn
	bytes  int64
	holder *holder
	err    error
}

// relieve closes some of the idlers.
func relieve(b *budget, idlers []idler) {
	slices.SortFunc(idlers, func(a, b idler) int { return cmp.Compare(b.bytes, a.bytes) })
	enough := func(used, limit int64) bool { return used <= limit/4*3 }
	used, freed := b.used.Load(), map[*holder]int64{}
	for _, i := range idlers {
		if enough(used, b.limit.Load()) && enough(i.holder.used.Load()-freed[i.holder], b.holderLimit()) {
			continue
		}
		used -= i.bytes
		freed[i.holder] += i.bytes
		i.conn.kill(ClosedSlow, i.err)
	}
}

// idlers finds them for both budgets, given how each connection moved.
func (c *Conn) idlers(requests, answers []idler, in, out, now int64) (_, _ []idler) {
	s, a := c.server, &c.activity
	least := int64(pressureWindow.Seconds() * float64(s.limits.Load().MinBytesPerSecond))
	before := now - int64(pressureWindow)
	if t := a.frameSince.Load(); t != 0 && t <= before && in < least && !a.noMemory.Load() && s.requestPressure.high() {
		if h := &c.client.requests; s.blocks.budget.contended(h) {
			requests = append(requests, idler{c, a.frameBytes.Load(), h, fmt.Errorf(
				"the client sent %d bytes of a request in %s while others waited for memory "+
					"(queued.max.request.bytes)", in, pressureWindow)})
		}
	}
	if t := a.writeSince.Load(); t != 0 && t <= before && out < least && s.answerPressure.high() {
		if h := &c.client.answers; s.answers.contended(h) {
			answers = append(answers, idler{c, c.out.holds(), h, fmt.Errorf(
				"the client took %d bytes of its answers in %s while others waited for memory "+
					"(queued.max.response.bytes)", out, pressureWindow)})
		}
	}
	return requests, answers
}

// errStarved ends a connection that waits for memory in the middle of a frame:
// what it holds is what others wait for.
var errStarved = errors.New("no memory for the rest of the request for too long: " +
	"send smaller requests, or raise queued.max.request.bytes")

// starved reports whether the connection has waited too long for the rest of a
// frame.
func (c *Conn) starved(now int64) bool {
	t := c.activity.starved.Load()
	return t != 0 && time.Duration(now-t) > c.server.limits.Load().StallTimeout
}
