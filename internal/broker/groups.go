package broker

import (
	"context"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// newGroups makes the machine of a partition of __consumer_offsets. The image is at
// least the one that made this broker its leader.
func (b *Broker) newGroups(int32) *group.Shard {
	return group.New(group.Options{
		Settings: groupSettings(b.settings()), NewUUID: newUUID,
		Topics: groups.Topics{Image: b.control.Image()},
	})
}

// led hands a partition that this broker has begun to lead to its coordinator.
func (b *Broker) led(p *partition.Partition) {
	switch n := p.ID().Partition; p.Topic() {
	case metadata.OffsetsTopic:
		b.groups.Lead(n, coordinator.Leader(p))
	case metadata.TransactionsTopic:
		b.txns.Lead(n, coordinator.Leader(p))
	}
}

// lost takes it away again.
func (b *Broker) lost(p *partition.Partition) {
	switch n := p.ID().Partition; p.Topic() {
	case metadata.OffsetsTopic:
		b.groups.Resign(n)
	case metadata.TransactionsTopic:
		b.txns.Resign(n)
		b.markers.Close(n)
	}
}

// ensureOffsetsTopic creates __consumer_offsets on first use.
func (b *Broker) ensureOffsetsTopic(ctx context.Context) error {
	return groups.EnsureTopic(ctx, b.control, b.settings(), len(b.quorum.Status().Voters))
}
