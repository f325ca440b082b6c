package commitlog

import (
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

const (
	// recallBytes bounds what is read to find one batch: what Java's producer has under
	// way at most (buffer.memory), if nobody else writes to the partition.
	recallBytes = 32 << 20
	// recallChunkBytes is read at once.
	recallChunkBytes = 256 << 10
)

// recall looks in the log for a batch that its producer sends again after newer ones have
// driven it from the producer state. What is found is the same batch, not another with its
// sequences: some clients give them twice (see package producerstate).
//
// It goes backwards from where the batch is if nobody else wrote to the log, in steps that
// grow. It takes no lock, and what it costs is paid by the producer that asks.
func (l *Log) recall(b record.Batch, in *producerstate.OutOfOrderSequenceError) (info AppendInfo, found bool) {
	left := recallBytes
	from, step := max(in.From, l.LogStartOffset()), kafka.Offset(b.LastOffsetDelta())+1
	var buf []byte
	for upTo := in.UpTo; upTo > from && left > 0; step *= 2 {
		at := max(upTo-step, from)
		for next := at; next < upTo && left > 0; {
			chunk, err := l.Read(next, recallChunkBytes, upTo, true)
			if err != nil {
				return AppendInfo{}, false // Read has reported what is to be reported.
			}
			buf, err = chunk.AppendTo(buf[:0])
			chunk.Release()
			if err != nil || len(buf) == 0 {
				break
			}
			left, next = left-len(buf), chunk.NextOffset()
			for rest := buf; len(rest) > 0; {
				var there record.Batch
				if there, rest, err = record.Next(rest); err != nil {
					return AppendInfo{}, false
				}
				if there.SameAs(b) {
					return l.whereItIs(there), true
				}
			}
		}
		upTo = at
	}
	return AppendInfo{}, false
}

// whereItIs answers the append of a batch that is in the log.
func (l *Log) whereItIs(b record.Batch) AppendInfo {
	info := AppendInfo{
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), LogAppendTimeMs: -1,
		LogStartOffset: l.LogStartOffset(), Duplicate: true,
	}
	if b.TimestampType() == record.LogAppendTime {
		info.LogAppendTimeMs = b.MaxTimestamp()
	}
	return info
}
