package httpapi

// POST /v1/transactions/{transaction}/offsets: offsets of a group that count when the
// transaction is committed.

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/txn"
)

// TransactionOffsetsRequest commits offsets of a group by topic and partition as part of
// a transaction.
type TransactionOffsetsRequest struct {
	Group   string                      `json:"group"`
	Member  string                      `json:"member"`
	Offsets map[string]map[string]int64 `json:"offsets"`
}

// TransactionOffsets are the offsets that count when the transaction is committed, by
// topic and partition.
type TransactionOffsets struct {
	Offsets map[string]map[string]int64 `json:"offsets"`
}

func (s *server) commitInTransaction(w http.ResponseWriter, r *http.Request) error {
	producer, err := transactionOf(r)
	if err != nil {
		return err
	}
	var req TransactionOffsetsRequest
	body, err := s.decode(w, r, &req)
	if err != nil {
		return err
	}
	if len(req.Offsets) == 0 {
		return badRequest("offsets are needed: topic, to partition, to the offset of the next record to read")
	}
	commits := make([]session.Commit, 0, len(req.Offsets))
	for _, topic := range slices.Sorted(maps.Keys(req.Offsets)) {
		offsets, err := offsetsOf(req.Offsets[topic])
		if err != nil {
			return err
		}
		commits = append(commits, session.Commit{
			Group: req.Group, Topic: topic, Member: req.Member, Offsets: offsets,
			In: s.sessionTransaction(producer, req.Group),
		})
	}
	return s.toCoordinator(w, r, body, req.Group, func() error {
		for _, commit := range commits {
			if err := s.Sessions.Commit(r.Context(), commit); err != nil {
				return inWords(err)
			}
		}
		answer(w, http.StatusOK, TransactionOffsets{req.Offsets})
		return nil
	})
}

// sessionTransaction is a transaction as sessions need it.
func (s *server) sessionTransaction(p txn.Producer, group string) *session.Transaction {
	return &session.Transaction{
		ID: p.ID, ProducerID: p.PID, ProducerEpoch: p.Epoch,
		Enter: func(ctx context.Context) (any, error) { return s.enterOffsets(ctx, p, group) },
	}
}

// enterOffsets has the partition of a group's offsets be part of the transaction.
func (s *server) enterOffsets(ctx context.Context, p txn.Producer, group string) (partition.TxnCheck, error) {
	n, _, err := s.Groups.PartitionOf(group)
	if err != nil {
		return partition.TxnCheck{}, err
	}
	offsets := s.Topics.Partitions.Get(metadata.OffsetsTopic, n)
	if offsets == nil {
		return partition.TxnCheck{}, &kafka.Error{
			Code: kafka.ErrNotCoordinator, Message: "another broker coordinates the group: try again",
		}
	}
	check, code, err := s.Transactions.Enter(ctx, offsets, &transactions.Joining{
		ID: p.ID, ProducerID: p.PID, ProducerEpoch: p.Epoch,
	})
	if err == nil {
		err = txnRefusal(code)
	}
	return check, err
}

// inWords says of a refusal what it means for a transaction.
func inWords(err error) error {
	if code := refusal.CodeOf(err); txnWords(code) != "" {
		return txnRefusal(code)
	}
	return err
}
