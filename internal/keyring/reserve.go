package keyring

import (
	"context"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/topics"
)

// Where several brokers lead partitions of a topic, a key may have its record at
// another one: after partitions were added, or because a retry names another key or
// partition. So before a record with a new key is appended, the others are asked:
//
//  1. Reserve the key here, while the ring is held; then let go of the ring.
//  2. Ask every other broker that leads partitions of the topic (Find).
//  3. Nobody has it, nobody has reserved it: hold the ring, append, observe, and give
//     the reservation up.
//
// Two brokers that append a record of the same key at the same time would both have
// been told of no record and no reservation, each after it had made its own: one of
// them asked last, and was told of the other's. If both are told of one another's,
// the broker with the higher id gives way. Nobody waits for others while it holds a
// ring.

// Reservation keeps keys from being appended by others for a while.
type Reservation struct {
	ring *Ring
	keys []idempotency.Digest
	done chan struct{}
}

// Reserve reserves keys while the ring is held. If somebody has reserved one of them
// it reserves none, and returns what is closed when that is given up.
func (g *Ring) Reserve(keys []idempotency.Digest) (*Reservation, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range keys {
		if r := g.reserved[k]; r != nil {
			return nil, r.done
		}
	}
	r := &Reservation{ring: g, keys: keys, done: make(chan struct{})}
	for _, k := range keys {
		g.reserved[k] = r
	}
	return r, nil
}

// GiveUp ends the reservation. It may be called again.
func (r *Reservation) GiveUp() {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	select {
	case <-r.done:
		return
	default:
	}
	for _, k := range r.keys {
		delete(r.ring.reserved, k)
	}
	close(r.done)
}

// Wanted is a record that another broker asks for.
type Wanted struct{ Key, Content idempotency.Digest }

// Finding is what there is of it here.
type Finding struct {
	Outcome idempotency.Outcome
	Place   idempotency.Place // Unless Outcome is New.
	// LeaderEpoch is that of the place's partition.
	LeaderEpoch kafka.LeaderEpoch
	// Reserved says that it may be about to be appended.
	Reserved bool
}

// Find looks keys up for another broker, in the partitions that it says this one
// leads. If that is not so, or not yet, it fails.
func (r *Rings) Find(
	ctx context.Context, topic *topics.View, partitions []int32, wanted []Wanted, now time.Time,
) ([]Finding, error) {
	ring, err := r.Hold(ctx, topic, now)
	if err != nil {
		return nil, err
	}
	defer ring.Release()
	if err := ring.Read(ctx, slices.Values(partitions), now); err != nil {
		return nil, err
	}
	found := make([]Finding, len(wanted))
	for i, w := range wanted {
		f := &found[i]
		f.Place, f.Outcome = ring.Check(w.Key, w.Content, now)
		f.Reserved = ring.isReserved(w.Key)
		if f.Outcome == idempotency.Repeated {
			if f.LeaderEpoch, err = ring.Ready(ctx, f.Place.Partition, now); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

func (g *Ring) isReserved(k idempotency.Digest) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reserved[k] != nil
}
