package commitlog

import (
	"fmt"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// DeleteRecords makes everything below to unreadable, durably, and frees the
// segments that hold nothing else. kafka.NoOffset is not special here: the
// caller resolves it to the high watermark.
func (l *Log) DeleteRecords(to kafka.Offset) error {
	start, end := l.LogStartOffset(), l.LogEndOffset()
	if to < 0 || to > end {
		return &OffsetOutOfRangeError{Offset: to, Start: start, End: end}
	}
	if to <= start {
		return nil
	}
	err := l.advanceLogStart(to)
	if err == nil {
		err = l.env.checkpoint()
	}
	if err != nil {
		return fmt.Errorf("delete records of %s below %d: %w", l.id, to, err)
	}
	return nil
}

// ApplyRetention deletes segments that retention.ms or retention.bytes no
// longer keep, oldest first, but none with records at or above the high
// watermark; it also forgets producers that have been silent for too long. The
// files go away with the next checkpoint, which first makes sure that the log is
// never again taken to begin with them.
func (l *Log) ApplyRetention(now time.Time, highWatermark kafka.Offset) error {
	var start kafka.Offset
	n := 0
	err := l.surveying(func() (err error) {
		start, n, err = l.planRetention(now, highWatermark)
		return err
	})
	if err != nil || n == 0 {
		return err
	}
	if err := l.advanceLogStart(start); err != nil {
		return fmt.Errorf("delete segments of %s below %d: %w", l.id, start, err)
	}
	l.env.events.Deleted(l.id, n, start)
	return nil
}

// planRetention returns where the log should start and how many segments go.
func (l *Log) planRetention(now time.Time, highWatermark kafka.Offset) (kafka.Offset, int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := l.LogStartOffset()
	if l.writableLocked() != nil || l.w.swapping {
		return start, 0, nil
	}
	l.expireProducersLocked(now)
	cfg := &l.options.Load().Config
	if !cfg.Delete {
		return start, 0, nil
	}
	n, err := l.countExpiredLocked(cfg, now.UnixMilli(), highWatermark)
	if err != nil || n == 0 {
		return start, 0, err
	}
	segments := *l.segments.Load()
	if n == len(segments) {
		return max(start, l.LogEndOffset()), n, l.rollForRetentionLocked()
	}
	return max(start, segments[n].baseOffset), n, nil
}

func (l *Log) rollForRetentionLocked() error {
	if l.w.active == nil {
		if err := l.activateLocked(); err != nil {
			return err
		}
	}
	return l.rollLocked(l.w.end.nextOffset)
}

// countExpiredLocked returns how many of the oldest segments retention no longer
// keeps.
func (l *Log) countExpiredLocked(cfg *Config, nowMs int64, highWatermark kafka.Offset) (int, error) {
	segments := *l.segments.Load()
	excess := int64(-1)
	if cfg.RetentionBytes >= 0 {
		excess = l.Size() - cfg.RetentionBytes
	}
	for i, s := range segments {
		size := s.size.Load()
		last := i+1 == len(segments)
		end := l.LogEndOffset()
		if !last {
			end = segments[i+1].baseOffset
		}
		if end > highWatermark || last && size == 0 {
			return i, nil
		}
		expired := excess >= size && cfg.RetentionBytes >= 0
		if !expired && cfg.RetentionMs >= 0 {
			largest, err := l.largestLocked(s)
			if err != nil {
				return i, err
			}
			expired = largest.timestamp >= 0 && nowMs-largest.timestamp > cfg.RetentionMs
		}
		if !expired && end > l.LogStartOffset() {
			return i, nil
		}
		excess -= size
	}
	return len(segments), nil
}

// largestLocked returns a segment's largest timestamp.
func (l *Log) largestLocked(s *segment) (timestampOffset, error) {
	if s == l.w.active {
		return l.w.largest, nil
	}
	if c := l.w.synced; l.w.active == nil && s.baseOffset == c.segmentBase && s.size.Load() == int64(c.position) {
		return c.largest, nil
	}
	return s.loadLargest(l.options.Load().Config.IndexIntervalBytes)
}

// advanceLogStart raises the log start offset. What lies below it is synced
// first: the recovery point is never below a log start.
func (l *Log) advanceLogStart(to kafka.Offset) error {
	if l.checkpointPoint().recoveryPoint < to {
		if err := l.SyncFiles(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	return l.advanceLogStartLocked(min(to, max(l.w.synced.recoveryPoint, l.LogStartOffset())))
}

// advanceLogStartLocked raises the log start offset and takes the segments that
// end below it out of the view. The checkpoint unlinks them.
func (l *Log) advanceLogStartLocked(to kafka.Offset) error {
	segments := *l.segments.Load()
	n := 0
	for !l.w.swapping && n+1 < len(segments) && segments[n+1].baseOffset <= to {
		n++
	}
	l.logStart.Store(int64(to))
	l.w.synced.logStart = to
	l.env.changed.Store(true)
	if n == 0 {
		return nil
	}
	deleted, kept := segments[:n], slices.Clone(segments[n:])
	for _, s := range deleted {
		s.deleted.Store(true)
		l.env.reports.forget(func(c Corruption) bool { return c.ID == l.id && c.Found.Path == s.path(logSuffix) })
	}
	l.segments.Store(&kept)
	l.env.doom(deleted)
	first := kept[0].baseOffset
	// The files go with the segments', or at the next start.
	l.w.producers.snapshots = slices.DeleteFunc(l.w.producers.snapshots,
		func(o kafka.Offset) bool { return o < first })
	return nil
}
