package commitlog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// TruncateTo cuts the log's suffix off: everything from offset on is gone, and
// stays gone after a crash once this returns. No append may run meanwhile; one
// that does is refused.
//
// The steps, and what a crash after each leaves:
//
//  1. The journal forgets what it has of the suffix: it won't be replayed. The
//     log still has its old end, or less.
//  2. The checkpoint comes down to offset, so that the missing suffix is not
//     taken for corruption.
//  3. Segments are removed, the newest first, and the last one is cut. A crash
//     in between leaves a longer log, and the caller truncates again.
func (l *Log) TruncateTo(offset kafka.Offset) error {
	l.mu.Lock()
	if offset >= l.LogEndOffset() {
		l.mu.Unlock()
		return nil
	}
	if err := l.writableLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	if l.w.active == nil {
		if err := l.activateLocked(); err != nil {
			l.mu.Unlock()
			return err
		}
	}
	to, err := l.alignLocked(max(offset, l.LogStartOffset()))
	if err != nil {
		l.mu.Unlock()
		return fmt.Errorf("truncate %s to %d: %w", l.id, offset, err)
	}
	l.w.truncating = true
	l.mu.Unlock()
	err = l.truncate(to)
	l.mu.Lock()
	l.w.truncating = false
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("truncate %s to %d: %w", l.id, offset, err)
	}
	return nil
}

// alignLocked returns where the log ends after a truncation to offset. A batch is
// never cut in two; the journal must not take the rest of one for durable.
func (l *Log) alignLocked(offset kafka.Offset) (kafka.Offset, error) {
	segments := *l.segments.Load()
	at, err := l.boundaryBefore(segments, max(segmentAt(segments, offset), 0), offset)
	return at.nextOffset, err
}

