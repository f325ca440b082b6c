package wire

import (
	"slices"
	"sync"
	"sync/atomic"
)

// budget bounds bytes of memory, of all connections together and of those from
// one address: an address holds half of it at most, so that no single one can
// take it from all others. Two are in use: for requests, and for answers.
//
// Bytes are taken in steps, each before the memory that it stands for is used, so
// that a client holds about as much as it sent, whatever it announced. Whoever
// finds the budget not yet used up gets all of one step. When it is used up,
// everyone waits. Addresses are served in turn, and of one address those first
// who hold part of what they need. Of these, one at a time of an address may go
// beyond the address' half, and one in all beyond the budget, until its frame is
// done: they can't wait for each other forever, and a frame larger than the
// budget still passes, alone.
//
// Invariant: used < limit + one step + one frame, the overdrawn, + what was
// forced.
type budget struct {
	limit   atomic.Int64
	used    atomic.Int64
	waiting atomic.Int64 // Invariant: the number of takers in all queues.

	mu   sync.Mutex
	ring []*holder // Those with takers, in the order of their turns.

	overdraw atomic.Pointer[share] // Who may go beyond limit, or nil. Set with mu held.
}

// holder is what one address holds of a budget, and who of it waits.
type holder struct {
	used     atomic.Int64
	overdraw atomic.Pointer[share] // Who may go beyond half of the budget; as above.

	// Guarded by the budget's mu. First in, first out.
	begun []*taker // Hold a part already. Served first.
	fresh []*taker // Hold nothing.
}

// waits reports whether somebody of the address waits.
func (h *holder) waits() bool { return len(h.begun)+len(h.fresh) > 0 }

// share is what one block holds of the budget for requests.
type share struct {
	bytes  int64
	holder *holder
}

// taker waits for a step.
type taker struct {
	holder  *holder
	share   *share // Nil for one that never overdraws.
	bytes   int64
	granted chan struct{}
}

