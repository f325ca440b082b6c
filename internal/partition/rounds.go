package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/isr"
	"github.com/strandline/strandline/internal/kafka"
)

// A leader may have been replaced without its knowledge when it has not heard the
// controller for long. Its replicas can tell (decisions/016): Confirm asks them, with a
// round, and every one that could have been elected has to answer.
//
// Invariants:
//
//	a follower answers a round with a fetch whose position it looked up, under the leader
//	epoch, after it was told of the round (Position)
//	a replica's leader epoch never falls, and it leads nothing before it has risen
//
// So whoever answers had neither been elected when the round began, nor followed another.

// ConfirmTimeout is how long an answer of the replicas is worth waiting for: they give it
// at once, or do not hear the question.
const ConfirmTimeout = 500 * time.Millisecond

// rounds mirrors the leader's rounds for those who take no lock. It is written under
// progress.mu.
type rounds struct {
	asked, confirmed atomic.Int64
	waiting          waiters // For confirmed.

	mu    sync.Mutex
	doubt doubt
}

// doubt is a round that nobody waits for.
type doubt struct {
	epoch kafka.LeaderEpoch
	round int64 // 0 for none.
	since time.Time
}

func (r *rounds) publish(l *isr.Leader) {
	if l.Asked() == 0 && r.asked.Load() == 0 {
		return // As it is nearly always.
	}
	r.asked.Store(l.Asked())
	r.confirmed.Store(l.Confirmed())
}

func (r *rounds) reached() kafka.Offset { return kafka.Offset(r.confirmed.Load()) }

// advance wakes who waits for what is confirmed. It is called without a lock.
func (r *rounds) advance() {
	if r.waiting.any.Load() {
		r.waiting.advance(r.reached())
	}
}

// Asked returns the last round of this leader that was begun, 0 for none.
func (p *Partition) Asked() int64 { return p.rounds.asked.Load() }

// Confirm asks the replicas whether this broker leads the partition still, under an epoch.
// The function that it returns waits for their answer: nil says that when Confirm was
// called, no other leader had acknowledged anything yet. It fails when ctx ends, unless the
// answer is there, and when the partition is led under that epoch no more.
func (p *Partition) Confirm(under kafka.LeaderEpoch) (wait func(context.Context) error) {
	round, err := p.ask(under)
	if err != nil {
		return func(context.Context) error { return err }
	}
	return func(ctx context.Context) error { return p.awaitRound(ctx, under, round) }
}

// ask begins a round, and has the followers' fetches that wait for records be answered
// with it.
func (p *Partition) ask(under kafka.LeaderEpoch) (int64, error) {
	round, err := p.beginRound(under)
	if err == nil && p.rounds.confirmed.Load() < round {
		p.appended.wakeAll()
	}
	return round, err
}

func (p *Partition) beginRound(under kafka.LeaderEpoch) (int64, error) {
	p.role.RLock()
	defer p.role.RUnlock()
	if err := p.leadsLocked(under); err != nil {
		return 0, err
	}
	p.progress.mu.Lock()
	defer p.progress.mu.Unlock()
	round := p.progress.leader.Ask()
	p.publishLocked()
	return round, nil
}

// Doubt is Confirm for who does not wait: it asks, and asks anew once it was answered, and
// returns for how long the replicas have not answered. It is for now and then.
func (p *Partition) Doubt(now time.Time) time.Duration {
	epoch := p.LeaderEpoch()
	r := &p.rounds
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.doubt; d.round > 0 && d.epoch == epoch && r.confirmed.Load() < d.round {
		return now.Sub(d.since)
	}
	round, err := p.ask(epoch)
	if err != nil {
		return 0 // It does not lead, which is told otherwise.
	}
	r.doubt = doubt{epoch, round, now}
	return 0
}

// InDoubt reports whether other brokers have replicas of the partition, and have not confirmed
// for ConfirmTimeout that this one leads it. It asks them: see Doubt.
func (p *Partition) InDoubt(now time.Time) bool { return p.Shared() && p.Doubt(now) >= ConfirmTimeout }

func (p *Partition) awaitRound(ctx context.Context, under kafka.LeaderEpoch, round int64) error {
	err := await(ctx, nil, func(w *Waiter, woken Waker) bool {
		return p.rounds.waiting.add(w, woken, kafka.Offset(round), p.rounds.reached)
	}, func() error { return p.Leads(under) }, p.StopWaiting)
	if err != nil {
		return err
	}
	// What was confirmed was of this epoch if it still lasts: each begins with no rounds.
	return p.Leads(under)
}
