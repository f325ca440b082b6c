package cleaner

import (
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// transactions is what a pass knows of those in the segment at hand, and of those
// that reach into it from the ones before. All of them have ended, since a pass ends
// below the last stable offset.
type transactions struct {
	aborted *commitlog.AbortedFilter
	markers map[kafka.Offset]commitlog.AbortedTxn // By the offset of the marker.
	// open are the producers of which batches were met since their last marker,
	// whether any of their records stay or not.
	open map[kafka.ProducerID]bool
}

// begin goes on to a segment.
func (t *transactions) begin(l *commitlog.Log, s commitlog.CleanableSegment) error {
	txns, err := l.AbortedTxns(max(s.BaseOffset, l.LogStartOffset()), s.EndOffset)
	if err != nil {
		return err
	}
	t.aborted, t.markers = commitlog.NewAbortedFilter(txns), nil
	for _, x := range txns {
		if x.LastOffset < s.EndOffset {
			if t.markers == nil {
				t.markers = map[kafka.Offset]commitlog.AbortedTxn{}
			}
			t.markers[x.LastOffset] = x
		}
	}
	return nil
}

// isAborted takes note of a batch of records and reports whether its transaction was
// aborted.
func (t *transactions) isAborted(b record.Batch) bool {
	if !b.IsTransactional() {
		return false
	}
	if t.open == nil {
		t.open = map[kafka.ProducerID]bool{}
	}
	t.open[b.ProducerID()] = true
	return t.aborted.Aborted(b)
}

// filterMarker returns what is to be kept of a control batch: all of it, as long as
// there was a batch of its transaction when this pass came by. After that readers have
// delete.retention.ms to see it, counted from the first pass that finds it alone: who
// has read records of the transaction waits for it. The last marker of a producer
// that wrote nothing since is kept, for its epoch.
func (p *pass) filterMarker(w *commitlog.Rewrite, b record.Batch) (record.Batch, error) {
	open := p.txns.open[b.ProducerID()]
	delete(p.txns.open, b.ProducerID())
	if open {
		if x, ok := p.txns.markers[b.BaseOffset()]; ok {
			return b, w.AppendAborted(x)
		}
		return b, nil
	}
	horizon, hasHorizon := b.DeleteHorizon()
	switch {
	case b.BaseOffset() >= p.mapped || p.endsProducer(b):
		return b, nil
	case !hasHorizon:
		p.changed = true
		return p.rebuild(b, filter{all: true}, true)
	case p.nowMs < horizon:
		return b, nil
	}
	p.changed = true
	return record.Batch{}, nil
}
