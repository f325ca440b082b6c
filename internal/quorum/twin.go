package quorum

import (
	"fmt"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// A data directory that was copied and started twice gives two processes that pass for
// one node: they have its id and the id of its directory. Counted as one they would vote
// twice in a term, and acknowledge for one another what only one of them has. Their
// addresses tell them apart: two can't listen on one. So a node is believed to be where
// it was heard of, until it has been silent there for as long as a leader is missed. A
// process that was started again on its address after a crash is let in at once, and one
// that has moved after that time. Who hears of a node now and then only, as voters do of
// one another while one of them leads, prefers the address that the quorum knows.

// TwinError says that a node is heard of at two addresses at the same time: a copy of its
// data directory was started beside it. The second counts for nothing.
type TwinError struct {
	ID kafka.BrokerID
	// There is where the node was heard of a moment ago, and Address where another says
	// to be it.
	There, Address string
}

// Error implements error.
func (e *TwinError) Error() string {
	return fmt.Sprintf("node %d runs at %s, and another process, at %s, says to be it, with a copy of its data directory: "+
		"stop one of the two, and start it with an empty directory and a --node-id of its own", e.ID, e.There, e.Address)
}

// sightings are where other nodes were heard of last. It is safe for concurrent use.
type sightings struct {
	mu   sync.Mutex
	last map[kafka.BrokerID]sighting
}

type sighting struct {
	address string
	at      time.Time
}

// maxSightings bounds how many are remembered: anything may come over the wire.
const maxSightings = 10_000

// note takes a sign of life, unless the node gave one elsewhere for less than patience ago
// and this is not where it is expected.
func (s *sightings) note(from Member, expected string, now time.Time, patience time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.last[from.ID]
	if known && last.address != from.Address && from.Address != expected && now.Sub(last.at) <= patience {
		return &TwinError{ID: from.ID, There: last.address, Address: from.Address}
	}
	if s.last == nil {
		s.last = map[kafka.BrokerID]sighting{}
	}
	if known || len(s.last) < maxSightings {
		s.last[from.ID] = sighting{from.Address, now}
	}
	return nil
}

// admit refuses who is not the one that the quorum knows by this id, or is it twice.
func (q *Quorum) admit(from Member) error {
	if err := q.check(from); err != nil {
		return err
	}
	known, _ := q.Member(from.ID)
	return q.sightings.note(from, known.Address, time.Now(), q.electionTimeout())
}
