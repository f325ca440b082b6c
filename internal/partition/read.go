package partition

import (
	"time"

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
	Source       Source
	Now          time.Time // For FollowerToo.
}

// Source says whose copy a reader takes.
type Source int8

const (
	// LeaderOnly readers see what the leader knows, or an error.
	LeaderOnly Source = iota
	// FollowerToo readers also take a follower's that hears from its leader: less
	// than replica.lag.time.max.ms old (KIP-392).
	FollowerToo
	// Anything is for readers who take what this replica has, however old: up to
	// the last high watermark that it knew. Heard says how old it is.
	Anything
)

// ReadResult is an answer to Read. The caller releases Chunk.
type ReadResult struct {
	Chunk commitlog.Chunk
	// Aborted are the aborted transactions that have records in Chunk, for
	// read_committed readers: who reads skips them, and all control batches.
	Aborted          []commitlog.AbortedTxn
	HighWatermark    kafka.Offset
	LastStableOffset kafka.Offset
	LogStartOffset   kafka.Offset
	// LogEndOffset is told to followers only.
	LogEndOffset kafka.Offset
	// Diverging, if not nil, says where a follower's log parts from the leader's;
	// then nothing was read.
	Diverging *EpochEnd
	// Outside says that the follower is not in the ISR.
	Outside bool
	// Round is what the follower is to answer, if anything, and Asked the last round of
	// all that was begun by then.
	Round kafka.Round
	Asked int64
}

// Read returns whole batches from o.From on, as stored. Read_uncommitted
// readers read to the high watermark, read_committed ones to the last stable
// offset. An offset between the log's ends with nothing readable yet gives an
// empty chunk.
func (p *Partition) Read(o ReadOptions) (ReadResult, error) {
	if err := p.Serves(o.CurrentEpoch, o.Source, o.Now); err != nil {
		return ReadResult{}, err
	}
	r := ReadResult{HighWatermark: p.HighWatermark(), LogStartOffset: p.log.LogStartOffset()}
	r.LastStableOffset = p.log.StableBelow(r.HighWatermark)
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
	if o.Isolation == ReadCommitted && err == nil && chunk.Size() > 0 {
		if r.Aborted, err = p.log.AbortedTxns(o.From, chunk.NextOffset()); err != nil {
			r.Chunk.Release()
			r.Chunk = commitlog.Chunk{}
		}
	}
	return r, err
}

// Serves returns nil if a reader who believes in a leader epoch may read here.
func (p *Partition) Serves(believed kafka.LeaderEpoch, from Source, now time.Time) error {
	p.role.RLock()
	defer p.role.RUnlock()
	switch {
	case from == LeaderOnly || p.standing == leading && from == FollowerToo:
		return p.leadsLocked(believed)
	case from == Anything && p.deleted:
		return ErrDeleted
	case from == Anything:
		return nil
	}
	if err := p.fencedLocked(believed); err != nil {
		return err
	}
	if heard := p.Heard(); p.standing != following || heard.IsZero() || now.Sub(heard) > p.settings.MaxLag {
		return ErrNotLeader
	}
	return nil
}

// EndOffsetForEpoch returns the largest leader epoch at or below the one asked
// for and the offset where it ends, which for the current epoch is the log end
// offset (KIP-101, KIP-279). One before all that are known ends where the first of those
// begins; both are unknown (-1) for one after them.
func (p *Partition) EndOffsetForEpoch(epoch kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, error) {
	return p.log.EndOffsetForEpoch(epoch)
}
