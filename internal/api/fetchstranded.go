package api

// Consumers on a broker that is cut off. The answers that it has tell them nothing: a
// partition whose leader is elsewhere by now looks like one that nobody writes to, and
// all that they hear of leaders they hear from here. No code of the protocol says that a
// broker does not know. So their connection is closed when they have read what there is:
// they dial again, whom they find, and that one tells them; this one, if they find it again,
// tells them to ask others (doubt.go).
//
// It does not come to that where the replicas confirm that this broker leads: then the
// controllers are lost, and there is nowhere to go.

import (
	"errors"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// strandedPatience is for how long a connection is served from a broker that is cut off:
// whoever has nowhere else to go comes back, and should not come all the time.
const strandedPatience = 5 * time.Second

// errStrandedReader ends a connection.
var errStrandedReader = errors.New("this broker is cut off from the cluster, and the replicas do not say that it leads " +
	"still what is read: others may lead by now")

// strandedKey finds, among the values of a connection, since when it was in doubt.
type strandedKey struct{}

// strands reports whether the connection is to be closed in the place of an answer without
// anything in it.
func (r *fetchReply) strands() bool {
	s := r.handler.s
	if r.replica != nil || r.total > 0 || r.failed || r.code != kafka.ErrNone || len(r.entries) == 0 ||
		s.OutOfTouch == nil || !s.OutOfTouch() {
		return false
	}
	now := s.Now()
	var unanswered time.Duration
	for _, e := range r.entries {
		if e.part != nil && e.part.Shared() && e.part.Leads(kafka.NoLeaderEpoch) == nil {
			unanswered = max(unanswered, e.part.Doubt(now))
		}
	}
	conn := r.wire.Conn
	since, doubted := conn.Value(strandedKey{}).(time.Time)
	switch {
	case unanswered == 0:
		conn.SetValue(strandedKey{}, nil)
		return false
	case !doubted:
		conn.SetValue(strandedKey{}, now)
		return false
	}
	return min(unanswered, now.Sub(since)) >= strandedPatience
}
