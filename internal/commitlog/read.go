package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Read returns whole batches from the one that reaches from on, as many as fit
// into maxBytes, and nothing at or above upTo. With minOneBatch the first batch
// is returned however large it is. It takes no lock. The caller releases the
// chunk.
//
// Bytes that were not written or checked since the log was opened are checked
// now; a batch that fails is a *CorruptionError, after the good ones before it
// were returned.
func (l *Log) Read(from kafka.Offset, maxBytes int, upTo kafka.Offset, minOneBatch bool) (Chunk, error) {
	for {
		end := l.LogEndOffset()
		if start := l.LogStartOffset(); from < start || from > end {
			return Chunk{}, &OffsetOutOfRangeError{Offset: from, Start: start, End: end}
		}
		if from >= min(upTo, end) {
			return Chunk{nextOffset: from}, nil
		}
		q := segmentRead{
			from: from, maxBytes: int64(maxBytes), upTo: upTo, minOneBatch: minOneBatch,
			interval: l.options.Load().Config.IndexIntervalBytes,
		}
		if l.gone.Load() {
			return Chunk{}, ErrDeleted
		}
		if !l.findSegment(from, &q) {
			continue // The log changes just now.
		}
		c, err := q.run()
		if err == nil && c.length > 0 {
			return c, nil // Keeps the reference.
		}
		q.segment.release()
		switch {
		case err != nil && q.segment.deleted.Load():
			continue // Deleted while we looked; the log start has moved.
		case err != nil && l.corruption.Load() != nil:
			return Chunk{}, l.corruption.Load()
		case err != nil:
			return Chunk{}, err
		case c.nextOffset > from && c.nextOffset < upTo:
			from = c.nextOffset // The rest of this segment was compacted away.
		case l.corruption.Load() != nil:
			return Chunk{}, l.corruption.Load() // What should be here is missing.
		default:
			return Chunk{nextOffset: from}, nil
		}
	}
}

// segmentRead is one read within one segment.
type segmentRead struct {
	segment     *segment // Acquired.
	ring        *tailRing
	end         boundary // Where the segment ends for this read.
	from, upTo  kafka.Offset
	maxBytes    int64
	minOneBatch bool
	interval    int64 // index.interval.bytes, to rebuild an index by.
	file        vfs.File
	// unsure says that the boundary found last is where the index says that a
	// batch begins: what lies before it nobody looked at.
	unsure bool
}

// findSegment acquires the segment that holds from and fills q. It reports
// false if the log changed meanwhile.
func (l *Log) findSegment(from kafka.Offset, q *segmentRead) bool {
	segments := *l.segments.Load()
	if len(segments) == 0 && l.corruption.Load() != nil {
		q.segment = newSegment(l.env.fs, l.dir, from)
		q.end = boundary{0, l.LogEndOffset()}
		return true
	}
	i := sort.Search(len(segments), func(i int) bool { return segments[i].baseOffset > from }) - 1
	if i < 0 {
		i = 0 // from is in a gap that compaction left before the first segment.
	}
	if len(segments) == 0 || !segments[i].acquire() {
		return false
	}
	q.segment = segments[i]
	switch ring := l.ring.Load(); {
	case ring != nil && ring.segment == q.segment:
		q.ring, q.end = ring, ring.end()
	case i+1 < len(segments):
		q.end = boundary{q.segment.size.Load(), segments[i+1].baseOffset}
	case ring == nil: // Nothing was appended since the log was opened.
		q.end = boundary{q.segment.size.Load(), l.LogEndOffset()}
		if l.ring.Load() == nil {
			return true
		}
		fallthrough
	default: // Rolled meanwhile.
		q.segment.release()
		return false
	}
	return true
}

// run finds and checks the range.
func (q *segmentRead) run() (Chunk, error) {
	f, err := q.segment.open(vfs.ReadOnly)
	if err != nil {
		return Chunk{}, err
	}
	q.file = f
	start, err := q.locate(q.from)
	if err != nil {
		return Chunk{}, err
	}
	unsure := q.unsure
	bound := q.end
	if q.upTo < q.end.nextOffset {
		if bound, err = q.locate(q.upTo); err != nil {
			return Chunk{}, err
		}
	}
	if start.position >= bound.position {
		return Chunk{nextOffset: bound.nextOffset}, nil
	}
	stop, err := q.stop(start, bound)
	if err != nil {
		return Chunk{}, err
	}
	stop, err = q.verify(start, stop, unsure)
	if err != nil {
		return Chunk{}, err
	}
	if stop.position == start.position {
		return Chunk{nextOffset: q.from}, nil
	}
	q.segment.remember(stop)
	return Chunk{
		segment: q.segment, file: f,
		position: start.position, length: stop.position - start.position,
		nextOffset: stop.nextOffset,
	}, nil
}

// locate returns the boundary before the first batch that reaches offset.
func (q *segmentRead) locate(offset kafka.Offset) (boundary, error) {
	s := q.segment
	if offset <= s.baseOffset {
		return boundary{0, s.baseOffset}, nil
	}
	if q.ring != nil {
		if b, ok := q.ring.atOffset(offset); ok {
			return b, nil
		}
	}
	if b, ok := s.recall(offset); ok {
		return b, nil
	}
	hit, err := q.lookUp(func() (indexHit, error) { return s.indexedBefore(offset) })
	if err != nil {
		return boundary{}, err
	}
	from := boundary{hit.position, kafka.NoOffset}
	if hit.lastOffset == kafka.NoOffset {
		from = boundary{0, s.baseOffset}
	}
	b, err := q.walk(from, func(h batchHeader) bool { return h.lastOffset < offset })
	q.unsure = b.position == hit.position && hit.lastOffset != kafka.NoOffset
	return b, err
}

