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
	// Leased says that no other broker can have taken over from this one without its
	// knowledge; nil for always.
	Leased func() bool
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
	return home.BrokerOf(g.Image(), metadata.OffsetsTopic, id, "the group's")
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

// Read is Do for a step that changes nothing, and whose answer therefore waits for no
// other broker. One that was cut off from the others may have been replaced: it would tell
// what was committed before that, and the group would go back. So it tells nothing until
// the active controller has answered it again.
func (g *Coordinator) Read(id string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error {
	if g.Leased != nil && !g.Leased() {
		return &kafka.Error{
			Code: kafka.ErrNotCoordinator,
			Message: "this broker has not heard from the active controller for longer than its session lasts, and " +
				"another may coordinate the group by now: look for the coordinator again",
		}
	}
	return g.Do(id, step)
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
