package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/refusal"
)

// Consume is a request for records as a member of a group.
type Consume struct {
	Group, Topic string
	// Member is the name of the member to be: a name of the caller's choosing,
	// Fresh for a new one, or "" for the one that callers share.
	Member   string
	MaxBytes int
	Wait     time.Duration
	Terms    Terms
	// Commit commits first what the session has handed out before.
	Commit bool
	// Rewind goes back first to what is committed, as a caller wants that has
	// lost what it was handed.
	Rewind bool
}

// Batch is what a caller was handed beside the records.
type Batch struct {
	Member     string
	Generation int32
	Records    int
	Next       []Next // Of the partitions that the records are of.

	from  *session
	taken []taking
}

// Return says that the records did not reach the caller: they will be handed out
// again, unless somebody has read on behind them.
func (b *Batch) Return() {
	if b.from == nil {
		return
	}
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	for _, t := range b.taken {
		if t.moves == t.of.moves && t.of.next == t.f.next {
			t.of.next = t.at
		}
	}
}

// Consume hands records to sink as a member of a group. With none there it waits
// for r.Wait, and for a session that is not part of its group yet a while longer.
// No records are no error.
func (x *Sessions) Consume(ctx context.Context, r Consume, sink Sink) (Batch, error) {
	k, err := keyOf(r.Group, r.Topic, r.Member)
	if err != nil {
		return Batch{}, err
	}
	if r.Member == Fresh {
		k.member = newName()
	}
	begun := x.o.Now()
	for {
		s, err := x.enter(ctx, k, &r.Terms)
		if err != nil {
			return Batch{}, err
		}
		b, err := s.consume(ctx, &r, begun, sink)
		s.exit()
		if errors.Is(err, errEnded) { // Lost, to whoever goes on under its name or for another topic of the name.
			if x.o.Now().Sub(begun) < max(r.Wait, joinPatience) {
				continue
			}
			return Batch{Member: k.member}, rebalancing(k.group)
		}
		b.Member = k.member
		return b, err
	}
}

func keyOf(group, topic, member string) (key, error) {
	if group == "" {
		return key{}, refuse(kafka.ErrInvalidRequest, "a group is needed")
	}
	if member == "" {
		member = Shared
	}
	if !validName(member) {
		return key{}, refuse(kafka.ErrInvalidRequest, "member %q: letters, digits and . _ - only, at most 100 of them", member)
	}
	return key{group, topic, member}, nil
}

// consume is Consume within one session.
func (s *session) consume(ctx context.Context, r *Consume, begun time.Time, sink Sink) (Batch, error) {
	c := &call{make(chan struct{}, 1)}
	s.await(c)
	defer s.forgo(c)
	p := &parking{waiters: map[*holding]*parked{}}
	defer p.leave()
	prepared := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return Batch{}, err
		}
		st := s.state()
		until := begun.Add(r.Wait)
		switch {
		case st.ready && !prepared:
			err := s.prepare(ctx, r)
			switch {
			case err == nil:
				prepared = true
			case outdated(err):
				s.lapse(false) // The group has moved on: so must the session.
				s.nudge()
			case refusal.CodeOf(err) == kafka.ErrUnstableOffsetCommit &&
				s.home.o.Now().Before(begun.Add(max(r.Wait, joinPatience))):
				pause(ctx) // A transaction with these offsets has not ended yet.
			default:
				return Batch{}, err
			}
			continue
		case st.ready:
			b, stuck, err := s.collect(ctx, r.MaxBytes, sink)
			if err != nil && s.home.passing(err) && s.home.o.Now().Before(begun.Add(max(r.Wait, joinPatience))) {
				pause(ctx) // Another broker leads the partition soon.
				continue
			}
			if err != nil || b.Records > 0 {
				return b, err
			}
			if !s.state().ready || !p.park(s, c, stuck) {
				continue
			}
			s.watch(ctx)
		case st.retired:
			return Batch{}, st.err
		default:
			until = begun.Add(max(r.Wait, joinPatience))
		}
		left := until.Sub(s.home.o.Now())
		if left <= 0 {
			return s.nothing()
		}
		timer.Reset(left)
		select {
		case <-c.wake:
		case <-timer.C:
			return s.nothing()
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		case <-s.home.stopped:
			return Batch{}, stopping()
		}
	}
}

