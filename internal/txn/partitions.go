package txn

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// The first versions of AddPartitionsToTxn with a feature.
const (
	addByBrokers = 4 // KIP-890: several transactions, from brokers.
	addAbortable = 5 // TRANSACTION_ABORTABLE.
)

// SplitAdd makes an AddPartitionsToTxn request of one transaction out of each of
// those in req, in order, from version 4 on; the parts alias req.
func SplitAdd(req *kmsg.AddPartitionsToTxnRequest) []*kmsg.AddPartitionsToTxnRequest {
	parts := make([]*kmsg.AddPartitionsToTxnRequest, len(req.Transactions))
	for i := range req.Transactions {
		part := *req
		part.Transactions = req.Transactions[i : i+1 : i+1]
		parts[i] = &part
	}
	return parts
}

// AddPartitions answers versions 0-5 of AddPartitionsToTxn, which from version 4 on
// must be about one transaction: the partitions join the transaction, which they
// begin if none is open; or, if asked to verify, it is only told which belong to it.
func (s *Shard) AddPartitions(c *Context, req *kmsg.AddPartitionsToTxnRequest, fx *shard.Effects) {
	a := addOf(req)
	fx.Subject = a.id
	if a.verify {
		s.verify(c, req, a, fx)
		return
	}
	code := s.add(c, a, req, fx)
	if code == parkedCode {
		return
	}
	fx.Reply(c.Caller, ErrorResponse(req, code))
}

// AddOffsets answers versions 0-4 of AddOffsetsToTxn: the partition of the group's
// offsets, which is in the context, joins the transaction.
func (s *Shard) AddOffsets(c *Context, req *kmsg.AddOffsetsToTxnRequest, fx *shard.Effects) {
	fx.Subject = req.TransactionalID
	a := addition{
		id: req.TransactionalID, producerID: kafka.ProducerID(req.ProducerID),
		epoch:      kafka.ProducerEpoch(req.ProducerEpoch),
		partitions: []kafka.TopicPartition{c.Offsets},
	}
	if code := s.add(c, a, req, fx); code != parkedCode {
		fx.Reply(c.Caller, ErrorResponse(req, code))
	}
}

// addition is what all ways to add partitions to a transaction have in common.
type addition struct {
	id         string
	producerID kafka.ProducerID
	epoch      kafka.ProducerEpoch
	version    int16 // Of the client's transactions; 0 for those before KIP-890.
	verify     bool
	partitions []kafka.TopicPartition
}

func addOf(req *kmsg.AddPartitionsToTxnRequest) addition {
	if req.Version < addByBrokers {
		a := addition{
			id: req.TransactionalID, producerID: kafka.ProducerID(req.ProducerID),
			epoch: kafka.ProducerEpoch(req.ProducerEpoch),
		}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				a.partitions = append(a.partitions, kafka.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		return a
	}
	r := &req.Transactions[0]
	a := addition{
		id: r.TransactionalID, producerID: kafka.ProducerID(r.ProducerID),
		epoch: kafka.ProducerEpoch(r.ProducerEpoch), version: 2, verify: r.VerifyOnly,
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			a.partitions = append(a.partitions, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	return a
}

// parkedCode is no code: the request is parked.
const parkedCode kafka.Code = -2

// add has partitions join a transaction, or parks the request.
func (s *Shard) add(c *Context, a addition, req kmsg.Request, fx *shard.Effects) kafka.Code {
	t, code := s.find(a.id, a.producerID, a.epoch)
	switch {
	case code != kafka.ErrNone:
		return code
	case t.state.ending():
		s.park(t, c, req, fx)
		return parkedCode
	}
	fx.WaitFor(t.lastAppended)
	all := t.with(a.partitions)
	if t.state == Ongoing && len(all) == len(t.partitions) || len(all) == 0 {
		return kafka.ErrNone
	}
	m := t.next(Ongoing, c.NowMs)
	if t.state != Ongoing {
		m.startMs = c.NowMs
	}
	m.partitions, m.version = all, a.version
	s.append(t, m, fx)
	return kafka.ErrNone
}

// verify tells which partitions belong to the transaction.
func (s *Shard) verify(c *Context, req *kmsg.AddPartitionsToTxnRequest, a addition, fx *shard.Effects) {
	t, code := s.find(a.id, a.producerID, a.epoch)
	switch {
	case code != kafka.ErrNone:
		fx.Reply(c.Caller, ErrorResponse(req, code))
		return
	case t.state.ending():
		s.park(t, c, req, fx)
		return
	}
	fx.WaitFor(t.lastAppended)
	missing := kafka.ErrInvalidTxnState
	if req.Version >= addAbortable {
		missing = kafka.ErrTransactionAbortable
	}
	resp := ErrorResponse(req, kafka.ErrNone).(*kmsg.AddPartitionsToTxnResponse)
	for i := range resp.Transactions[0].Topics {
		rt := &resp.Transactions[0].Topics[i]
		for k := range rt.Partitions {
			p := &rt.Partitions[k]
			if !t.has(kafka.TopicPartition{Topic: rt.Topic, Partition: p.Partition}) {
				p.ErrorCode = int16(missing)
			}
		}
	}
	fx.Reply(c.Caller, resp)
}

// refuseAdd fills a response with one code for each partition of the request.
func refuseAdd(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse, code kafka.Code) {
	c := int16(told(code, req.Version, addFenced))
	for _, t := range req.Topics {
		rt := kmsg.AddPartitionsToTxnResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions,
				kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p, ErrorCode: c})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for i := range req.Transactions {
		r := kmsg.AddPartitionsToTxnResponseTransaction{TransactionalID: req.Transactions[i].TransactionalID}
		for _, t := range req.Transactions[i].Topics {
			rt := kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions,
					kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p, ErrorCode: c})
			}
			r.Topics = append(r.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, r)
	}
}