func (l *Log) truncate(offset kafka.Offset) error {
	if err := l.env.commit.Truncate(l, offset); err != nil {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.lowerCheckpoint(offset); err != nil {
		return err
	}
	start := l.LogStartOffset()
	if err := l.cut(offset); err != nil {
		return err
	}
	if l.LogStartOffset() != start {
		return l.env.checkpoint() // Or records appended next would lie below it.
	}
	return nil
}

func (l *Log) cut(offset kafka.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.truncations++
	if err := l.cutLocked(offset); err != nil {
		return err
	}
	if err := l.w.file.Sync(); err != nil {
		l.env.failLater(l, err)
		return err
	}
	return l.env.fs.SyncDir(l.dir)
}

// lowerCheckpoint makes the checkpoint vouch for nothing at or above offset.
func (l *Log) lowerCheckpoint(offset kafka.Offset) error {
	l.mu.Lock()
	if l.w.synced.recoveryPoint <= offset {
		lowered := l.w.synced.knownEnd > offset
		l.w.synced.knownEnd = min(l.w.synced.knownEnd, offset)
		l.mu.Unlock()
		if lowered {
			return l.env.checkpoint()
		}
		return nil
	}
	segments := *l.segments.Load()
	i := max(segmentAt(segments, offset), 0)
	old := l.w.synced
	point := newCheckpointEntry()
	point.logStart, point.cleanedTo = old.logStart, min(old.cleanedTo, offset)
	point.recoveryPoint, point.flags = offset, old.flags&entryGaps
	if !l.w.producers.empty() {
		point.flags |= entryOpenTxns // Perhaps: the next sync of the files says.
	}
	if len(segments) > 0 {
		// The segment is read from its start after a crash.
		point.segmentBase, point.recoveryPoint = segments[i].baseOffset, min(offset, segments[i].baseOffset)
	}
	point.knownEnd = min(offset, max(old.recoveryPoint, l.DurableEnd()))
	point.setEpoch(l.w.epochs)
	l.w.synced = point
	l.mu.Unlock()
	return l.env.checkpoint()
}

// segmentAt returns the number of the segment that holds offset, or -1.
func segmentAt(segments []*segment, offset kafka.Offset) int {
	return sort.Search(len(segments), func(i int) bool { return segments[i].baseOffset > offset }) - 1
}

// cutLocked removes everything from offset on from the files, the indexes, the
// histories and the readers' view. If a step fails half way the log goes
// offline: a restart finds out what is there.
func (l *Log) cutLocked(offset kafka.Offset) error {
	l.cuts.Add(1)
	defer l.cuts.Add(1)
	segments := *l.segments.Load()
	i := max(segmentAt(segments, offset), 0)
	at, err := l.boundaryBefore(segments, i, offset)
	if err != nil {
		return err
	}
	kept := slices.Clone(segments[:i+1])
	err = l.removeAfterLocked(segments, i)
	if err == nil {
		err = l.cutLastLocked(kept, at)
	}
	if err != nil {
		l.env.failLater(l, err)
	}
	return err
}

// removeAfterLocked removes the segments after number i, the newest first, on
// disk too, and shows readers what is left.
func (l *Log) removeAfterLocked(segments []*segment, i int) error {
	for n := len(segments) - 1; n > i; n-- {
		s := segments[n]
		l.w.active, l.w.file = nil, nil
		l.logEnd.Store(int64(s.baseOffset))
		l.publish(slices.Clone(segments[:n]), nil)
		s.deleted.Store(true)
		err := removeSegmentFiles(l.env.fs, l.dir, s.baseOffset)
		s.release()
		if err != nil {
			return err
		}
		if err := l.env.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	return nil
}

// cutLastLocked cuts the last of kept at a boundary and makes it active.
func (l *Log) cutLastLocked(kept []*segment, at boundary) error {
	s := kept[len(kept)-1]
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return err
	}
	tail, err := s.cutTail(f, at, l.options.Load().Config.IndexIntervalBytes)
	if err != nil {
		return err
	}
	if err := f.Truncate(at.position); err != nil {
		return err
	}
	s.size.Store(at.position)
	s.verified.cut(at.position)
	s.damagesMu.Lock()
	s.damages.Store(nil)
	s.damagesMu.Unlock()
	s.forgetHints()
	return l.resumeAt(kept, at, tail)
}

// cutTail cuts the indexes at a boundary.
func (s *segment) cutTail(f vfs.File, at boundary, interval int64) (tailState, error) {
	if err := s.readyIndexes(f, interval); err != nil {
		return tailState{}, err
	}
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	s.trustedTo = min(s.trustedTo, at.position)
	end, err := s.cutIndexes(at)
	if err != nil {
		return tailState{}, err
	}
	tail, err := s.completeIndexes(f, end, at, interval)
	if errors.Is(err, errLyingIndex) {
		return s.remakeIndexes(f, at, interval)
	}
	return tail, err
}

// resumeAt makes the last of kept active with its end at a boundary.
func (l *Log) resumeAt(kept []*segment, at boundary, tail tailState) error {
	s := kept[len(kept)-1]
	trusted := s.trustedFrom.Load()
	l.logEnd.Store(int64(at.nextOffset))
	l.clampStart()
	l.durableEnd.Store(min(l.durableEnd.Load(), int64(at.nextOffset)))
	l.w.enqueuedEnd = min(l.w.enqueuedEnd, at.nextOffset)
	l.segments.Store(&kept)
	err := l.w.producers.forgetSnapshots(l, func(o kafka.Offset) bool { return o > at.nextOffset })
	if err := errors.Join(err, l.restoreLocked(len(kept)-1, at, tail)); err != nil {
		return err
	}
	s.trustedFrom.Store(min(trusted, at.position))
	l.w.epochs = l.w.epochs.truncateEnd(at.nextOffset)
	l.w.epochsDirty = true
	l.w.dirty = slices.DeleteFunc(l.w.dirty, func(d *segment) bool { return d.deleted.Load() })
	if err := l.writeEpochsLocked(); err != nil && !vfs.IsFull(err) {
		return err
	}
	return nil // On a full disk SyncFiles tries again; until then the checkpoint stays below.
}

// boundaryBefore returns the boundary in segment i before the batch that holds
// offset: a batch is never cut in two.
func (l *Log) boundaryBefore(segments []*segment, i int, offset kafka.Offset) (boundary, error) {
	s := segments[i]
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return boundary{}, err
	}
	end := boundary{s.size.Load(), l.LogEndOffset()}
	if i+1 < len(segments) {
		end.nextOffset = segments[i+1].baseOffset
	}
	q := segmentRead{
		segment: s, begin: boundary{0, s.baseOffset}, whole: end, end: end, file: f,
		interval: l.options.Load().Config.IndexIntervalBytes,
	}
	b, err := q.locate(offset)
	switch {
	case err == nil && b.position == 0:
		b.nextOffset = s.baseOffset
	case err == nil && b.position == end.position:
		// A gap leads to the next segment: the last batch says where it begins.
		b.nextOffset, err = q.lastEnd()
	}
	b.nextOffset = min(b.nextOffset, max(offset, s.baseOffset))
	return b, err
}

// lastEnd returns the offset after the last batch of the segment.
func (q *segmentRead) lastEnd() (kafka.Offset, error) {
	from, err := q.lookUp(func() (indexHit, error) { return q.segment.indexedBelow(q.end.position) })
	if err != nil {
		return 0, err
	}
	w := newHeaderWalk(q.file, from.position, q.end.position)
	defer w.close()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF):
			return from.nextOffset, nil
		case errors.Is(err, errBadHeader):
			return 0, q.segment.suspect(w.position, "no record batch where one should be")
		case err != nil:
			return 0, err
		}
		from = h.end()
	}
}

// clampStart keeps the log start at or below the log's end: a batch that
// reached across the start may be cut off as a whole.
func (l *Log) clampStart() {
	if end := l.LogEndOffset(); end < l.LogStartOffset() {
		l.logStart.Store(int64(end))
		l.w.synced.logStart = end
		l.env.changed.Store(true)
	}
}
