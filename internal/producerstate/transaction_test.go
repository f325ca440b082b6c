package producerstate_test

import (
	"errors"
	"testing"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
)

// inTxn is producer 7's batch of one record, of epoch 0, in a transaction.
func inTxn(sequence int32, offset kafka.Offset) producerstate.Append {
	return producerstate.Append{
		ProducerID: 7, BaseSequence: sequence, LastSequence: sequence, BaseOffset: offset, LastOffset: offset,
		Transactional: true,
	}
}

// TestDecisions: a marker of a decision that had its marker ends nothing, as far as this
// leader has appended it itself and it is of the same coordinator.
func TestDecisions(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	marker := func(coordinatorEpoch int32, decision, offset kafka.Offset) producerstate.Marker {
		return producerstate.Marker{ProducerID: 7, CoordinatorEpoch: coordinatorEpoch, Decision: decision, Offset: offset}
	}
	refused := func(m producerstate.Marker) bool {
		t.Helper()
		var late *producerstate.InvalidEpochError
		err := table.CheckMarker(m)
		if err != nil && !errors.As(err, &late) {
			t.Fatal(err)
		}
		return err != nil
	}
	table.Update(inTxn(0, 10), 0)
	if refused(marker(3, 5, 11)) {
		t.Error("the first marker is refused")
	}
	table.EndTransaction(marker(3, 5, 11), 0)
	table.NoteDecision(7, 5)
	if refused(marker(3, 5, 12)) {
		t.Error("a marker that comes again, and ends nothing, is refused")
	}
	table.Update(inTxn(1, 12), 0)
	if !refused(marker(3, 5, 13)) || !refused(marker(3, 4, 13)) {
		t.Error("a late marker ends the transaction after")
	}
	if refused(marker(3, 6, 13)) || refused(marker(4, 1, 13)) || refused(marker(3, 0, 13)) {
		t.Error("a marker of the transaction is refused")
	}
	table.EndTransaction(marker(3, 0, 13), 0) // By another leader, who has told nobody of its decision.
	table.Update(inTxn(2, 14), 0)
	if refused(marker(3, 5, 15)) {
		t.Error("what was decided is compared with another marker than the last")
	}
	table.NoteDecision(8, 1) // Of a producer that is not known.
}

// TestMarkersOfForgottenProducers: of a producer that is not known any more, a marker may have
// come since the coordinator was asked.
func TestMarkersOfForgottenProducers(t *testing.T) {
	table := producerstate.New(producerstate.Options{MaxProducers: 2})
	table.Update(inTxn(0, 10), 0)
	table.EndTransaction(producerstate.Marker{ProducerID: 7, Offset: 11}, 0)
	for id := range kafka.ProducerID(2) {
		a := inTxn(0, 20+kafka.Offset(id))
		a.ProducerID = id
		table.Update(a, 0)
	}
	late := inTxn(0, 30)
	late.Verified, late.VerifiedAt = true, 11
	var state *producerstate.TransactionStateError
	if _, err := table.Check(late); !errors.As(err, &state) || !table.MarkedSince(7, 11) {
		t.Errorf("a batch that was verified before its marker: %v", err)
	}
	late.VerifiedAt = 12
	if _, err := table.Check(late); err != nil || table.MarkedSince(7, 12) {
		t.Errorf("a batch that was verified after it: %v", err)
	}
}

// TestNotInTransaction: while a transaction is open, its producer writes nothing beside it,
// nor of the next.
func TestNotInTransaction(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	table.Update(inTxn(0, 10), 0)
	beside := inTxn(1, 11)
	beside.Transactional = false
	var state *producerstate.TransactionStateError
	if _, err := table.Check(beside); !errors.As(err, &state) {
		t.Errorf("a batch beside the open transaction: %v", err)
	}
	next := inTxn(0, 11)
	next.ProducerEpoch, next.Verified, next.VerifiedAt = 1, true, 11
	if _, err := table.Check(next); !errors.As(err, &state) {
		t.Errorf("a batch of the next epoch, before the marker of the last: %v", err)
	}
	table.EndTransaction(producerstate.Marker{ProducerID: 7, Offset: 11}, 0)
	if _, err := table.Check(beside); err != nil {
		t.Errorf("a batch after it: %v", err)
	}
}
