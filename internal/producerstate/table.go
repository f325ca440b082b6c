package producerstate

import (
	"math"

	"github.com/strandline/strandline/internal/kafka"
)

// Window is how many batches of a producer are remembered. It is Kafka's, and
// clients count on it: max.in.flight.requests.per.connection is at most 5 with
// idempotence.
const Window = 5

// DefaultMaxProducers is how many producers a table remembers unless told
// otherwise. One costs about 250 bytes.
const DefaultMaxProducers = 50_000

// NoCoordinatorEpoch is the coordinator epoch before any marker.
const NoCoordinatorEpoch int32 = -1

// noSequence stands before the first sequence.
const noSequence int32 = -1

// Options are the settings of a Table.
type Options struct {
	// MaxProducers bounds the table; zero for DefaultMaxProducers. When a new
	// producer would exceed it, those that have been silent for longest are
	// forgotten, except for open transactions.
	MaxProducers int

	// AcceptUnknown accepts a batch that is not the first of a producer that
	// nothing is known of, as Kafka does since 2.4. The default is to refuse it
	// with *UnknownProducerError, which clients answer with a new epoch: the
	// batch may be a duplicate, or others before it may be missing.
	AcceptUnknown bool
}

// Append is what the table needs of a batch with a producer id. One of a
// coordinator has no sequences (-1): it is checked for its epoch alone.
type Append struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32
	LastSequence  int32
	BaseOffset    kafka.Offset // Check does not look at the offsets.
	LastOffset    kafka.Offset
	MaxTimestamp  int64
	Transactional bool
	// Gaps says that the producer numbers what it sends and not its records, so that
	// sequences are left out: any that is above the last one is new. It is for batches
	// of a transaction alone: what an open one has here is not forgotten before it ends,
	// so a batch that comes again is known whatever its sequence. Check alone looks at it.
	Gaps bool
	// Verified says that the coordinator knows the transaction to be open in this
	// partition, and VerifiedAt where the log ended before it was asked. Check alone
	// looks at them.
	Verified   bool
	VerifiedAt kafka.Offset
}

// Verdict is what Check found.
type Verdict struct {
	// Duplicate: the batch is in the log already, where the offsets say. Else it
	// is new.
	Duplicate bool

	BaseOffset kafka.Offset
	LastOffset kafka.Offset
	Timestamp  int64 // The batch's max timestamp: its append time under LogAppendTime.
}

// batch is one remembered batch.
//
// Invariant: offsetDelta >= 0, and the batch has offsetDelta+1 sequences.
type batch struct {
	lastOffset   kafka.Offset
	timestamp    int64
	lastSequence int32
	offsetDelta  int32
}

func (b *batch) baseSequence() int32 { return addSequence(b.lastSequence, -int64(b.offsetDelta)) }

// addSequence counts on from a sequence, which wraps at 2^31.
func addSequence(sequence int32, n int64) int32 {
	return int32((int64(sequence) + n) & math.MaxInt32)
}

// entry is one producer.
//
// Invariants: 0 <= count <= Window; batches[:count] are of this epoch, oldest
// first, and each starts at the sequence after the one before, or above it if the
// producer leaves sequences out; unless the log was written by a leader that accepted
// an unknown producer.
type entry struct {
	id               kafka.ProducerID
	txnFirstOffset   kafka.Offset // kafka.NoOffset: no open transaction.
	timestamp        int64        // Of the newest batch or marker.
	lastAppendMs     int64        // When that was appended, by the broker's clock.
	lastOffset       kafka.Offset // Of the newest batch of this epoch, or kafka.NoOffset.
	lastMarker       kafka.Offset // Of the last marker since the table was made, or kafka.NoOffset.
	decision         kafka.Offset // That the last marker is of, or 0: it came from another leader.
	coordinatorEpoch int32
	epoch            kafka.ProducerEpoch
	count            int8
	batches          [Window]batch
	links            [numLists]links
}

func newEntry(id kafka.ProducerID) *entry {
	return &entry{
		id: id, epoch: -1, txnFirstOffset: kafka.NoOffset, lastOffset: kafka.NoOffset,
		lastMarker: kafka.NoOffset, coordinatorEpoch: NoCoordinatorEpoch,
	}
}

// isOpen tells whether the producer has an open transaction.
func (e *entry) isOpen() bool { return e.txnFirstOffset != kafka.NoOffset }

func (e *entry) newest() *batch {
	if e.count == 0 {
		return nil
	}
	return &e.batches[e.count-1]
}

func (e *entry) lastSequence() int32 {
	if b := e.newest(); b != nil {
		return b.lastSequence
	}
	return noSequence
}

