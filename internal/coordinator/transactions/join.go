package transactions

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/txn"
)

// Joining is what the leader of partitions asks the coordinator of a transaction
// before the first record of the transaction is appended to them.
type Joining struct {
	ID            string // The transactional id.
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	// VerifyOnly is for clients that add their partitions themselves.
	VerifyOnly bool

	partitions []kafka.TopicPartition
	topics     []kafka.TopicID // Of the partitions.
}

// Add adds a partition that this broker leads. The coordinator is told which topic of that
// name it is of. What it knows of topics may be older, or newer: one that is made anew must
// not join on the word that there was one before, or it is taken for deleted when the
// coordinator hears how the one before ended, and gets no marker.
func (j *Joining) Add(p *partition.Partition) {
	j.partitions = append(j.partitions, kafka.TopicPartition{Topic: p.Topic(), Partition: p.ID().Partition})
	j.topics = append(j.topics, p.ID().ID)
}

// IsFinal reports whether the coordinator's word is not asked for again where a marker has
// overtaken it. Who leaves it to brokers to add partitions may begin a transaction while the
// markers of the one before are written: then the marker was of that one. Who adds them
// himself has begun it when all of them were there: then what he sent has come too late,
// and might be taken for part of the transaction after, which has the same epoch.
func (j *Joining) IsFinal() bool { return j.VerifyOnly }

// Join asks the coordinator, wherever it is, and returns a code for each partition in the
// order in which they were added.
func (c *Coordinator) Join(ctx context.Context, j *Joining) []kafka.Code {
	codes := make([]kafka.Code, len(j.partitions))
	fill := func(code kafka.Code) []kafka.Code {
		for i := range codes {
			codes[i] = code
		}
		return codes
	}
	_, leader, err := c.PartitionOf(j.ID)
	if err != nil || leader == kafka.NoBroker || leader != c.Self && c.Peers == nil {
		return fill(kafka.ErrCoordinatorNotAvailable)
	}
	req := j.request()
	var resp kmsg.Response
	if leader == c.Self {
		resp, err = c.Ask(ctx, req, txn.Context{})
	} else {
		resp, err = c.Peers.Do(ctx, leader, req)
	}
	answer, ok := resp.(*kmsg.AddPartitionsToTxnResponse)
	var refusal *kafka.Error
	switch {
	case errors.As(err, &refusal):
		return fill(refusal.Code)
	case err != nil || !ok:
		return fill(kafka.ErrCoordinatorNotAvailable)
	case answer.ErrorCode != 0:
		return fill(kafka.Code(answer.ErrorCode))
	}
	fill(kafka.ErrCoordinatorNotAvailable) // What the answer leaves out.
	for _, t := range answer.Transactions {
		for _, rt := range t.Topics {
			for _, p := range rt.Partitions {
				at := kafka.TopicPartition{Topic: rt.Topic, Partition: p.Partition}
				if i := slices.Index(j.partitions, at); i >= 0 {
					codes[i] = kafka.Code(p.ErrorCode)
				}
			}
		}
	}
	return codes
}

// request is the request that brokers send one another.
func (j *Joining) request() *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = req.MaxVersion()
	one := kmsg.AddPartitionsToTxnRequestTransaction{
		TransactionalID: j.ID, ProducerID: int64(j.ProducerID), ProducerEpoch: int16(j.ProducerEpoch),
		VerifyOnly: j.VerifyOnly,
	}
	for n, p := range j.partitions {
		i := slices.IndexFunc(one.Topics, func(t kmsg.AddPartitionsToTxnRequestTransactionTopic) bool {
			return t.Topic == p.Topic && TopicIDOf(&t.UnknownTags) == j.topics[n]
		})
		if i < 0 {
			i = len(one.Topics)
			t := kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: p.Topic}
			tagTopicID(&t.UnknownTags, j.topics[n])
			one.Topics = append(one.Topics, t)
		}
		one.Topics[i].Partitions = append(one.Topics[i].Partitions, p.Partition)
	}
	req.Transactions = append(req.Transactions, one)
	return req
}
