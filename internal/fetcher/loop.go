package fetcher

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// firstBackoff is how long a failure waits the first time: about as long as metadata
// takes from one broker to another.
const firstBackoff = 10 * time.Millisecond

// loop follows some partitions of one leader.
type loop struct {
	f       *Fetcher
	id      loopID
	changed chan struct{} // Has room for one: followed is another than before.

	// followed are the partitions to follow, and the epochs; guarded by f.mu.
	followed map[*partition.Partition]kafka.LeaderEpoch

	// The fields below belong to the loop's goroutine.

	entries map[*partition.Partition]*entry
	byKey   map[key]*entry
	off     map[*entry]bool // Those that back off.
	session session
	contact partition.Contact
	backoff time.Duration   // After a request that failed.
	broken  bool            // The last one failed, which was logged.
	over    <-chan struct{} // Closed when the broker stops.
}

// key finds a partition in an answer.
type key struct {
	id        kafka.TopicID
	partition int32
}

func newLoop(f *Fetcher, id loopID) *loop {
	return &loop{
		f: f, id: id, changed: make(chan struct{}, 1),
		followed: map[*partition.Partition]kafka.LeaderEpoch{},
		entries:  map[*partition.Partition]*entry{}, byKey: map[key]*entry{}, off: map[*entry]bool{},
	}
}

func (l *loop) poke() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// call is a request under way.
type call struct {
	resp   *kmsg.FetchResponse
	err    error
	sent   chan struct{} // Closed when it was handed over, or could not be.
	done   chan struct{} // Closed when the fields above are set.
	cancel context.CancelFunc
	// incremental says that it is in a session that stood before.
	incremental bool
	// names are the partitions that it told the leader something new of. What an
	// earlier call brings of them is of the past.
	names map[*entry]bool
	// stale says that the session it belongs to is over.
	stale bool
}

// run fetches until ctx ends or there is nothing to follow. One request waits at the
// leader; a second may be on its way to overtake it.
func (l *loop) run(ctx context.Context) {
	l.over = ctx.Done()
	ctx, cancel := context.WithCancel(ctx)
	var first, second *call
	defer func() {
		cancel()
		for _, c := range []*call{first, second} {
			if c != nil {
				<-c.done
			}
		}
	}()
	l.reconcile()
	for ctx.Err() == nil {
		if len(l.entries) == 0 {
			if l.f.retire(l) {
				return
			}
			l.reconcile() // Somebody came meanwhile.
		}
		switch {
		case first == nil:
			first = l.ask(ctx, nil)
		case second == nil && first.incremental:
			second = l.ask(ctx, first)
		}
		var answered chan struct{}
		if first != nil {
			answered = first.done
		}
		select {
		case <-ctx.Done():
		case <-l.changed:
			l.reconcile()
		case <-l.due(first != nil && (second != nil || !first.incremental)):
		case <-answered:
			answer := first
			first, second = second, nil
			l.take(ctx, answer, first)
			if first != nil && first.stale {
				first.cancel()
				<-first.done
				first = nil
			}
		}
	}
}

