package commitlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// SyncFiles implements journal.Log: it makes everything appended so far durable
// in the log's own files. An error is final for the log.
func (l *Log) SyncFiles() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	if f := l.failure.Load(); f != nil {
		l.mu.Unlock()
		return f.err
	}
	if l.w.closed {
		l.mu.Unlock()
		return nil
	}
	dirty := l.takeDirtyLocked()
	newFiles, newDir, active := l.w.newFiles, l.w.newDir, l.w.active
	l.w.newFiles, l.w.newDir = false, false
	point, truncations := l.pointLocked(), l.w.truncations
	var epochs []byte
	if l.w.owesEpochs() {
		epochs = l.w.epochs.encode()
		l.w.epochsDirty, l.w.epochsStored = false, true
	}
	l.mu.Unlock()

	named, err := storeTxnIndexes(dirty)
	full := vfs.IsFull(err)
	if full {
		err = nil // The batches are safe; after a crash they say what was aborted.
	}
	err = errors.Join(err, l.syncSegments(dirty, active))
	newFiles = newFiles || named
	if err == nil && epochs != nil {
		err = l.env.sparing(func() error { return replaceFile(l.env.fs, l.dir+"/"+epochName, epochs, true) })
		if vfs.IsFull(err) {
			full, err = true, nil // They say which epochs there were, too.
		}
	}
	if err == nil && newFiles {
		err = l.syncDirs(newDir)
	}
	if err != nil {
		l.Failed(err)
		l.env.breakDown(err)
		return l.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if full {
		l.w.epochsDirty = l.w.epochsDirty || epochs != nil
		for _, s := range dirty {
			if s.storesTxnIndex() {
				l.w.dirty = append(l.w.dirty, s)
			}
		}
		return nil // So the checkpoint may not leave them behind.
	}
	if l.w.truncations == truncations && point.recoveryPoint > l.w.synced.recoveryPoint {
		point.logStart, point.cleanedTo = l.w.synced.logStart, l.w.synced.cleanedTo
		point.flags |= l.w.synced.flags & entryGaps
		l.w.synced = point
		l.env.changed.Store(true)
	}
	return nil
}

// pageBytes is the unit in which a disk is written through the page cache.
const pageBytes = 4096

// StartWriteback implements journal.Log. It leaves the last page out: the next
// append writes to it, and would wait.
func (l *Log) StartWriteback() {
	l.mu.Lock()
	s, from, to := l.w.active, l.w.writtenBack, l.w.end.position&^(pageBytes-1)
	if s == nil || l.w.closed || to <= from || !s.acquire() {
		l.mu.Unlock()
		return
	}
	l.w.writtenBack = to
	l.mu.Unlock()
	defer s.release()
	if h := s.file.Load(); h != nil {
		h.StartWriteback(from, to-from)
	}
}

// isDirty tells whether SyncFiles would have something to do.
func (l *Log) isDirty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.w
	return len(w.dirty) > 0 || w.newFiles ||
		w.active != nil && (w.end.nextOffset > w.synced.recoveryPoint || w.owesEpochs())
}

// owesEpochs tells whether the file of leader epochs has to be written. The checkpoint
// has the latest epoch: the file is for those before, and must not have others.
func (w *writer) owesEpochs() bool {
	return w.epochsDirty && w.hasDir && (len(w.epochs) > 1 || w.epochsStored)
}

// takenAsSynced notes that all files were synced by other means; SyncFiles then
// has the checkpoint to note and the epochs to write.
func (l *Log) takenAsSynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.dirty = slices.DeleteFunc(l.w.dirty, func(s *segment) bool { return !s.storesTxnIndex() })
	l.w.newFiles, l.w.newDir = false, false
}

// takeDirtyLocked hands out the segments that grew, with a reference each.
func (l *Log) takeDirtyLocked() []*segment {
	kept := l.w.dirty[:0]
	var dirty []*segment
	for _, s := range l.w.dirty {
		if s.acquire() {
			dirty = append(dirty, s)
		}
	}
	l.w.dirty = kept
	return dirty
}

