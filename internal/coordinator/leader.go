package coordinator

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// leader is a partition that this broker leads, as a shard sees it, under one leader
// epoch: under another the log may be another.
type leader struct {
	p      *partition.Partition
	epoch  kafka.LeaderEpoch
	waiter partition.Waiter // A shard has one wait at a time.
}

// Leader returns what a coordinator needs of a partition that this broker leads.
func Leader(p *partition.Partition) Partition { return &leader{p: p, epoch: p.LeaderEpoch()} }

// Append implements Partition.
func (l *leader) Append(bs []record.Batch, now time.Time) (kafka.Offset, error) {
	info, err := l.p.AppendUnder(l.epoch, bs, partition.AcksAll, now)
	return info.LastOffset, err
}

// AppendTxn implements Partition.
func (l *leader) AppendTxn(bs []record.Batch, guard any, now time.Time) (kafka.Offset, error) {
	check, _ := guard.(partition.TxnCheck) // Without one the transaction must be open here.
	info, err := l.p.AppendTxn(l.epoch, bs, partition.AcksAll, check, now)
	return info.LastOffset, err
}

// AppendMarker implements Partition.
func (l *leader) AppendMarker(
	believed kafka.LeaderEpoch, m commitlog.Marker, now time.Time,
) (kafka.Offset, error) {
	if believed != kafka.NoLeaderEpoch && believed != l.epoch {
		return kafka.NoOffset, &partition.FencedEpochError{Requested: believed, Current: l.epoch}
	}
	marked, err := l.p.AppendMarkers(l.epoch, []commitlog.Marker{m}, now)
	switch {
	case err != nil:
		return kafka.NoOffset, err
	case marked.Refused != nil && marked.Refused[0] != nil:
		return kafka.NoOffset, marked.Refused[0]
	}
	return marked.End - 1, nil
}

// Read implements Partition.
func (l *leader) Read(dst []byte, from kafka.Offset, maxBytes int) ([]byte, error) {
	r, err := l.p.Read(partition.ReadOptions{
		From: from, MaxBytes: maxBytes, MinOneBatch: true, CurrentEpoch: l.epoch,
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
	reached := l.p.HighWatermark() // First: it is of the epoch if that still lasts.
	return reached, l.p.Leads(l.epoch)
}

// Confirm implements Partition.
func (l *leader) Confirm() (wait func(context.Context) error) { return l.p.Confirm(l.epoch) }

// InDoubt implements Partition.
func (l *leader) InDoubt() bool { return l.p.InDoubt(time.Now()) }

// Wait implements Partition.
func (l *leader) Wait(target kafka.Offset, w Waker) bool {
	l.p.StopWaiting(&l.waiter)
	return l.p.Wait(&l.waiter, w, target)
}
