package broker

import (
	"context"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/txn"
)

// retain deletes what retention lets go, again and again until ctx ends.
func (b *Broker) retain(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(b.settings().LogRetentionCheckInterval):
		}
		b.partitions.All(func(p *partition.Partition) bool {
			if err := p.Log().ApplyRetention(b.now(), p.HighWatermark()); err != nil {
				b.log.Error("retention failed", "topic", p.Topic(), "partition", p.ID().Partition, "error", err)
			}
			return ctx.Err() == nil
		})
	}
}

// compact runs the cleaner until ctx ends, unless log.cleaner.enable is off.
func (b *Broker) compact(ctx context.Context) error {
	if !b.settings().CleanerEnable {
		return nil
	}
	return b.cleaner.Run(ctx)
}

// compacted returns the logs that the cleaner looks at.
func (b *Broker) compacted() []cleaner.Target {
	var targets []cleaner.Target
	b.partitions.All(func(p *partition.Partition) bool {
		if p.Log().Config().Compact {
			targets = append(targets, cleaner.Target{Log: p.Log(), LastStableOffset: p.LastStableOffset()})
		}
		return true
	})
	return targets
}

// follow makes everything that depends on the metadata follow it: partitions,
// groups, and what topics' defaults mean.
func (b *Broker) follow(_, image *metadata.Image, d metadata.Delta) {
	b.applier.Apply(d)
	b.counts.events.Follow(b.api.NodeID, d)
	b.reportUnclean(d)
	for _, c := range d.Topics {
		if c.New == nil {
			b.topics.Forget(c.Old.ID)
			b.keys.Forget(c.Old.ID)
			b.groups.Notify(func(m *group.Shard) { m.TopicDeleted(c.Old.Name, c.Old.ID) })
		}
	}
	if len(d.Configs) > 0 {
		b.applier.Reconfigure(image.Topics())
		settings := groupSettings(b.settings())
		b.groups.Notify(func(m *group.Shard) { m.Configure(settings) })
		transactional := transactionSettings(b.settings())
		b.txns.Notify(func(m *txn.Shard) { m.Configure(transactional) })
	}
}

// isReplica says whether the metadata gives a partition to a broker, whether it could be
// opened there or not.
func isReplica(image *metadata.Image, id kafka.TopicIDPartition, broker kafka.BrokerID) bool {
	p := image.TopicByID(id.ID).Partition(id.Partition)
	return p != nil && slices.Contains(p.Replicas, broker)
}

// settleStrays moves the files of partitions that the metadata does not know
// out of the way, where an operator finds them: nothing is deleted because its
// metadata is missing.
func (b *Broker) settleStrays() {
	image := b.control.Image()
	for _, id := range b.disk.Logs() {
		if b.partitions.GetByID(id.ID, id.Partition) != nil || isReplica(image, id, b.api.NodeID) {
			continue
		}
		if err := b.disk.Quarantine(id); err != nil {
			b.log.Error("stray partition not moved away", "partition", id.String(), "error", err)
			continue
		}
		b.log.Warn("partition is not in the metadata: its files were moved to quarantine/",
			"partition", id.String())
	}
}
