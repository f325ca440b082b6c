package coordinator

import (
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// writer makes batches of records. It keeps its memory, up to a bound.
type writer struct {
	builder *record.Builder
	batches []record.Batch
}

// maxKeptBatch bounds the memory a writer keeps.
const maxKeptBatch = 64 << 10

// write appends the records in one go and returns the offset of the last. They are
// part of the transaction t, if it is not nil.
func (w *writer) write(
	p Partition, records []shard.KeyValue, t *shard.Transaction, now time.Time, maxBatchBytes int,
) (kafka.Offset, error) {
	if w.builder == nil {
		w.builder = record.NewBuilder(record.CodecNone, 0)
	}
	w.batches = w.batches[:0]
	w.begin(t)
	const overhead = 64 // More than a record's own framing.
	largest := 0
	for i := range records {
		r := &records[i]
		size := len(r.Key) + len(r.Value) + overhead
		if size+record.HeaderSize > maxBatchBytes {
			w.builder.Reset()
			return 0, tooLarge(size, maxBatchBytes)
		}
		size += w.builder.Size()
		if w.builder.Count() > 0 && size > maxBatchBytes {
			// The builder's bytes are good until its next batch only.
			if err := w.cut(append([]byte(nil), w.builder.Build()...)); err != nil {
				return 0, err
			}
			w.begin(t)
		}
		w.builder.Append(now.UnixMilli(), r.Key, r.Value, nil)
		largest = max(largest, w.builder.Size())
	}
	if err := w.cut(w.builder.Build()); err != nil {
		return 0, err
	}
	last, err := w.append(p, t, now)
	clear(w.batches)
	if largest > maxKeptBatch {
		w.builder = nil
	}
	return last, err
}

// begin starts a batch.
func (w *writer) begin(t *shard.Transaction) {
	if t != nil {
		w.builder.SetProducer(t.ProducerID, t.ProducerEpoch, record.NoSequence)
		w.builder.SetTransactional()
	}
}

func (w *writer) append(p Partition, t *shard.Transaction, now time.Time) (kafka.Offset, error) {
	if t != nil {
		return p.AppendTxn(w.batches, t.Guard, now)
	}
	return p.Append(w.batches, now)
}

func (w *writer) cut(data []byte) error {
	b, _, err := record.Next(data)
	if err != nil {
		return fmt.Errorf("frame a batch: %w", err)
	}
	w.batches = append(w.batches, b)
	return nil
}

func tooLarge(size, maxBatchBytes int) error {
	return &kafka.Error{
		Code: kafka.ErrMessageTooLarge,
		Message: fmt.Sprintf("a record of %d bytes is too large for a batch of %d: raise the internal "+
			"topic's max.message.bytes, or make groups and their metadata smaller", size, maxBatchBytes),
	}
}
