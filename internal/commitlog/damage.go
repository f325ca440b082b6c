package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// A batch's CRC leaves out its first 21 bytes: base offset, length, leader epoch
// and magic. What they say is checked by what stands around them: batches of a
// segment continue one another, from the segment's name to the name of the next,
// and their leader epochs are those of the history. Where that breaks, nobody
// knows yet which batch is to blame. So the whole segment is surveyed, once, and
// what is damaged is remembered: reads stop before it and go on behind it.

// damage is a part of a segment that can't be read: the bytes between two
// boundaries, which should hold the offsets between them.
type damage struct {
	from, to boundary
	reason   string
}

const (
	// maxDamages bounds what is remembered of a segment; what follows is one more.
	maxDamages = 1000
	// maxSearchFactor bounds the bytes that a search for a good batch checks, as a
	// multiple of the segment.
	maxSearchFactor = 4
	// maxReported bounds the lines of one survey; reads report the rest.
	maxReported = 10
)

// corruption returns the damage as an error.
func (d *damage) corruption(s *segment) *CorruptionError {
	reason := d.reason
	if first, last := d.from.nextOffset, d.to.nextOffset-1; first <= last {
		reason = fmt.Sprintf("%s: offsets %d to %d can't be read", reason, first, last)
	}
	return &CorruptionError{Path: s.path(logSuffix), Position: d.from.position, Reason: reason}
}

// suspectError says that something in a segment is not as it was written; a
// survey finds out what.
type suspectError struct{ found *CorruptionError }

// Error implements error.
func (e *suspectError) Error() string { return e.found.Error() }

// Unwrap returns what was found.
func (e *suspectError) Unwrap() error { return e.found }

func (s *segment) suspect(position int64, reason string) error {
	return &suspectError{&CorruptionError{Path: s.path(logSuffix), Position: position, Reason: reason}}
}

// breaks tells whether what begins at an offset does not continue what ends at
// due. Compaction leaves gaps.
func (s *segment) breaks(due, offset kafka.Offset) bool {
	return offset < due || offset > due && offset > kafka.Offset(s.gapsTo.Load())
}

// damageAt returns the damage that a position lies in, or nil.
func (s *segment) damageAt(position int64) *damage {
	if p := s.damages.Load(); p != nil {
		for i := range *p {
			if d := &(*p)[i]; d.from.position <= position && position < d.to.position {
				return d
			}
		}
	}
	return nil
}

// chain checks one batch after another.
type chain struct {
	log     *Log
	segment *segment
	due     kafka.Offset      // Where the next batch begins, unless there is a gap.
	end     kafka.Offset      // All offsets are below it.
	epoch   kafka.LeaderEpoch // Of the batch before.
	epochs  epochHistory
	blind   bool // Leader epochs are not looked at.
	// odd is the position of a batch whose leader epoch is not that of the
	// history, or -1: if the one after it agrees with it, the history is wrong.
	odd int64
}

// chain returns a check of the batches from at on.
func (q *segmentRead) chain(l *Log, at boundary) (*chain, error) {
	epochs, err := l.epochsToCheck()
	if err != nil {
		return nil, err
	}
	return &chain{
		log: l, segment: q.segment, due: at.nextOffset, end: q.whole.nextOffset,
		epoch: kafka.NoLeaderEpoch, epochs: epochs, blind: q.blind, odd: -1,
	}, nil
}

