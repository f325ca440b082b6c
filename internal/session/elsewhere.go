package session

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/topics"
)

// A group's coordinator need not lead the partitions that its members own. What a
// session reads of others' it asks their leaders for: for records of all partitions
// of one leader at once, and, while there is nothing, to be told when there is
// something.

const (
	// maxAwayWait is how long a leader is asked to wait for records. The one who
	// waits asks again.
	maxAwayWait = 10 * time.Second
	// askTimeout is how long an answer may take that waits for nothing.
	askTimeout = 2 * time.Second
)

// Ask sends a request to the Sessions of another broker, and returns what their
// Serve does.
type Ask func(ctx context.Context, to kafka.BrokerID, request []byte) ([]byte, error)

// unknownEnd says that a session does not know how far a partition goes.
const unknownEnd = kafka.NoOffset

// awayFrom returns who leads a partition if that is another broker, or if nobody
// does, for which it returns kafka.NoBroker. On a broker that is alone it is always
// this one.
func (x *Sessions) awayFrom(v *topics.View, number int32) (leader kafka.BrokerID, away bool) {
	if x.o.Ask == nil || int(number) >= len(v.Meta.Partitions) {
		return x.o.Self, false
	}
	leader = v.Meta.Partitions[number].Leader
	return leader, leader != x.o.Self
}

// noLeader refuses what needs a leader.
func noLeader(number int32) *kafka.Error {
	return &kafka.Error{
		Code:    kafka.ErrLeaderNotAvailable,
		Message: "partition " + strconv.Itoa(int(number)) + " has no leader: try again",
	}
}

// askLeader asks a leader, within askTimeout beyond what it is to wait.
func (x *Sessions) askLeader(ctx context.Context, leader kafka.BrokerID, q *query) ([]told, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout+q.wait)
	defer cancel()
	b, err := x.o.Ask(ctx, leader, q.append(nil))
	if err != nil {
		return nil, &kafka.Error{
			Code:    kafka.ErrNotLeaderOrFollower,
			Message: "the broker that leads the partition does not answer: try again",
		}
	}
	return readTold(b, len(q.parts))
}

// byLeader are partitions of one topic with the brokers that lead them.
type byLeader map[kafka.BrokerID][]Next

// locateAll finds a place in each of some partitions of a topic, whoever leads them.
func (x *Sessions) locateAll(ctx context.Context, v *topics.View, numbers []int32, at Place) ([]told, error) {
	all := make([]told, len(numbers))
	away := byLeader{}
	for i, number := range numbers {
		switch leader, elsewhere := x.awayFrom(v, number); {
		case elsewhere && leader == kafka.NoBroker:
			return nil, noLeader(number)
		case elsewhere:
			away[leader] = append(away[leader], Next{number, kafka.Offset(i)})
		default:
			p, err := x.leading(v.Name, number)
			if err != nil {
				return nil, err
			}
			offset, err := locate(p, at)
			if err != nil {
				return nil, err
			}
			all[i] = told{start: p.Log().LogStartOffset(), highWatermark: p.HighWatermark(), at: offset}
		}
	}
	for leader, parts := range away {
		found, err := x.askLeader(ctx, leader, &query{kind: kindLocate, topic: v.Meta.ID, parts: parts, at: at})
		if err != nil {
			return nil, err
		}
		for i, p := range parts {
			if found[i].err != nil {
				return nil, found[i].err
			}
			all[p.Offset] = found[i]
		}
	}
	return all, nil
}

// Ends are how far a partition goes, as its leader says; Known is false if nobody
// says.
type Ends struct {
	LogStart, HighWatermark kafka.Offset
	Known                   bool
}

