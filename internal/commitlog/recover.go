package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// recovery is what opening a log goes by.
type recovery struct {
	entry *checkpointEntry // nil if the checkpoint does not know the log.
	clean bool             // The broker stopped in order.
	lost  bool             // There was a checkpoint and it can't be read.
	cover journal.Coverage // What the journal knows of the log.
}

// point returns the log's part of the checkpoint.
func (r recovery) point() checkpointEntry {
	if r.entry == nil {
		return newCheckpointEntry()
	}
	return *r.entry
}

// knownEnd returns the offset below which everything was durable.
func (r recovery) knownEnd() kafka.Offset {
	c := r.point()
	return max(c.recoveryPoint, c.knownEnd, r.cover.End())
}

// logFiles is what a log's directory holds.
type logFiles struct {
	segments  []segmentFile // Rising.
	snapshots []kafka.Offset
	indexes   map[string]bool // Names of the index files that are there.
	epochs    bool            // There is a leader epoch file.
}

type segmentFile struct {
	base kafka.Offset
	size int64
}

// listFiles reads the directory, finishes or undoes what a crash interrupted,
// and removes leftovers.
func (l *Log) listFiles() (logFiles, error) {
	var files logFiles
	entries, err := l.env.fs.ReadDir(l.dir)
	if err != nil {
		return files, fmt.Errorf("list %s: %w", l.dir, err)
	}
	if changed, err := l.finishSwaps(entries); err != nil {
		return files, err
	} else if changed {
		l.w.rearranged = true
		if entries, err = l.env.fs.ReadDir(l.dir); err != nil {
			return files, fmt.Errorf("list %s: %w", l.dir, err)
		}
	}
	for _, e := range entries {
		base, suffix, ok := parseFileName(e.Name())
		switch {
		case ok && suffix == logSuffix:
			info, err := e.Info()
			if err != nil {
				return files, fmt.Errorf("size of %s: %w", e.Name(), err)
			}
			files.segments = append(files.segments, segmentFile{base, info.Size()})
		case ok && (suffix == indexSuffix || suffix == timeIndexSuffix || suffix == txnIndexSuffix):
			files.noteIndex(e.Name())
		case e.Name() == epochName:
			files.epochs = true
		case ok && suffix == snapshotSuffix:
			files.snapshots = append(files.snapshots, base)
		case ok && isCut(suffix) && base < l.w.synced.logStart:
			if err := removeFile(l.env.fs, l.dir+"/"+e.Name()); err != nil {
				return files, err
			}
		case strings.HasSuffix(e.Name(), tempSuffix):
			if err := l.env.fs.Remove(l.dir + "/" + e.Name()); err != nil {
				return files, fmt.Errorf("remove leftover: %w", err)
			}
		}
	}
	return files, nil
}

func (f *logFiles) noteIndex(name string) {
	if f.indexes == nil {
		f.indexes = map[string]bool{}
	}
	f.indexes[name] = true
}

// recoverLog opens a log that has a directory. It reads what is newer than the
// checkpoint, and cuts a torn tail off; it does not sync.
func recoverLog(e *env, id kafka.TopicIDPartition, r recovery) (*Log, error) {
	l := newLog(e, id)
	l.w.hasDir = true
	l.w.synced, l.knownEnd = r.point(), r.knownEnd()
	l.openGaps(r)
	files, err := l.listFiles()
	if err != nil {
		return nil, err
	}
	l.w.producers.snapshots = files.snapshots
	if err := l.takeSegments(files.segments, r); err != nil {
		return nil, err
	}
	l.w.epochsStored = files.epochs
	for _, s := range *l.segments.Load() {
		s.offsets.missing.Store(!files.indexes[fileName("", s.baseOffset, indexSuffix)[1:]])
		s.times.missing.Store(!files.indexes[fileName("", s.baseOffset, timeIndexSuffix)[1:]])
		if files.indexes[fileName("", s.baseOffset, txnIndexSuffix)[1:]] {
			s.aborted.Store(newTxnIndex(s))
			l.hasAborted.Store(true)
		}
	}
	if segments := *l.segments.Load(); len(segments) > 0 {
		first := segments[0].baseOffset
		err := l.w.producers.forgetSnapshots(l, func(o kafka.Offset) bool { return o < first })
		if err != nil {
			return nil, err
		}
	}
	if err := l.recoverTail(r); err != nil {
		return nil, err
	}
	if err := l.dropLaterSnapshots(); err != nil {
		return nil, err
	}
	durable := min(l.w.synced.recoveryPoint, l.LogEndOffset())
	switch {
	case l.corruption.Load() != nil:
		durable = l.LogEndOffset()
	case len(*l.segments.Load()) == 0:
		durable = l.LogEndOffset() // Nothing is there that could be lost.
	}
	if c := &l.w.synced; l.corruption.Load() == nil && c.knownEnd > 0 && c.knownEnd <= c.recoveryPoint {
		c.knownEnd = 0 // What was damaged is there again. Else a sync of the files says so.
		e.changed.Store(true)
	}
	l.durableEnd.Store(int64(durable))
	l.w.enqueuedEnd = l.DurableEnd()
	return l, nil
}

