package commitlog

import (
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// freeze stops all appends to a log of which a part that was durable is damaged
// or missing: that must be looked at, not written over, and its offsets must not
// be given to other records. Nothing changes on disk. What is intact below the
// boundary at in segment number i can be read; from there up to the log's end,
// reads report the damage. The checkpoint keeps the old recovery point and the
// known end, so that the next start comes to the same result.
func (l *Log) freeze(err *CorruptionError, i int, at boundary) {
	end := max(l.knownEnd, at.nextOffset, l.LogStartOffset())
	err.Reason += fmt.Sprintf("; records from %d up to %d were durable", max(at.nextOffset, l.LogStartOffset()), end)
	l.corruption.Store(err)
	segments := slices.Clone((*l.segments.Load())[:i+1])
	var ring *tailRing
	if i >= 0 {
		segments[i].size.Store(min(segments[i].size.Load(), at.position))
		ring = newTailRing(segments[i], at)
	}
	l.w.active, l.w.file = nil, nil
	l.publish(segments, ring)
	l.logEnd.Store(int64(end))
	l.durableEnd.Store(int64(end))
	l.w.enqueuedEnd = end
	if l.w.synced.knownEnd != end {
		l.w.synced.knownEnd = end
		l.env.changed.Store(true)
	}
	l.reportCorrupt(err)
}

// freezeIfShort freezes a log that ends before what was durable, unless the
// journal has all of the rest. It reports whether it did.
func (l *Log) freezeIfShort(r recovery, i int, at boundary) bool {
	if r.cover.Covers(at.nextOffset, l.knownEnd) {
		return false
	}
	l.freezeShort(i, at)
	return true
}

func (l *Log) freezeShort(i int, at boundary) {
	path := l.dir
	reason := "all segments are missing"
	if i >= 0 {
		path = (*l.segments.Load())[i].path(logSuffix)
		reason = fmt.Sprintf("the log ends at %d", at.nextOffset)
	}
	l.freeze(&CorruptionError{Path: path, Position: at.position, Reason: reason}, i, at)
}

// checkShortfall looks, after the replay, for data that was durable and that
// neither the segments nor the journal have.
func (l *Log) checkShortfall() {
	if l.corruption.Load() != nil || l.failure.Load() != nil || l.knownEnd <= l.LogStartOffset() {
		return
	}
	if i, at := l.lastBoundary(); at.nextOffset < l.knownEnd {
		l.freezeShort(i, at)
	}
}

// lastBoundary returns where the log ends, and in which segment; -1 if it has
// none.
func (l *Log) lastBoundary() (int, boundary) {
	segments := *l.segments.Load()
	i := len(segments) - 1
	switch {
	case l.w.active != nil:
		return i, l.w.end
	case i >= 0:
		return i, boundary{segments[i].size.Load(), l.LogEndOffset()}
	default:
		return i, boundary{0, l.LogEndOffset()}
	}
}

// giveUp makes a log that could not be opened keep what is known of it, so that
// the next start knows it too.
func (l *Log) giveUp(r recovery, err error) {
	l.w.synced, l.knownEnd = r.point(), r.knownEnd()
	if end := l.knownEnd; end > l.w.synced.recoveryPoint {
		l.w.synced.knownEnd = end
		l.env.changed.Store(true)
	}
	l.w.openedStart = l.w.synced.logStart
	l.logStart.Store(int64(l.w.synced.logStart))
	l.logEnd.Store(int64(max(l.knownEnd, kafka.Offset(l.logStart.Load()))))
	l.durableEnd.Store(l.logEnd.Load())
	l.Failed(fmt.Errorf("recover: %w", err))
}
