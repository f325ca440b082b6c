package record

import (
	"encoding/binary"

	"github.com/strandline/strandline/internal/kafka"
)

// A control batch has one record, of which clients see nothing. Its key says what
// it is, and the one kind that stands in a topic's log ends a transaction:
//
//	key    version int16 | type int16: 0 abort, 1 commit
//	value  version int16 | coordinator epoch int32
//
// Later versions may add fields behind these, and other types; a reader takes what
// it knows. The types from 2 on are of Raft in Kafka, and never of a topic.
const (
	controlVersion   = 0
	controlAbort     = 0
	controlCommit    = 1
	controlKeySize   = 4
	controlValueSize = 6
)

// EndMarker is the end of a transaction in a partition.
type EndMarker struct {
	Commit           bool
	CoordinatorEpoch int32 // Of the coordinator that decided.
}

// MarkedProducer says whose transaction a marker ends.
type MarkedProducer struct {
	ID    kafka.ProducerID
	Epoch kafka.ProducerEpoch
}

// BuildEndMarker builds the control batch that ends a producer's transaction. Like
// all that Build returns it is the Builder's.
func (b *Builder) BuildEndMarker(p MarkedProducer, m EndMarker, timestamp int64) []byte {
	b.Reset()
	b.SetProducer(p.ID, p.Epoch, NoSequence)
	b.SetTransactional()
	b.SetControl()
	var key [controlKeySize]byte
	var value [controlValueSize]byte
	binary.BigEndian.PutUint16(key[:], controlVersion)
	binary.BigEndian.PutUint16(key[2:], controlAbort)
	if m.Commit {
		binary.BigEndian.PutUint16(key[2:], controlCommit)
	}
	binary.BigEndian.PutUint16(value[:], controlVersion)
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	b.Append(timestamp, key[:], value[:], nil)
	return b.Build()
}

// EndMarker returns what a control batch says. It returns false if the batch is
// none, ends no transaction, or was emptied by a compaction; the error is an
// *InvalidError. Nobody compresses a control batch: one that is is refused.
func (b Batch) EndMarker() (EndMarker, bool, error) {
	if !b.IsControl() || b.RecordCount() == 0 {
		return EndMarker{}, false, nil
	}
	if b.Codec() != CodecNone {
		return EndMarker{}, false, invalid(ReasonInvalidRecord, "a control batch is compressed by %s", b.Codec())
	}
	for r, err := range b.Records(0) {
		if err != nil {
			return EndMarker{}, false, err
		}
		return parseEndMarker(r)
	}
	return EndMarker{}, false, nil
}

// parseEndMarker reads a control record.
func parseEndMarker(r Record) (EndMarker, bool, error) {
	be := binary.BigEndian
	if len(r.Key) < controlKeySize {
		return EndMarker{}, false, invalid(ReasonInvalidRecord, "a control record has a key of %d bytes, and needs %d",
			len(r.Key), controlKeySize)
	}
	kind := int16(be.Uint16(r.Key[2:]))
	if version := int16(be.Uint16(r.Key)); version < 0 {
		return EndMarker{}, false, invalid(ReasonInvalidRecord, "a control record's key has version %d", version)
	}
	if kind != controlAbort && kind != controlCommit {
		return EndMarker{}, false, nil
	}
	if len(r.Value) < controlValueSize {
		return EndMarker{}, false, invalid(ReasonInvalidRecord, "the end of a transaction has a value of %d bytes, and needs %d",
			len(r.Value), controlValueSize)
	}
	if version := int16(be.Uint16(r.Value)); version < 0 {
		return EndMarker{}, false, invalid(ReasonInvalidRecord, "the end of a transaction has version %d", version)
	}
	return EndMarker{Commit: kind == controlCommit, CoordinatorEpoch: int32(be.Uint32(r.Value[2:]))}, true, nil
}
