package cleaner

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// pass is one compaction of one log.
type pass struct {
	log   *commitlog.Log
	cfg   commitlog.Config
	keys  *offsetMap
	nowMs int64

	// mapped is where the map of keys ends: records below it may be dropped.
	mapped         kafka.Offset
	lastOfProducer map[kafka.ProducerID]kafka.Offset
	builders       map[record.Codec]*record.Builder
	stats          Stats
}

// maxProducers bounds lastOfProducer; beyond it an empty batch too many is kept.
const maxProducers = 100_000

func (p *pass) run(segments []commitlog.CleanableSegment) error {
	n, err := p.mapKeys(segments)
	if err != nil || n == 0 {
		return err
	}
	segments = segments[:n]
	if err := p.findProducers(segments); err != nil {
		return err
	}
	for len(segments) > 0 {
		n, err := p.rewrite(segments)
		if err != nil {
			return err
		}
		segments = segments[n:]
	}
	return nil
}

// errFull ends the reading of keys when the map has no room.
var errFull = errors.New("map of keys is full")

// mapKeys reads the dirty segments into the map, as many whole ones as fit, and
// returns how many segments the pass covers.
func (p *pass) mapKeys(segments []commitlog.CleanableSegment) (int, error) {
	p.keys.clear()
	for i, s := range segments {
		if s.Cleaned {
			continue
		}
		p.mapped = s.DirtyFrom
		err := p.mapSegment(s)
		if errors.Is(err, errFull) && p.mapped > s.DirtyFrom {
			// What is mapped of this segment counts for those before it; its own
			// records are rewritten up to there.
			return i + 1, nil
		}
		if errors.Is(err, errFull) {
			return i, nil
		}
		if err != nil {
			return 0, err
		}
		p.mapped = s.EndOffset
	}
	if p.mapped == 0 && len(segments) > 0 { // All clean: only tombstones may go.
		p.mapped = segments[len(segments)-1].EndOffset
	}
	return len(segments), nil
}

func (p *pass) mapSegment(s commitlog.CleanableSegment) error {
	return p.log.Batches(s.DirtyFrom, s.EndOffset, func(b record.Batch) error {
		if b.IsControl() {
			return nil
		}
		if int(b.RecordCount()) > p.keys.room() {
			return errFull
		}
		for r, err := range b.Records(p.cfg.MaxDecompressedBytes) {
			if err != nil {
				return fmt.Errorf("batch at %d: %w", b.BaseOffset(), err)
			}
			if r.Key != nil {
				p.keys.put(r.Key, b.BaseOffset()+kafka.Offset(r.OffsetDelta))
			}
		}
		p.mapped = b.LastOffset() + 1
		return nil
	})
}

// findProducers notes each producer's last batch in the segments.
func (p *pass) findProducers(segments []commitlog.CleanableSegment) error {
	from, end := segments[0].BaseOffset, segments[len(segments)-1].EndOffset
	return p.log.Batches(max(from, p.log.LogStartOffset()), end, func(b record.Batch) error {
		id := b.ProducerID()
		if _, known := p.lastOfProducer[id]; id >= 0 && (known || len(p.lastOfProducer) < maxProducers) {
			p.lastOfProducer[id] = b.LastOffset()
		}
		return nil
	})
}

// rewrite replaces the first segments by one: as many as have room in it. It
// returns how many.
func (p *pass) rewrite(segments []commitlog.CleanableSegment) (int, error) {
	from := segments[0].BaseOffset
	w, err := p.log.BeginRewrite(from)
	if err != nil {
		return 0, err
	}
	var n int
	var before int64
	for n < len(segments) && p.fits(w, from, segments[n], n) {
		if err := p.copySegment(w, segments[n]); err != nil {
			w.Abort()
			return 0, err
		}
		before += segments[n].SizeBytes
		n++
	}
	if n == 1 && w.Size() == before && segments[0].Cleaned {
		w.Abort() // Nothing changed: leave the file alone.
		return n, nil
	}
	cleanedTo := min(segments[n-1].EndOffset, p.mapped)
	after := w.Size()
	if err := w.Commit(segments[n-1].EndOffset, cleanedTo); err != nil {
		return 0, err
	}
	p.stats.CleanedTo = max(p.stats.CleanedTo, cleanedTo)
	p.stats.BytesBefore += before
	p.stats.BytesAfter += after
	p.stats.SegmentsBefore += n
	p.stats.SegmentsAfter++
	return n, nil
}

