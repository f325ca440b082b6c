package partition

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
)

// Waker is what a Waiter wakes; it must not block.
type Waker interface{ Wake() }

// Waiter waits once for an offset of a partition: its high watermark (Wait), its last
// stable offset (WaitStable), its log's end (WaitAppended) or its log's synced end
// (WaitSynced). It belongs to its
// caller, which may use it again after it fired or was removed.
type Waiter struct {
	waker  Waker
	target kafka.Offset
	fired  atomic.Bool
	in     *waiters // Where it was added last.
}

// Fired reports whether the waiter fired since it was last added.
func (w *Waiter) Fired() bool { return w.fired.Load() }

// waiters are the waiters of one partition for one of its offsets. Invariant:
// least is the smallest target of all, so that an advance below it costs one
// comparison.
type waiters struct {
	// any is false only if all is empty, so that an advance of what nobody waits
	// for costs one load.
	any   atomic.Bool
	mu    sync.Mutex
	all   []*Waiter
	least kafka.Offset
}

// Wait registers w to fire when the high watermark is at or above target, or
// when the partition changes its role. It returns false, and registers nothing,
// if that is so already.
func (p *Partition) Wait(w *Waiter, waker Waker, target kafka.Offset) bool {
	return p.waiters.add(w, waker, target, p.HighWatermark)
}

// WaitAppended is Wait for the log's end, whether it is synced or not.
func (p *Partition) WaitAppended(w *Waiter, waker Waker, target kafka.Offset) bool {
	return p.appended.add(w, waker, target, p.log.LogEndOffset)
}

// WaitSynced is Wait for the offset below which everything is as durable as the
// topic asks for.
func (p *Partition) WaitSynced(w *Waiter, waker Waker, target kafka.Offset) bool {
	return p.synced.add(w, waker, target, p.log.ReportedEnd)
}

// HasReaders reports whether somebody waits for the high watermark, or for the last
// stable offset, which follows it.
func (p *Partition) HasReaders() bool { return p.waiters.any.Load() || p.stable.any.Load() }

// StopWaiting removes w; it is no error if w has fired.
func (p *Partition) StopWaiting(w *Waiter) {
	if w.in != nil {
		w.in.remove(w)
	}
}

func (ws *waiters) add(w *Waiter, waker Waker, target kafka.Offset, now func() kafka.Offset) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	// An offset is published before any is loaded, and any is stored before the
	// offset is loaded, so one of the two sides sees the other.
	ws.any.Store(true)
	if now() >= target {
		ws.any.Store(len(ws.all) > 0)
		return false
	}
	w.waker, w.target, w.in = waker, target, ws
	w.fired.Store(false)
	if len(ws.all) == 0 || target < ws.least {
		ws.least = target
	}
	ws.all = append(ws.all, w)
	return true
}

func (ws *waiters) remove(w *Waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if i := slices.Index(ws.all, w); i >= 0 {
		last := len(ws.all) - 1
		ws.all[i], ws.all[last] = ws.all[last], nil
		ws.all = ws.all[:last]
		ws.any.Store(last > 0)
	}
}

// advance fires what waits for reached or less. A Wake is a non-blocking send, so
// it is done under the lock and needs no list on the side.
func (ws *waiters) advance(reached kafka.Offset) {
	if !ws.any.Load() {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 || reached < ws.least {
		return
	}
	kept, least := ws.all[:0], kafka.Offset(0)
	for _, w := range ws.all {
		if w.target <= reached {
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
	ws.any.Store(len(kept) > 0)
}

func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.all {
		w.fire()
	}
	clear(ws.all)
	ws.all = ws.all[:0]
	ws.any.Store(false)
}

// fire wakes whoever waits. Once it has fired the waiter is its owner's again.
func (w *Waiter) fire() {
	waker := w.waker
	w.fired.Store(true)
	waker.Wake()
}
