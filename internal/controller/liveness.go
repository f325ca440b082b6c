package controller

import (
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Patience is how long a Liveness waits for brokers.
type Patience struct {
	// Session is for how long a broker may be silent.
	Session time.Duration
	// Grace is for how long it may after its connection has ended.
	Grace time.Duration
	// Tick is how often Expired is called. When it is late, this node was not
	// running, and nobody else is to blame.
	Tick time.Duration
}

// Refusals is how many refused connections in a row say that a broker's process is
// gone.
const Refusals = 2

// Liveness is what the active controller knows about which brokers run. It is kept
// in memory only: a node that becomes the active controller gives every broker a
// fresh session. Times that are passed in must be of a monotonic clock. It is not
// safe for concurrent use.
//
//	          Heartbeat                 Down                    Refused, twice
//	[fresh] ------------> [seen] ----------------> [doubtful] ---------------+
//	   |                    |  ^ <------- Heartbeat ----- |                  v
//	   +-- Session is over -+-----------------------------+--- Grace --> [expired]
//
// Invariant: a broker with a session has a deadline that only Heartbeat, and a
// pause of this node, put off.
type Liveness struct {
	patience Patience
	sessions map[kafka.BrokerID]*session
	ticked   time.Time
}

type session struct {
	epoch    kafka.BrokerEpoch // Of the process that sent the last heartbeat.
	deadline time.Time
	heard    time.Time // The last heartbeat.
	seen     bool
	refused  int
}

// NewLiveness returns what a node knows that has just become the active
// controller: brokers are those that are not fenced.
func NewLiveness(p Patience, brokers []kafka.BrokerID, now time.Time) *Liveness {
	l := &Liveness{patience: p, sessions: make(map[kafka.BrokerID]*session), ticked: now}
	for _, id := range brokers {
		l.sessions[id] = &session{epoch: -1, deadline: now.Add(p.Session)}
	}
	return l
}

// Heartbeat says that a broker's process has been heard of: by a heartbeat, or by
// its registration.
func (l *Liveness) Heartbeat(id kafka.BrokerID, epoch kafka.BrokerEpoch, now time.Time) {
	s := l.sessions[id]
	if s == nil {
		s = new(session)
		l.sessions[id] = s
	}
	if epoch < s.epoch {
		return // An old process, or a late packet of it.
	}
	*s = session{epoch: epoch, deadline: now.Add(l.patience.Session), heard: now, seen: true}
}

// Seen says whether a broker was heard of since this node is the active
// controller.
func (l *Liveness) Seen(id kafka.BrokerID) bool {
	s := l.sessions[id]
	return s != nil && s.seen
}

// AllHeard says whether every broker with a session was heard of since a moment. One that
// believes in another controller sends this one nothing: so none had been elected then.
func (l *Liveness) AllHeard(since time.Time) bool {
	for _, s := range l.sessions {
		if s.heard.Before(since) {
			return false
		}
	}
	return true
}

// Down says that the connection to a broker has ended. A broker that runs will
// make another and send a heartbeat.
func (l *Liveness) Down(id kafka.BrokerID, now time.Time) {
	if s := l.sessions[id]; s != nil {
		s.shorten(now.Add(l.patience.Grace))
	}
}

// Refused says that a connection to a broker was refused: nobody listens where it
// should. That may be a moment between two processes; the second time it is gone.
func (l *Liveness) Refused(id kafka.BrokerID, now time.Time) {
	s := l.sessions[id]
	if s == nil {
		return
	}
	s.refused++
	if s.refused >= Refusals {
		s.shorten(now)
	} else {
		s.shorten(now.Add(l.patience.Grace))
	}
}

func (s *session) shorten(deadline time.Time) {
	if deadline.Before(s.deadline) {
		s.deadline = deadline
	}
}

// Expired returns the brokers whose sessions are over, in the order of their ids.
// They stay in the answer until they are forgotten. It is to be called every Tick:
// if it comes later than two, this node slept, and what others sent meanwhile may
// still wait to be read, so all deadlines move by the delay.
func (l *Liveness) Expired(now time.Time) []kafka.BrokerID {
	if late := now.Sub(l.ticked) - l.patience.Tick; late > l.patience.Tick {
		for _, s := range l.sessions {
			s.deadline = s.deadline.Add(late)
		}
	}
	l.ticked = now
	return l.Overdue(now)
}

// Overdue returns what Expired has returned, as far as it still holds.
func (l *Liveness) Overdue(now time.Time) []kafka.BrokerID {
	var out []kafka.BrokerID
	for id, s := range l.sessions {
		if !now.Before(s.deadline) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Forget ends a broker's session if it is over: the broker is fenced, and the next
// heartbeat begins another.
func (l *Liveness) Forget(id kafka.BrokerID, now time.Time) {
	if s := l.sessions[id]; s != nil && !now.Before(s.deadline) {
		delete(l.sessions, id)
	}
}
