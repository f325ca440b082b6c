package commitlog

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
)

// FollowLogStart makes everything below to unreadable, as a leader did before. It
// reaches the disk with the next checkpoint: a crash before that brings back what
// the leader's next answer takes away again.
func (l *Log) FollowLogStart(to kafka.Offset) error {
	start, end := l.LogStartOffset(), l.LogEndOffset()
	if to > end {
		return &OffsetOutOfRangeError{Offset: to, Start: start, End: end}
	}
	if to <= start {
		return nil
	}
	if err := l.advanceLogStart(to); err != nil {
		return fmt.Errorf("follow the log start of %s to %d: %w", l.id, to, err)
	}
	return nil
}

// RestartAt throws all of the log away and begins it anew at offset, durably. It
// is for a follower that has nothing its leader still has. No append may run
// meanwhile.
//
// The steps, and what a crash after each leaves:
//
//  1. Everything is cut off, as by TruncateTo: an empty log at its old start.
//  2. The last segment's files go: the same, without files.
//  3. The checkpoint has the new start: an empty log there.
func (l *Log) RestartAt(offset kafka.Offset) error {
	if offset < 0 {
		return &OffsetOutOfRangeError{Offset: offset, Start: l.LogStartOffset(), End: l.LogEndOffset()}
	}
	if err := l.TruncateTo(l.LogStartOffset()); err != nil {
		return err
	}
	if offset < l.LogEndOffset() {
		// Or a replay would meet what was there before the log began again.
		if err := l.env.commit.Truncate(l, offset); err != nil {
			return fmt.Errorf("restart %s at %d: %w", l.id, offset, err)
		}
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	err := l.restart(offset)
	if err == nil {
		err = l.env.checkpoint()
	}
	if err != nil {
		return fmt.Errorf("restart %s at %d: %w", l.id, offset, err)
	}
	return nil
}

func (l *Log) restart(offset kafka.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.writableLocked() != nil:
		return l.writableLocked()
	case l.w.swapping:
		return ErrBusy
	case l.LogEndOffset() != l.LogStartOffset():
		return errors.New("the log is not empty")
	}
	l.w.truncations++
	if err := l.removeAllLocked(); err != nil {
		l.env.failLater(l, err)
		return err
	}
	flags := l.w.synced.flags & entryGaps
	l.w.synced = newCheckpointEntry()
	l.w.synced.logStart, l.w.synced.recoveryPoint = offset, offset
	l.w.synced.flags |= flags
	l.logStart.Store(int64(offset))
	l.logEnd.Store(int64(offset))
	l.durableEnd.Store(int64(offset))
	l.w.enqueuedEnd, l.w.openedStart = offset, offset
	l.gapsTo.Store(0)
	l.env.changed.Store(true)
	return nil
}

// removeAllLocked removes every segment and what was remembered of its records.
func (l *Log) removeAllLocked() error {
	w := &l.w
	segments := *l.segments.Load()
	w.active, w.file, w.dirty = nil, nil, nil
	l.publish(nil, nil)
	w.epochs, w.epochsLoaded, w.epochsDirty, w.epochsStored = nil, true, false, false
	w.producers.table, w.producers.usable = nil, 0
	l.stability.reset(stable, 0)
	errs := []error{w.producers.forgetSnapshots(l, func(kafka.Offset) bool { return true })}
	for _, s := range segments {
		s.deleted.Store(true)
		errs = append(errs, removeSegmentFiles(l.env.fs, l.dir, s.baseOffset))
		s.release()
	}
	if !w.hasDir {
		return errors.Join(errs...)
	}
	// Removed and not written: a full disk can do that.
	errs = append(errs, removeFile(l.env.fs, l.dir+"/"+epochName), l.env.fs.SyncDir(l.dir))
	return errors.Join(errs...)
}
