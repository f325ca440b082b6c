package producerstate

import "github.com/strandline/strandline/internal/kafka"

// Marker is what the table needs of a control batch that ends a transaction.
type Marker struct {
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Offset           kafka.Offset // CheckMarker does not look at it.
	Timestamp        int64
	// Bumped says that the producer's epoch rises with each transaction (KIP-890):
	// the marker has an epoch above that of what it ends. CheckMarker alone looks
	// at it.
	Bumped bool
	// Decision numbers a coordinator's decisions about the producer's transactions, rising
	// from one to the next; 0 if it is not known. CheckMarker alone looks at it: it is not in
	// the log, so whoever appends a marker also notes its decision (NoteDecision).
	Decision kafka.Offset
}

// CheckMarker says whether the leader may append a marker. It changes nothing. The
// error is *InvalidEpochError or *CoordinatorFencedError.
//
// A marker is appended whether anything is known of the producer or not, but for one that
// no producer could have: its epoch would stay in the table, which nobody could read back.
//
// A marker that comes again after an answer was lost is as good as the first, and
// ends nothing. One that is late, of the transaction before, would end the present
// one: where the epoch rises with each transaction it is told apart by that, and else by
// its decision, of which there was a marker before the present transaction could begin.
func (t *Table) CheckMarker(m Marker) error {
	e := t.entries[m.ProducerID]
	switch {
	case m.ProducerID < 0 || m.ProducerEpoch < 0:
		return &InvalidEpochError{m.ProducerID, m.ProducerEpoch, 0}
	case m.CoordinatorEpoch < NoCoordinatorEpoch:
		return &CoordinatorFencedError{m.ProducerID, m.CoordinatorEpoch, NoCoordinatorEpoch}
	case e == nil:
		return nil
	case m.ProducerEpoch < e.epoch,
		m.Bumped && m.ProducerEpoch == e.epoch && e.isOpen(),
		m.Decision > 0 && m.Decision <= e.decision && m.CoordinatorEpoch == e.coordinatorEpoch && e.isOpen():
		return &InvalidEpochError{m.ProducerID, m.ProducerEpoch, e.epoch}
	case m.CoordinatorEpoch < e.coordinatorEpoch:
		return &CoordinatorFencedError{m.ProducerID, m.CoordinatorEpoch, e.coordinatorEpoch}
	}
	return nil
}

// EndTransaction notes a marker that is in the log and returns the offset at
// which the transaction it ends began; ok is false if none was open.
func (t *Table) EndTransaction(m Marker, nowMs int64) (firstOffset kafka.Offset, ok bool) {
	e := t.touch(m.ProducerID, nowMs)
	e.startEpoch(m.ProducerEpoch)
	e.timestamp, e.coordinatorEpoch, e.lastMarker, e.decision = m.Timestamp, m.CoordinatorEpoch, m.Offset, 0
	if !e.isOpen() {
		return kafka.NoOffset, false
	}
	firstOffset = e.txnFirstOffset
	e.txnFirstOffset = kafka.NoOffset
	t.open.remove(e)
	return firstOffset, true
}

// NoteDecision notes of which decision a producer's last marker was, which CheckMarker was
// told and which is in the log now.
func (t *Table) NoteDecision(id kafka.ProducerID, decision kafka.Offset) {
	if e := t.entries[id]; e != nil {
		e.decision = decision
	}
}

// FirstOpenOffset returns the first offset of the open transaction that began
// first; ok is false if none is open.
func (t *Table) FirstOpenOffset() (offset kafka.Offset, ok bool) {
	if t.open.first == nil {
		return kafka.NoOffset, false
	}
	return t.open.first.txnFirstOffset, true
}

// Ongoing returns where a producer's open transaction began and the epoch it is
// of; ok is false if it has none.
func (t *Table) Ongoing(id kafka.ProducerID) (firstOffset kafka.Offset, epoch kafka.ProducerEpoch, ok bool) {
	e := t.entries[id]
	if e == nil || !e.isOpen() {
		return kafka.NoOffset, 0, false
	}
	return e.txnFirstOffset, e.epoch, true
}

// LastSequence returns the last sequence of a producer's epoch; ok is false if it has none.
func (t *Table) LastSequence(id kafka.ProducerID, epoch kafka.ProducerEpoch) (sequence int32, ok bool) {
	e := t.entries[id]
	if e == nil || e.epoch != epoch || e.count == 0 {
		return noSequence, false
	}
	return e.lastSequence(), true
}

// checkTransaction says whether a batch fits the producer's transaction. A
// transactional batch needs one that is open here, or the word of the coordinator
// that the partition is part of one; that word was given before the batch came
// here, and a marker that came in between has ended what it was about (KIP-890).
// That another is open by now, of the same epoch as it may be before version 2 of
// transactions, does not make the batch part of it.
func (t *Table) checkTransaction(e *entry, a *Append) error {
	open := e != nil && e.isOpen()
	switch {
	case !a.Transactional && open:
		return &TransactionStateError{a.ProducerID, a.ProducerEpoch, "all that it writes until its " +
			"transaction ends must be part of it"}
	case !a.Transactional:
		return nil
	case a.Verified && t.lastMarkerOf(e) >= a.VerifiedAt:
		return &TransactionStateError{a.ProducerID, a.ProducerEpoch, "the batch came so late that its " +
			"transaction has ended here"}
	case open && e.epoch == a.ProducerEpoch:
		return nil
	case open:
		return &TransactionStateError{a.ProducerID, a.ProducerEpoch, "its transaction of an earlier " +
			"epoch has not ended here"}
	case !a.Verified:
		return &TransactionStateError{a.ProducerID, a.ProducerEpoch, "the batch is not part of a " +
			"transaction that the coordinator knows to be open here"}
	}
	return nil
}

// MarkedSince reports whether a producer has had a marker at or above an offset.
func (t *Table) MarkedSince(id kafka.ProducerID, at kafka.Offset) bool {
	return t.lastMarkerOf(t.entries[id]) >= at
}

// lastMarkerOf returns the offset of a producer's last marker since the table was
// made, or one that is above it; kafka.NoOffset if there was none.
func (t *Table) lastMarkerOf(e *entry) kafka.Offset {
	if e == nil {
		return t.forgottenMarker
	}
	return e.lastMarker
}
