package coordinator

import (
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// leader is a partition that this broker leads, as a shard sees it.
type leader struct {
	p      *partition.Partition
	waiter partition.Waiter // A shard has one wait at a time.
}

// Leader returns what a coordinator needs of a partition that this broker leads.
func Leader(p *partition.Partition) Partition { return &leader{p: p} }

// Append implements Partition.
func (l *leader) Append(bs []record.Batch, now time.Time) (kafka.Offset, error) {
	info, err := l.p.Append(bs, partition.AcksAll, now)
	return info.LastOffset, err
}

// Read implements Partition.
func (l *leader) Read(dst []byte, from kafka.Offset, maxBytes int) ([]byte, error) {
	r, err := l.p.Read(partition.ReadOptions{
		From: from, MaxBytes: maxBytes, MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch,
	})
	if err != nil {
		return dst, err
	}
	defer r.Chunk.Release()
	return r.Chunk.AppendTo(dst)
}

// Ends implements Partition.
func (l *leader) Ends() (logStartOffset, logEndOffset kafka.Offset) {
	return l.p.Log().LogStartOffset(), l.p.Log().LogEndOffset()
}

// HighWatermark implements Partition.
func (l *leader) HighWatermark() (kafka.Offset, error) {
	return l.p.HighWatermark(), l.p.Leads(kafka.NoLeaderEpoch)
}

// Wait implements Partition.
func (l *leader) Wait(target kafka.Offset, w Waker) bool {
	l.p.StopWaiting(&l.waiter)
	return l.p.Wait(&l.waiter, w, target)
}
