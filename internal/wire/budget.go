package wire

import (
	"slices"
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of request memory of all connections together.
//
// A share is taken in steps, each before the bytes that it stands for are read,
// so that a client holds about as much as it sent, whatever it announced. Whoever
// finds the budget not yet used up gets all of one step. When it is used up,
// everyone waits, and among those who hold part of what they need, one at a time
// may overdraw until its frame is done: they can't wait for each other forever,
// and a frame larger than the budget still passes, alone.
//
// Invariant: used < limit + one step + one frame, the overdrawn.
type budget struct {
	limit   atomic.Int64
	used    atomic.Int64
	waiting atomic.Int64 // Invariant: len(begun) + len(fresh).

	mu    sync.Mutex
	begun []*taker // Hold a part already. Served first; first in, first out.
	fresh []*taker // Hold nothing.

	overdraw atomic.Pointer[share] // Who may overdraw, or nil. Set with mu held.
}

// share is what one block holds of the budget.
type share struct{ bytes int64 }

// taker waits for a step.
type taker struct {
	share   *share
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

// takeNow adds n bytes to a share if nobody has to wait.
func (b *budget) takeNow(s *share, n int64) bool {
	if b.waiting.Load() > 0 || !b.tryTake(n) {
		return false
	}
	s.bytes += n
	return true
}

// take adds n bytes to a share when it is its turn. It returns false, having
// taken nothing, if quit is closed first.
func (b *budget) take(s *share, n int64, quit <-chan struct{}) bool {
	if b.takeNow(s, n) {
		return true
	}
	t := &taker{share: s, bytes: n, granted: make(chan struct{})}
	b.mu.Lock()
	if s.bytes > 0 {
		b.begun = append(b.begun, t)
	} else {
		b.fresh = append(b.fresh, t)
	}
	b.waiting.Add(1)
	b.grantLocked() // What was given before the line above woke nobody.
	b.mu.Unlock()
	select {
	case <-t.granted:
	case <-quit:
		if !b.granted(t) {
			return false
		}
	}
	s.bytes += n
	return true
}

func (b *budget) tryTake(n int64) bool {
	for {
		used := b.used.Load()
		if used >= b.limit.Load() {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give returns all of a share.
func (b *budget) give(s *share) {
	b.used.Add(-s.bytes)
	s.bytes = 0
	if b.waiting.Load() > 0 || b.overdraw.Load() == s {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.overdraw.CompareAndSwap(s, nil)
		b.grantLocked()
	}
}

func (b *budget) grantLocked() {
	for len(b.begun) > 0 && b.tryTake(b.begun[0].bytes) {
		b.grantAtLocked(&b.begun, 0)
	}
	for len(b.begun) == 0 && len(b.fresh) > 0 && b.tryTake(b.fresh[0].bytes) {
		b.grantAtLocked(&b.fresh, 0)
	}
	if len(b.begun) == 0 {
		return
	}
	b.overdraw.CompareAndSwap(nil, b.begun[0].share)
	mayOverdraw := func(t *taker) bool { return t.share == b.overdraw.Load() }
	if i := slices.IndexFunc(b.begun, mayOverdraw); i >= 0 {
		b.used.Add(b.begun[i].bytes)
		b.grantAtLocked(&b.begun, i)
	}
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
	for _, queue := range []*[]*taker{&b.begun, &b.fresh} {
		if i := slices.Index(*queue, t); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
			b.waiting.Add(-1)
			b.grantLocked()
			return false
		}
	}
	return true
}
