package producerstate

import "github.com/strandline/strandline/internal/kafka"

// Marker is what the table needs of a control batch that ends a transaction.
type Marker struct {
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Timestamp        int64
}

// EndTransaction notes a marker that is in the log and returns the offset at
// which the transaction it ends began; ok is false if none was open.
func (t *Table) EndTransaction(m Marker, nowMs int64) (firstOffset kafka.Offset, ok bool) {
	e := t.touch(m.ProducerID, nowMs)
	e.startEpoch(m.ProducerEpoch)
	e.timestamp, e.coordinatorEpoch = m.Timestamp, m.CoordinatorEpoch
	if e.txnFirstOffset == kafka.NoOffset {
		return kafka.NoOffset, false
	}
	firstOffset = e.txnFirstOffset
	e.txnFirstOffset = kafka.NoOffset
	t.open.remove(e)
	return firstOffset, true
}

// FirstOpenOffset returns the first offset of the open transaction that began
// first; ok is false if none is open.
func (t *Table) FirstOpenOffset() (offset kafka.Offset, ok bool) {
	if t.open.first == nil {
		return kafka.NoOffset, false
	}
	return t.open.first.txnFirstOffset, true
}
