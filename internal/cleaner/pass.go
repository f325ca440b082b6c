package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// pass is one compaction of one log.
type pass struct {
	log       *commitlog.Log
	cfg       commitlog.Config
	nowMs     int64
	keys      *offsetMap
	producers map[kafka.ProducerID]producerEnd

	// mapped is where the map of keys ends: records below it may be dropped.
	mapped       kafka.Offset
	txns         transactions
	changed      bool // The segment being written is not what it was.
	decompressor record.Decompressor
	builders     [record.CodecZstd + 1]*record.Builder
	stats        Stats
}

// producerEnd identifies the last batch of a producer.
type producerEnd struct {
	epoch      kafka.ProducerEpoch
	lastOffset kafka.Offset // kafka.NoOffset: none of that epoch but a marker.
}

// lastSequences returns where each producer that the log knows has got to.
// Those it has forgotten (producer.id.expiration.ms) need no batch any more.
func lastSequences(l *commitlog.Log) (map[kafka.ProducerID]producerEnd, error) {
	entries, err := l.Producers()
	if err != nil {
		return nil, err
	}
	ends := make(map[kafka.ProducerID]producerEnd, len(entries))
	for _, e := range entries {
		ends[e.ProducerID] = producerEnd{e.ProducerEpoch, e.LastOffset}
	}
	return ends, nil
}

func (p *pass) run(ctx context.Context, segments []commitlog.CleanableSegment) error {
	n, err := p.mapKeys(ctx, segments)
	if err != nil {
		return err
	}
	for segments = segments[:n]; len(segments) > 0; {
		n, err := p.rewrite(ctx, segments)
		if err != nil {
			return err
		}
		segments = segments[n:]
	}
	return nil
}

// maxPause bounds the rest between two segments.
const maxPause = 100 * time.Millisecond

// breathe rests for as long as the work since began took, but not for long:
// clients come first. It fails once ctx has ended.
func breathe(ctx context.Context, began time.Time) error {
	if took := time.Since(began); took > time.Millisecond {
		rest(ctx, min(took, maxPause))
	}
	return ctx.Err()
}

// errFull ends the reading of keys when the map has no room.
var errFull = errors.New("map of keys is full")

// mapKeys reads the dirty part into the map, as far as it has room, and returns
// how many segments the pass covers.
func (p *pass) mapKeys(ctx context.Context, segments []commitlog.CleanableSegment) (int, error) {
	p.mapped = segments[len(segments)-1].EndOffset // If all is clean, tombstones alone may go.
	for i, s := range segments {
		if s.Cleaned {
			continue
		}
		p.mapped = s.DirtyFrom
		began := time.Now()
		switch err := p.mapSegment(s); {
		case errors.Is(err, errFull) && p.mapped == s.DirtyFrom:
			return i, nil
		case errors.Is(err, errFull):
			return i + 1, nil // Its records from p.mapped on are all kept.
		case err != nil:
			return 0, err
		}
		p.mapped = s.EndOffset
		if err := breathe(ctx, began); err != nil {
			return 0, err
		}
	}
	return len(segments), nil
}

func (p *pass) mapSegment(s commitlog.CleanableSegment) error {
	if err := p.txns.begin(p.log, s); err != nil {
		return err
	}
	return p.log.Batches(s.DirtyFrom, s.EndOffset, func(b record.Batch) error {
		if !b.IsControl() && !p.txns.aborted.Aborted(b) {
			if err := p.mapBatch(b); err != nil {
				return err
			}
		}
		p.mapped = b.LastOffset() + 1
		return nil
	})
}

func (p *pass) mapBatch(b record.Batch) error {
	if !p.keys.reserve(int(b.RecordCount())) {
		if p.keys.used == 0 {
			return &TooManyKeysError{b.BaseOffset(), b.RecordCount(), limit(len(p.keys.slots))}
		}
		return errFull
	}
	for r, err := range p.records(b) {
		if err != nil {
			return err
		}
		if r.Key != nil {
			p.keys.put(r.Key, r.Offset)
		}
	}
	return nil
}

