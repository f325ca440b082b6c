package idempotency

import "github.com/strandline/strandline/internal/kafka"

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
// the new one came.
func (t *Table) Observe(key, content Digest, p Place, b Bounds) {
	if r, ok := t.byKey[key]; ok && !b.over(t.at(r).timestampMs, p.TimestampMs) {
		return
	}
	q := t.partitions[p.Partition]
	if q == nil {
		q = &queue{}
		t.partitions[p.Partition] = q
	}
	t.byKey[key] = ref{p.Partition, q.first + uint32(len(q.entries))}
	q.entries = append(q.entries, entry{key, content, p.Offset, p.TimestampMs})
	t.Expire(p.Partition, b, p.TimestampMs)
}

// Expire drops what a partition need not keep any more.
func (t *Table) Expire(partition int32, b Bounds, nowMs int64) {
	q := t.partitions[partition]
	if q == nil {
		return
	}
	for q.head < len(q.entries) {
		e := &q.entries[q.head]
		if len(q.entries)-q.head <= b.MaxKeys && !b.over(e.timestampMs, nowMs) {
			break
		}
		t.drop(e, ref{partition, q.first + uint32(q.head)})
		q.head++
	}
	// The room of those that are gone is used again once it is half of all.
	if q.head > 64 && q.head > len(q.entries)/2 {
		n := copy(q.entries, q.entries[q.head:])
		q.entries = q.entries[:n]
		q.first += uint32(q.head)
		q.head = 0
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
	q := t.partitions[partition]
	if q == nil {
		return
	}
	for i := q.head; i < len(q.entries); i++ {
		t.drop(&q.entries[i], ref{partition, q.first + uint32(i)})
	}
	delete(t.partitions, partition)
}

// Kept returns how many keys a partition has, and the timestamp of the oldest.
func (t *Table) Kept(partition int32) (keys int, oldestMs int64) {
	q := t.partitions[partition]
	if q == nil || q.head == len(q.entries) {
		return 0, 0
	}
	return len(q.entries) - q.head, q.entries[q.head].timestampMs
}
