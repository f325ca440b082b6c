package session

import (
	"errors"
	"sync/atomic"
)

// Stats are the sessions there are, and what became of those there were.
type Stats struct {
	Open, Limit    int
	Begun, Refused uint64 // Refused: there were as many as may be.
	// FirstJoins and Rejoins are the generations of groups that sessions became
	// part of: the first of each, and later ones.
	FirstJoins, Rejoins uint64
	// Expired were unused for their timeout, Fenced lost their name to somebody who
	// goes on under it, and Failed could not be part of their group.
	Expired, Fenced, Failed uint64
}

// counts are what Stats tells.
type counts struct {
	begun, refused, firstJoins, rejoins, expired, fenced, failed atomic.Uint64
}

// Stats returns what there is and was.
func (x *Sessions) Stats() Stats {
	c := &x.counts
	return Stats{
		Open: x.Len(), Limit: x.o.MaxSessions, Begun: c.begun.Load(), Refused: c.refused.Load(),
		FirstJoins: c.firstJoins.Load(), Rejoins: c.rejoins.Load(),
		Expired: c.expired.Load(), Fenced: c.fenced.Load(), Failed: c.failed.Load(),
	}
}

// joined counts a generation that a session became part of.
func (c *counts) joined(before bool) {
	if before {
		c.rejoins.Add(1)
	} else {
		c.firstJoins.Add(1)
	}
}

// ended counts a session that ended because of an error.
func (c *counts) ended(err error) {
	if errors.Is(err, errFenced) {
		c.fenced.Add(1)
	} else {
		c.failed.Add(1)
	}
}
