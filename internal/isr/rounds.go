package isr

import (
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Rounds confirm that the leader leads still: a replica that was told of a round, and
// fetches after that under the leader's epoch, had not been elected by then, and did not
// follow another that was. Docs: decisions/016.
//
// Invariant: Confirmed() <= Asked(), and a round is confirmed once every replica that could
// be elected without a loss has answered it or a later one.

// Ask begins a round and returns its number, which is larger than those before.
func (l *Leader) Ask() int64 {
	l.asked++
	return l.asked
}

// Asked returns the last round that was begun, 0 for none.
func (l *Leader) Asked() int64 { return l.asked }

// Confirmed returns the last round that is confirmed. A leader that nobody could be elected
// in the place of confirms itself.
func (l *Leader) Confirmed() int64 {
	confirmed := l.asked
	for _, ids := range [][]kafka.BrokerID{l.isr, l.pending, l.eligible} {
		for _, id := range ids {
			if r := l.find(id); r == nil {
				return 0
			} else if id != l.self {
				confirmed = min(confirmed, r.answered)
			}
		}
	}
	return confirmed
}

// ToAnswer returns the round that a replica is to be told of, 0 for none.
func (l *Leader) ToAnswer(id kafka.BrokerID) int64 {
	if l.asked == 0 || !l.electable(id) {
		return 0
	}
	if r := l.find(id); r == nil || r.answered >= l.asked {
		return 0
	}
	return l.asked
}

// electable reports whether a replica may be elected without a loss, as far as this
// leader can know: the controller knows of none beside these.
func (l *Leader) electable(id kafka.BrokerID) bool {
	return slices.Contains(l.isr, id) || slices.Contains(l.pending, id) || slices.Contains(l.eligible, id)
}