// takeSegments makes the view of segments and the log start offset. Segments
// that end below the log start are what a deletion left.
func (l *Log) takeSegments(files []segmentFile, r recovery) error {
	start := l.w.synced.logStart
	for len(files) > 1 && files[1].base <= start {
		if err := removeSegmentFiles(l.env.fs, l.dir, files[0].base); err != nil {
			return err
		}
		files = files[1:]
	}
	segments := make([]*segment, len(files))
	for i, f := range files {
		segments[i] = newSegment(l, f.base)
		segments[i].size.Store(f.size)
		if c := l.w.synced; f.base == c.segmentBase {
			segments[i].trustedTo = int64(c.indexedTo)
		}
	}
	l.segments.Store(&segments)
	if len(files) > 0 {
		first := files[0].base
		// Without a checkpoint nobody knows where the log started. Else it is where
		// the checkpoint says, or at 0: the rest can be read, what is missing can't.
		if !r.lost && first > start {
			l.env.events.Corrupt(l.id, &CorruptionError{
				Path:   fileName(l.dir, start, logSuffix),
				Reason: fmt.Sprintf("segments are missing: the log starts at %d and the oldest segment at %d", start, first),
			})
		}
		if start = max(start, first); r.lost {
			l.w.synced.logStart = start // For later starts.
		}
	}
	l.logStart.Store(int64(start))
	l.w.openedStart = start
	end := start
	if len(files) > 0 && r.entry != nil {
		// It may lie below the start: then the journal has the rest.
		end = max(files[0].base, l.w.synced.recoveryPoint)
	}
	l.logEnd.Store(int64(end))
	return nil
}

// recoverTail finds the log's end.
func (l *Log) recoverTail(r recovery) error {
	segments := *l.segments.Load()
	if len(segments) == 0 {
		return nil
	}
	i, at := l.scanStart(segments)
	c := l.w.synced
	known := at.nextOffset == c.recoveryPoint && segments[i].baseOffset == c.segmentBase
	if known && (!r.clean || c.knownEnd > 0) {
		corrupt, err := l.checkLastBatch(segments[i])
		if err != nil {
			return err
		}
		if corrupt != nil {
			if c.flags&entryOpenTxns != 0 {
				l.stability.reset(0, at.nextOffset) // From where on nobody knows: from the start.
			}
			l.freeze(corrupt, i, at)
			return nil
		}
	}
	open := c.flags&entryOpenTxns != 0 // Readers must know from where on.
	if known && i == len(segments)-1 && segments[i].size.Load() == at.position && !open {
		segments[i].closeFiles() // Most logs are idle: no file is kept open.
		l.freezeIfShort(r, i, at)
		return nil
	}
	return l.scanTail(i, at, r)
}

// scanStart returns the segment number and boundary that the checkpoint
// vouches for, or the last place before it that is there.
func (l *Log) scanStart(segments []*segment) (int, boundary) {
	c := l.w.synced
	if c.segmentBase == kafka.NoOffset {
		return 0, boundary{0, segments[0].baseOffset}
	}
	i, found := slices.BinarySearchFunc(segments, c.segmentBase, func(s *segment, base kafka.Offset) int {
		return int(s.baseOffset - base)
	})
	if found && segments[i].size.Load() >= int64(c.position) {
		return i, boundary{int64(c.position), c.recoveryPoint}
	}
	if !found && i > 0 {
		i--
	}
	i = min(i, len(segments)-1)
	return i, boundary{0, segments[i].baseOffset}
}

