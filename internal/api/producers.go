package api

// InitProducerId, versions 0-5 (with a transactional id: see transactions.go), and
// DescribeProducers, version 0.
//
//	v2 flexible   v3 producer id and epoch to go on with (KIP-360)
//	v4 PRODUCER_FENCED   v5 TRANSACTION_ABORTABLE (KIP-890)

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/internal/wire"
)

func (s *Services) initProducerID(
	ctx context.Context, _ *wire.Request, req *kmsg.InitProducerIDRequest,
) kmsg.Response {
	if (req.ProducerID == -1) != (req.ProducerEpoch == -1) { // Who has one has both.
		return txn.ErrorResponse(req, kafka.ErrInvalidRequest)
	}
	if req.TransactionalID != nil {
		return s.askTransaction(ctx, req, txn.Context{})
	}
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	id, err := s.Control.NextProducerID(ctx)
	if err != nil {
		s.Logger.Warn("no producer id to give", "error", err)
		resp.ErrorCode = int16(transactions.ErrNoProducerID.Code)
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = int64(id), 0
	return resp
}

func (s *Services) describeProducers(
	_ context.Context, _ *wire.Request, req *kmsg.DescribeProducersRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	asked := map[kafka.TopicPartition]bool{}
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			id := kafka.TopicPartition{Topic: t.Topic, Partition: i}
			if asked[id] {
				continue // The list of producers may be long.
			}
			asked[id] = true
			out := kmsg.NewDescribeProducersResponseTopicPartition()
			out.Partition = i
			p, err := s.leading(t.Topic, i, kafka.NoLeaderEpoch)
			if err == nil {
				out.ActiveProducers, err = activeProducers(p)
			}
			if err != nil {
				out.ErrorCode, out.ErrorMessage = int16(codeOf(err)), ptr(messageOf(err))
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func activeProducers(
	p *partition.Partition,
) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	entries, err := p.Log().Producers()
	var out []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for _, e := range entries {
		out = append(out, kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			ProducerID: int64(e.ProducerID), ProducerEpoch: int32(e.ProducerEpoch),
			LastSequence: e.LastSequence, LastTimestamp: e.LastTimestamp,
			CoordinatorEpoch: e.CoordinatorEpoch, CurrentTxnStartOffset: int64(e.CurrentTxnFirstOffset),
		})
	}
	return out, err
}
