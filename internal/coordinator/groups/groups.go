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

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/home"
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
	return home.PartitionOf(g.Image(), metadata.OffsetsTopic, id)
}

// BrokerOf returns the broker that coordinates a group. It creates the topic of
// offsets if that is not there.
func (g *Coordinator) BrokerOf(ctx context.Context, id string) (kafka.BrokerID, error) {
	if err := g.EnsureTopic(ctx); err != nil {
		return kafka.NoBroker, fmt.Errorf("create %s: %w", metadata.OffsetsTopic, err)
	}
	return home.BrokerOf(g.Image(), metadata.OffsetsTopic, id, "the group's", g.Shards.InDoubt)
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

// DoSettled is Do for a step after which all members of the group have to join again. A
// coordinator in doubt could not let them: their new assignment is a record. So it leaves
// them as they are, and who wants that step is to look for another coordinator.
func (g *Coordinator) DoSettled(id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	p, _, err := g.PartitionOf(id)
	if err != nil {
		return err
	}
	return g.Shards.DoSure(p, step)
}

// BeginRead begins a step of the machine that a group belongs to which changes nothing: see
// coordinator.Coordinator.BeginRead. From a broker that was replaced without its knowledge
// the group would learn what was committed before that, and go back.
func (g *Coordinator) BeginRead(id string) coordinator.Reading[*group.Shard] {
	p, _, err := g.PartitionOf(id)
	if err != nil {
		return coordinator.Unread[*group.Shard](err)
	}
	return g.Shards.BeginRead(p)
}

// Read runs one step that changes nothing: BeginRead and what follows.
func (g *Coordinator) Read(
	ctx context.Context, id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects),
) error {
	return g.BeginRead(id).Run(ctx, step)
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

// EnsureTopic creates __consumer_offsets if it is not there, as the broker's
// settings want it: see home.Ensure.
func EnsureTopic(ctx context.Context, control home.Control, b *config.Broker, voters int) error {
	return home.Ensure(ctx, control, home.Topic{
		Name: metadata.OffsetsTopic, Partitions: b.OffsetsTopicNumPartitions, Replicas: b.OffsetsTopicReplicationLimit,
		Configs: func(int16) []string {
			return []string{"cleanup.policy", "compact", "segment.bytes", strconv.Itoa(int(b.OffsetsTopicSegmentBytes))}
		},
	}, voters)
}
