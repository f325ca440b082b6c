package txn

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// InitProducerID answers versions 0-5 of the request, with a transactional id: the
// sender is the producer of that id from here on, and whoever was it before is
// fenced. From version 3 on a producer may name the producer id and epoch it has, to
// go on after an error (KIP-360): it is fenced if another took over.
//
// A transaction that is open is aborted first, and the request waits for that.
func (s *Shard) InitProducerID(c *Context, req *kmsg.InitProducerIDRequest, fx *shard.Effects) {
	id := *req.TransactionalID
	fx.Subject = id
	timeout := int64(req.TransactionTimeoutMillis)
	switch {
	case id == "" || len(id) > maxIDBytes:
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrInvalidRequest))
		return
	case timeout <= 0 || timeout > s.settings.MaxTimeout.Milliseconds():
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrInvalidTransactionTimeout))
		return
	}
	t := s.transactions[id]
	if t == nil {
		s.create(c, req, fx)
		return
	}
	if t.state.ending() {
		s.park(t, c, req, fx)
		return
	}
	claim := claimOf(req)
	if claim.given && !claim.isOf(t) {
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrProducerFenced))
		return
	}
	if t.state == Ongoing {
		// Who names the epoch may ask again under it; else nobody may.
		recoverable := noEpoch
		if claim.given {
			recoverable = t.epoch
		}
		s.append(t, t.fence(recoverable, c.NowMs), fx)
		s.park(t, c, req, fx)
		return
	}
	s.renew(c, req, t, claim, fx)
}

// create makes a transactional id known.
func (s *Shard) create(c *Context, req *kmsg.InitProducerIDRequest, fx *shard.Effects) {
	leaves, ok := s.roomFor(*req.TransactionalID, c.NowMs)
	switch {
	case !ok:
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrThrottlingQuotaExceeded))
		return
	case c.ProducerID == kafka.NoProducerID:
		fx.Reply(c.Caller, NeedProducerID{})
		return
	}
	if leaves != nil {
		s.expire(leaves, fx)
	}
	m := metadata{
		producerID: c.ProducerID, previousID: kafka.NoProducerID, nextID: kafka.NoProducerID,
		lastEpoch: noEpoch, timeoutMs: req.TransactionTimeoutMillis, state: Empty,
		startMs: noTime, lastUpdateMs: c.NowMs,
	}
	s.appendAs(*req.TransactionalID, m, fx)
	fx.Reply(c.Caller, initialised(req, &m))
}

// renew gives the producer of a transactional id without an open transaction its
// next epoch, or the one it was given before if it asks again.
func (s *Shard) renew(
	c *Context, req *kmsg.InitProducerIDRequest, t *transaction, claim claim, fx *shard.Effects,
) {
	m := t.next(Empty, c.NowMs)
	m.timeoutMs, m.startMs, m.partitions = req.TransactionTimeoutMillis, noTime, nil
	switch {
	case claim.given && t.replaced(claim.id, claim.epoch) && t.epoch <= maxEpoch:
		// The answer to the request before this one was lost.
		m.previousID = t.previousID
	case t.epoch < maxEpoch:
		m.epoch, m.lastEpoch = t.epoch+1, claim.leaves(t.epoch)
	case c.ProducerID == kafka.NoProducerID:
		fx.Reply(c.Caller, NeedProducerID{})
		return
	default:
		m.producerID, m.epoch, m.lastEpoch = c.ProducerID, 0, claim.leaves(t.epoch)
	}
	s.append(t, m, fx)
	fx.Reply(c.Caller, initialised(req, &m))
}

func initialised(req *kmsg.InitProducerIDRequest, m *metadata) *kmsg.InitProducerIDResponse {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = int64(m.producerID), int16(m.epoch)
	return resp
}

// claim is what a producer says it has.
type claim struct {
	given bool
	id    kafka.ProducerID
	epoch kafka.ProducerEpoch
}

func claimOf(req *kmsg.InitProducerIDRequest) claim {
	c := claim{id: kafka.ProducerID(req.ProducerID), epoch: kafka.ProducerEpoch(req.ProducerEpoch)}
	c.given = req.Version >= 3 && c.id != kafka.NoProducerID
	return c
}

// isOf reports whether the claim is that of the present producer, or of the same one
// before the last request it sent. In a transaction it knows its epoch.
func (c claim) isOf(t *transaction) bool {
	return t.held(c.id, c.epoch) || t.state != Ongoing && t.replaced(c.id, c.epoch)
}

// leaves returns the epoch that may ask again, after the present one was taken.
func (c claim) leaves(epoch kafka.ProducerEpoch) kafka.ProducerEpoch {
	if !c.given {
		return noEpoch
	}
	return min(epoch, maxEpoch)
}
