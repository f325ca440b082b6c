package api

// The entries of a follower's session: they live as long as it does, and wait for
// news of their partitions also between requests. A request reads those that it names,
// those that have news, and those that were not at rest after the answer before.
//
//	          named by a request, or woken
//	 at rest ------------------------------> due --> read
//	    ^                                             |
//	    |  nothing to tell: registered to be woken    | something told, or not yet
//	    +---------------------------------------------+--------> restless: due next time

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/wire"
)

// heldSession is what a follower's session has beside its partitions.
type heldSession struct {
	// arrived counts the requests that came.
	arrived atomic.Int64
	// waiting is the request that holds the session.
	waiting atomic.Pointer[wire.Request]
	// Written under the cache's lock, by the session's owner.
	replica kafka.BrokerID
	epoch   kafka.BrokerEpoch
	holds   bool // It is a follower's.
	// due are entries to read with the next request; its owner is that of the session.
	due []*fetchEntry
	// swept is when log start offsets were looked at.
	swept time.Time

	mu    sync.Mutex
	woken []*fetchEntry // Since they were looked at last.
}

// heldEntry is what an entry of a follower's session has.
type heldEntry struct {
	session *fetchSession // nil for all others.
	listed  bool          // It is in the request's entries, or in due.
	woken   bool          // Guarded by the session's held.mu.
}

// Wake implements partition.Waker: there are records for the follower.
func (e *fetchEntry) Wake() {
	h := &e.held.session.held
	h.wake(e)
	if w := h.waiting.Load(); w != nil {
		w.Wake()
	}
}

// heldWatermark is an entry as a waker for its high watermark: the follower is told
// with whatever is the next answer.
type heldWatermark fetchEntry

// Wake implements partition.Waker.
func (w *heldWatermark) Wake() {
	e := (*fetchEntry)(w)
	e.held.session.held.wake(e)
}

func (h *heldSession) wake(e *fetchEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !e.held.woken {
		e.held.woken = true
		h.woken = append(h.woken, e)
	}
}

// hold makes the entries of a new session.
func (h *heldSession) hold(s *fetchSession, wanted []*fetchedPartition) {
	for _, want := range wanted {
		want.entry = &fetchEntry{want: want, held: heldEntry{session: s}}
		h.list(want.entry)
	}
}

// name notes that a request has something new to say of a partition.
func (h *heldSession) name(s *fetchSession, want *fetchedPartition) {
	if !h.holds {
		return
	}
	if want.entry == nil {
		want.entry = &fetchEntry{want: want, held: heldEntry{session: s}}
	}
	h.list(want.entry)
}

// list makes an entry due.
func (h *heldSession) list(e *fetchEntry) {
	e.due = true
	if !e.held.listed {
		e.held.listed = true
		h.due = append(h.due, e)
	}
}

// holds reports whether the reply's entries are those of a follower's session.
func (r *fetchReply) holds() bool { return r.session != nil && r.session.held.holds }

// takeHeld begins a request with the entries that are due.
func (r *fetchReply) takeHeld() {
	h := &r.session.held
	if now := r.handler.s.Now(); now.Sub(h.swept) >= sweepInterval {
		h.swept = now
		h.sweep(r.session.order)
	}
	r.entries = slices.DeleteFunc(h.due, func(e *fetchEntry) bool { return e.want.entry != e })
	h.due = nil
}

// sweepInterval is how often partitions at rest are looked at for a log start offset
// that has moved, of which nobody is woken.
const sweepInterval = time.Second

// sweep makes the entries due whose log start offset is not the one that was told.
func (h *heldSession) sweep(order []*fetchedPartition) {
	for _, want := range order {
		e := want.entry
		if e != nil && e.part != nil && want.told && e.part.Log().LogStartOffset() != want.toldLogStart {
			h.list(e)
		}
	}
}

// takeFired adds the entries of which there is news.
func (r *fetchReply) takeFired() {
	if !r.holds() {
		return
	}
	h := &r.session.held
	h.mu.Lock()
	woken := h.woken
	h.woken = nil
	for _, e := range woken {
		e.held.woken = false
	}
	h.mu.Unlock()
	for _, e := range woken {
		if e.want.entry != e {
			continue // Let go meanwhile.
		}
		e.due = true
		if !e.held.listed {
			e.held.listed = true
			r.entries = append(r.entries, e)
		}
	}
}

// settleHeld has the entries of which there was nothing to tell wait for news. The
// others are due again, unless the follower says something else.
func (r *fetchReply) settleHeld() {
	h := &r.session.held
	for _, e := range r.entries {
		e.held.listed = false
		quiet := e.code == kafka.ErrNone && e.size == 0 && !e.due && e.result.Diverging == nil &&
			!e.result.Outside && !e.asks() && e.want.fetchOffset >= e.result.LogEndOffset
		if !quiet {
			e.stopWaiting()
			h.list(e)
			continue
		}
		if !e.waiting {
			e.waiting = r.wait(e)
		}
		if !e.waiting || r.serves(e) != nil {
			e.stopWaiting()
			h.list(e)
		}
	}
}

// letGo has nobody be woken for a session that is over. Its owner calls it, or nobody
// owns it.
func (s *fetchSession) letGo() {
	for _, want := range s.order {
		want.letGo()
	}
}

func (p *fetchedPartition) letGo() {
	if p.entry != nil {
		p.entry.stopWaiting()
		p.entry = nil
	}
}

// deadAfter is how long a follower's session is unused before the follower's next one
// takes its place: a follower asks twice a second.
const deadAfter = 30 * time.Second

// replace makes s a follower's session, and drops those that the follower has given up.
func (c *sessionCache) replace(s *fetchSession, replica kafka.BrokerID, epoch kafka.BrokerEpoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.held.replica, s.held.epoch, s.held.holds = replica, epoch, true
	for id, other := range c.sessions {
		h := &other.held
		if other != s && h.holds && h.replica == replica && (h.epoch < epoch || c.now().Sub(other.lastUsed) > deadAfter) {
			c.removeLocked(id)
		}
	}
}