// nothing is the answer when time is up: no records, or why there is no session
// to have any.
func (s *session) nothing() (Batch, error) {
	st := s.state()
	if !st.ready && st.err != nil {
		return Batch{}, st.err
	}
	return Batch{Generation: st.generation}, nil
}

// prepare does what the caller wants done before it reads.
func (s *session) prepare(ctx context.Context, r *Consume) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch {
	case r.Rewind:
		return s.rewind(ctx)
	case r.Commit:
		return s.commitRead(ctx)
	}
	return nil
}

// taking is what a caller is about to take of a holding.
type taking struct {
	of    *holding
	part  *partition.Partition // As it was then; nil if it is not open here.
	at    kafka.Offset
	moves int
	f     found
	// failed: the read gave an error.
	failed bool
}

// round is one way through a session's partitions.
type round struct {
	generation int32
	first      int // Where it begins.
	seen       int // How many it has passed.
	taken      []taking
	away       map[int32]delivery // What other brokers have delivered.
	isolation  partition.Isolation
}

// collect hands out what there is, within maxBytes, of the partitions that no
// other caller reads just now. It returns none if the session lost them over it,
// and stuck if there is nothing although there should be.
func (s *session) collect(ctx context.Context, maxBytes int, sink Sink) (b Batch, stuck bool, err error) {
	mark := sink.Mark()
	r := s.begin()
	r.away = s.fetchAway(ctx, maxBytes)
	moved := false
	for budget := maxBytes; budget > 0; {
		t, ok := s.claim(&r)
		if !ok {
			break
		}
		var failed error
		if t.f, failed = s.read(&r, t, budget, sink); failed != nil {
			t.failed = true
			err = cmp.Or(err, failed)
		}
		moved = moved || t.f.next != t.at
		if budget -= t.f.bytes; t.f.full {
			budget = 0
		}
		b.Records += t.f.records
		r.taken = append(r.taken, t)
	}
	current := b.Records == 0 || s.current(ctx)
	if !s.release(&r, current) {
		sink.Rewind(mark)
		return Batch{}, false, nil
	}
	if b.Records == 0 {
		return b, len(r.taken) > 0 && !moved, err
	}
	b.Generation, b.from = r.generation, s
	for _, t := range r.taken {
		if t.f.records > 0 {
			b.Next = append(b.Next, Next{t.of.number, t.f.next})
			b.taken = append(b.taken, t)
		}
	}
	return b, false, nil // What went wrong elsewhere goes wrong again in a call that has nothing else.
}

// begin begins a round with the partition whose turn it is.
func (s *session) begin() round {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	return round{generation: s.generation, first: s.turn, isolation: s.terms.Isolation}
}

// claim takes the next partition of a round that has something to read and that
// no other caller reads.
func (s *session) claim(r *round) (taking, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready || s.generation != r.generation {
		return taking{}, false
	}
	for r.seen < len(s.owned) {
		h := s.owned[(r.first+r.seen)%len(s.owned)]
		r.seen++
		if h.claimed || !r.worthReading(h) {
			continue
		}
		h.claimed = true
		return taking{of: h, part: h.part, at: h.next, moves: h.moves, f: found{next: h.next}}, true
	}
	return taking{}, false
}

// worthReading reports whether reading would find something: a record, or a
// reason why there is none.
func (r *round) worthReading(h *holding) bool {
	if h.away {
		d, ok := r.away[h.number]
		return ok && d.from == h.next && d.worthReading()
	}
	return h.part == nil || h.next != h.part.ReadableEnd(r.isolation) || h.part.Leads(kafka.NoLeaderEpoch) != nil
}

