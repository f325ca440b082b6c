package txn

import (
	"fmt"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// Durable shows the state that only Replay changes, for the replay law.
func (s *Shard) Durable() string {
	var b strings.Builder
	for _, t := range s.sorted() {
		fmt.Fprintf(&b, "%s %+v\n", t.id, t.metadata)
	}
	return b.String()
}

// Check panics if an invariant of the package is broken.
func (s *Shard) Check() {
	for e := s.once.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*transaction); t.once != e || s.transactions[t.id] != t {
			panic("the list of ids that the broker made is broken")
		}
	}
	for i, t := range s.timers {
		if t.index != i || s.transactions[t.id] != t {
			panic("the queue of deadlines is broken")
		}
	}
	for id, t := range s.transactions {
		if t.id != id {
			panic("a transaction is under another id")
		}
		if next := t.nextDeadline(&s.settings); t.atMs > next {
			panic(fmt.Sprintf("%s: the timer at %d is later than the deadline %d", id, t.atMs, next))
		}
		if err := t.check(); err != nil {
			panic(fmt.Sprintf("%s: %v", id, err))
		}
		if t.nextID != kafka.NoProducerID && t.epoch != fenceEpoch {
			panic(fmt.Sprintf("%s: a next producer id at epoch %d", id, t.epoch))
		}
		if len(t.parked) > s.settings.MaxParked {
			panic(fmt.Sprintf("%s: %d parked requests", id, len(t.parked)))
		}
		if !t.state.ending() && (t.sending || len(t.unmarked) > 0) {
			panic(fmt.Sprintf("%s: markers in state %s", id, t.state))
		}
	}
}

// DecodeRecord shows a record.
func DecodeRecord(key, value []byte) (string, error) {
	id, err := decodeKey(key)
	if err != nil {
		return "", err
	}
	if value == nil {
		return id + " tombstone", nil
	}
	m, err := decodeMetadata(value)
	if err != nil {
		return "", err
	}
	s := fmt.Sprintf("%s %s producer=%d/%d", id, m.state, m.producerID, m.epoch)
	if m.lastEpoch != noEpoch {
		s += fmt.Sprintf(" last=%d", m.lastEpoch)
	}
	if m.previousID != m.producerID {
		s += fmt.Sprintf(" previous=%d", m.previousID)
	}
	if m.nextID != kafka.NoProducerID {
		s += fmt.Sprintf(" next=%d", m.nextID)
	}
	if m.version != 0 {
		s += fmt.Sprintf(" version=%d", m.version)
	}
	for _, p := range m.partitions {
		s += " " + p.String()
	}
	return s, nil
}

// StateOf returns what the record of an id says: its producer id, epoch and state.
func StateOf(value []byte) (kafka.ProducerID, kafka.ProducerEpoch, State) {
	m, err := decodeMetadata(value)
	if err != nil {
		panic(err)
	}
	return m.producerID, m.epoch, m.state
}