// epochsToCheck returns the leader epoch history, or nil if it is known to be
// wrong.
func (l *Log) epochsToCheck() (epochHistory, error) {
	if l.epochsDoubted.Load() {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadEpochsLocked(); err != nil {
		return nil, err
	}
	return append(epochHistory(nil), l.w.epochs...), nil
}

// check returns what is wrong with the next batch, which is whole and has the
// right CRC, or "". After a complaint the chain is as it was.
func (c *chain) check(b record.Batch, position int64, q *segmentRead) (string, error) {
	base, last, epoch := b.BaseOffset(), b.LastOffset(), b.LeaderEpoch()
	switch {
	case c.segment.breaks(c.due, base):
		return fmt.Sprintf("batch at offset %d where %d was due", base, c.due), nil
	case last >= c.end:
		return fmt.Sprintf("batch [%d, %d] reaches beyond the segment, which ends at %d", base, last, c.end), nil
	case c.blind:
		c.due = last + 1
		return "", nil
	case epoch < c.epoch:
		return fmt.Sprintf("leader epoch %d after %d", epoch, c.epoch), nil
	}
	if want := c.epochs.at(base); want != kafka.NoLeaderEpoch && want != epoch {
		ok, err := c.historyIsWrong(position, position+int64(b.Size()), q)
		ok = ok || c.epochs.at(last) != want // No epoch begins within a batch.
		if err != nil {
			return "", err
		}
		if !ok {
			return fmt.Sprintf("leader epoch %d, and the history (%s) says %d", epoch, epochName, want), nil
		}
		c.epochs = nil
	}
	c.due, c.epoch = last+1, epoch
	return "", nil
}

// historyIsWrong tells whether the batch behind the one at a position has another
// leader epoch than the history says, too, or the one before it had: the file of
// the history carries no checksum, and two batches are believed rather than it.
func (c *chain) historyIsWrong(position, next int64, q *segmentRead) (bool, error) {
	wrong := c.odd >= 0 && c.odd < position
	if !wrong {
		w := newHeaderWalk(q.file, next, q.whole.position)
		defer w.close()
		h, err := w.next()
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errBadHeader) {
			return false, err
		}
		want := c.epochs.at(h.baseOffset)
		wrong = err == nil && want != kafka.NoLeaderEpoch && want != h.leaderEpoch
	}
	if c.odd = position; wrong && !c.log.epochsDoubted.Swap(true) {
		c.log.env.events.Problem("leader epoch history", fmt.Errorf("%s/%s is not what the batches of %s say: "+
			"it is made anew if it is removed while the broker is down", c.log.dir, epochName, c.log.id))
	}
	return wrong, nil
}

// survey looks at every batch of the segment and notes what is damaged. It does
// so once for a segment: it reads all of it.
func (q *segmentRead) survey(l *Log) error {
	s := q.segment
	s.surveyMu.Lock()
	defer s.surveyMu.Unlock()
	if s.damages.Load() != nil {
		return nil
	}
	check, err := q.chain(l, boundary{0, s.baseOffset})
	if err != nil {
		return err
	}
	damages := []damage{}
	at := boundary{0, s.baseOffset}
	for {
		d, err := q.surveyFrom(check, at)
		if err != nil {
			return err
		}
		if d == nil {
			break
		}
		if len(damages) == maxDamages {
			d.to = q.whole
		}
		damages = append(damages, *d)
		at = d.to
		check.due, check.odd = at.nextOffset, -1
	}
	if !s.noteDamages(l, q, damages) {
		return q.segment.suspect(0, "the log was truncated while its segment was looked at")
	}
	s.verifyAllBut(damages, min(q.whole.position, s.trustedFrom.Load()))
	s.indexed.Store(s.indexed.Load() && len(damages) == 0 || q.ring != nil) // Made again around the damage.
	for i := range damages[:min(len(damages), maxReported)] {
		l.reportCorrupt(damages[i].corruption(s))
	}
	return nil
}

// noteDamages notes what a survey found, unless the log was cut meanwhile.
func (s *segment) noteDamages(l *Log, q *segmentRead, damages []damage) bool {
	s.damagesMu.Lock()
	defer s.damagesMu.Unlock()
	if l.wasCut(q) {
		return false
	}
	s.damages.Store(&damages)
	return true
}

// verifyAllBut notes that the rest was found good.
func (s *segment) verifyAllBut(damages []damage, end int64) {
	from := int64(0)
	for _, d := range damages {
		if from < d.from.position {
			s.verified.add(from, d.from.position)
		}
		from = d.to.position
	}
	if from < end {
		s.verified.add(from, end)
	}
}

