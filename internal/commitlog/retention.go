package commitlog

import (
	"errors"
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
	l.mu.Lock()
	err := l.writableLocked()
	if err == nil {
		err = l.advanceLogStartLocked(to)
	}
	l.mu.Unlock()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writableLocked() != nil {
		return nil
	}
	l.expireProducersLocked(now)
	cfg := &l.options.Load().Config
	if !cfg.Delete {
		return nil
	}
	n, err := l.countExpiredLocked(cfg, now.UnixMilli(), highWatermark)
	if err != nil || n == 0 {
		return err
	}
	segments := *l.segments.Load()
	start := l.LogEndOffset()
	if n < len(segments) {
		start = segments[n].baseOffset
	} else if err := l.rollForRetentionLocked(); err != nil {
		return err
	}
	if err := l.advanceLogStartLocked(max(start, l.LogStartOffset())); err != nil {
		return err
	}
	l.env.events.Deleted(l.id, n, start)
	return nil
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
	return s.loadLargest(l.options.Load().Config.IndexIntervalBytes)
}

// advanceLogStartLocked raises the log start offset and takes the segments that
// end below it out of the view. The checkpoint unlinks them.
func (l *Log) advanceLogStartLocked(to kafka.Offset) error {
	segments := *l.segments.Load()
	n := 0
	for n+1 < len(segments) && segments[n+1].baseOffset <= to {
		n++
	}
	l.logStart.Store(int64(to))
	l.w.synced.logStart = to
	l.env.changed.Store(true)
	if l.w.epochsLoaded {
		if h := l.w.epochs.truncateStart(to); len(h) != len(l.w.epochs) {
			l.w.epochs, l.w.epochsDirty = h, true
		}
	}
	if n == 0 {
		return nil
	}
	if len(l.w.producers.unsynced) > 0 {
		// The snapshots are all that is left of the producers in there.
		if err := errors.Join(l.syncSnapshots(l.w.producers.unsynced), l.env.fs.SyncDir(l.dir)); err != nil {
			return err
		}
		l.w.producers.unsynced = nil
	}
	deleted, kept := segments[:n], slices.Clone(segments[n:])
	for _, s := range deleted {
		s.deleted.Store(true)
	}
	l.segments.Store(&kept)
	l.env.doom(deleted)
	first := kept[0].baseOffset
	return l.w.producers.forgetSnapshots(l, func(o kafka.Offset) bool { return o < first })
}
