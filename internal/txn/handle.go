package txn

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// parked is a request that waits for markers to be written.
type parked struct {
	context    Context
	request    kmsg.Request
	deadlineMs int64
}

// Handle answers any request that is about one transactional id. The response has
// the request's version. It panics if the request is of another kind: see ID.
func (s *Shard) Handle(c *Context, req kmsg.Request, fx *shard.Effects) {
	switch r := req.(type) {
	case *kmsg.InitProducerIDRequest:
		s.InitProducerID(c, r, fx)
	case *kmsg.AddPartitionsToTxnRequest:
		s.AddPartitions(c, r, fx)
	case *kmsg.AddOffsetsToTxnRequest:
		s.AddOffsets(c, r, fx)
	case *kmsg.EndTxnRequest:
		s.EndTxn(c, r, fx)
	default:
		panic(fmt.Sprintf("txn: no handler for %T", req))
	}
}

// ID returns the transactional id that a request is about, and false if it is about
// none or several: those are split (see SplitAdd).
func ID(req kmsg.Request) (string, bool) {
	switch r := req.(type) {
	case *kmsg.InitProducerIDRequest:
		if r.TransactionalID != nil {
			return *r.TransactionalID, true
		}
	case *kmsg.AddPartitionsToTxnRequest:
		if r.Version < addByBrokers {
			return r.TransactionalID, true
		}
		if len(r.Transactions) == 1 {
			return r.Transactions[0].TransactionalID, true
		}
	case *kmsg.AddOffsetsToTxnRequest:
		return r.TransactionalID, true
	case *kmsg.EndTxnRequest:
		return r.TransactionalID, true
	}
	return "", false
}

// park has a request wait until the transaction has ended, or refuses it.
func (s *Shard) park(t *transaction, c *Context, req kmsg.Request, fx *shard.Effects) {
	if len(t.parked) >= s.settings.MaxParked {
		fx.Reply(c.Caller, ErrorResponse(req, kafka.ErrConcurrentTransactions))
		return
	}
	t.parked = append(t.parked, parked{*c, req, c.NowMs + s.settings.ParkTimeout.Milliseconds()})
	s.arm(t)
}

// unpark takes up the request that has waited for longest: the transaction has
// ended, or its time is over.
func (s *Shard) unpark(t *transaction, nowMs int64, fx *shard.Effects) {
	p := t.parked[0]
	t.parked = t.parked[1:]
	if len(t.parked) == 0 {
		t.parked = nil
	}
	if t.state.ending() {
		fx.Reply(p.context.Caller, ErrorResponse(p.request, kafka.ErrConcurrentTransactions))
		return
	}
	p.context.NowMs = nowMs
	s.Handle(&p.context, p.request, fx)
}

// find returns a transactional id, if the sender may go on with it.
func (s *Shard) find(id string, producerID kafka.ProducerID, epoch kafka.ProducerEpoch) (*transaction, kafka.Code) {
	if id == "" || len(id) > maxIDBytes {
		return nil, kafka.ErrInvalidRequest
	}
	t := s.transactions[id]
	if t == nil {
		return nil, kafka.ErrInvalidProducerIDMapping
	}
	holderID, holderEpoch := t.holder()
	switch {
	case producerID != holderID:
		return t, kafka.ErrInvalidProducerIDMapping
	case epoch != holderEpoch:
		return t, kafka.ErrProducerFenced
	}
	return t, kafka.ErrNone
}

// ErrorResponse is a response that refuses all that a request asks for with one
// code.
func ErrorResponse(req kmsg.Request, code kafka.Code) kmsg.Response {
	resp := req.ResponseKind()
	switch r := req.(type) {
	case *kmsg.InitProducerIDRequest:
		resp := resp.(*kmsg.InitProducerIDResponse)
		resp.ProducerID, resp.ProducerEpoch = int64(kafka.NoProducerID), int16(noEpoch)
		resp.ErrorCode = int16(told(code, r.Version, initFenced))
	case *kmsg.AddPartitionsToTxnRequest:
		refuseAdd(r, resp.(*kmsg.AddPartitionsToTxnResponse), code)
	case *kmsg.AddOffsetsToTxnRequest:
		resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode = int16(told(code, r.Version, offsetsFenced))
	case *kmsg.EndTxnRequest:
		resp := resp.(*kmsg.EndTxnResponse)
		resp.ProducerID, resp.ProducerEpoch = int64(kafka.NoProducerID), int16(noEpoch)
		resp.ErrorCode = int16(told(code, r.Version, endFenced))
	}
	return resp
}

// The first versions of requests whose clients know PRODUCER_FENCED (KIP-588).
const (
	initFenced    = 4
	addFenced     = 2
	offsetsFenced = 2
	endFenced     = 2
)

// told is the code as clients of a version know it.
func told(code kafka.Code, version, fenced int16) kafka.Code {
	if code == kafka.ErrProducerFenced && version < fenced {
		return kafka.ErrInvalidProducerEpoch
	}
	return code
}

// refused turns a response of this package into a refusal with code. Errors that
// are in the response already stay.
func refused(response any, code kafka.Code) any {
	c := int16(code)
	set := func(dst *int16) {
		if *dst == 0 {
			*dst = c
		}
	}
	switch r := response.(type) {
	case *kmsg.InitProducerIDResponse:
		set(&r.ErrorCode)
		r.ProducerID, r.ProducerEpoch = int64(kafka.NoProducerID), int16(noEpoch)
	case *kmsg.AddPartitionsToTxnResponse:
		for i := range r.Topics {
			for k := range r.Topics[i].Partitions {
				set(&r.Topics[i].Partitions[k].ErrorCode)
			}
		}
		for i := range r.Transactions {
			for j := range r.Transactions[i].Topics {
				t := &r.Transactions[i].Topics[j]
				for k := range t.Partitions {
					set(&t.Partitions[k].ErrorCode)
				}
			}
		}
	case *kmsg.AddOffsetsToTxnResponse:
		set(&r.ErrorCode)
	case *Standing:
		r.Code = code
	case *kmsg.EndTxnResponse:
		set(&r.ErrorCode)
		r.ProducerID, r.ProducerEpoch = int64(kafka.NoProducerID), int16(noEpoch)
	}
	return response
}
