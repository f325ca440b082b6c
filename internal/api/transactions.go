package api

// InitProducerId 0-5 with a transactional id, AddPartitionsToTxn 0-5,
// AddOffsetsToTxn 0-4, EndTxn 0-5, WriteTxnMarkers 1-2, DescribeTransactions 0,
// ListTransactions 0-2. The transaction machine decides (package txn); what is left
// here is to find it and to wait for its answer.
//
//	AddPartitionsToTxn v4  several transactions, from brokers; verify only (KIP-890)
//	EndTxn v5              the epoch rises with each transaction (KIP-890)
//	ListTransactions v1    by duration (KIP-994)   v2 by pattern (KIP-1152)
//
// A request waits for its answer in the read loop of its connection, as all do in
// Kafka: a client that waits for a transaction has nothing else to ask meanwhile.
// Where requests of many clients share a connection, which is between brokers, each
// waits beside it: see ClusterTable.
//
// Deviations from Kafka: a request that comes while the markers of the transaction
// before are written waits for them, up to a second, before it is refused with
// CONCURRENT_TRANSACTIONS.

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/internal/wire"
)

// Markers writes markers to partitions that this broker leads; *transactions.Local is
// one.
type Markers interface {
	Write(ctx context.Context, markers []transactions.Marker) []kafka.Code
}

// askTransaction has the machine of a transactional id answer.
func (s *Services) askTransaction(ctx context.Context, req kmsg.Request, from txn.Context) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	resp, err := s.Transactions.Ask(ctx, req, from)
	if err != nil {
		s.Logger.Debug("a transactional request was not answered by its coordinator",
			"api", kmsg.NameForKey(req.Key()), "error", err)
		return txn.ErrorResponse(req, coordinatorCode(err))
	}
	return resp
}

// coordinatorCode is the code for what befalls a request before it reaches a machine.
func coordinatorCode(err error) kafka.Code {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return kafka.ErrCoordinatorNotAvailable
	}
	return codeOf(err)
}

func (s *Services) addPartitionsToTxn(
	ctx context.Context, _ *wire.Request, req *kmsg.AddPartitionsToTxnRequest,
) kmsg.Response {
	if req.Version < firstBatchedAdd {
		if resp := s.refuseUnknown(req); resp != nil {
			return resp
		}
		return s.askTransaction(ctx, req, txn.Context{})
	}
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	for _, part := range txn.SplitAdd(req) {
		answer := s.refuseUnknown(part)
		if answer == nil {
			answer = s.askTransaction(ctx, part, txn.Context{})
		}
		resp.Transactions = append(resp.Transactions, answer.(*kmsg.AddPartitionsToTxnResponse).Transactions...)
	}
	return resp
}

// firstBatchedAdd is the first version of AddPartitionsToTxn for brokers.
const firstBatchedAdd = 4

// refuseUnknown refuses to add partitions that do not exist, or that clients may not write to,
// and all others of the request with them; nil if there are none. What joins a transaction must be known here,
// because a partition that is not there any more gets no marker. So must be the topic that
// another broker means, which may have been made anew under its name: see
// transactions.Joining.Add.
func (s *Services) refuseUnknown(req *kmsg.AddPartitionsToTxnRequest) kmsg.Response {
	image := s.image()
	resp := txn.ErrorResponse(req, kafka.ErrOperationNotAttempted).(*kmsg.AddPartitionsToTxnResponse)
	unknown := false
	note := func(topic string, id kafka.TopicID, partition int32, code *int16) {
		t := image.Topic(topic)
		if t.Partition(partition) == nil || !id.IsZero() && id != t.ID {
			unknown, *code = true, int16(kafka.ErrUnknownTopicOrPartition)
		}
	}
	for _, t := range resp.Topics {
		for k := range t.Partitions {
			note(t.Topic, kafka.TopicID{}, t.Partitions[k].Partition, &t.Partitions[k].ErrorCode)
			if metadata.IsInternal(t.Topic) { // Clients add groups: see addOffsetsToTxn.
				unknown, t.Partitions[k].ErrorCode = true, int16(kafka.ErrTopicAuthorizationFailed)
			}
		}
	}
	for i, one := range resp.Transactions {
		for n, t := range one.Topics {
			id := transactions.TopicIDOf(&req.Transactions[i].Topics[n].UnknownTags)
			for k := range t.Partitions {
				note(t.Topic, id, t.Partitions[k].Partition, &t.Partitions[k].ErrorCode)
			}
		}
	}
	if !unknown {
		return nil
	}
	return resp
}

func (s *Services) addOffsetsToTxn(
	ctx context.Context, _ *wire.Request, req *kmsg.AddOffsetsToTxnRequest,
) kmsg.Response {
	if _, err := s.Groups.BrokerOf(ctx, req.Group); err != nil { // Which creates the topic.
		code := codeOf(err)
		if code.Retriable() {
			code = kafka.ErrCoordinatorNotAvailable
		}
		return txn.ErrorResponse(req, code)
	}
	t := s.image().Topic(metadata.OffsetsTopic)
	return s.askTransaction(ctx, req, txn.Context{Offsets: kafka.TopicPartition{
		Topic: t.Name, Partition: coordinator.PartitionOf(req.Group, int32(len(t.Partitions))),
	}})
}

func (s *Services) endTxn(ctx context.Context, _ *wire.Request, req *kmsg.EndTxnRequest) kmsg.Response {
	return s.askTransaction(ctx, req, txn.Context{})
}

func (s *Services) writeTxnMarkers(
	ctx context.Context, _ *wire.Request, req *kmsg.WriteTxnMarkersRequest,
) kmsg.Response {
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	markers := transactions.MarkersOf(req)
	codes := s.Markers.Write(ctx, markers)
	image := s.image()
	for i := range markers {
		at := markers[i].Partition
		// Who asks for a partition that nobody leads need not look for its leader.
		if codes[i] == kafka.ErrNotLeaderOrFollower && image.Topic(at.Topic).Partition(at.Partition) == nil {
			codes[i] = kafka.ErrUnknownTopicOrPartition
		}
	}
	return transactions.WriteResponse(req, codes)
}

func (s *Services) describeTransactions(
	ctx context.Context, _ *wire.Request, req *kmsg.DescribeTransactionsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	ids := eachOnce(req.TransactionalIDs, func(id *string) string { return *id })
	reads := beginReads(ids, s.Transactions.BeginRead)
	for i, id := range ids {
		err := reads[i].Run(ctx, func(m *txn.Shard, _ int64, _ *shard.Effects) {
			resp.TransactionStates = append(resp.TransactionStates, m.Describe(id))
		})
		if err != nil {
			out := kmsg.NewDescribeTransactionsResponseTransactionState()
			out.TransactionalID, out.ErrorCode = id, int16(codeOf(err))
			resp.TransactionStates = append(resp.TransactionStates, out)
		}
	}
	return resp
}

func (s *Services) listTransactions(
	_ context.Context, _ *wire.Request, req *kmsg.ListTransactionsRequest,
) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	filter, unknown, err := txn.NewFilter(req)
	resp.UnknownStateFilters = unknown
	if err != nil {
		resp.ErrorCode = int16(kafka.ErrInvalidRegularExpression)
		return resp
	}
	nowMs := s.Now().UnixMilli()
	err = s.Transactions.Shards.View(func(_ int32, m *txn.Shard) {
		resp.TransactionStates = m.List(resp.TransactionStates, &filter, nowMs)
	})
	resp.ErrorCode = int16(codeOf(err))
	return resp
}
