package partition

import (
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
)

// Isolation says how far a reader may see.
type Isolation int8

// The values of Isolation, as in the protocol.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// ReadOptions ask for records.
type ReadOptions struct {
	From         kafka.Offset
	MaxBytes     int
	MinOneBatch  bool // Return the first batch even if it is larger than MaxBytes.
	Isolation    Isolation
	CurrentEpoch kafka.LeaderEpoch // What the reader believes; kafka.NoLeaderEpoch for any.
}

// ReadResult is an answer to Read. The caller releases Chunk.
type ReadResult struct {
	Chunk            commitlog.Chunk
	HighWatermark    kafka.Offset
	LastStableOffset kafka.Offset
	LogStartOffset   kafka.Offset
}

// Read returns whole batches from o.From on, as stored. Read_uncommitted
// readers read to the high watermark, read_committed ones to the last stable
// offset. An offset between the log's ends with nothing readable yet gives an
// empty chunk.
func (p *Partition) Read(o ReadOptions) (ReadResult, error) {
	if err := p.Leads(o.CurrentEpoch); err != nil {
		return ReadResult{}, err
	}
	r := ReadResult{HighWatermark: p.HighWatermark(), LogStartOffset: p.log.LogStartOffset()}
	r.LastStableOffset = r.HighWatermark
	bound := r.HighWatermark
	if o.Isolation == ReadCommitted {
		bound = r.LastStableOffset
	}
	if o.From < r.LogStartOffset || o.From > p.log.LogEndOffset() {
		return r, &commitlog.OffsetOutOfRangeError{
			Offset: o.From, Start: r.LogStartOffset, End: p.log.LogEndOffset(),
		}
	}
	if o.From >= bound {
		return r, nil
	}
	chunk, err := p.log.Read(o.From, o.MaxBytes, bound, o.MinOneBatch)
	r.Chunk = chunk
	return r, err
}

// EndOffsetForEpoch returns the largest leader epoch at or below the one asked
// for and the offset where it ends, which for the current epoch is the log end
// offset (KIP-101, KIP-279). Both are unknown (-1) for an epoch before the log.
func (p *Partition) EndOffsetForEpoch(epoch kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, error) {
	return p.log.EndOffsetForEpoch(epoch)
}