// records iterates over a batch's records; an error says where the batch is.
func (p *pass) records(b record.Batch) func(yield func(record.Record, error) bool) {
	return func(yield func(record.Record, error) bool) {
		for r, err := range p.decompressor.Records(b, p.cfg.MaxDecompressedBytes) {
			if err != nil {
				err = fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// rewrite replaces the first segments by one: as many as have room in it. It
// returns how many.
func (p *pass) rewrite(ctx context.Context, segments []commitlog.CleanableSegment) (int, error) {
	w, err := p.log.BeginRewrite(segments[0].BaseOffset)
	if err != nil {
		return 0, err
	}
	p.changed = false
	before, n := int64(0), 0
	for n < len(segments) && p.fits(w, segments, n) {
		began := time.Now()
		err := p.copySegment(w, segments[n])
		if err == nil {
			err = breathe(ctx, began)
		}
		if err != nil {
			w.Abort()
			return 0, err
		}
		before += segments[n].SizeBytes
		n++
	}
	cleanedTo, after := min(segments[n-1].EndOffset, p.mapped), w.Size()
	if n == 1 && !p.changed && after == before {
		w.Abort() // The segment may stay as it is.
		p.log.NoteCleaned(cleanedTo)
	} else if err := w.Commit(segments[n-1].EndOffset, cleanedTo); err != nil {
		return 0, err
	}
	p.stats.CleanedTo = max(p.stats.CleanedTo, cleanedTo)
	p.stats.BytesBefore += before
	p.stats.BytesAfter += after
	p.stats.SegmentsBefore += n
	p.stats.SegmentsAfter++
	return n, nil
}

// fits tells whether segment number n would still fit into w if it lost nothing.
func (p *pass) fits(w *commitlog.Rewrite, segments []commitlog.CleanableSegment, n int) bool {
	s := segments[n]
	return n == 0 || w.Size()+s.SizeBytes <= p.cfg.SegmentBytes && s.EndOffset-segments[0].BaseOffset <= 1<<31-1
}

func (p *pass) copySegment(w *commitlog.Rewrite, s commitlog.CleanableSegment) error {
	if err := p.txns.begin(p.log, s); err != nil {
		return err
	}
	return p.log.Batches(max(s.BaseOffset, p.log.LogStartOffset()), s.EndOffset, func(b record.Batch) error {
		kept, err := p.filter(w, b)
		if err != nil || kept.IsZero() {
			return err
		}
		return w.Append(kept)
	})
}

// filter returns what is to be kept of a batch: all of it, a batch with fewer
// records, or nothing. The result is good until the next call.
func (p *pass) filter(w *commitlog.Rewrite, b record.Batch) (record.Batch, error) {
	if b.IsControl() {
		return p.filterMarker(w, b)
	}
	aborted := p.txns.isAborted(b)
	if b.BaseOffset() >= p.mapped {
		return b, nil
	}
	horizon, hasHorizon := b.DeleteHorizon()
	f := filter{keys: p.keys, mapped: p.mapped, expired: hasHorizon && p.nowMs >= horizon, none: aborted}
	total := 0
	for r, err := range p.records(b) {
		if err != nil {
			return b, err
		}
		total++
		f.keeps(r)
	}
	p.stats.RecordsDropped += int64(total - f.kept)
	setHorizon := f.tombstones > 0 && !hasHorizon
	switch {
	case f.kept == 0 && !p.endsProducer(b):
		p.changed = true
		return record.Batch{}, nil
	case f.kept == total && !setHorizon:
		return b, nil
	}
	p.changed = true
	return p.rebuild(b, f, setHorizon)
}

// filter decides on the records of one batch.
type filter struct {
	keys             *offsetMap
	mapped           kafka.Offset
	expired          bool // Readers have had their time to see the tombstones.
	none, all        bool // Of the records stay.
	kept, tombstones int
}

// keeps tells whether a record stays, and counts those that do.
func (f *filter) keeps(r record.Record) bool {
	if f.none || f.all {
		return f.all
	}
	if r.Offset < f.mapped { // Of later ones, the latest of their key is not known.
		if r.Key == nil || f.keys.latest(r.Key) > r.Offset || r.Value == nil && f.expired {
			return false
		}
	}
	f.kept++
	if r.Value == nil {
		f.tombstones++
	}
	return true
}

// endsProducer tells whether the batch is its producer's last one, with its last
// sequence, or its last marker, if it wrote nothing after that.
func (p *pass) endsProducer(b record.Batch) bool {
	if b.ProducerID() < 0 {
		return false
	}
	end, known := p.producers[b.ProducerID()]
	if end.lastOffset == kafka.NoOffset {
		return known && b.IsControl() && end.epoch == b.ProducerEpoch()
	}
	return known && end.lastOffset == b.LastOffset()
}

// rebuild makes the batch anew with the records that stay.
func (p *pass) rebuild(b record.Batch, f filter, setHorizon bool) (record.Batch, error) {
	codec := b.Codec()
	if p.builders[codec] == nil {
		p.builders[codec] = record.NewBuilder(codec, record.DefaultLevel)
	}
	builder := p.builders[codec]
	builder.Rewrite(b)
	if setHorizon {
		builder.SetDeleteHorizon(p.nowMs + p.cfg.DeleteRetentionMs)
	}
	for r, err := range p.records(b) {
		if err != nil {
			return b, err
		}
		if f.keeps(r) {
			builder.Keep(r)
		}
	}
	rebuilt, _, err := record.Next(builder.Build())
	return rebuilt, err
}
