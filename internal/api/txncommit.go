package api

// TxnOffsetCommit 0-6: offsets that count when a transaction is committed. The group
// machine decides, as about any commit; before that the group's partition of
// __consumer_offsets must be part of the transaction. From version 5 on this broker
// adds it, before it asks whether the client did (KIP-890).

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

// The first versions of TxnOffsetCommit with a feature of transactions.
const (
	commitAbortable = 4 // Clients know TRANSACTION_ABORTABLE.
	commitJoins     = 5 // Clients leave it to brokers to add the partition.
)

func (s *Services) txnOffsetCommit(ctx context.Context, w *wire.Request) wire.Response {
	req := &kmsg.TxnOffsetCommitRequest{}
	give, err := s.memory.read(ctx, w, req)
	if err != nil {
		return badRequest(w, err)
	}
	defer give()
	w.Release()
	if req.Group == "" { // Before a partition joins for it.
		return s.memory.encode(w, group.ErrorResponse(req, kafka.ErrInvalidGroupID, ""))
	}
	check, code := s.joinOffsets(ctx, req)
	if code != kafka.ErrNone {
		return s.memory.encode(w, group.ErrorResponse(req, code, ""))
	}
	return s.ask(ctx, w, []string{req.Group}, firstAnswer,
		func(_ int, m *group.Shard, c *group.Context, fx *shard.Effects) {
			c.Guard = check
			m.Handle(c, req, fx)
		},
		func(_ int, code kafka.Code, message string) kmsg.Response {
			return group.ErrorResponse(req, code, message)
		})
}

// joinOffsets has the group's partition be part of the transaction.
func (s *Services) joinOffsets(
	ctx context.Context, req *kmsg.TxnOffsetCommitRequest,
) (partition.TxnCheck, kafka.Code) {
	n, _, err := s.Groups.PartitionOf(req.Group)
	if err != nil {
		return partition.TxnCheck{}, codeOf(err)
	}
	p := s.Partitions.Get(metadata.OffsetsTopic, n)
	if p == nil {
		return partition.TxnCheck{}, kafka.ErrNotCoordinator
	}
	j := &transactions.Joining{
		ID: req.TransactionalID, ProducerID: kafka.ProducerID(req.ProducerID),
		ProducerEpoch: kafka.ProducerEpoch(req.ProducerEpoch), VerifyOnly: req.Version < commitJoins,
	}
	ctx, cancel := bounded(ctx, 0)
	defer cancel()
	check, code, err := s.Transactions.Enter(ctx, p, j)
	if err != nil {
		return check, kafka.ErrNotCoordinator
	}
	return check, joinedOffsetsCode(req.Version, code)
}

// joinedOffsetsCode is what a client is told of the transaction coordinator's answer.
// That coordinator's own troubles must not look like those of the group's.
func joinedOffsetsCode(version int16, code kafka.Code) kafka.Code {
	switch code {
	case kafka.ErrNone, kafka.ErrInvalidTxnState, kafka.ErrInvalidProducerIDMapping,
		kafka.ErrInvalidProducerEpoch, kafka.ErrInvalidRequest:
		return code
	case kafka.ErrProducerFenced:
		return kafka.ErrInvalidProducerEpoch
	case kafka.ErrTransactionAbortable:
		if version < commitAbortable {
			return kafka.ErrInvalidTxnState
		}
		return code
	}
	return kafka.ErrCoordinatorLoadInProgress // Which every client tries again after.
}