// stop returns the last boundary that maxBytes and bound allow.
func (q *segmentRead) stop(start, bound boundary) (boundary, error) {
	limit := start.position + q.maxBytes
	if bound.position <= limit {
		return bound, nil
	}
	if q.ring != nil {
		if b, ok := q.ring.atPosition(limit); ok && b.position > start.position {
			return b, nil
		}
	}
	hit, err := q.lookUp(func() (indexHit, error) { return q.segment.indexedBelow(limit) })
	if err != nil {
		return boundary{}, err
	}
	from := start
	if hit.position > start.position {
		from = boundary{hit.position, kafka.NoOffset}
	}
	return q.walk(from, func(h batchHeader) bool {
		return h.end().position <= limit || q.minOneBatch && h.position == start.position
	})
}

// lookUp asks the offset index and makes sure that it tells the truth: the batch
// it names must be there. An index that lies is made anew; that of the active
// segment is not, and the walk starts at the beginning.
func (q *segmentRead) lookUp(ask func() (indexHit, error)) (indexHit, error) {
	s := q.segment
	for attempt := 0; ; attempt++ {
		if err := s.readyIndexes(q.file, q.interval); err != nil {
			return indexHit{}, err
		}
		hit, err := ask()
		if err != nil || hit.lastOffset == kafka.NoOffset {
			return hit, err
		}
		w := newHeaderWalk(q.file, hit.position, q.end.position)
		h, err := w.next()
		w.close()
		if err == nil && hit.matches(h) {
			return hit, nil
		}
		if err != nil && !errors.Is(err, errBadHeader) && !errors.Is(err, io.EOF) {
			return hit, err
		}
		if attempt > 0 || q.ring != nil {
			return indexHit{0, kafka.NoOffset}, nil
		}
		if err := s.rebuildIndexes(q.file, q.interval); err != nil {
			return hit, err
		}
	}
}

// walk goes over batches from b on while keep holds, and returns the boundary
// before the first for which it does not. If that is b, whose next offset may be
// unknown, the batch there tells it.
func (q *segmentRead) walk(b boundary, keep func(batchHeader) bool) (boundary, error) {
	w := newHeaderWalk(q.file, b.position, q.end.position)
	defer w.close()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF):
			return q.end, nil
		case errors.Is(err, errBadHeader):
			return b, q.corrupt(w.position, "no record batch where one should be")
		case err != nil:
			return b, err
		case h.baseOffset < b.nextOffset:
			return b, q.corrupt(h.position, fmt.Sprintf("batch at offset %d where %d was due", h.baseOffset, b.nextOffset))
		case !keep(h):
			if b.nextOffset == kafka.NoOffset {
				b.nextOffset = h.baseOffset
			}
			return b, nil
		}
		b = h.end()
	}
}

func (q *segmentRead) corrupt(position int64, reason string) error {
	return &CorruptionError{Path: q.segment.path(logSuffix), Position: position, Reason: reason}
}

// verify checks the batches of a range that was not written or checked since
// the log was opened, and returns where the good ones end. With unsure nobody
// knows whether the first lies behind a gap.
func (q *segmentRead) verify(start, stop boundary, unsure bool) (boundary, error) {
	s := q.segment
	if start.position >= s.trustedFrom.Load() || s.verified.contains(start.position, stop.position) {
		return stop, nil
	}
	scan := newBatchScan(q.file, start.position, stop.position)
	defer scan.close()
	good := start
	before, gap := start, false // Where the last batch begins, and whether behind a gap.
	reason := ""
	for good.position < stop.position && reason == "" {
		b, err := scan.next()
		var torn *tornError
		switch {
		case err == nil && b.BaseOffset() < good.nextOffset:
			reason = "offsets do not rise"
		case err == nil:
			before, gap = good, b.BaseOffset() > good.nextOffset || good == start && unsure
			good = boundary{good.position + int64(b.Size()), b.LastOffset() + 1}
		case errors.As(err, &torn):
			reason = torn.reason
		default:
			return start, err
		}
	}
	if gap && !q.continues(good) {
		good, reason = before, "the batch's offset does not fit the next one's"
	}
	if good == start && reason != "" {
		return start, q.corrupt(start.position, reason)
	}
	// The good ones first; the next read finds the bad one.
	s.verified.add(start.position, good.position)
	return good, nil
}

// continues reports whether what comes at a boundary lies above it. If it does
// not, a gap before the boundary is none of compaction's: no CRC covers a
// batch's offset.
func (q *segmentRead) continues(b boundary) bool {
	w := newHeaderWalk(q.file, b.position, q.end.position)
	defer w.close()
	h, err := w.next()
	switch {
	case errors.Is(err, io.EOF):
		return b.nextOffset <= q.end.nextOffset
	case err != nil:
		return true // Damage of another kind; whoever reads there finds it.
	}
	return h.baseOffset >= b.nextOffset
}
