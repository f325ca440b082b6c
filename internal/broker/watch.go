package broker

import (
	"context"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// What a test that breaks a cluster looks at, and turns.

// Image returns the metadata that is committed, as this broker knows it.
func (b *Broker) Image() *metadata.Image { return b.control.Image() }

// ActiveController returns who leads the quorum, as this broker knows it.
func (b *Broker) ActiveController() (kafka.BrokerID, bool) { return b.control.ActiveController() }

// MoveLeader makes a replica the preferred leader of a partition and has it elected.
func (b *Broker) MoveLeader(ctx context.Context, topic string, partition int32, to kafka.BrokerID) error {
	return b.control.MoveLeader(ctx, topic, partition, to)
}

// RemoveVoter takes a node out of the quorum; only the active controller can.
func (b *Broker) RemoveVoter(ctx context.Context, id kafka.BrokerID) error {
	return b.quorum.RemoveVoter(ctx, id, [16]byte{})
}

// AddVoter gives a node that follows the quorum a vote; only the active controller can.
func (b *Broker) AddVoter(ctx context.Context, id kafka.BrokerID) error {
	m, ok := b.quorum.Member(id)
	if !ok {
		return fmt.Errorf("node %d does not follow the quorum", id)
	}
	return b.quorum.AddVoter(ctx, m)
}

// Leased says that this broker knows that no other has taken over what it leads.
func (b *Broker) Leased() bool { return b.leased() }