// read reads what was claimed.
func (s *session) read(r *round, t taking, budget int, sink Sink) (found, error) {
	if d, ok := r.away[t.of.number]; ok {
		return s.readAway(t, d, budget, sink)
	}
	if t.part == nil {
		if _, err := s.home.leading(s.key.topic, t.of.number); err != nil {
			return t.f, err
		}
		s.lapse(false) // It is there now: begin anew.
		s.nudge()
		return t.f, nil
	}
	f, err := s.home.scan(t.part, view{partition.LeaderOnly, r.isolation}, t.at, budget, sink)
	if refusal.CodeOf(err) == kafka.ErrOffsetOutOfRange {
		s.mu.Lock()
		defer s.mu.Unlock()
		return found{next: resetTo(t.part, s.terms.Reset, r.isolation)}, nil
	}
	return f, err
}

// release gives claims back and, if what was read may be handed out, moves the
// session's place on behind it. It reports whether it may be.
func (s *session) release(r *round, current bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := current && s.ready && s.generation == r.generation
	for _, t := range r.taken {
		t.of.claimed = false
		ok = ok && t.moves == t.of.moves
	}
	more := false
	for _, t := range r.taken {
		if ok {
			t.of.next = t.f.next
		}
		more = more || t.f.records > 0 || t.failed || !ok
	}
	if more { // Others may have passed by what was claimed.
		s.wakeAllLocked()
	}
	return ok
}

// current asks the coordinator whether the session's generation is still the
// group's: only then nobody else can have been given its partitions. Another broker may
// coordinate the group without this one's knowledge, so it is a question about now.
func (s *session) current(ctx context.Context) bool {
	code, err := s.heartbeat(ctx, groups.AskNow)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		// Until the session has joined again it is not ready, and nobody reads in
		// vain; what keeps it from joining is told to callers.
	case code == kafka.ErrNone:
		return true
	case code == kafka.ErrRebalanceInProgress:
		s.nudge() // The next generation begins when the session has joined it.
		return true
	}
	s.lapse(false)
	s.nudge()
	return false
}

// parking are a caller's registrations with the partitions of its session.
type parking struct {
	waiters map[*holding]*parked
}

// parked is one of them.
type parked struct {
	part   *partition.Partition
	waiter partition.Waiter
}

// park registers with every partition that this broker leads. It returns false if
// one of them has something already. If the last look was stuck, what is there does
// not count.
func (p *parking) park(s *session, c *call, stuck bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.owned {
		if h.part == nil || h.away {
			continue
		}
		w := p.waiters[h]
		if w == nil {
			w = &parked{}
			p.waiters[h] = w
		} else {
			w.part.StopWaiting(&w.waiter)
		}
		w.part = h.part
		target := h.next + 1
		if stuck || h.claimed { // Whoever claims it wakes us when that leaves something.
			target = h.part.ReadableEnd(s.terms.Isolation) + 1
		}
		if !h.part.WaitReadable(s.terms.Isolation, &w.waiter, c, target) {
			return false
		}
	}
	return true
}

// leave takes all registrations back.
func (p *parking) leave() {
	for _, w := range p.waiters {
		w.part.StopWaiting(&w.waiter)
	}
}

// passing reports whether an error is over as soon as this broker, or another one,
// knows who leads a partition. A broker that is alone waits for nobody.
func (x *Sessions) passing(err error) bool {
	if x.o.Ask == nil {
		return false
	}
	switch refusal.CodeOf(err) {
	case kafka.ErrNotLeaderOrFollower, kafka.ErrLeaderNotAvailable, kafka.ErrFencedLeaderEpoch,
		kafka.ErrUnknownLeaderEpoch, kafka.ErrOffsetNotAvailable:
		return true
	}
	return false
}
