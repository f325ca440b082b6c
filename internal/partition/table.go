package partition

import (
	"slices"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
)

// Table holds the partition replicas of this broker. Readers take no lock: each
// change publishes a new index, and one goroutine makes all changes.
type Table struct {
	index atomic.Pointer[index]
}

// index is immutable, but for the slices of partitions it shares with the next
// one. Names are looked up per topic so that a topic's partitions are found
// without a string per partition.
type index struct {
	byName map[string][]*Partition
	byID   map[kafka.TopicID][]*Partition
}

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{}
	t.index.Store(&index{byName: map[string][]*Partition{}, byID: map[kafka.TopicID][]*Partition{}})
	return t
}

// Get returns a partition by name, or nil.
func (t *Table) Get(topic string, partition int32) *Partition {
	return at(t.index.Load().byName[topic], partition)
}

// GetByID returns a partition by topic id, or nil.
func (t *Table) GetByID(id kafka.TopicID, partition int32) *Partition {
	return at(t.index.Load().byID[id], partition)
}

func at(ps []*Partition, i int32) *Partition {
	if i < 0 || int(i) >= len(ps) {
		return nil
	}
	return ps[i]
}

// All calls fn for every partition until it returns false.
func (t *Table) All(fn func(*Partition) bool) {
	for _, ps := range t.index.Load().byID {
		for _, p := range ps {
			if p != nil && !fn(p) {
				return
			}
		}
	}
}

// WakeWaiting wakes whoever waits for the high watermark of any partition: what they go by
// beside it has changed.
func (t *Table) WakeWaiting() {
	t.All(func(p *Partition) bool {
		p.waiters.wakeAll()
		return true
	})
}

// Edit publishes the outcome of a set of changes at once. It must be called by
// one goroutine at a time.
func (t *Table) Edit(fn func(*Edit)) {
	old := t.index.Load()
	e := &Edit{next: index{
		byName: make(map[string][]*Partition, len(old.byName)+1),
		byID:   make(map[kafka.TopicID][]*Partition, len(old.byID)+1),
	}}
	for k, v := range old.byName {
		e.next.byName[k] = v
	}
	for k, v := range old.byID {
		e.next.byID[k] = v
	}
	fn(e)
	t.index.Store(&e.next)
}

// Edit is a change of a Table under way.
type Edit struct{ next index }

// Get returns a partition by topic id, or nil.
func (e *Edit) Get(id kafka.TopicIDPartition) *Partition {
	return at(e.next.byID[id.ID], id.Partition)
}

// Put adds a partition.
func (e *Edit) Put(p *Partition) {
	ps := e.next.byID[p.id.ID]
	grown := make([]*Partition, max(len(ps), int(p.id.Partition)+1))
	copy(grown, ps)
	grown[p.id.Partition] = p
	e.next.byID[p.id.ID], e.next.byName[p.topic] = grown, grown
}

// Drop takes one partition out; the others of its topic stay.
func (e *Edit) Drop(p *Partition) {
	ps := slices.Clone(e.next.byID[p.id.ID])
	if at(ps, p.id.Partition) != p {
		return
	}
	ps[p.id.Partition] = nil
	if !slices.ContainsFunc(ps, func(other *Partition) bool { return other != nil }) {
		e.Remove(p.topic, p.id.ID)
		return
	}
	e.next.byID[p.id.ID] = ps
	if at(e.next.byName[p.topic], p.id.Partition) == p {
		e.next.byName[p.topic] = ps
	}
}

// Remove takes a topic out and returns its partitions. A topic of the same name
// and another id stays.
func (e *Edit) Remove(topic string, id kafka.TopicID) []*Partition {
	ps := e.next.byID[id]
	delete(e.next.byID, id)
	for _, p := range e.next.byName[topic] {
		if p != nil {
			if p.id.ID == id {
				delete(e.next.byName, topic)
			}
			break
		}
	}
	return ps
}
