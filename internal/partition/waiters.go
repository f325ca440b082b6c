package partition

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
)

// Waker is what a Waiter wakes; it must not block.
type Waker interface{ Wake() }

// Waiter waits once for a partition's high watermark. It belongs to its caller,
// which may use it again after it fired or was removed.
type Waiter struct {
	waker  Waker
	target kafka.Offset
	fired  atomic.Bool
}

// Fired reports whether the waiter fired since it was last added.
func (w *Waiter) Fired() bool { return w.fired.Load() }

// waiters are the waiters of one partition. Invariant: least is the smallest
// target of all, so that an advance below it costs one comparison.
type waiters struct {
	mu    sync.Mutex
	all   []*Waiter
	least kafka.Offset
}

// Wait registers w to fire when the high watermark is at or above target, or
// when the partition changes its role. It returns false, and registers nothing,
// if that is so already.
func (p *Partition) Wait(w *Waiter, waker Waker, target kafka.Offset) bool {
	p.waiters.mu.Lock()
	defer p.waiters.mu.Unlock()
	// The high watermark is published before waiters are woken under this lock,
	// so one of the two sides sees the other.
	if p.HighWatermark() >= target {
		return false
	}
	w.waker, w.target = waker, target
	w.fired.Store(false)
	if len(p.waiters.all) == 0 || target < p.waiters.least {
		p.waiters.least = target
	}
	p.waiters.all = append(p.waiters.all, w)
	return true
}

// StopWaiting removes w; it is no error if w has fired.
func (p *Partition) StopWaiting(w *Waiter) {
	p.waiters.mu.Lock()
	defer p.waiters.mu.Unlock()
	if i := slices.Index(p.waiters.all, w); i >= 0 {
		last := len(p.waiters.all) - 1
		p.waiters.all[i], p.waiters.all[last] = p.waiters.all[last], nil
		p.waiters.all = p.waiters.all[:last]
	}
}

// advance fires what waits for highWatermark or less. A Wake is a non-blocking
// send, so it is done under the lock and needs no list on the side.
func (ws *waiters) advance(highWatermark kafka.Offset) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 || highWatermark < ws.least {
		return
	}
	kept, least := ws.all[:0], kafka.Offset(0)
	for _, w := range ws.all {
		if w.target <= highWatermark {
			w.fire()
			continue
		}
		if len(kept) == 0 || w.target < least {
			least = w.target
		}
		kept = append(kept, w)
	}
	clear(ws.all[len(kept):])
	ws.all, ws.least = kept, least
}

func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		w.fire()
	}
	clear(ws.all)
	ws.all = ws.all[:0]
}

func (w *Waiter) fire() {
	w.fired.Store(true)
	w.waker.Wake()
}
