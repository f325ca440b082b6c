package group

import (
	"container/heap"

	"github.com/strandline/strandline/internal/coordinator/shard"
)

// notInHeap is the index of a timer that is not armed.
const notInHeap = -1

// timer is a group's place in the shard's queue of deadlines. A group has one
// for all its members: atMs is no later than the earliest of their deadlines. It
// is not moved when a heartbeat puts a deadline off, so heartbeats cost nothing
// here; the queue finds out when the time has come.
type timer struct {
	atMs  int64
	index int
}

// timers is a heap of groups by atMs.
type timers []*group

// Len implements heap.Interface.
func (t timers) Len() int { return len(t) }

// Less implements heap.Interface. Groups that are due together go by id, so that
// a script has one outcome.
func (t timers) Less(i, j int) bool {
	if t[i].timer.atMs != t[j].timer.atMs {
		return t[i].timer.atMs < t[j].timer.atMs
	}
	return t[i].id < t[j].id
}

// Swap implements heap.Interface.
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].timer.index, t[j].timer.index = i, j
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	g := x.(*group)
	g.timer.index = len(*t)
	*t = append(*t, g)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	old := *t
	g := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	g.timer.index = notInHeap
	return g
}

// arm makes sure that the group is looked at no later than atMs.
func (s *Shard) arm(g *group, atMs int64) {
	if atMs < g.timer.atMs {
		s.rearm(g, atMs)
	}
}

// alive starts the member's session anew.
func (s *Shard) alive(g *group, m *member, nowMs int64) {
	m.deadlineMs = nowMs + int64(m.sessionTimeoutMs)
	s.arm(g, m.deadlineMs)
}

// rearm sets the time at which the group is looked at.
func (s *Shard) rearm(g *group, atMs int64) {
	g.timer.atMs = atMs
	switch armed := g.timer.index != notInHeap; {
	case atMs == shard.NoDeadline && armed:
		heap.Remove(&s.timers, g.timer.index)
	case atMs == shard.NoDeadline:
	case armed:
		heap.Fix(&s.timers, g.timer.index)
	default:
		heap.Push(&s.timers, g)
	}
}

// nextDeadline returns the earliest deadline of a group.
func (g *group) nextDeadline() int64 {
	next := min(g.rebalance.joinDeadlineMs, g.rebalance.syncDeadlineMs)
	for _, m := range g.members {
		next = min(next, m.deadline())
	}
	for _, atMs := range g.pending {
		next = min(next, atMs)
	}
	return next
}

// ClockSet implements shard.Clocked: sessions and rebalances go on for as long as
// they were to.
func (s *Shard) ClockSet(byMs int64) {
	move := func(atMs *int64) {
		if *atMs != shard.NoDeadline {
			*atMs += byMs
		}
	}
	for _, g := range s.groups {
		for _, m := range g.members {
			move(&m.deadlineMs)
		}
		for id := range g.pending {
			g.pending[id] += byMs
		}
		move(&g.rebalance.joinDeadlineMs)
		move(&g.rebalance.syncDeadlineMs)
		move(&g.timer.atMs) // All by the same: the queue keeps its order.
	}
	move(&s.cleanup.atMs)
}