// anotherBatch is the reason of a freeze for a batch that is sound by itself.
const anotherBatch = "the last batch below the checkpoint is another than was synced"

// checkLastBatch compares the batch below the checkpoint with what the
// checkpoint remembers of it.
func (l *Log) checkLastBatch(s *segment) (*CorruptionError, error) {
	c := l.w.synced
	if c.lastSize == 0 {
		return nil, nil
	}
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	position := int64(c.position) - int64(c.lastSize)
	buf := make([]byte, c.lastSize)
	if _, err := f.ReadAt(buf, position); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path(logSuffix), err)
	}
	b, _, err := record.Next(buf)
	if err == nil {
		err = b.CheckCRC()
	}
	if err == nil && (b.CRC() != c.lastCRC || b.LastOffset() != c.recoveryPoint-1) {
		err = errors.New(anotherBatch)
	}
	if err != nil {
		return &CorruptionError{s.path(logSuffix), position, err.Error()}, nil
	}
	return nil, nil
}

// scanTail reads everything from a boundary on and makes the log active.
func (l *Log) scanTail(i int, at boundary, r recovery) error {
	tail, err := l.loadTail((*l.segments.Load())[i], at)
	if err != nil {
		return err
	}
	if err := l.restoreLocked(i, at, tail); err != nil {
		return err
	}
	l.readBack = newReadBack(r, at.nextOffset)
	var doubted []kafka.Offset
	if !r.clean {
		doubted = l.w.producers.doubtAbove(at.nextOffset)
	}
	l.w.epochs = l.w.epochs.truncateEnd(at.nextOffset) // The scan finds them again.
	segments := *l.segments.Load()
	report := RecoveredLog{ID: l.id, From: at.nextOffset}
	for {
		s := segments[i]
		size := s.size.Load()
		s.trustedFrom.Store(l.w.end.position)
		report.BytesRead += size - l.w.end.position
		next := kafka.NoOffset
		if i+1 < len(segments) {
			next = segments[i+1].baseOffset
		}
		torn, err := l.scanSegmentLocked(s, size, next)
		if err != nil {
			return err
		}
		l.w.dirty = append(l.w.dirty, s)
		if torn == nil && next != kafka.NoOffset && l.isGap(next) {
			torn = &tornError{fmt.Sprintf("the next segment begins at %d and does not continue the log at %d",
				next, l.w.end.nextOffset)}
		}
		if torn != nil {
			if report.Rotten, err = l.raiseKnownEnd(segments, i, size); err != nil {
				return err
			}
			if !r.cover.Covers(l.w.end.nextOffset, l.knownEnd) {
				l.freeze(&CorruptionError{s.path(logSuffix), l.w.end.position, torn.reason}, i, l.w.end)
				return nil
			}
			report.CutReason = torn.reason
			if err := l.cutTail(&segments, i, &report); err != nil {
				return err
			}
			break
		}
		s.size.Store(l.w.end.position)
		if i+1 == len(segments) {
			break
		}
		if next > l.w.end.nextOffset {
			l.noteGapLocked(next)
		}
		i++
		if err := l.nextSegmentLocked(segments[i]); err != nil {
			return err
		}
	}
	if l.freezeIfShort(r, i, l.w.end) {
		return nil
	}
	l.logEnd.Store(int64(l.w.end.nextOffset))
	l.w.newFiles, l.w.newDir = true, r.entry == nil || l.w.synced.recoveryPoint == 0
	l.publish(segments, newTailRing(l.w.active, l.w.end))
	report.LogEndOffset = l.LogEndOffset()
	l.env.events.Recovered(report)
	return l.dropSnapshots(doubted)
}

// isGap tells whether a segment at base does not continue the log. Where there may
// be gaps, compaction may have left one before any segment up to the one that the
// checkpoint names; if it names none, nobody knows where.
func (l *Log) isGap(base kafka.Offset) bool {
	end, named := l.w.end.nextOffset, l.w.synced.segmentBase
	return base < end || base > end && !(l.mayHaveGaps() && (named == kafka.NoOffset || base <= named))
}