// EndsOf asks for the ends of some partitions of a topic, whoever leads them.
func (x *Sessions) EndsOf(ctx context.Context, v *topics.View, numbers []int32) []Ends {
	out := make([]Ends, len(numbers))
	away := byLeader{}
	for i, number := range numbers {
		switch leader, elsewhere := x.awayFrom(v, number); {
		case elsewhere && leader != kafka.NoBroker:
			away[leader] = append(away[leader], Next{number, kafka.Offset(i)})
		case !elsewhere:
			if p := v.Partition(number); p != nil {
				out[i] = Ends{p.Log().LogStartOffset(), p.HighWatermark(), true}
			}
		}
	}
	var all sync.WaitGroup
	for leader, parts := range away {
		all.Go(func() { // Ends with the answer, and is waited for below; each has places of its own in out.
			found, err := x.askLeader(ctx, leader, &query{
				kind: kindLocate, topic: v.Meta.ID, parts: parts, at: Place{Kind: AtEarliest},
			})
			for i := range found {
				if err == nil && found[i].err == nil {
					out[parts[i].Offset] = Ends{found[i].start, found[i].highWatermark, true}
				}
			}
		})
	}
	all.Wait()
	return out
}

// resetPlace is where a group begins that has committed nothing.
func resetPlace(t *Terms) Place {
	if t.Reset == Latest {
		return Place{Kind: AtLatest, Isolation: t.Isolation}
	}
	return Place{Kind: AtEarliest}
}

// refreshLocked looks up which of the session's partitions are here and who leads the
// others; s.mu is held.
func (s *session) refreshLocked(v *topics.View) {
	for _, h := range s.owned {
		h.leader, h.away = s.home.awayFrom(v, h.number)
		h.part = s.home.o.Topics.Partitions.GetByID(s.topicID, h.number)
	}
}

// view returns the session's topic, nil if it is gone.
func (s *session) view() *topics.View {
	v, code := s.home.o.Topics.ByID(s.topicID)
	if code != kafka.ErrNone {
		return nil
	}
	return v
}

// fetchAway asks for the records of the session's partitions that other brokers
// lead, where there is something to read, and nothing of a broker that is alone. It
// returns what they say by partition.
func (s *session) fetchAway(ctx context.Context, maxBytes int) map[int32]delivery {
	if s.home.o.Ask == nil {
		return nil
	}
	v := s.view()
	if v == nil {
		return nil
	}
	out := map[int32]delivery{}
	want := byLeader{}
	s.mu.Lock()
	isolation := s.terms.Isolation
	s.refreshLocked(v)
	for _, h := range s.owned {
		switch {
		case !h.away || h.claimed || h.end != unknownEnd && h.next == h.end:
		case h.leader == kafka.NoBroker:
			out[h.number] = delivery{from: h.next, told: told{err: noLeader(h.number)}}
		default:
			want[h.leader] = append(want[h.leader], Next{h.number, h.next})
		}
	}
	s.mu.Unlock()
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	for leader, parts := range want {
		all.Go(func() { // Ends with the answer, and is waited for below.
			s.turnParts(parts)
			found, err := s.home.askLeader(ctx, leader, &query{
				kind: kindFetch, topic: s.topicID, parts: parts, maxBytes: min(maxBytes, maxChunk),
				isolation: isolation,
			})
			mu.Lock()
			defer mu.Unlock()
			for i, p := range parts {
				d := delivery{from: p.Offset}
				if err != nil {
					d.err = asRefusal(err)
				} else {
					d.told = found[i]
				}
				out[p.Partition] = d
			}
		})
	}
	all.Wait()
	s.noteEnds(out, isolation)
	return out
}

// delivery is what a leader says of a partition, from an offset on.
type delivery struct {
	told
	from kafka.Offset
}

// worthReading reports whether there is something in it: records, or a reason why
// there are none.
func (d *delivery) worthReading() bool { return d.err != nil || len(d.batches) > 0 }

