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
		c, err := q.find(l)
		if err == nil && c.length > 0 {
			return c, nil // Keeps the reference.
		}
		q.segment.release()
		switch {
		case err != nil && q.segment.deleted.Load():
			continue // Deleted while we looked; the log start has moved.
		case err != nil && l.wasCut(&q):
			return Chunk{nextOffset: from}, nil // What was looked at is gone.
		case err != nil && l.corruption.Load() != nil:
			return Chunk{}, l.corruption.Load()
		case err != nil:
			l.reportRead(err)
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
	whole       boundary // Where the segment ends for this read.
	begin, end  boundary // The part of it without damage that from is in.
	from, upTo  kafka.Offset
	maxBytes    int64
	minOneBatch bool
	blind       bool  // A survey leaves leader epochs out.
	interval    int64 // index.interval.bytes, to rebuild an index by.
	file        vfs.File
	cuts        uint64 // Of the log when the read began.
}

// wasCut reports whether the log was truncated since a read began: what the read found is
// not to be believed then.
func (l *Log) wasCut(q *segmentRead) bool {
	now := l.cuts.Load()
	return now != q.cuts || now%2 == 1
}

// findSegment acquires the segment that holds from and fills q. It reports
// false if the log changed meanwhile.
func (l *Log) findSegment(from kafka.Offset, q *segmentRead) bool {
	q.cuts = l.cuts.Load()
	segments := *l.segments.Load()
	if len(segments) == 0 && l.corruption.Load() != nil {
		q.segment = newSegment(l, from)
		q.whole = boundary{0, l.LogEndOffset()}
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
		q.ring, q.whole = ring, ring.end()
	case i+1 < len(segments):
		q.whole = boundary{q.segment.size.Load(), segments[i+1].baseOffset}
	case ring == nil: // Nothing was appended since the log was opened.
		q.whole = boundary{q.segment.size.Load(), l.LogEndOffset()}
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

// find finds and checks the range. What looks suspicious is surveyed first.
func (q *segmentRead) find(l *Log) (Chunk, error) {
	if err := q.open(); err != nil {
		return Chunk{}, err
	}
	c, err := q.run(l)
	if err == nil || !isSuspect(err) {
		return c, err
	}
	if err := q.survey(l); err != nil {
		return Chunk{}, err
	}
	return q.run(l)
}

// isSuspect tells whether a survey has to look into an error.
func isSuspect(err error) bool {
	var suspect *suspectError
	return errors.As(err, &suspect)
}

// open opens the segment's file.
func (q *segmentRead) open() (err error) {
	q.file, err = q.segment.open(vfs.ReadOnly)
	return err
}

// run finds and checks the range between two damages.
func (q *segmentRead) run(l *Log) (Chunk, error) {
	if d := q.confine(); d != nil {
		return Chunk{}, d.corruption(q.segment)
	}
	start, err := q.locate(q.from)
	if err != nil {
		return Chunk{}, err
	}
	bound := q.end
	if q.upTo < q.end.nextOffset {
		if bound, err = q.locate(q.upTo); err != nil {
			return Chunk{}, err
		}
	}
	if start.position >= bound.position {
		if bound == q.end && q.segment.breaks(start.nextOffset, bound.nextOffset) {
			return Chunk{}, q.segment.suspect(start.position, "the segment is shorter than it was")
		}
		return Chunk{nextOffset: bound.nextOffset}, nil
	}
	stop, err := q.stop(start, bound)
	if err != nil {
		return Chunk{}, err
	}
	stop, err = q.verify(l, start, stop)
	if err != nil {
		return Chunk{}, err
	}
	if stop.position == start.position {
		return Chunk{nextOffset: q.from}, nil
	}
	q.segment.remember(stop)
	return Chunk{
		log: l, segment: q.segment, file: q.file,
		position: start.position, length: stop.position - start.position,
		nextOffset: stop.nextOffset,
	}, nil
}

// locate returns the boundary before the first batch that reaches offset.
func (q *segmentRead) locate(offset kafka.Offset) (boundary, error) {
	s := q.segment
	if offset <= q.begin.nextOffset {
		return q.begin, nil
	}
	if q.ring != nil {
		if b, ok := q.ring.atOffset(offset); ok {
			return b, nil
		}
	}
	if b, ok := s.recall(offset); ok {
		return b, nil
	}
	from, err := q.lookUp(func() (indexHit, error) { return s.indexedBefore(offset) })
	if err != nil {
		return boundary{}, err
	}
	return q.walk(from, func(h batchHeader) bool { return h.lastOffset < offset })
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
	from, err := q.lookUp(func() (indexHit, error) { return q.segment.indexedBelow(limit) })
	if err != nil {
		return boundary{}, err
	}
	if from.position <= start.position {
		from = start
	}
	return q.walk(from, func(h batchHeader) bool {
		return h.end().position <= limit || q.minOneBatch && h.position == start.position
	})
}

// lookUp asks the offset index and makes sure that it tells the truth: the batch
// it names must be there. An index that lies is made anew; that of the active
// segment is not, and the walk starts at the beginning.
func (q *segmentRead) lookUp(ask func() (indexHit, error)) (boundary, error) {
	s := q.segment
	for attempt := 0; ; attempt++ {
		if err := s.readyIndexes(q.file, q.interval); err != nil {
			return boundary{}, err
		}
		hit, err := ask()
		if err != nil || hit.lastOffset == kafka.NoOffset ||
			hit.position <= q.begin.position || hit.position >= q.end.position {
			return q.begin, err
		}
		w := newHeaderWalk(q.file, hit.position, q.end.position)
		h, err := w.next()
		w.close()
		if err == nil && hit.matches(h) {
			return boundary{h.position, h.baseOffset}, nil
		}
		if err != nil && !errors.Is(err, errBadHeader) && !errors.Is(err, io.EOF) {
			return boundary{}, err
		}
		if attempt > 0 || q.ring != nil {
			return q.begin, nil
		}
		if err := s.rebuildIndexes(q.file, q.interval); err != nil {
			return boundary{}, err
		}
	}
}

// walk goes over batches from b on while keep holds, and returns the boundary
// before the first for which it does not.
func (q *segmentRead) walk(b boundary, keep func(batchHeader) bool) (boundary, error) {
	s := q.segment
	w := newHeaderWalk(q.file, b.position, q.end.position)
	defer w.close()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF) && s.breaks(b.nextOffset, q.end.nextOffset):
			return b, s.suspect(b.position, "the segment is shorter than it was")
		case errors.Is(err, io.EOF):
			return q.end, nil
		case errors.Is(err, errBadHeader):
			return b, s.suspect(w.position, "no record batch where one should be")
		case err != nil:
			return b, err
		case s.breaks(b.nextOffset, h.baseOffset):
			return b, s.suspect(h.position, "offsets do not continue")
		case !keep(h):
			return b, nil
		}
		b = h.end()
	}
}

