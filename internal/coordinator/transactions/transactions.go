// Package transactions is the transaction coordinator as requests see it: which
// broker coordinates a transactional id, how a step of its machine is run, how a
// partition's leader has its partition join a transaction, and how markers reach
// their partitions.
//
//	Ask     a request of a client, to the machine on this broker
//	Join    for the leader of a partition, to the coordinator wherever it is
//	Sender  markers of transactions that ended, to the leaders of their partitions
//	Local   markers into the partitions that this broker leads
//
// It may be called from any goroutine. Deliberately absent: what the machine decides
// (package txn), and how it is hosted (package coordinator).
package transactions

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/home"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
)

// ErrNoProducerID says that a broker has no producer id to give, and can't get more now.
// Every client tries again after that code, which Kafka's brokers give then too. What the
// controller says to brokers would end many a producer for good.
var ErrNoProducerID = &kafka.Error{
	Code:    kafka.ErrCoordinatorLoadInProgress,
	Message: "this broker has no producer id left, and the active controller gives it none now: try again",
}

// Peers sends requests to other brokers' cluster listeners.
type Peers interface {
	Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error)
}

// Coordinator finds the machine of a transactional id.
type Coordinator struct {
	Self   kafka.BrokerID
	Shards *coordinator.Coordinator[*txn.Shard]
	// EnsureTopic creates __transaction_state if it is not there.
	EnsureTopic    func(context.Context) error
	Image          func() *metadata.Image
	NextProducerID func(context.Context) (kafka.ProducerID, error)
	Peers          Peers // nil on a broker that is alone.
}

// PartitionOf returns the partition of __transaction_state that a transactional id
// belongs to, and the broker that leads it, which may be kafka.NoBroker.
func (c *Coordinator) PartitionOf(id string) (int32, kafka.BrokerID, error) {
	return home.PartitionOf(c.Image(), metadata.TransactionsTopic, id)
}

// BrokerOf returns the broker that coordinates a transactional id. It creates the
// topic of transactions if that is not there.
func (c *Coordinator) BrokerOf(ctx context.Context, id string) (kafka.BrokerID, error) {
	if err := c.EnsureTopic(ctx); err != nil {
		return kafka.NoBroker, fmt.Errorf("create %s: %w", metadata.TransactionsTopic, err)
	}
	return home.BrokerOf(c.Image(), metadata.TransactionsTopic, id, "the transactional id's", c.Shards.InDoubt)
}

// Do runs one step of the machine that a transactional id belongs to: see
// coordinator.Coordinator.DoSure. Each is about a record: it appends one, waits for one, or asks
// for a producer id to append one with.
func (c *Coordinator) Do(id string, step func(m *txn.Shard, nowMs int64, fx *shard.Effects)) error {
	p, _, err := c.PartitionOf(id)
	if err != nil {
		return err
	}
	return c.Shards.DoSure(p, step)
}

// read is Do for a step that appends nothing: the transaction coordinator may be another
// one by now, and this one must not say of a transaction that ended there that it is open.
func (c *Coordinator) read(
	ctx context.Context, id string, step func(m *txn.Shard, nowMs int64, fx *shard.Effects),
) error {
	return c.BeginRead(id).Run(ctx, step)
}

// BeginRead begins such a step: see coordinator.Coordinator.BeginRead.
func (c *Coordinator) BeginRead(id string) coordinator.Reading[*txn.Shard] {
	p, _, err := c.PartitionOf(id)
	if err != nil {
		return coordinator.Unread[*txn.Shard](err)
	}
	return c.Shards.BeginRead(p)
}

// Ask has the machine on this broker answer a request about one transactional id,
// and waits for the answer, or until ctx ends: what came of the request is not known
// then. Refusals of the machine are in the answer; an error is one of those that come
// before it.
func (c *Coordinator) Ask(ctx context.Context, req kmsg.Request, from txn.Context) (kmsg.Response, error) {
	id, ok := txn.ID(req)
	if !ok {
		return nil, fmt.Errorf("%T is not about one transactional id", req)
	}
	from.ProducerID = kafka.NoProducerID
	for {
		in := coordinator.NewInbox()
		step := func(m *txn.Shard, nowMs int64, fx *shard.Effects) {
			from.NowMs, from.Caller = nowMs, in
			m.Handle(&from, req, fx)
		}
		var err error
		if req.Key() == kmsg.AddPartitionsToTxn.Int16() { // It may have been added before.
			err = c.read(ctx, id, step)
		} else {
			err = c.Do(id, step)
		}
		if err != nil {
			return nil, err
		}
		response, err := in.Reply(ctx)
		if err != nil {
			return nil, err
		}
		if answer, ok := response.(kmsg.Response); ok {
			return answer, nil
		}
		// It needs a producer id, which takes a word with the controller.
		if from.ProducerID, err = c.NextProducerID(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoProducerID, err)
		}
	}
}

// EnsureTopic creates __transaction_state if it is not there, as the broker's
// settings want it: see home.Ensure.
func EnsureTopic(ctx context.Context, control home.Control, b *config.Broker, voters int) error {
	return home.Ensure(ctx, control, home.Topic{
		Name: metadata.TransactionsTopic, Partitions: b.TransactionStateNumPartitions,
		Replicas: b.TransactionStateReplicationLimit,
		Configs: func(replicas int16) []string {
			minInSync := min(b.TransactionStateMinISR, max(replicas-1, 1)) // One replica may fail.
			return []string{
				"cleanup.policy", "compact",
				"segment.bytes", strconv.Itoa(int(b.TransactionStateSegmentBytes)),
				"min.insync.replicas", strconv.Itoa(int(minInSync)),
				"unclean.leader.election.enable", "false",
			}
		},
	}, voters)
}
