package commitlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// activateLocked makes the log ready to append: it opens the last segment and
// loads what appends change. A log that has no segment yet gets its directory
// and first file here, so that a log nobody writes to has none.
func (l *Log) activateLocked() error {
	segments := *l.segments.Load()
	if len(segments) == 0 {
		return l.createFirstLocked()
	}
	last := len(segments) - 1
	at := boundary{segments[last].size.Load(), l.LogEndOffset()}
	tail, err := l.loadTail(segments[last], at)
	if err == nil {
		err = tail.suspect // What is damaged is not written after.
	}
	if err != nil {
		return err
	}
	return l.restoreLocked(last, at, tail)
}

func (l *Log) createFirstLocked() error {
	base := l.LogEndOffset()
	if err := l.loadEpochsLocked(); err != nil {
		return err
	}
	if err := l.env.fs.MkdirAll(l.dir); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	fresh := !l.w.hasDir
	l.w.hasDir, l.w.newFiles, l.w.newDir = true, true, true
	s, err := l.createSegment(base, fresh)
	if err != nil {
		return err
	}
	l.startSegmentLocked(s)
	l.publish([]*segment{s}, newTailRing(s, l.w.end))
	return nil
}

// createSegment makes the file of a new segment; a fresh directory has no
// leftovers of its name.
func (l *Log) createSegment(base kafka.Offset, fresh bool) (*segment, error) {
	s := newSegment(l, base)
	s.trustedFrom.Store(0)
	if fresh {
		s.indexed.Store(true)
		s.trustedTo = 0
	} else if err := s.dropIndexes(); err != nil {
		return nil, err
	}
	if _, err := s.open(vfs.ReadWrite | vfs.Create | vfs.Truncate); err != nil {
		return nil, err
	}
	return s, nil
}

// startSegmentLocked makes s, which is empty, the active segment.
func (l *Log) startSegmentLocked(s *segment) {
	w := &l.w
	w.active, w.file = s, s.file.Load().File
	w.end, w.writtenBack = boundary{0, s.baseOffset}, 0
	w.sinceIndex, w.rollTimestamp = 0, noTimestamp
	w.largest = timestampOffset{timestamp: noTimestamp, offset: s.baseOffset}
	w.newFiles = true
}

// publish shows readers a list of segments and the ring of its last one.
func (l *Log) publish(segments []*segment, ring *tailRing) {
	l.ring.Store(ring)
	l.segments.Store(&segments)
}

// rollLocked seals the active segment and starts one at base. After an error
// the active segment goes on; what was written besides is harmless.
func (l *Log) rollLocked(base kafka.Offset) error {
	w := &l.w
	old := w.active
	old.maybeAppendTimeEntry(w.largest)
	err := errors.Join(
		old.flushIndexes(),
		l.writeEpochsLocked(),
	)
	if err == nil {
		// Synced, with the old segment's name: a crash must not keep the new
		// file and lose those.
		err = w.producers.snapshot(l, base, true)
	}
	if err != nil {
		return err
	}
	s, err := l.createSegment(base, false)
	if err != nil {
		return err
	}
	largest := w.largest
	old.largest.Store(&largest)
	w.markDirty(old)
	l.startSegmentLocked(s)
	l.publish(append(slices.Clone(*l.segments.Load()), s), newTailRing(s, w.end))
	if l.options.Load().Config.FlushMessages > 1 {
		l.requestSyncLocked(base)
	}
	return l.pruneSnapshotsLocked()
}

// Roll seals the active segment, unless it is empty, and starts a new one.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if l.w.active == nil {
		if len(*l.segments.Load()) == 0 {
			return nil
		}
		if err := l.activateLocked(); err != nil {
			return err
		}
	}
	if l.w.end.position == 0 {
		return nil
	}
	if err := l.rollLocked(l.w.end.nextOffset); err != nil {
		return fmt.Errorf("roll %s: %w", l.id, err)
	}
	return nil
}

func (l *Log) loadEpochsLocked() error {
	if l.w.epochsLoaded {
		return nil
	}
	var history epochHistory
	var err error
	if l.w.epochsStored {
		history, err = loadEpochs(l.env.fs, l.dir)
	}
	if err != nil {
		l.env.events.Problem("leader epochs are unreadable, reading the log instead", err)
		if history, err = l.collectEpochs(); err != nil {
			return fmt.Errorf("leader epochs of %s: %w", l.id, err)
		}
		l.w.epochsDirty = true
	}
	// What retention and DeleteRecords left behind goes only now: of that start
	// it is known that it is on disk.
	l.w.epochs, l.w.epochsLoaded = history.truncateStart(l.w.openedStart), true
	if c := l.w.synced; c.epochStart != kafka.NoOffset {
		if c.epochStart > l.w.openedStart {
			l.w.epochs.correct(EpochEntry{c.leaderEpoch, c.epochStart})
		}
		l.w.epochs, _ = l.w.epochs.assign(c.leaderEpoch, c.epochStart)
	}
	return nil
}

// writeEpochsLocked writes the leader epoch history out, if it changed.
func (l *Log) writeEpochsLocked() error {
	if !l.w.epochsDirty || !l.w.hasDir {
		return nil
	}
	if err := replaceFile(l.env.fs, l.dir+"/"+epochName, l.w.epochs.encode(), true); err != nil {
		return err
	}
	l.w.epochsDirty, l.w.epochsStored = false, true
	return nil
}

// collectEpochs makes the leader epoch history from all batch headers.
func (l *Log) collectEpochs() (epochHistory, error) {
	var h epochHistory
	for _, s := range *l.segments.Load() {
		f, err := s.open(vfs.ReadOnly)
		if err != nil {
			return nil, err
		}
		w := newHeaderWalk(f, 0, s.size.Load())
		for {
			b, err := w.next()
			if err != nil {
				break // The end, or damage that a read will report.
			}
			h, _ = h.assign(b.leaderEpoch, b.baseOffset)
		}
		w.close()
	}
	return h, nil
}

// pruneSnapshotsLocked removes snapshots that are neither at the start of a
// segment nor the newest: those of earlier clean stops.
func (l *Log) pruneSnapshotsLocked() error {
	segments, p := *l.segments.Load(), &l.w.producers
	newest := kafka.NoOffset
	if n := len(p.snapshots); n > 0 {
		newest = p.snapshots[n-1]
	}
	return p.forgetSnapshots(l, func(o kafka.Offset) bool {
		return o != newest && segmentNumber(segments, o) < 0
	})
}
