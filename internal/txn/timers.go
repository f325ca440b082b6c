package txn

import (
	"container/heap"

	"github.com/strandline/strandline/internal/coordinator/shard"
)

// notInHeap is the index of a transaction that waits for nothing.
const notInHeap = -1

// timers is a heap of transactions by when they are to be looked at.
type timers []*transaction

// Len implements heap.Interface.
func (h timers) Len() int { return len(h) }

// Less implements heap.Interface. Those that are due together go by id, so that a
// script has one outcome.
func (h timers) Less(i, j int) bool {
	if h[i].atMs != h[j].atMs {
		return h[i].atMs < h[j].atMs
	}
	return h[i].id < h[j].id
}

// Swap implements heap.Interface.
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *timers) Push(x any) {
	t := x.(*transaction)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = notInHeap
	return t
}

// arm puts a transaction into its place in the queue of deadlines. It is called
// after each change of one.
func (s *Shard) arm(t *transaction) {
	t.atMs = t.nextDeadline(&s.settings)
	switch armed := t.index != notInHeap; {
	case t.atMs == shard.NoDeadline && armed:
		heap.Remove(&s.timers, t.index)
	case t.atMs == shard.NoDeadline:
	case armed:
		heap.Fix(&s.timers, t.index)
	default:
		heap.Push(&s.timers, t)
	}
}