// nextSegmentLocked seals the active segment of a scan and goes on with s.
func (l *Log) nextSegmentLocked(s *segment) error {
	w := &l.w
	old := w.active
	old.maybeAppendTimeEntry(w.largest)
	if err := old.flushIndexes(); err != nil {
		// A full disk, perhaps: they stay in memory, or are made again.
		l.env.events.Problem("write recovered index", err)
	}
	largest := w.largest
	old.largest.Store(&largest)
	if _, err := s.open(vfs.ReadWrite); err != nil {
		return err
	}
	if err := s.dropIndexes(); err != nil {
		return err
	}
	l.startSegmentLocked(s)
	if w.producers.empty() {
		return nil
	}
	if err := w.producers.snapshot(l, s.baseOffset, true); err != nil {
		l.env.events.Problem("write recovered producer snapshot", err)
	}
	return nil
}

// dropLaterSnapshots removes producer snapshots above the log's end: they are of
// batches that a crash took, and others will have their offsets.
func (l *Log) dropLaterSnapshots() error {
	if l.corruption.Load() != nil {
		return nil
	}
	return l.dropSnapshots(l.w.producers.doubtAbove(l.LogEndOffset()))
}

// dropSnapshots removes producer snapshots, but for those that were written again.
func (l *Log) dropSnapshots(doubted []kafka.Offset) error {
	var errs []error
	for _, offset := range doubted {
		if !slices.Contains(l.w.producers.snapshots, offset) {
			errs = append(errs, removeFile(l.env.fs, fileName(l.dir, offset, snapshotSuffix)))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	// Durably, and now: new batches may reach the disk by the journal or by chance.
	return errors.Join(append(errs, l.env.fs.SyncDir(l.dir))...)
}

func (l *Log) reportCorrupt(err *CorruptionError) {
	l.env.reportCorrupt(l.id, err)
	l.damaged.CompareAndSwap(nil, &failure{err})
	if fn := l.options.Load().OnDamaged; fn != nil {
		fn(err)
	}
}

// Damaged returns damage that was found in the log since it was opened, or that kept it
// from being opened; nil for none.
func (l *Log) Damaged() error {
	if f := l.damaged.Load(); f != nil {
		return f.err
	}
	return l.Err()
}

// loadTail loads the indexes of a segment up to the boundary at, from disk.
func (l *Log) loadTail(s *segment, at boundary) (tailState, error) {
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return tailState{}, err
	}
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	s.trustedTo = min(s.trustedTo, at.position)
	tail, err := s.restoreIndexes(f, at, s.trustedTo, l.options.Load().Config.IndexIntervalBytes)
	s.indexed.Store(err == nil)
	// What a crash took from the time index, the checkpoint remembers.
	if c := l.w.synced; c.segmentBase == s.baseOffset && int64(c.position) <= at.position &&
		c.largest.timestamp > tail.largest.timestamp {
		tail.largest = c.largest
	}
	return tail, err
}

// restoreLocked makes segment number i active with its end at the boundary at,
// and loads the rest of the writer's state as of there.
func (l *Log) restoreLocked(i int, at boundary, tail tailState) error {
	w := &l.w
	s := (*l.segments.Load())[i]
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return err
	}
	if err := l.loadEpochsLocked(); err != nil {
		return err
	}
	if err := w.producers.restore(l, i, at); err != nil {
		return err
	}
	if err := l.cutTxnIndexLocked(i, at); err != nil {
		return err
	}
	l.stability.reset(l.firstOpenLocked(), at.nextOffset)
	w.active, w.file, w.end, w.writtenBack = s, f, at, at.position
	w.sinceIndex, w.largest, w.last = tail.sinceIndex, tail.largest, tail.last
	w.rollTimestamp, w.rollBase = noTimestamp, w.producers.nowMs
	if at.position > 0 {
		walk := newHeaderWalk(f, 0, at.position)
		defer walk.close()
		if h, err := walk.next(); err == nil {
			w.rollTimestamp = h.maxTimestamp
		}
	}
	s.trustedFrom.Store(at.position)
	s.largest.Store(nil)
	l.ring.Store(newTailRing(s, at))
	return nil
}

// removeSegmentFiles removes a segment's files, the .log last, so that a crash
// in between leaves a segment and not stray indexes.
func removeSegmentFiles(fsys vfs.FS, dir string, base kafka.Offset) error {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix, logSuffix} {
		err := fsys.Remove(fileName(dir, base, suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove segment: %w", err)
		}
	}
	return nil
}