// storeTxnIndexes makes the indexes of aborted transactions durable, and reports
// whether there may be new names: nearly always there are no such indexes.
func storeTxnIndexes(segments []*segment) (named bool, err error) {
	for _, s := range segments {
		changed, one := s.storeTxnIndex()
		named, err = named || changed, errors.Join(err, one)
	}
	return named, err
}

// syncSegments syncs and releases them.
func (l *Log) syncSegments(dirty []*segment, active *segment) error {
	var first error
	for _, s := range dirty {
		if first == nil {
			first = s.sync(s != active)
		}
		s.release()
	}
	return first
}

func (s *segment) sync(sealed bool) error {
	h := s.file.Load()
	if h == nil || s.deleted.Load() {
		return nil
	}
	if err := h.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(logSuffix), err)
	}
	if !sealed && !s.offsets.wasCut.Load() && !s.times.wasCut.Load() {
		return nil
	}
	if err := s.offsets.sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(indexSuffix), err)
	}
	if err := s.times.sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(timeIndexSuffix), err)
	}
	return nil
}

func (l *Log) syncDirs(itself bool) error {
	if err := l.env.fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync %s: %w", l.dir, err)
	}
	if !itself {
		return nil
	}
	if err := l.env.fs.SyncDir(topicsDir); err != nil {
		return fmt.Errorf("sync %s: %w", topicsDir, err)
	}
	return nil
}

// pointLocked returns the checkpoint for the log's current end.
func (l *Log) pointLocked() checkpointEntry {
	w := &l.w
	if w.active == nil {
		return w.synced
	}
	point := checkpointEntry{
		recoveryPoint: w.end.nextOffset,
		segmentBase:   w.active.baseOffset,
		position:      uint32(w.end.position),
		leaderEpoch:   kafka.NoLeaderEpoch,
		epochStart:    kafka.NoOffset,
		largest:       w.largest,
		indexedTo:     uint32(w.active.trustedTo),
	}
	if w.end.position > 0 {
		point.lastSize, point.lastCRC = uint32(w.last.sizeBytes), w.last.crc
	}
	point.setEpoch(w.epochs)
	if w.producers.empty() {
		point.flags |= entryNoProducers
	}
	if l.firstOpenLocked() != stable {
		point.flags |= entryOpenTxns
	}
	return point
}

// setEpoch notes the latest epoch that has records below the recovery point.
func (c *checkpointEntry) setEpoch(h epochHistory) {
	c.leaderEpoch, c.epochStart = kafka.NoLeaderEpoch, kafka.NoOffset
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].StartOffset < c.recoveryPoint {
			c.leaderEpoch, c.epochStart = h[i].LeaderEpoch, h[i].StartOffset
			return
		}
	}
}

// checkpointPoint returns what the checkpoint file says of this log.
func (l *Log) checkpointPoint() checkpointEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.synced
}

// tidy makes the active segment's indexes durable, and the producers' state
// readable, if the segment has grown by more than growthBytes since the last
// time. It bounds what a restart has to walk over below the checkpoint.
func (l *Log) tidy(growthBytes int64) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	w := &l.w
	s, truncations := w.active, w.truncations
	if s == nil || w.closed || w.end.position-s.trustedTo <= growthBytes {
		l.mu.Unlock()
		return nil
	}
	err := s.flushIndexes()
	if err == nil && !w.producers.empty() {
		// At the start of a segment there is a durable one.
		err = w.producers.snapshot(l, w.end.nextOffset, w.end.position == 0)
	}
	end := w.end.position
	l.mu.Unlock()
	if err == nil {
		err = errors.Join(s.times.sync(), s.offsets.sync())
	}
	if err != nil {
		return fmt.Errorf("tidy %s: %w", l.id, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.active == s && w.truncations == truncations {
		s.trustedTo = end
		if w.synced.segmentBase == s.baseOffset {
			w.synced.indexedTo = uint32(end)
		}
		l.env.changed.Store(true)
	}
	return l.pruneSnapshotsLocked()
}
