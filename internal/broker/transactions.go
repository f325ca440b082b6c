package broker

import (
	"context"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/txn"
)

// openTransactions makes the coordinator of transactions, and what sends their
// markers.
func (b *Broker) openTransactions() {
	self := kafka.BrokerID(b.config.NodeID)
	b.txns = coordinator.New(coordinator.Options[*txn.Shard]{
		Topic: metadata.TransactionsTopic, CodeOf: refusal.CodeOf, Now: b.now, Logger: b.log,
		New: b.newTransactions, WriteTimeout: b.settings().OffsetsCommitTimeout, Leased: b.leased,
		OutOfTouch: b.outOfTouch,
	})
	b.markers = transactions.NewSender(transactions.SenderOptions{
		Self: self, Image: b.control.Image, Write: b.local().Write, Peers: b.markerPeers(),
		Report: b.reportMarkers, Logger: b.log,
	})
	b.transactions = &transactions.Coordinator{
		Self: self, Shards: b.txns, EnsureTopic: b.ensureTransactionsTopic, Image: b.control.Image,
		NextProducerID: b.control.NextProducerID, Peers: b.transactionPeers(),
	}
}

// newTransactions makes the machine of a partition of __transaction_state.
func (b *Broker) newTransactions(partition int32) *txn.Shard {
	epoch := kafka.NoLeaderEpoch
	if p := b.partitions.Get(metadata.TransactionsTopic, partition); p != nil {
		epoch = p.LeaderEpoch()
	}
	return txn.New(txn.Options{
		Settings: transactionSettings(b.settings()), CoordinatorEpoch: int32(epoch),
		Sender: b.markers.Open(partition),
	})
}

// transactionSettings are the broker's settings for transactions.
func transactionSettings(b *config.Broker) txn.Settings {
	s := txn.DefaultSettings()
	s.MaxTimeout, s.Expiration = b.TransactionMaxTimeout, b.TransactionalIDExpiration
	return s
}

// local writes markers to the partitions that this broker leads.
func (b *Broker) local() *transactions.Local {
	return &transactions.Local{
		Partitions: b.partitions, Offsets: b.groups.Mark, CodeOf: refusal.CodeOf, Now: b.now,
	}
}

// markerPeers and transactionPeers are connections of their own: what goes over them may
// wait, and an answer waits for those before it.
func (b *Broker) markerPeers() transactions.Peers {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.markers
}

func (b *Broker) transactionPeers() transactions.Peers {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.transactions
}

// reportMarkers tells the machine what was written of an order.
func (b *Broker) reportMarkers(
	partition int32, order *txn.Markers, done []kafka.TopicPartition, left int,
) kafka.Code {
	err := b.txns.Do(partition, func(m *txn.Shard, nowMs int64, fx *shard.Effects) {
		m.MarkersWritten(order, done, left, nowMs, fx)
	})
	return refusal.CodeOf(err)
}

// ensureTransactionsTopic creates __transaction_state on first use.
func (b *Broker) ensureTransactionsTopic(ctx context.Context) error {
	return transactions.EnsureTopic(ctx, b.control, b.settings(), len(b.quorum.Status().Voters))
}
