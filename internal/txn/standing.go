package txn

import (
	"slices"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Producer is who a producer says it is: the transactional id, and the producer id and
// epoch that it was given for it.
type Producer struct {
	ID    string
	PID   kafka.ProducerID
	Epoch kafka.ProducerEpoch
}

// Standing is what has become of a producer's transaction.
type Standing struct {
	// Code is kafka.ErrProducerFenced if another producer has taken the transactional id
	// over since, so that nobody knows any more; then the rest is not set.
	Code kafka.Code
	// State is Empty or Ongoing while the producer may go on, and a later one once the
	// transaction was decided.
	State      State
	TimeoutMs  int32
	StartMs    int64                  // Negative if it has not begun.
	Partitions []kafka.TopicPartition // That are part of it, or still without a marker.
}

// Standing replies with a *Standing once what it tells of is committed. Unlike
// DescribeTransactions, which tells of a transactional id what is, it tells of one
// transaction what was decided, for as long as nobody has begun another.
func (s *Shard) Standing(c *Context, p Producer, fx *shard.Effects) {
	fx.Subject = p.ID
	t := s.transactions[p.ID]
	switch {
	case t == nil:
		fx.Reply(c.Caller, &Standing{Code: kafka.ErrTransactionalIDNotFound})
		return
	case t.held(p.PID, p.Epoch):
	case t.decided() && t.replaced(p.PID, p.Epoch):
	default:
		fx.WaitFor(t.lastAppended)
		fx.Reply(c.Caller, &Standing{Code: kafka.ErrProducerFenced})
		return
	}
	fx.WaitFor(t.lastAppended)
	out := &Standing{State: t.state, TimeoutMs: t.timeoutMs, StartMs: t.startMs, Partitions: slices.Clone(t.partitions)}
	if t.state.ending() {
		out.Partitions = slices.Clone(t.unmarked)
	}
	fx.Reply(c.Caller, out)
}
