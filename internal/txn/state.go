package txn

import (
	"container/list"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// State is the state of a transactional id, by Kafka's numbers.
type State int8

// The states; see the package comment for the ways between them. Dead and
// PrepareEpochFence are states of Kafka's that no record has.
const (
	Empty State = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
	Dead
	PrepareEpochFence
)

// String returns Kafka's name of the state.
func (s State) String() string {
	if int(s) < 0 || int(s) >= len(stateNames()) {
		return "Unknown"
	}
	return stateNames()[s]
}

func stateNames() []string {
	return []string{
		"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
		"Dead", "PrepareEpochFence",
	}
}

// ending reports whether markers are being written.
func (s State) ending() bool { return s == PrepareCommit || s == PrepareAbort }

// Epochs of a producer id.
const (
	noEpoch kafka.ProducerEpoch = -1
	// fenceEpoch is the one that no client gets.
	fenceEpoch kafka.ProducerEpoch = 1<<15 - 1
	// maxEpoch is the last that a client gets.
	maxEpoch = fenceEpoch - 1
)

// noTime is the start of a transaction that has not begun.
const noTime int64 = -1

// metadata is what a record says of a transactional id. It is a value: partitions
// are never changed in place.
//
// Invariants: 0 <= epoch; nextID is set only in PrepareCommit and PrepareAbort, and
// then epoch == fenceEpoch; partitions are sorted, and there are some if and only
// if the state is Ongoing or ending.
type metadata struct {
	producerID kafka.ProducerID
	// previousID is the producer id before the last change: usually the same.
	previousID kafka.ProducerID
	// nextID takes over when the transaction is complete; kafka.NoProducerID for none.
	nextID kafka.ProducerID
	epoch  kafka.ProducerEpoch
	// lastEpoch is the epoch of whoever was given the present one instead: it may ask
	// again. noEpoch if nobody may.
	lastEpoch kafka.ProducerEpoch
	timeoutMs int32
	state     State
	// version is that of the client's transactions: 2 where each has its own epoch, so
	// that the marker's is above that of the records, else 0.
	version      int16
	partitions   []kafka.TopicPartition
	startMs      int64
	lastUpdateMs int64
}

// holder returns the producer id and epoch with which the client goes on.
func (m *metadata) holder() (kafka.ProducerID, kafka.ProducerEpoch) {
	if m.nextID != kafka.NoProducerID {
		return m.nextID, 0
	}
	return m.producerID, m.epoch
}

// held reports whether id and epoch are those with which the client goes on.
func (m *metadata) held(id kafka.ProducerID, epoch kafka.ProducerEpoch) bool {
	holderID, holderEpoch := m.holder()
	return id == holderID && epoch == holderEpoch
}

// replaced reports whether whoever had id and epoch was given the present ones in
// their place.
func (m *metadata) replaced(id kafka.ProducerID, epoch kafka.ProducerEpoch) bool {
	if m.lastEpoch == noEpoch || epoch != m.lastEpoch {
		return false
	}
	rotated := id == m.previousID && id != m.producerID && m.epoch == 0
	return rotated || id == m.producerID && epoch < m.epoch
}

// raised returns the epoch after the present one.
func (m *metadata) raised() kafka.ProducerEpoch { return min(m.epoch, maxEpoch) + 1 }

// decided reports whether a transaction has ended, or is ending, and none was begun
// since.
func (m *metadata) decided() bool { return m.state != Empty && m.state != Ongoing }

// next returns a copy to be changed into what the next record says.
func (m *metadata) next(state State, nowMs int64) metadata {
	n := *m
	n.previousID, n.state, n.lastUpdateMs = m.producerID, state, max(nowMs, m.lastUpdateMs)
	return n
}

// end returns the record that ends the transaction.
func (m *metadata) end(commit bool, nowMs int64) metadata {
	n := m.next(PrepareAbort, nowMs)
	if commit {
		n.state = PrepareCommit
	}
	return n
}

// complete returns the record that follows when each partition has its marker.
func (m *metadata) complete(nowMs int64) metadata {
	n := m.next(CompleteAbort, nowMs)
	if m.state == PrepareCommit {
		n.state = CompleteCommit
	}
	n.producerID, n.epoch = m.holder()
	n.nextID, n.partitions = kafka.NoProducerID, nil
	return n
}

// has reports whether the partition is part of the transaction.
func (m *metadata) has(p kafka.TopicPartition) bool {
	_, found := slices.BinarySearchFunc(m.partitions, p, kafka.TopicPartition.Compare)
	return found
}

// with returns the partitions with those of more that are not among them.
func (m *metadata) with(more []kafka.TopicPartition) []kafka.TopicPartition {
	all := slices.Clone(m.partitions)
	for _, p := range more {
		if !m.has(p) {
			all = append(all, kafka.TopicPartition{Topic: strings.Clone(p.Topic), Partition: p.Partition})
		}
	}
	slices.SortFunc(all, kafka.TopicPartition.Compare)
	return slices.Compact(all)
}

// transaction is a transactional id with what is soft about it.
type transaction struct {
	id string
	metadata
	lastAppended kafka.Offset

	// unmarked are the partitions whose markers are not reported written yet. While
	// sending, the sender has them.
	unmarked []kafka.TopicPartition
	sending  bool
	// notBeforeMs holds Tick back after an append has failed.
	notBeforeMs int64
	parked      []parked
	// shiftMs is by how much the clock was set since the transaction began.
	shiftMs int64
	once    *list.Element // In the list of ids that the broker made; nil for others.

	atMs  int64 // In the queue of deadlines.
	index int
}

// nextDeadline returns when Tick has something to do.
func (t *transaction) nextDeadline(s *Settings) int64 {
	next := shard.NoDeadline
	switch {
	case t.state == Ongoing:
		next = t.startMs + int64(t.timeoutMs) + t.shiftMs
	case !t.state.ending():
		next = t.lastUpdateMs + s.expirationOf(t.id).Milliseconds()
	case !t.sending:
		next = 0
	}
	if len(t.parked) > 0 {
		next = min(next, t.parked[0].deadlineMs)
		if !t.state.ending() {
			next = 0
		}
	}
	return max(next, t.notBeforeMs)
}