// verify checks the batches of a range that was not written or checked since
// the log was opened.
func (q *segmentRead) verify(l *Log, start, stop boundary) (boundary, error) {
	s := q.segment
	if start.position >= s.trustedFrom.Load() || s.verified.contains(start.position, stop.position) {
		return stop, nil
	}
	check, err := q.chain(l, start)
	if err != nil {
		return start, err
	}
	scan := newBatchScan(q.file, start.position, stop.position)
	defer scan.close()
	for {
		position := scan.position
		b, err := scan.next()
		var torn *tornError
		switch {
		case errors.Is(err, io.EOF):
			if err := q.verifyEnd(check.due, position); err != nil {
				return start, err
			}
			s.verified.add(start.position, position)
			return stop, nil
		case errors.As(err, &torn):
			return start, s.suspect(position, torn.reason)
		case err != nil:
			return start, fmt.Errorf("read %s: %w", s.path(logSuffix), err)
		}
		reason, err := check.check(b, position, q)
		if err != nil {
			return start, err
		}
		if reason != "" {
			return start, s.suspect(position, reason)
		}
	}
}

// verifyEnd checks that what follows a verified range continues it. Where there
// may be gaps, that is how a batch is found that claims to be further on.
func (q *segmentRead) verifyEnd(due kafka.Offset, position int64) error {
	next, s := q.end.nextOffset, q.segment
	if position < q.end.position {
		w := newHeaderWalk(q.file, position, q.end.position)
		defer w.close()
		h, err := w.next()
		switch {
		case errors.Is(err, errBadHeader):
			return s.suspect(position, "no record batch where one should be")
		case err != nil:
			return fmt.Errorf("read %s: %w", s.path(logSuffix), err)
		}
		next = h.baseOffset
	}
	if s.breaks(due, next) {
		return s.suspect(position, fmt.Sprintf("offset %d where %d was due", next, due))
	}
	return nil
}