// surveyFrom returns the first damage from a boundary on, or nil.
func (q *segmentRead) surveyFrom(check *chain, at boundary) (*damage, error) {
	scan := newBatchScan(q.file, at.position, q.whole.position)
	defer scan.close()
	before, behindGap := at, false // The boundary before the last batch.
	for {
		b, err := scan.next()
		var torn *tornError
		reason := ""
		switch {
		case errors.Is(err, io.EOF):
			if !q.segment.breaks(at.nextOffset, q.whole.nextOffset) {
				return nil, nil
			}
			return &damage{at, q.whole, fmt.Sprintf("the segment ends at offset %d and should reach to %d",
				at.nextOffset, q.whole.nextOffset)}, nil
		case errors.As(err, &torn):
			reason = torn.reason
		case err != nil:
			return nil, err
		default:
			if reason, err = check.check(b, at.position, q); err != nil {
				return nil, err
			}
		}
		if reason == "" {
			before, behindGap = at, b.BaseOffset() > at.nextOffset
			at = boundary{scan.position, b.LastOffset() + 1}
			continue
		}
		from, skip := at, at.position
		if err == nil && behindGap && b.BaseOffset() < at.nextOffset {
			// Where gaps are allowed, either of the two may lie: neither is served.
			from, skip = before, at.position
		}
		to, err := q.resume(from, skip)
		if err != nil {
			return nil, err
		}
		if from.nextOffset == q.whole.nextOffset {
			reason = "what follows the last batch is no record batch, and is ignored: " + reason
		}
		return &damage{from, to, reason}, nil
	}
}

// resume finds the first good batch behind the bad one at a position. It may
// begin at or above from's offset; if there is none, it is the segment's end.
func (q *segmentRead) resume(from boundary, bad int64) (boundary, error) {
	predicted, next, err := q.predict(from, bad)
	if err != nil {
		return q.whole, err
	}
	for p, position := predicted, next; ; {
		if position == q.whole.position {
			return q.whole, nil
		}
		if b, ok, err := q.goodBatch(position, from.nextOffset, p); ok || err != nil {
			return b, err
		}
		// The CRC leaves out the base offset: where the next one lies about that alone,
		// what it says of its own size still leads to the one behind it.
		h, err := q.batchAt(position)
		if errors.Is(err, errBadHeader) {
			break
		}
		if err != nil {
			return q.whole, err
		}
		count := h.lastOffset - h.baseOffset + 1
		p, position = prediction{p.byDelta + count, p.byCount + count}, h.end().position
	}
	// First for the offset that is due: what a producer sent may look like batches.
	b, err := q.searchBatch(from.nextOffset, predicted, bad+1, true)
	if err == nil && b == q.whole {
		b, err = q.searchBatch(from.nextOffset, predicted, bad+1, false)
	}
	return b, err
}

// prediction is where the batch behind a bad one may begin, by what the bad one says of
// itself in two places: one of them may be the very damage.
type prediction struct{ byDelta, byCount kafka.Offset }

func (p prediction) fits(offset kafka.Offset) bool { return offset == p.byDelta || offset == p.byCount }

// predict returns the offset and the position at which the batch behind a bad one
// begins, if its number of offsets and its length are right.
func (q *segmentRead) predict(from boundary, bad int64) (prediction, int64, error) {
	nothing := prediction{kafka.NoOffset, kafka.NoOffset}
	if bad+headerBytes > q.whole.position {
		return nothing, q.whole.position + 1, nil
	}
	var header [headerBytes]byte
	if _, err := q.file.ReadAt(header[:], bad); err != nil {
		return nothing, 0, fmt.Errorf("read %s at position %d: %w", q.segment.path(logSuffix), bad, err)
	}
	clear(header[:lengthPosition]) // Offset and magic don't matter here.
	header[magicPosition] = magic
	header[lastDeltaPosition] &= 0x7f // What follows is at the same place, whatever this says.
	h, err := parseHeader(header[:], bad)
	if err != nil {
		return nothing, q.whole.position + 1, nil
	}
	count := int32(binary.BigEndian.Uint32(header[countPosition:]))
	return prediction{from.nextOffset + h.lastOffset + 1, from.nextOffset + kafka.Offset(count)}, h.end().position, nil
}

