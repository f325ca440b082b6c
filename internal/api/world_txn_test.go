package api_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/txn"
)

// openTransactions makes the coordinator of transactions as package broker does.
func (w *world) openTransactions(logger *slog.Logger) {
	local := &transactions.Local{
		Partitions: w.partitions, Offsets: w.groups.Mark, CodeOf: refusal.CodeOf, Now: time.Now,
	}
	w.markers = transactions.NewSender(transactions.SenderOptions{
		Self: 1, Image: w.plane.Image, Write: local.Write, Logger: logger,
		Report: func(partition int32, order *txn.Markers, done []kafka.TopicPartition, left int) kafka.Code {
			return refusal.CodeOf(w.txns.Do(partition, func(m *txn.Shard, nowMs int64, fx *shard.Effects) {
				m.MarkersWritten(order, done, left, nowMs, fx)
			}))
		},
	})
	w.txns = coordinator.New(coordinator.Options[*txn.Shard]{
		Topic: metadata.TransactionsTopic, CodeOf: refusal.CodeOf, Now: time.Now, Logger: logger,
		New: func(partition int32) *txn.Shard {
			return txn.New(txn.Options{Settings: txn.DefaultSettings(), Sender: w.markers.Open(partition)})
		},
	})
	w.services.Markers = local
	w.services.Transactions = &transactions.Coordinator{
		Self: 1, Shards: w.txns, EnsureTopic: w.ensureTransactionsTopic, Image: w.plane.Image,
		NextProducerID: w.plane.NextProducerID,
	}
}

func (w *world) ensureTransactionsTopic(context.Context) error {
	if w.plane.Image().Topic(metadata.TransactionsTopic) == nil {
		w.createTopic(metadata.TransactionsTopic, 2, "cleanup.policy=compact")
	}
	return nil
}
