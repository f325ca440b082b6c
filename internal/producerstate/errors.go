package producerstate

import (
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
)

// OutOfOrderSequenceError says that a batch is neither the producer's next nor
// one that is remembered. It may be one that is remembered no more: only the log can tell.
type OutOfOrderSequenceError struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32 // What the batch has.
	NextSequence  int32 // What it should have.

	// From and UpTo are the part of the log where the batch is, if it was appended before
	// all that is remembered of its producer. Nothing is between them if it was not.
	From, UpTo kafka.Offset
}

// Error implements error.
func (e *OutOfOrderSequenceError) Error() string {
	return fmt.Sprintf("producer id %d, epoch %d: the batch starts at sequence %d, the next is %d: "+
		"an earlier batch is missing, send it first",
		e.ProducerID, e.ProducerEpoch, e.BaseSequence, e.NextSequence)
}

// InvalidEpochError says that the producer's epoch is over: another instance
// took its id, or it was fenced.
type InvalidEpochError struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch // What the batch has.
	CurrentEpoch  kafka.ProducerEpoch
}

// Error implements error.
func (e *InvalidEpochError) Error() string {
	return fmt.Sprintf("producer id %d: epoch %d is fenced, the current one is %d: "+
		"a newer instance of the producer took over, start this one anew",
		e.ProducerID, e.ProducerEpoch, e.CurrentEpoch)
}

// UnknownProducerError says that a batch is not a producer's first but nothing
// is known of the producer, so nobody can tell a duplicate or a gap.
type UnknownProducerError struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32
}

// Error implements error.
func (e *UnknownProducerError) Error() string {
	return fmt.Sprintf("producer id %d, epoch %d: the batch starts at sequence %d but "+
		"nothing is known of the producer here, it was idle for longer than "+
		"producer.id.expiration.ms or the topic is a new one: start over at sequence 0 with a new epoch",
		e.ProducerID, e.ProducerEpoch, e.BaseSequence)
}

// CoordinatorFencedError says that a marker comes from a coordinator that another
// has taken over from.
type CoordinatorFencedError struct {
	ProducerID       kafka.ProducerID
	CoordinatorEpoch int32 // What the marker has.
	CurrentEpoch     int32
}

// Error implements error.
func (e *CoordinatorFencedError) Error() string {
	return fmt.Sprintf("producer id %d: coordinator epoch %d is fenced, the current one is %d: "+
		"another broker coordinates its transactions now", e.ProducerID, e.CoordinatorEpoch, e.CurrentEpoch)
}

// TransactionStateError says that a batch does not fit the producer's transaction.
type TransactionStateError struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	Reason        string
}

// Error implements error.
func (e *TransactionStateError) Error() string {
	return fmt.Sprintf("producer id %d, epoch %d: %s", e.ProducerID, e.ProducerEpoch, e.Reason)
}

// SnapshotError says why bytes are not a snapshot.
type SnapshotError struct {
	Position int // Into the snapshot.
	Reason   string
}

// Error implements error.
func (e *SnapshotError) Error() string {
	return fmt.Sprintf("producer snapshot, byte %d: %s", e.Position, e.Reason)
}
