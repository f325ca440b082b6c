// Package groups is the group coordinator as requests see it, whether they come
// in Kafka's protocol or over HTTP: which broker coordinates a group, how a step
// of its machine is run, and the topic that all of it is kept in.
//
// It may be called from any goroutine. Deliberately absent: what the machine
// decides (package group), and how it is hosted (package coordinator).
package groups

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Coordinator finds the machine of a group.
type Coordinator struct {
	Shards *coordinator.Coordinator[*group.Shard]
	// EnsureTopic creates __consumer_offsets if it is not there.
	EnsureTopic func(context.Context) error
	Image       func() *metadata.Image
}

// PartitionOf returns the partition of __consumer_offsets that a group belongs
// to, and the broker that leads it, which may be kafka.NoBroker.
func (g *Coordinator) PartitionOf(id string) (int32, kafka.BrokerID, error) {
	t := g.Image().Topic(metadata.OffsetsTopic)
	if t == nil {
		return 0, kafka.NoBroker, &kafka.Error{
			Code:    kafka.ErrCoordinatorNotAvailable,
			Message: "topic " + metadata.OffsetsTopic + " is being created: try again",
		}
	}
	p := coordinator.PartitionOf(id, int32(len(t.Partitions)))
	return p, t.Partitions[p].Leader, nil
}

// BrokerOf returns the broker that coordinates a group. It creates the topic of
// offsets if that is not there.
func (g *Coordinator) BrokerOf(ctx context.Context, id string) (kafka.BrokerID, error) {
	if err := g.EnsureTopic(ctx); err != nil {
		return kafka.NoBroker, fmt.Errorf("create %s: %w", metadata.OffsetsTopic, err)
	}
	_, leader, err := g.PartitionOf(id)
	if err == nil && leader == kafka.NoBroker {
		err = &kafka.Error{Code: kafka.ErrCoordinatorNotAvailable, Message: "the group's partition has no leader: try again"}
	}
	return leader, err
}

// Do runs one step of the machine that a group belongs to: see
// coordinator.Coordinator.Do.
func (g *Coordinator) Do(id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	p, _, err := g.PartitionOf(id)
	if err != nil {
		return err
	}
	return g.Shards.Do(p, step)
}

// Topics lets the group machine resolve topics of an image.
type Topics struct{ Image *metadata.Image }

// Topic implements group.Topics.
func (v Topics) Topic(name string) (kafka.TopicID, int32, bool) {
	t := v.Image.Topic(name)
	if t == nil {
		return kafka.TopicID{}, 0, false
	}
	return t.ID, int32(len(t.Partitions)), true
}

// TopicName implements group.Topics.
func (v Topics) TopicName(id kafka.TopicID) (string, bool) {
	t := v.Image.TopicByID(id)
	if t == nil {
		return "", false
	}
	return t.Name, true
}

// Control is the way to the controller.
type Control interface {
	Image() *metadata.Image
	CreateTopics(context.Context, *kmsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error)
}

// EnsureTopic creates __consumer_offsets if it is not there, as the broker's
// settings want it. Somebody else may create it at the same time.
//
// A cluster whose brokers start together is asked for it before all of them have
// registered, and what is committed must not hang on the first of them for ever. So
// it is not created before as many are there as there are voters, if it is to have
// so many replicas: at the first start all voters come anyway.
func EnsureTopic(ctx context.Context, control Control, b *config.Broker, voters int) error {
	image := control.Image()
	if image.Topic(metadata.OffsetsTopic) != nil {
		return nil
	}
	brokers := len(image.Brokers())
	factor := min(int(b.OffsetsTopicReplicationLimit), max(brokers, voters))
	if brokers < factor {
		return &kafka.Error{
			Code: kafka.ErrCoordinatorNotAvailable,
			Message: fmt.Sprintf("%s is to have %d replicas, and %d of %d brokers have registered: it is created "+
				"when the others have", metadata.OffsetsTopic, factor, brokers, voters),
		}
	}
	segment, compact := strconv.Itoa(int(b.OffsetsTopicSegmentBytes)), "compact"
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions = metadata.OffsetsTopic, b.OffsetsTopicNumPartitions
	t.ReplicationFactor = int16(factor)
	t.Configs = []kmsg.CreateTopicsRequestTopicConfig{
		{Name: "cleanup.policy", Value: &compact}, {Name: "segment.bytes", Value: &segment},
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = req.MaxVersion()
	req.Topics = append(req.Topics, t)
	resp, err := control.CreateTopics(ctx, req)
	if err != nil {
		return err
	}
	created := &resp.Topics[0]
	switch code := kafka.Code(created.ErrorCode); code {
	case kafka.ErrNone, kafka.ErrTopicAlreadyExists:
		return nil
	default:
		refusal := &kafka.Error{Code: code}
		if created.ErrorMessage != nil {
			refusal.Message = *created.ErrorMessage
		}
		return refusal
	}
}
