package transact

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/history"
)

// produce has producers of one transactional id follow one another: each ends after a
// while, or when another has taken its place, and leaves open what it had begun.
func (l *Load) produce(ctx context.Context, id string, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		l.session(ctx, id, seed%2 == 1, random)
		pause(ctx, time.Duration(random.IntN(200))*time.Millisecond)
	}
}

func (l *Load) session(ctx context.Context, id string, old bool, random *rand.Rand) {
	cl, done := l.client(ctx, l.transactional(id, old)...)
	defer done()
	s := l.took(ctx, cl, id)
	if s == nil {
		return
	}
	for range 5 + random.IntN(40) {
		if ctx.Err() != nil || !l.transaction(ctx, cl, s, random) {
			return
		}
	}
	l.leaveOpen(ctx, cl, s, random)
}

// transaction writes a few records and ends as it means to, and reports whether the
// producer can go on.
func (l *Load) transaction(ctx context.Context, cl *kgo.Client, s *history.Session, random *rand.Rand) bool {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cl.BeginTransaction() != nil {
		return false
	}
	x := s.Begin()
	abort := random.IntN(5) == 0
	if !l.send(ctx, cl, x, random) {
		abort = true
	}
	if !abort {
		x.Commits()
		if cl.EndTransaction(ctx, kgo.TryCommit) != nil {
			return false // Nobody knows.
		}
		l.ended(x, history.WasCommitted)
		return true
	}
	if cl.EndTransaction(ctx, kgo.TryAbort) != nil {
		return false
	}
	l.ended(x, history.WasAborted)
	return true
}

// send writes a few records, and reports whether all were acknowledged.
func (l *Load) send(ctx context.Context, cl *kgo.Client, x *history.Txn, random *rand.Rand) bool {
	var failed atomic.Bool
	for range 1 + random.IntN(5) {
		v, rec := l.record(0, random)
		if l.Transforms > 0 {
			l.History.Must(v)
		}
		l.produceIn(ctx, cl.Produce, x, v, rec, &failed)
	}
	return cl.Flush(ctx) == nil && !failed.Load()
}

// produceIn sends a record in a transaction.
func (l *Load) produceIn(
	ctx context.Context, produce func(context.Context, *kgo.Record, func(*kgo.Record, error)),
	x *history.Txn, v history.Value, rec *kgo.Record, failed *atomic.Bool,
) {
	x.Sends(v)
	produce(ctx, rec, func(rec *kgo.Record, err error) {
		if err != nil {
			failed.Store(true)
			return
		}
		x.Acked(v, placeOf(rec), time.Now())
	})
}

// leaveOpen begins a transaction of which nothing must ever be read.
func (l *Load) leaveOpen(ctx context.Context, cl *kgo.Client, s *history.Session, random *rand.Rand) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cl.BeginTransaction() == nil {
		l.send(ctx, cl, s.Begin(), random)
	}
}