// startEpoch forgets the batches of an older epoch.
func (e *entry) startEpoch(epoch kafka.ProducerEpoch) {
	if e.epoch != epoch {
		e.epoch, e.count, e.lastOffset = epoch, 0, kafka.NoOffset
	}
}

func (e *entry) remember(b batch) {
	if e.count == Window {
		copy(e.batches[:], e.batches[1:])
		e.count--
	}
	e.batches[e.count] = b
	e.count++
	e.lastOffset = b.lastOffset
}

// Table is the producers of one log. An empty one costs next to nothing.
type Table struct {
	options Options
	entries map[kafka.ProducerID]*entry
	recent  list // All entries, the longest silent first.
	open    list // Those with an open transaction, the first opened first.
	// forgottenMarker is the greatest lastMarker of all producers that were
	// forgotten.
	forgottenMarker kafka.Offset
}

// New returns an empty table.
func New(options Options) *Table {
	if options.MaxProducers <= 0 {
		options.MaxProducers = DefaultMaxProducers
	}
	return &Table{
		options: options, recent: list{kind: listRecent}, open: list{kind: listOpen},
		forgottenMarker: kafka.NoOffset,
	}
}

// Len returns the number of producers.
func (t *Table) Len() int { return len(t.entries) }

// Reset forgets everything.
func (t *Table) Reset() { *t = *New(t.options) }

// Check says whether the leader may append a batch. It changes nothing. The
// error is *OutOfOrderSequenceError, *InvalidEpochError, *TransactionStateError or
// *UnknownProducerError. That the epoch is over comes first: a producer that was
// fenced must learn that, whatever else is wrong with its batch.
func (t *Table) Check(a Append) (Verdict, error) {
	e := t.entries[a.ProducerID]
	known := e != nil && a.ProducerEpoch == e.epoch
	if e != nil && a.ProducerEpoch < e.epoch {
		return Verdict{}, &InvalidEpochError{a.ProducerID, a.ProducerEpoch, e.epoch}
	}
	if known {
		if v, ok := e.duplicate(a.BaseSequence, a.LastSequence); ok {
			return v, nil
		}
	}
	if a.Transactional || e != nil && e.isOpen() {
		if err := t.checkTransaction(e, &a); err != nil {
			return Verdict{}, err
		}
	}
	if a.BaseSequence < 0 {
		return Verdict{}, nil
	}
	next := int32(0)
	switch {
	case a.Gaps && (!known || a.BaseSequence > e.lastSequence()):
		return Verdict{}, nil
	case e == nil && a.BaseSequence != 0 && !t.options.AcceptUnknown:
		return Verdict{}, &UnknownProducerError{a.ProducerID, a.ProducerEpoch, a.BaseSequence}
	case e == nil:
		return Verdict{}, nil
	case known:
		next = addSequence(e.lastSequence(), 1)
	}
	if a.BaseSequence != next {
		out := &OutOfOrderSequenceError{
			ProducerID: a.ProducerID, ProducerEpoch: a.ProducerEpoch, BaseSequence: a.BaseSequence, NextSequence: next,
		}
		if known {
			out.From, out.UpTo = e.older(&a)
		}
		return Verdict{}, out
	}
	return Verdict{}, nil
}

// duplicate looks a batch up by its exact range of sequences.
func (e *entry) duplicate(baseSequence, lastSequence int32) (Verdict, bool) {
	for i := range e.batches[:e.count] {
		b := &e.batches[i]
		if b.lastSequence == lastSequence && b.baseSequence() == baseSequence {
			return Verdict{
				Duplicate:  true,
				BaseOffset: b.lastOffset - kafka.Offset(b.offsetDelta),
				LastOffset: b.lastOffset,
				Timestamp:  b.timestamp,
			}, true
		}
	}
	return Verdict{}, false
}

