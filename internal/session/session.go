package session

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// Reset says where to read when the group has no offset, or one that is not in
// the log any more.
type Reset int8

// The values of Reset. A queue's caller that says nothing would rather read too
// much than miss something, so unlike Kafka's clients Earliest is the default.
const (
	Earliest Reset = iota
	Latest
)

// Terms are what a caller asks of its session beyond its name. Those of the
// latest call hold.
type Terms struct {
	Reset   Reset
	Timeout time.Duration // Unused for so long, the session leaves; 0 means 30 s.
	// Isolation leaves out, if it is read_committed, what is not committed.
	Isolation partition.Isolation
}

const defaultTimeout = 30 * time.Second

// session is one member of a group.
type session struct {
	home    *Sessions
	key     key
	topicID kafka.TopicID
	done    chan struct{} // Closed when run has ended.
	poke    chan struct{} // Makes run look at the group now.
	// commits is held by whoever commits, so that commits take effect in the
	// order in which they were decided.
	commits chan struct{}

	mu       sync.Mutex
	retired  bool  // Takes no more callers; run ends soon.
	err      error // Why the session cannot be ready now, or has ended.
	callers  int
	lastUsed time.Time
	terms    Terms
	waiting  map[*call]struct{}

	memberID   string
	generation int32
	// ready: owned is what the group gave to the session in generation.
	ready bool
	owned []*holding // In order of number.
	turn  int        // Whose turn it is to be read first.
	// watched are the brokers that were asked to tell when they have records, by
	// watchers.
	watched  map[kafka.BrokerID]*watching
	watchers sync.WaitGroup
}

// holding is a partition that a session owns, and its place there. It is
// guarded by the session's lock.
type holding struct {
	number int32
	part   *partition.Partition // nil if this broker cannot open it.
	// next is the offset of the next record to hand out.
	next kafka.Offset
	// committed is the offset last committed, or where reading began: beyond it
	// is what a caller has had and not committed.
	committed kafka.Offset
	// moves counts the times that next was set from outside, so that a read that
	// was begun before does not count.
	moves   int
	claimed bool // A caller reads it.

	// away says that another broker leads the partition, as far as was known when
	// it was last looked at; which one, or kafka.NoBroker, says leader. end is how
	// far the partition goes then, or unknownEnd.
	away   bool
	leader kafka.BrokerID
	end    kafka.Offset
}

// call is a caller that waits.
type call struct{ wake chan struct{} }

// Wake implements partition.Waker.
func (c *call) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func newSession(home *Sessions, k key, id kafka.TopicID) *session {
	return &session{
		home: home, key: k, topicID: id, done: make(chan struct{}), poke: make(chan struct{}, 1),
		commits: make(chan struct{}, 1), waiting: map[*call]struct{}{}, generation: noGeneration,
		watched: map[kafka.BrokerID]*watching{},
		terms:   Terms{Timeout: defaultTimeout},
	}
}

// enter counts a caller in, unless the session is on its way out.
func (s *session) enter(now time.Time, terms *Terms) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.callers++
	s.lastUsed = now
	if terms != nil {
		if terms.Isolation != s.terms.Isolation {
			for _, h := range s.owned {
				h.end = unknownEnd // It goes further now, or less far.
			}
			s.unwatchLocked()
		}
		s.terms = *terms
		s.terms.Timeout = cmp.Or(terms.Timeout, defaultTimeout)
	}
	return true
}

// exit counts a caller out.
func (s *session) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers--
	s.lastUsed = s.home.o.Now()
}

// retire makes the session end.
func (s *session) retire() {
	s.mu.Lock()
	s.retired, s.ready = true, false
	s.wakeAllLocked()
	s.mu.Unlock()
	s.nudge()
}

// retireIfUnused retires the session if nobody has used it for its timeout.
func (s *session) retireIfUnused(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.retired && s.callers == 0 && now.Sub(s.lastUsed) >= s.terms.Timeout {
		s.retired, s.ready = true, false
		s.home.counts.expired.Add(1)
	}
	return s.retired
}

// nudge makes run look at the group now.
func (s *session) nudge() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// await makes c one of those that hear of changes; the caller ends with forgo.
func (s *session) await(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[c] = struct{}{}
}

func (s *session) forgo(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c)
}

func (s *session) wakeAllLocked() {
	for c := range s.waiting {
		c.Wake()
	}
}

// state is a session at one moment.
type state struct {
	ready      bool
	retired    bool
	err        error
	memberID   string
	generation int32
}

func (s *session) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state{s.ready, s.retired, s.err, s.memberID, s.generation}
}

// lapse says that the session owns nothing until it has joined again, under a
// new member id if forgotten.
func (s *session) lapse(forgotten bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = false
	if forgotten {
		s.memberID, s.generation, s.owned = "", noGeneration, nil
	}
}

// trouble notes why the session cannot be ready now.
func (s *session) trouble(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// settle makes what the group gave to the session in a generation its own. It
// keeps its place in a partition that it has had in the generation before, or had
// already in this one: in between nobody else can have. It reports whether it gave anything up.
func (s *session) settle(memberID string, generation int32, owned []*holding) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.owned
	kept := 0
	for i, h := range owned {
		at := slices.IndexFunc(before, func(b *holding) bool { return b.number == h.number && b.part == h.part })
		if at < 0 {
			continue
		}
		kept++
		if s.memberID == memberID && (s.generation == generation || s.generation+1 == generation) {
			owned[i] = before[at]
		}
	}
	s.memberID, s.generation, s.owned = memberID, generation, owned
	s.ready, s.err, s.turn = !s.retired, nil, 0
	s.unwatchLocked()
	s.wakeAllLocked()
	return kept < len(before)
}

// holdingLocked returns the holding of a partition; nil if the session does not
// own it, or did not when it was last part of its group.
func (s *session) holdingLocked(number int32) *holding {
	i := slices.IndexFunc(s.owned, func(h *holding) bool { return h.number == number })
	if i < 0 {
		return nil
	}
	return s.owned[i]
}
