package coordinator

import (
	"context"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Partition is what a coordinator needs of a partition that this broker leads.
type Partition interface {
	// Append appends batches as the leader, as for acks=all, and returns the
	// offset of the last record. The bytes are stamped in place and not kept.
	Append(bs []record.Batch, now time.Time) (kafka.Offset, error)
	// AppendTxn is Append for batches that are part of a transaction. The guard is the
	// partition's own.
	AppendTxn(bs []record.Batch, guard any, now time.Time) (kafka.Offset, error)
	// AppendMarker ends a transaction and returns the marker's offset. It refuses to if
	// the leader epoch is another than whoever sent the marker believed.
	AppendMarker(believed kafka.LeaderEpoch, m commitlog.Marker, now time.Time) (kafka.Offset, error)
	// Read appends to dst whole batches that hold the record at from or later
	// ones, below the high watermark, about maxBytes of them. Nothing appended
	// means that there is nothing to read yet.
	Read(dst []byte, from kafka.Offset, maxBytes int) ([]byte, error)
	// Ends returns the log start offset and the log end offset.
	Ends() (logStartOffset, logEndOffset kafka.Offset)
	// HighWatermark returns the high watermark, or an error if this broker does
	// not lead the partition.
	HighWatermark() (kafka.Offset, error)
	// Wait arranges for one Wake when the high watermark is at or above target,
	// or leadership changes. It returns false, and arranges nothing, if the high
	// watermark is there already. Each shard has one wait at a time.
	Wait(target kafka.Offset, w Waker) bool
	// Confirm asks the replicas whether this broker leads the partition still. The
	// function that it returns waits for the answer: see partition.Partition.Confirm.
	Confirm() (wait func(context.Context) error)
	// InDoubt reports whether the replicas have not confirmed that for a while. It asks
	// them: see partition.Partition.InDoubt.
	InDoubt() bool
}

// Waker is woken by a partition. It does not block and takes no lock.
type Waker interface{ Wake() }
