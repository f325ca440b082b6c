package commitlog

import (
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// AbortedFilter tells which batches of a range belong to aborted transactions. A nil
// one is of a range without any. It has one owner.
type AbortedFilter struct {
	byProducer map[kafka.ProducerID][]AbortedTxn // In the order of the log.
}

// NewAbortedFilter returns a filter for the range that txns are of (AbortedTxns).
func NewAbortedFilter(txns []AbortedTxn) *AbortedFilter {
	if len(txns) == 0 {
		return nil
	}
	f := &AbortedFilter{byProducer: map[kafka.ProducerID][]AbortedTxn{}}
	for _, t := range txns {
		f.byProducer[t.ProducerID] = append(f.byProducer[t.ProducerID], t)
	}
	return f
}

// Aborted reports whether a batch belongs to an aborted transaction. Batches are asked
// for in the order of the log.
func (f *AbortedFilter) Aborted(b record.Batch) bool {
	if f == nil || !b.IsTransactional() || b.IsControl() {
		return false
	}
	of := f.byProducer[b.ProducerID()]
	for len(of) > 0 && of[0].LastOffset < b.BaseOffset() {
		of = of[1:]
	}
	f.byProducer[b.ProducerID()] = of
	return len(of) > 0 && of[0].FirstOffset <= b.BaseOffset()
}
