package wire

import (
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of request memory of all connections together. One
// taker may overshoot it: whoever finds it not yet used up gets all it asks for,
// so that a frame larger than the budget still passes, alone, and a limit of
// any size makes progress. Invariant: used < limit + the largest single take.
//
// Nobody waits while holding a share for the same frame, so takers can't wait
// for each other in a circle.
type budget struct {
	limit   atomic.Int64
	used    atomic.Int64
	waiting atomic.Int64 // Invariant: len(queue).

	mu    sync.Mutex
	queue []*budgetTaker // First in, first out.
}

// budgetTaker is a taker that waits.
type budgetTaker struct {
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

// take waits for its turn and takes n bytes. It returns false, having taken
// nothing, if quit is closed first.
func (b *budget) take(n int64, quit <-chan struct{}) bool {
	if b.takeNow(n) {
		return true
	}
	t := &budgetTaker{bytes: n, granted: make(chan struct{})}
	b.mu.Lock()
	b.queue = append(b.queue, t)
	b.waiting.Add(1)
	b.grantLocked() // What was released before the line above woke nobody.
	b.mu.Unlock()
	select {
	case <-t.granted:
		return true
	case <-quit:
		b.leave(t)
		return false
	}
}

// takeNow takes n bytes if nobody has to wait.
func (b *budget) takeNow(n int64) bool { return b.waiting.Load() == 0 && b.tryTake(n) }

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

// give returns n bytes.
func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		b.grantLocked()
		b.mu.Unlock()
	}
}

func (b *budget) grantLocked() {
	for len(b.queue) > 0 && b.tryTake(b.queue[0].bytes) {
		close(b.queue[0].granted)
		b.queue[0] = nil
		b.queue = b.queue[1:]
		b.waiting.Add(-1)
	}
}

// leave withdraws a taker that gave up.
func (b *budget) leave(t *budgetTaker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == t {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.waiting.Add(-1)
			b.grantLocked()
			return
		}
	}
	// It was granted after all.
	b.used.Add(-t.bytes)
	b.grantLocked()
}