// older returns where in the log a batch lies, if it is there, that precedes all batches
// that are remembered: an empty part of it for one that cannot be there.
//
// A client that may have five batches in flight on one connection can have far more on
// their way, and send them again in the end: those that a broker does not answer which is
// cut off, and all that its successor has taken meanwhile.
//
// That sequences leave no gap does not prove that the batch is there. Some clients give one
// twice in an epoch: Java's before 2.5 start over at 0 after UNKNOWN_PRODUCER_ID, maybe at a
// replica that has not forgotten them, and give the sequences of a batch that fails for good
// to those after it, though an earlier try may have been appended.
func (e *entry) older(a *Append) (from, upTo kafka.Offset) {
	if a.BaseSequence < 0 || e.count == 0 || a.Gaps || a.Transactional != e.isOpen() {
		return 0, 0
	}
	if a.Transactional {
		from = e.txnFirstOffset
	}
	// A sequence takes an offset, and more lie between if others write as well.
	oldest := &e.batches[0]
	between := addSequence(oldest.baseSequence(), -1-int64(a.LastSequence))
	upTo = oldest.lastOffset - kafka.Offset(oldest.offsetDelta) - kafka.Offset(between)
	length := kafka.Offset(addSequence(a.LastSequence, 1-int64(a.BaseSequence)))
	if between > math.MaxInt32/2 || upTo-from < length { // Half of all sequences precede one.
		return 0, 0
	}
	return from, upTo
}

// Update notes a batch that is in the log. It trusts the log: whatever is there
// is the producer's state, in sequence or not. nowMs is the broker's clock, also
// when an old log is read back; a producer's expiration counts from it, not from
// the timestamps, which are the clients' own. It reports whether the batch is the
// first of a transaction.
func (t *Table) Update(a Append, nowMs int64) (began bool) {
	e := t.touch(a.ProducerID, nowMs)
	e.startEpoch(a.ProducerEpoch)
	e.timestamp = a.MaxTimestamp
	if a.BaseSequence >= 0 {
		e.remember(batch{
			lastOffset:   a.LastOffset,
			timestamp:    a.MaxTimestamp,
			lastSequence: a.LastSequence,
			offsetDelta:  int32(a.LastOffset - a.BaseOffset),
		})
	}
	e.lastOffset = a.LastOffset
	if !a.Transactional || e.isOpen() {
		return false
	}
	e.txnFirstOffset = a.BaseOffset
	t.open.push(e)
	return true
}

// touch returns the entry of a producer, new if need be, as the most recent.
func (t *Table) touch(id kafka.ProducerID, nowMs int64) *entry {
	e := t.entries[id]
	if e == nil {
		for len(t.entries) >= t.options.MaxProducers && t.evict() {
		}
		e = newEntry(id)
		t.insert(e)
	} else if t.recent.last != e {
		t.recent.remove(e)
		t.recent.push(e)
	}
	e.lastAppendMs = nowMs
	return e
}

// insert adds a new entry as the most recent.
func (t *Table) insert(e *entry) {
	if t.entries == nil {
		t.entries = make(map[kafka.ProducerID]*entry)
	}
	t.entries[e.id] = e
	t.recent.push(e)
}

// evict forgets the producer that has been silent for longest and has no open
// transaction, and reports whether there was one: what is open must be ended.
func (t *Table) evict() bool {
	for e := t.recent.first; e != nil; e = e.links[listRecent].next {
		if !e.isOpen() {
			t.forget(e)
			return true
		}
	}
	return false
}

func (t *Table) forget(e *entry) {
	t.forgottenMarker = max(t.forgottenMarker, e.lastMarker)
	t.recent.remove(e)
	delete(t.entries, e.id)
}

// Expire forgets the producers that appended nothing for expirationMs or more
// and have no open transaction, and returns how many. Its cost is in what it
// forgets, not in the size of the table.
func (t *Table) Expire(nowMs, expirationMs int64) int {
	forgotten := 0
	for e := t.recent.first; e != nil && nowMs-e.lastAppendMs >= expirationMs; {
		next := e.links[listRecent].next
		if !e.isOpen() {
			t.forget(e)
			forgotten++
		}
		e = next
	}
	return forgotten
}

// Entry is one producer as DescribeProducers shows it.
type Entry struct {
	ProducerID            kafka.ProducerID
	ProducerEpoch         kafka.ProducerEpoch
	LastSequence          int32        // -1: none of this epoch.
	LastOffset            kafka.Offset // Of its newest batch; kafka.NoOffset: none of this epoch.
	LastTimestamp         int64        // Of its newest batch or marker.
	CoordinatorEpoch      int32        // Of its last marker, or NoCoordinatorEpoch.
	CurrentTxnFirstOffset kafka.Offset // kafka.NoOffset: no open transaction.
}

// Active calls fn for every producer, the longest silent first, until it
// returns false; it has the form of an iterator, for range. The table must not
// change meanwhile.
func (t *Table) Active(fn func(Entry) bool) {
	for e := t.recent.first; e != nil; e = e.links[listRecent].next {
		if !fn(Entry{
			e.id, e.epoch, e.lastSequence(), e.lastOffset, e.timestamp, e.coordinatorEpoch,
			e.txnFirstOffset,
		}) {
			return
		}
	}
}
