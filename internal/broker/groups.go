package broker

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/groups"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// shardLog is a partition of an internal topic as a coordinator sees it.
type shardLog struct {
	p      *partition.Partition
	waiter partition.Waiter
}

// Append implements coordinator.Partition.
func (s *shardLog) Append(bs []record.Batch, now time.Time) (kafka.Offset, error) {
	info, err := s.p.Append(bs, partition.AcksAll, now)
	return info.LastOffset, err
}

// Read implements coordinator.Partition.
func (s *shardLog) Read(dst []byte, from kafka.Offset, maxBytes int) ([]byte, error) {
	r, err := s.p.Read(partition.ReadOptions{
		From: from, MaxBytes: maxBytes, MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch,
	})
	if err != nil {
		return dst, err
	}
	defer r.Chunk.Release()
	return r.Chunk.AppendTo(dst)
}

// Ends implements coordinator.Partition.
func (s *shardLog) Ends() (kafka.Offset, kafka.Offset) {
	return s.p.Log().LogStartOffset(), s.p.Log().LogEndOffset()
}

// HighWatermark implements coordinator.Partition.
func (s *shardLog) HighWatermark() (kafka.Offset, error) {
	return s.p.HighWatermark(), s.p.Leads(kafka.NoLeaderEpoch)
}

// Wait implements coordinator.Partition.
func (s *shardLog) Wait(target kafka.Offset, w coordinator.Waker) bool {
	s.p.StopWaiting(&s.waiter)
	return s.p.Wait(&s.waiter, w, target)
}

// led hands a partition that this broker has begun to lead to its coordinator.
func (b *Broker) led(p *partition.Partition) {
	if p.Topic() == metadata.OffsetsTopic {
		b.groups.Lead(p.ID().Partition, &shardLog{p: p})
	}
}

// lost takes it away again.
func (b *Broker) lost(p *partition.Partition) {
	if p.Topic() == metadata.OffsetsTopic {
		b.groups.Resign(p.ID().Partition)
	}
}

// ensureOffsetsTopic creates __consumer_offsets on first use.
func (b *Broker) ensureOffsetsTopic(ctx context.Context) error {
	return groups.EnsureTopic(ctx, b.control, b.settings())
}
