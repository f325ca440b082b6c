package idempotency

import (
	"maps"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Place is where the record of a key stands.
type Place struct {
	Partition   int32
	Offset      kafka.Offset
	TimestampMs int64
}

// Outcome is what Check says about a record.
type Outcome int8

// The outcomes.
const (
	New      Outcome = iota // The key is not known: the record is to be appended.
	Repeated                // The record is there.
	Conflict                // The key is there with other content.
)

// Bounds are how much a table keeps.
type Bounds struct {
	WindowMs int64 // How long, from a record's timestamp on.
	MaxKeys  int   // How many of a partition.
}

// over says whether the time of a record is over.
func (b Bounds) over(timestampMs, nowMs int64) bool {
	return nowMs-timestampMs >= b.WindowMs && nowMs >= timestampMs
}

// Table is the keys of one topic. The zero value is not ready: see NewTable.
type Table struct {
	byKey      map[Digest]ref
	partitions map[int32]*queue
	keys       int // Entries of all partitions.
	// most is how many keys byKey had room for at least: a map does not give room
	// back, so one that has become much too large is made anew.
	most int
}

// ref names an entry.
type ref struct {
	partition int32
	number    uint32 // Of the entry in the partition's queue, counted from its begin.
}

// queue is the entries of a partition, the oldest first.
type queue struct {
	entries []entry
	head    int    // The first that is still there.
	first   uint32 // The number of entries[0]; it may wrap around.
}

type entry struct {
	key, content Digest
	offset       kafka.Offset
	timestampMs  int64
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{byKey: map[Digest]ref{}, partitions: map[int32]*queue{}}
}

func (t *Table) at(r ref) *entry {
	q := t.partitions[r.partition]
	return &q.entries[r.number-q.first]
}

// Check says whether a record with a key is there already, and where.
func (t *Table) Check(key, content Digest, b Bounds, nowMs int64) (Place, Outcome) {
	r, ok := t.byKey[key]
	if !ok {
		return Place{}, New
	}
	e := t.at(r)
	switch {
	case b.over(e.timestampMs, nowMs):
		return Place{}, New
	case e.content != content:
		return Place{r.partition, e.offset, e.timestampMs}, Conflict
	}
	return Place{r.partition, e.offset, e.timestampMs}, Repeated
}

// Observe takes in a record that stands in the log, in the order of offsets. A
// key that is there keeps its first record, unless that one's time was over when
// the new one came. It returns how many keys of the partition were dropped before
// their time, because it has no room for more.
func (t *Table) Observe(key, content Digest, p Place, b Bounds) (evicted int) {
	if r, ok := t.byKey[key]; ok && !b.over(t.at(r).timestampMs, p.TimestampMs) {
		return 0
	}
	q := t.partitions[p.Partition]
	if q == nil {
		q = &queue{}
		t.partitions[p.Partition] = q
	}
	t.byKey[key] = ref{p.Partition, q.first + uint32(len(q.entries))}
	t.most = max(t.most, len(t.byKey))
	q.entries = append(q.entries, entry{key, content, p.Offset, p.TimestampMs})
	t.keys++
	return t.Expire(p.Partition, b, p.TimestampMs)
}

// Expire drops what a partition need not keep any more, and returns how many of
// those were dropped before their time, because there are too many.
func (t *Table) Expire(partition int32, b Bounds, nowMs int64) (evicted int) {
	q := t.partitions[partition]
	if q == nil {
		return 0
	}
	for q.head < len(q.entries) {
		over := b.over(q.entries[q.head].timestampMs, nowMs)
		if q.len() <= b.MaxKeys && !over {
			break
		}
		t.dropOldest(partition, q)
		if !over {
			evicted++
		}
	}
	t.settle(partition, q)
	return evicted
}

// Evict drops the n oldest keys of a partition, or all it has.
func (t *Table) Evict(partition int32, n int) (evicted int) {
	q := t.partitions[partition]
	if q == nil {
		return 0
	}
	for ; evicted < n && q.len() > 0; evicted++ {
		t.dropOldest(partition, q)
	}
	t.settle(partition, q)
	return evicted
}

func (q *queue) len() int { return len(q.entries) - q.head }

func (t *Table) dropOldest(partition int32, q *queue) {
	t.drop(&q.entries[q.head], ref{partition, q.first + uint32(q.head)})
	q.head++
	t.keys--
}

// fewKeys is up to where room that is not used any more is not worth a copy.
const fewKeys = 64

// settle has the room of keys that are gone used again once it is half of all, and
// gives it back once it is three quarters.
func (t *Table) settle(partition int32, q *queue) {
	if q.len() == 0 {
		delete(t.partitions, partition)
	} else if q.head > fewKeys && q.head > len(q.entries)/2 {
		q.first += uint32(q.head)
		if q.len() < cap(q.entries)/4 {
			q.entries = slices.Clone(q.entries[q.head:])
		} else {
			q.entries = q.entries[:copy(q.entries, q.entries[q.head:])]
		}
		q.head = 0
	}
	if t.most > fewKeys && len(t.byKey) < t.most/4 {
		byKey := make(map[Digest]ref, len(t.byKey))
		maps.Copy(byKey, t.byKey)
		t.byKey, t.most = byKey, len(byKey)
	}
}

// drop forgets a key, unless a later record has taken it over.
func (t *Table) drop(e *entry, r ref) {
	if t.byKey[e.key] == r {
		delete(t.byKey, e.key)
	}
}

// Forget drops all of a partition.
func (t *Table) Forget(partition int32) {
	if q := t.partitions[partition]; q != nil {
		t.Evict(partition, q.len())
	}
}

// Keys returns how many keys there are in all.
func (t *Table) Keys() int { return t.keys }

// Partitions returns the partitions that have keys.
func (t *Table) Partitions() []int32 { return slices.Collect(maps.Keys(t.partitions)) }

// Largest returns the partition with the most keys, and how many those are; none
// has 0.
func (t *Table) Largest() (partition int32, keys int) {
	for i, q := range t.partitions {
		if n := q.len(); n > keys || n == keys && i < partition {
			partition, keys = i, n
		}
	}
	return partition, keys
}

// Kept returns how many keys a partition has, and the timestamp of the oldest.
func (t *Table) Kept(partition int32) (keys int, oldestMs int64) {
	q := t.partitions[partition]
	if q == nil || q.len() == 0 {
		return 0, 0
	}
	return q.len(), q.entries[q.head].timestampMs
}