// due returns a channel that yields when a partition that backs off may be asked for
// again, nil if there is none or nobody could ask.
func (l *loop) due(busy bool) <-chan time.Time {
	if busy {
		return nil
	}
	var next time.Time
	for e := range l.off {
		if next.IsZero() || e.notBefore.Before(next) {
			next = e.notBefore
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(max(0, next.Sub(l.f.o.Now())))
}

// reconcile makes the entries those that are to be followed.
func (l *loop) reconcile() {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for p, e := range l.entries {
		if epoch, ok := l.followed[p]; !ok || epoch != e.epoch {
			delete(l.entries, p)
			delete(l.byKey, e.key())
			delete(l.off, e)
			l.session.forget(e)
		}
	}
	if len(l.entries) == len(l.followed) {
		return
	}
	for p, epoch := range l.followed {
		if l.entries[p] == nil {
			e := &entry{p: p, epoch: epoch}
			l.entries[p], l.byKey[e.key()] = e, e
			l.session.note(e)
		}
	}
}

// ask sends the next request; nil if there is nothing to ask for. One that is to overtake
// another is sent only if it has news.
func (l *loop) ask(ctx context.Context, overtaken *call) *call {
	now := l.f.o.Now()
	for e := range l.off {
		if !now.Before(e.notBefore) {
			e.notBefore = time.Time{}
			delete(l.off, e)
			l.session.note(e)
		}
	}
	if overtaken == nil {
		l.session.noteReaders(l.entries, now)
	}
	l.locate()
	if !l.session.hasNews() && (overtaken != nil || l.session.told == 0) {
		return nil
	}
	s := l.f.o.Settings()
	req, names := l.session.request(l.entries, s)
	req.ReplicaID = int32(l.f.o.Self)
	req.ReplicaState.ID, req.ReplicaState.Epoch = int32(l.f.o.Self), int64(l.f.o.BrokerEpoch())
	c := &call{
		sent: make(chan struct{}), done: make(chan struct{}), incremental: req.SessionEpoch > 0, names: names,
	}
	ctx, c.cancel = context.WithTimeout(ctx, time.Duration(req.MaxWaitMillis)*time.Millisecond+s.Timeout)
	to := l.f.to(l.id)
	// Ends with the answer or with ctx; run waits for it.
	go func() {
		defer close(c.done)
		defer c.cancel()
		if overtaken != nil {
			<-overtaken.sent // Which does not take longer than overtaken's own time.
		}
		c.resp, c.err = fetch(ctx, to, req, func() { close(c.sent) })
	}()
	return c
}

// locate finds out where the partitions are that have something new to tell. Those
// that can't be asked for now are put off.
func (l *loop) locate() {
	for e := range l.session.news {
		if !e.isReady() {
			continue
		}
		at, err := e.p.Position(e.epoch)
		switch {
		case errors.Is(err, partition.ErrNotFollower) || errors.Is(err, partition.ErrDeleted):
			l.putOff(e) // Follow is about to say so.
		case errors.Is(err, partition.ErrDamaged):
			l.putOff(e) // Another replica takes its place.
		case err != nil:
			l.fail(e, "where the log ends is not known", err)
		case !at.Synced:
			l.putOff(e)
		case !e.p.MayCopy(l.f.o.Now()):
			l.putOff(e)
		default:
			e.at = at
		}
	}
}

// take takes an answer in. next is the request behind it, if any.
func (l *loop) take(ctx context.Context, c, next *call) {
	code := kafka.ErrNone
	if c.err == nil {
		code = kafka.Code(c.resp.ErrorCode)
	}
	if c.err == nil && code == kafka.ErrNone {
		l.heard()
		l.session.answered(c.resp.SessionID, c.incremental)
		l.append(ctx, c, next)
		return
	}
	l.session.reset(l.entries)
	if next != nil {
		next.stale = true
	}
	if c.err == nil && isSessionCode(code) {
		return // Once more, with a session of its own.
	}
	if ctx.Err() != nil {
		return
	}
	if c.err == nil {
		c.err = &kafka.Error{Code: code, Message: "the leader refused a fetch"}
	}
	if !l.broken {
		l.f.o.Logger.Warn("fetching from a leader failed; trying again", "broker", l.id.leader,
			"partitions", len(l.entries), "error", c.err)
	}
	l.broken = true
	l.backoff = max(min(2*l.backoff, l.f.o.Settings().Backoff, longestOutage), firstBackoff)
	l.pause(ctx)
}

// heard notes that the leader answers.
func (l *loop) heard() {
	l.contact.Heard(l.f.o.Now())
	if l.broken {
		l.f.o.Logger.Info("fetching from a leader again", "broker", l.id.leader, "partitions", len(l.entries))
	}
	l.broken, l.backoff = false, 0
}

func isSessionCode(code kafka.Code) bool {
	return code == kafka.ErrFetchSessionIDNotFound || code == kafka.ErrInvalidFetchSessionEpoch ||
		code == kafka.ErrFetchSessionTopicIDError
}

// pause waits for the backoff, for ctx to end, or until the metadata names the leader
// again: it may have come back.
func (l *loop) pause(ctx context.Context) {
	timer := time.NewTimer(l.backoff)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-l.changed:
		l.reconcile()
	}
}

// longestOutage bounds the backoff after a request that failed: to dial a broker that is
// not there costs little, and partitions wait for one that has come back.
const longestOutage = 250 * time.Millisecond

// append appends what an answer brings, cuts what parts from the leader's log, and
// waits until what was appended is synced.
func (l *loop) append(ctx context.Context, c, next *call) {
	var grown []*entry
	for i := range c.resp.Topics {
		t := &c.resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			e := l.byKey[key{t.TopicID, rp.Partition}]
			if e == nil || !e.told {
				continue
			}
			l.takeRound(e, rp)
			if next != nil && next.names[e] {
				continue
			}
			if l.takePartition(e, rp) {
				grown = append(grown, e)
			}
		}
	}
	for _, e := range grown {
		err := e.p.AwaitSynced(ctx, e.epoch, e.at.Offset)
		if err != nil && ctx.Err() == nil {
			l.putOff(e) // Follow is about to say why.
		}
		l.session.note(e)
	}
}