// turnParts has another partition come first each time: what is asked for first gets
// most of the bytes.
func (s *session) turnParts(parts []Next) {
	s.mu.Lock()
	n := s.turn % len(parts)
	s.mu.Unlock()
	slices.Reverse(parts[:n])
	slices.Reverse(parts[n:])
	slices.Reverse(parts)
}

// noteEnds remembers how far partitions go, so that they are not asked for in vain.
func (s *session) noteEnds(all map[int32]delivery, isolation partition.Isolation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isolation != s.terms.Isolation {
		return
	}
	for _, h := range s.owned {
		if d, ok := all[h.number]; ok && d.from == h.next {
			if h.end = d.highWatermark; d.err != nil {
				h.end = unknownEnd
			}
		}
	}
}

// readAway takes what a leader has delivered.
func (s *session) readAway(t taking, d delivery, budget int, sink Sink) (found, error) {
	f := found{next: t.at}
	switch {
	case d.from != t.at:
		return f, nil // The place was moved meanwhile: ask again.
	case d.err != nil && d.err.Code == kafka.ErrOffsetOutOfRange:
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.next = d.start; s.terms.Reset == Latest {
			f.next = d.highWatermark
		}
		return f, nil
	case d.err != nil:
		return f, d.err
	}
	x := s.home.scratch.Get().(*scratch)
	defer s.home.put(x)
	_, err := x.scanBatches(&f, d.batches, batchesOf{
		partition: t.of.number, maxDecompressed: s.home.maxDecompressed(s.topicID),
	}, budget, sink)
	if err != nil && f.records > 0 {
		err = nil // It comes up again when the next are asked for.
	}
	return f, err
}

// watch sees to it that callers who wait are woken when another broker has records
// for the session. It asks each of those brokers once at a time; what it waits for
// may outlive the caller, but not the session.
func (s *session) watch(ctx context.Context) {
	if s.home.o.Ask == nil {
		return
	}
	v := s.view()
	if v == nil {
		return
	}
	want := byLeader{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refreshLocked(v)
	if s.retired || !s.ready {
		return
	}
	for _, h := range s.owned {
		if h.away && h.leader != kafka.NoBroker {
			want[h.leader] = append(want[h.leader], Next{h.number, h.next})
		}
	}
	for leader, parts := range want {
		if s.watched[leader] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		w := &watching{cancel: cancel}
		s.watched[leader] = w
		isolation := s.terms.Isolation
		s.watchers.Go(func() { s.awaitAway(ctx, leader, parts, isolation, w) }) // Ends with its answer, or with the session.
	}
}

// watching is a question that is under way.
type watching struct{ cancel context.CancelFunc }

// awaitAway waits for records at one leader and wakes the session's callers.
func (s *session) awaitAway(
	ctx context.Context, leader kafka.BrokerID, parts []Next, isolation partition.Isolation, w *watching,
) {
	defer w.cancel()
	found, err := s.home.askLeader(ctx, leader, &query{
		kind: kindFetch, topic: s.topicID, parts: parts, wait: maxAwayWait, isolation: isolation,
	})
	if err != nil && ctx.Err() == nil {
		pause(ctx) // It has died, say: soon there is another.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watched[leader] == w {
		delete(s.watched, leader)
	}
	for i, p := range parts {
		h := s.holdingLocked(p.Partition)
		if h == nil {
			continue
		}
		if h.end = unknownEnd; err == nil && found[i].err == nil && isolation == s.terms.Isolation {
			h.end = found[i].highWatermark
		}
	}
	s.wakeAllLocked()
}

// stopWatching ends all questions; the session ends.
func (s *session) stopWatching() {
	s.mu.Lock()
	s.retired, s.ready = true, false
	s.unwatchLocked()
	s.mu.Unlock()
	s.watchers.Wait()
}

// unwatchLocked ends the questions that are under way: they are about what the
// session does not own any more. s.mu is held.
func (s *session) unwatchLocked() {
	for leader, w := range s.watched {
		w.cancel()
		delete(s.watched, leader)
	}
}