// fits tells whether a segment that loses nothing would still fit into w.
func (p *pass) fits(w *commitlog.Rewrite, from kafka.Offset, s commitlog.CleanableSegment, n int) bool {
	return n == 0 || w.Size()+s.SizeBytes <= p.cfg.SegmentBytes && s.EndOffset-from <= 1<<31-1
}

func (p *pass) copySegment(w *commitlog.Rewrite, s commitlog.CleanableSegment) error {
	return p.log.Batches(max(s.BaseOffset, p.log.LogStartOffset()), s.EndOffset, func(b record.Batch) error {
		kept, err := p.filter(b)
		if err != nil || kept.IsZero() {
			return err
		}
		return w.Append(kept)
	})
}

// filter returns what is to be kept of a batch: all of it, a batch with fewer
// records, or nothing. The result is good until the next call.
func (p *pass) filter(b record.Batch) (record.Batch, error) {
	if b.IsControl() {
		return b, nil
	}
	horizon, hasHorizon := b.DeleteHorizon()
	expired := hasHorizon && p.nowMs >= horizon
	var kept, tombstones, total int
	for r, err := range b.Records(p.cfg.MaxDecompressedBytes) {
		if err != nil {
			return b, fmt.Errorf("batch at %d: %w", b.BaseOffset(), err)
		}
		total++
		if p.keeps(b, r, expired) {
			kept++
			if r.Value == nil {
				tombstones++
			}
		}
	}
	p.stats.RecordsDropped += int64(total - kept)
	switch {
	case kept == 0 && !p.isLastOfProducer(b):
		return record.Batch{}, nil
	case kept == total && (tombstones == 0 || hasHorizon) && total > 0:
		return b, nil
	case kept == 0 && total == 0:
		return b, nil // Kept empty by an earlier pass.
	}
	return p.rebuild(b, expired, tombstones > 0 && !hasHorizon)
}

// keeps tells whether a record stays.
func (p *pass) keeps(b record.Batch, r record.Record, expired bool) bool {
	offset := b.BaseOffset() + kafka.Offset(r.OffsetDelta)
	if offset >= p.mapped {
		return true // Later ones of its key were not looked for.
	}
	if r.Key == nil || p.keys.latest(r.Key) > offset {
		return false
	}
	return r.Value != nil || !expired
}

func (p *pass) isLastOfProducer(b record.Batch) bool {
	id := b.ProducerID()
	if id < 0 {
		return false
	}
	last, known := p.lastOfProducer[id]
	return !known || last == b.LastOffset()
}

// rebuild makes the batch anew with the records that stay.
func (p *pass) rebuild(b record.Batch, expired, setHorizon bool) (record.Batch, error) {
	builder := p.builders[b.Codec()]
	if builder == nil {
		builder = record.NewBuilder(b.Codec(), 0)
		p.builders[b.Codec()] = builder
	}
	builder.Rewrite(b)
	if setHorizon {
		builder.SetDeleteHorizon(p.nowMs + p.cfg.DeleteRetentionMs)
	}
	for r, err := range b.Records(p.cfg.MaxDecompressedBytes) {
		if err != nil {
			return b, fmt.Errorf("batch at %d: %w", b.BaseOffset(), err)
		}
		if p.keeps(b, r, expired) {
			builder.Keep(r)
		}
	}
	rebuilt, _, err := record.Next(builder.Build())
	return rebuilt, err
}