// setLimit changes the limit; what was taken stays taken.
func (b *budget) setLimit(limit int64) {
	b.limit.Store(limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grantLocked()
}

// holderLimit is what one address may hold.
func (b *budget) holderLimit() int64 { return max(b.limit.Load()/2, 1) }

// takeNow takes n bytes for a holder if nobody has to wait.
func (b *budget) takeNow(h *holder, n int64) bool { return b.waiting.Load() == 0 && b.tryTake(h, n) }

// take takes n bytes for a holder when it is its turn; for a share that holds
// some already, if one is given. It returns false, having taken nothing, if quit
// is closed first.
func (b *budget) take(h *holder, s *share, n int64, quit <-chan struct{}) bool {
	if b.takeNow(h, n) {
		return true
	}
	t := &taker{holder: h, share: s, bytes: n, granted: make(chan struct{})}
	b.mu.Lock()
	if !h.waits() {
		b.ring = append(b.ring, h)
	}
	if s != nil && s.bytes > 0 {
		h.begun = append(h.begun, t)
	} else {
		h.fresh = append(h.fresh, t)
	}
	b.waiting.Add(1)
	b.grantLocked() // What was given before the line above woke nobody.
	b.mu.Unlock()
	select {
	case <-t.granted:
	case <-quit:
		return b.granted(t)
	}
	return true
}

// force takes n bytes whatever the limits are: they are in use already.
func (b *budget) force(h *holder, n int64) {
	h.used.Add(n)
	b.used.Add(n)
}

// tryTake takes n bytes if neither the holder's part nor the budget is used up.
func (b *budget) tryTake(h *holder, n int64) bool {
	return b.takeBelow(h, b.holderLimit(), n)
}

// takeBelow is tryTake with a limit of the holder's own.
func (b *budget) takeBelow(h *holder, holderLimit, n int64) bool {
	if !addBelow(&h.used, holderLimit, n) {
		return false
	}
	if !addBelow(&b.used, b.limit.Load(), n) {
		h.used.Add(-n)
		return false
	}
	return true
}

// addBelow adds n to a sum that is below limit, or does nothing.
func addBelow(sum *atomic.Int64, limit, n int64) bool {
	for {
		used := sum.Load()
		if used >= limit {
			return false
		}
		if sum.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give returns n bytes of a holder.
func (b *budget) give(h *holder, n int64) {
	h.used.Add(-n)
	b.used.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.grantLocked()
	}
}

// extendNow takes n bytes more for a share if nobody has to wait.
func (b *budget) extendNow(s *share, n int64) bool {
	if !b.takeNow(s.holder, n) {
		return false
	}
	s.bytes += n
	return true
}

// extend takes n bytes more for a share when it is its turn, as take does.
func (b *budget) extend(s *share, n int64, quit <-chan struct{}) bool {
	if !b.take(s.holder, s, n, quit) {
		return false
	}
	s.bytes += n
	return true
}

// giveShare returns all of a share.
func (b *budget) giveShare(s *share) {
	s.holder.overdraw.CompareAndSwap(s, nil)
	b.overdraw.CompareAndSwap(s, nil)
	n := s.bytes
	s.bytes = 0
	b.give(s.holder, n)
}

// grantLocked grants what can be granted, an address after the other. Who was
// granted something last is last in turn.
func (b *budget) grantLocked() {
	for last := 0; last >= 0; {
		last = -1
		for i, h := range b.ring {
			if b.grantOneLocked(h) {
				last = i
			}
		}
		if last >= 0 {
			b.ring = slices.Concat(b.ring[last+1:], b.ring[:last+1])
			b.ring = slices.DeleteFunc(b.ring, func(h *holder) bool { return !h.waits() })
		}
	}
}

// grantOneLocked grants a step to one of an address.
func (b *budget) grantOneLocked(h *holder) bool {
	if len(h.begun) > 0 {
		return b.grantBegunLocked(h)
	}
	if !b.tryTake(h, h.fresh[0].bytes) {
		return false
	}
	b.grantAtLocked(&h.fresh, 0)
	return true
}

// grantBegunLocked grants a step to one of an address that holds part of what it
// needs.
func (b *budget) grantBegunLocked(h *holder) bool {
	if b.tryTake(h, h.begun[0].bytes) {
		b.grantAtLocked(&h.begun, 0)
		return true
	}
	first := h.begun[0].share
	h.overdraw.CompareAndSwap(nil, first)
	if b.used.Load() >= b.limit.Load() {
		b.overdraw.CompareAndSwap(nil, first)
	}
	for i, t := range h.begun {
		switch {
		case t.share == b.overdraw.Load():
			b.force(h, t.bytes)
		case t.share != h.overdraw.Load() || !b.takeBelow(h, 1<<62, t.bytes):
			continue
		}
		b.grantAtLocked(&h.begun, i)
		return true
	}
	return false
}

func (b *budget) grantAtLocked(queue *[]*taker, i int) {
	close((*queue)[i].granted)
	*queue = slices.Delete(*queue, i, i+1)
	b.waiting.Add(-1)
}

// granted withdraws a taker that gave up, or reports that it was granted its
// step after all.
func (b *budget) granted(t *taker) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, queue := range []*[]*taker{&t.holder.begun, &t.holder.fresh} {
		i := slices.Index(*queue, t)
		if i < 0 {
			continue
		}
		*queue = slices.Delete(*queue, i, i+1)
		b.waiting.Add(-1)
		if !t.holder.waits() {
			b.ring = slices.DeleteFunc(b.ring, func(h *holder) bool { return h == t.holder })
		}
		b.grantLocked()
		return false
	}
	return true
}

// contended reports whether somebody waits for what an address holds: somebody
// else of it, or anyone while the budget is used up.
func (b *budget) contended(h *holder) bool {
	if b.waiting.Load() == 0 {
		return false
	}
	if b.used.Load() >= b.limit.Load() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.waits()
}