// goodBatch tells whether a batch with right CRC and possible offsets begins at
// a position: its offset is the one predicted, or the next batch continues it.
func (q *segmentRead) goodBatch(position int64, from kafka.Offset, predicted prediction) (boundary, bool, error) {
	b, err := q.batchAt(position)
	if errors.Is(err, errBadHeader) {
		return q.whole, false, nil
	}
	if err != nil {
		return q.whole, false, err
	}
	at, due := boundary{position, b.baseOffset}, b.end().nextOffset
	switch {
	case at.nextOffset < from || due > q.whole.nextOffset:
		return q.whole, false, nil
	case predicted.fits(at.nextOffset):
		return at, true, nil
	}
	w := newHeaderWalk(q.file, b.end().position, q.whole.position)
	defer w.close()
	next := q.whole.nextOffset
	switch h, err := w.next(); {
	case err == nil:
		next = h.baseOffset
	case errors.Is(err, errBadHeader):
		return q.whole, false, nil
	case !errors.Is(err, io.EOF):
		return q.whole, false, err
	}
	return at, !q.segment.breaks(due, next), nil
}

// batchAt returns the place of the batch at a position, or errBadHeader if there is no
// whole one with the right CRC.
func (q *segmentRead) batchAt(position int64) (batchHeader, error) {
	scan := newBatchScan(q.file, position, q.whole.position)
	defer scan.close()
	b, err := scan.next()
	var torn *tornError
	switch {
	case errors.Is(err, io.EOF), errors.As(err, &torn): // Or beyond the end.
		return batchHeader{}, errBadHeader
	case err != nil:
		return batchHeader{}, err
	}
	return batchHeader{
		position: position, sizeBytes: int64(b.Size()), baseOffset: b.BaseOffset(), lastOffset: b.LastOffset(),
	}, nil
}

// searchBatch looks for a good batch at every position from one on: for that with
// the predicted offset alone, or for any.
func (q *segmentRead) searchBatch(
	from kafka.Offset, predicted prediction, position int64, alone bool,
) (boundary, error) {
	buf := scanBuffers.Get().(*[]byte)
	defer scanBuffers.Put(buf)
	patience := maxSearchFactor * q.whole.position
	for position+headerBytes <= q.whole.position {
		window := (*buf)[:min(scanBufferBytes, q.whole.position-position)]
		if _, err := q.file.ReadAt(window, position); err != nil {
			return q.whole, fmt.Errorf("read %s at position %d: %w", q.segment.path(logSuffix), position, err)
		}
		last := len(window) - headerBytes
		for i := 0; i <= last; i++ {
			if window[i+magicPosition] != magic {
				continue
			}
			h, err := parseHeader(window[i:], position+int64(i))
			if err != nil || h.baseOffset < from || h.lastOffset >= q.whole.nextOffset ||
				h.end().position > q.whole.position || alone && !predicted.fits(h.baseOffset) {
				continue
			}
			if b, ok, err := q.goodBatch(h.position, from, predicted); ok || err != nil {
				return b, err
			}
			if patience -= h.sizeBytes; patience < 0 {
				return q.whole, nil
			}
		}
		position += int64(last) + 1
	}
	return q.whole, nil
}

// confine keeps a read between the damages of its segment.
func (q *segmentRead) confine() *damage {
	q.begin, q.end = boundary{0, q.segment.baseOffset}, q.whole
	p := q.segment.damages.Load()
	if p == nil {
		return nil
	}
	for i := range *p {
		switch d := &(*p)[i]; {
		case d.to.nextOffset <= q.from:
			q.begin = d.to
		case d.from.nextOffset <= q.from:
			return d
		default:
			q.end = d.from
			return nil
		}
	}
	return nil
}

// surveying calls fn, and once more if it came upon something that a survey has
// to look into. The caller holds no lock of the log.
func (l *Log) surveying(fn func() error) error {
	err := fn()
	var suspect *suspectError
	if !errors.As(err, &suspect) {
		return err
	}
	if err := l.surveyPath(suspect.found.Path); err != nil {
		return err
	}
	return fn()
}

// surveyPath surveys the segment with a path.
func (l *Log) surveyPath(path string) error {
	for _, s := range *l.segments.Load() {
		q := segmentRead{from: s.baseOffset}
		if s.path(logSuffix) != path || !l.findSegment(s.baseOffset, &q) {
			continue
		}
		defer q.segment.release()
		if err := q.open(); err != nil {
			return err
		}
		return q.survey(l)
	}
	return nil
}
