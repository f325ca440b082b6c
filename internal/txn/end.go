package txn

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// endBumps is the first version of EndTxn after which the producer goes on with
// another epoch (KIP-890), which is in the answer.
const endBumps = 5

// EndTxn answers versions 0-5 of the request. The answer is given when the decision
// is committed; markers follow. With version 5 a request tells by its epoch which
// transaction it means:
//
//	epoch    state           commit             abort
//	present  Empty           INVALID_TXN_STATE  next epoch
//	present  Ongoing         ends it            ends it
//	present  Prepare...      waits              waits
//	present  Complete...     INVALID_TXN_STATE  next epoch
//	before   ...Commit       answered again     INVALID_TXN_STATE
//	before   ...Abort        PRODUCER_FENCED    answered again
//	before   others          PRODUCER_FENCED    PRODUCER_FENCED
//
// Nobody commits what it has aborted itself: the commit of an aborted transaction comes from
// a producer whose time was up. Of the codes that a client may be told then, Kafka Streams
// goes on by itself after PRODUCER_FENCED, and ends its thread after INVALID_TXN_STATE and
// TRANSACTION_ABORTABLE (KAFKA-20785); for a producer alone the first two are the same.
//
// Where the context has NoLibrary, a commit of Empty gives the next epoch too, and the commit
// of an aborted transaction is INVALID_TXN_STATE.
//
// Older versions cannot tell: a request that agrees with what was decided last is
// answered again, any other is refused.
func (s *Shard) EndTxn(c *Context, req *kmsg.EndTxnRequest, fx *shard.Effects) {
	fx.Subject = req.TransactionalID
	id, epoch := kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)
	t, code := s.find(req.TransactionalID, id, epoch)
	again := t != nil && t.decided() && t.replaced(id, epoch)
	if req.Version < endBumps {
		// The epoch of the decision is that of the request.
		again = code == kafka.ErrNone && t.decided()
	}
	switch {
	case again:
		s.answerAgain(c, req, t, fx)
	case code != kafka.ErrNone:
		fx.Reply(c.Caller, ErrorResponse(req, code))
	case t.state.ending():
		s.park(t, c, req, fx)
	case t.state == Ongoing:
		s.end(c, req, t, fx)
	case req.Version >= endBumps && (!req.Commit || c.NoLibrary && t.state == Empty):
		s.end(c, req, t, fx)
	default:
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrInvalidTxnState))
	}
}

// answerAgain answers a request whose transaction has ended already.
func (s *Shard) answerAgain(c *Context, req *kmsg.EndTxnRequest, t *transaction, fx *shard.Effects) {
	committed := t.state == PrepareCommit || t.state == CompleteCommit
	_, epoch := t.holder()
	switch {
	case req.Commit && !committed && req.Version >= endBumps && !c.NoLibrary:
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrProducerFenced))
	case req.Commit != committed:
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrInvalidTxnState))
	case epoch != fenceEpoch || req.Version < endBumps:
		fx.WaitFor(t.lastAppended)
		fx.Reply(c.Caller, ended(req, &t.metadata))
	case t.state.ending():
		s.park(t, c, req, fx)
	case c.ProducerID == kafka.NoProducerID:
		fx.Reply(c.Caller, NeedProducerID{})
	default: // It was fenced with the last epoch because its time was up.
		m := t.next(t.state, c.NowMs)
		m.producerID, m.epoch, m.lastEpoch = c.ProducerID, 0, maxEpoch
		s.append(t, m, fx)
		fx.Reply(c.Caller, ended(req, &m))
	}
}

// end decides the transaction. Without partitions there is nothing to mark.
func (s *Shard) end(c *Context, req *kmsg.EndTxnRequest, t *transaction, fx *shard.Effects) {
	m := t.metadata.end(req.Commit, c.NowMs)
	m.version = 0
	if req.Version >= endBumps {
		if t.epoch >= maxEpoch {
			if c.ProducerID == kafka.NoProducerID {
				fx.Reply(c.Caller, NeedProducerID{})
				return
			}
			m.nextID = c.ProducerID
		}
		m.version, m.epoch, m.lastEpoch = 2, t.raised(), t.epoch
	}
	if len(m.partitions) == 0 {
		m.startMs = c.NowMs
		m = m.complete(c.NowMs)
	}
	s.append(t, m, fx)
	fx.Reply(c.Caller, ended(req, &m))
}

func ended(req *kmsg.EndTxnRequest, m *metadata) *kmsg.EndTxnResponse {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	id, epoch := m.holder()
	resp.ProducerID, resp.ProducerEpoch = int64(id), int16(epoch)
	return resp
}
