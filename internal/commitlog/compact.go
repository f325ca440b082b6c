package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// Compaction replaces a run of sealed segments by one that has fewer records at
// the same offsets. The files change hands by Kafka's names:
//
//  1. .log.cleaned and its indexes are written and synced. A crash: they are
//     removed, nothing has happened.
//  2. They are renamed to .swap, the .log last. That is the moment from which on
//     the new segment counts: a crash from here on is finished at the next start.
//  3. The old segments' files are removed.
//  4. The .swap files get their final names.
//
// Only segments that the checkpoint on disk has left behind are replaced, so
// that the position it remembers is never in one of them.

// ErrBusy means that the segments are being changed by something else.
var ErrBusy = errors.New("segments are in use by another change")

// CleanableSegment describes a segment that may be compacted.
type CleanableSegment struct {
	BaseOffset       kafka.Offset
	EndOffset        kafka.Offset // Where the next segment begins.
	SizeBytes        int64
	LargestTimestamp int64
	DirtyFrom        kafka.Offset // Compaction has been over what is below.
	Cleaned          bool         // Compaction has been over all of it.
}

// Cleanable returns the segments that may be compacted, oldest first: sealed
// ones with nothing at or above upTo, and on disk.
func (l *Log) Cleanable(upTo kafka.Offset) ([]CleanableSegment, error) {
	if err := l.SyncFiles(); err != nil {
		return nil, err
	}
	if l.env.changed.Load() { // What is replaced must lie behind it on disk.
		if err := l.env.checkpoint(); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, err
	}
	synced := l.w.synced
	segments := *l.segments.Load()
	var out []CleanableSegment
	for i, s := range segments {
		if i+1 == len(segments) || segments[i+1].baseOffset > upTo || s.baseOffset >= synced.segmentBase {
			break
		}
		largest, err := l.largestLocked(s)
		if err != nil {
			return nil, err
		}
		end := segments[i+1].baseOffset
		out = append(out, CleanableSegment{
			BaseOffset: s.baseOffset, EndOffset: end, SizeBytes: s.size.Load(),
			LargestTimestamp: largest.timestamp, Cleaned: end <= synced.cleanedTo,
			DirtyFrom: min(max(s.baseOffset, synced.cleanedTo, l.LogStartOffset()), end),
		})
	}
	return out, nil
}

// Batches calls fn for the batches of [from, upTo) until it returns an error,
// which it returns. A batch is valid during the call; its CRC was checked.
func (l *Log) Batches(from, upTo kafka.Offset, fn func(record.Batch) error) error {
	var failed error
	err := l.eachBatch(from, upTo, func(b record.Batch) bool {
		failed = fn(b)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// Rewrite is the replacement of a run of segments, under way. It is used by one
// goroutine, which ends it by Commit or Abort.
type Rewrite struct {
	log        *Log
	segment    *segment // Writes to the .cleaned files.
	from, upTo kafka.Offset
	file       vfs.File
	buf        []byte
	w          writer // For the indexes alone.
}

// rewriteBufferBytes is written at once.
const rewriteBufferBytes = 256 << 10

// BeginRewrite starts to replace segments, the first of which begins at from.
func (l *Log) BeginRewrite(from kafka.Offset) (*Rewrite, error) {
	r := &Rewrite{log: l, from: from}
	r.segment = newSegment(l.env.fs, l.dir, from)
	r.segment.stage = cleanedSuffix
	r.segment.trustedFrom.Store(0)
	if err := r.segment.dropIndexes(); err != nil {
		return nil, err
	}
	f, err := r.segment.open(vfs.ReadWrite | vfs.Create | vfs.Truncate)
	if err != nil {
		return nil, err
	}
	r.file = f
	r.w.active, r.w.rollTimestamp = r.segment, noTimestamp
	r.w.largest = r.segment.noLargest()
	r.w.end = boundary{0, from}
	return r, nil
}

// Append adds a batch, which is not kept. Offsets rise from batch to batch.
func (r *Rewrite) Append(b record.Batch) error {
	if b.BaseOffset() < r.w.end.nextOffset {
		return &UnexpectedOffsetError{BaseOffset: b.BaseOffset(), LogEndOffset: r.w.end.nextOffset}
	}
	if r.w.end.position+int64(b.Size()) > math.MaxInt32 {
		return &BatchTooLargeError{r.w.end.position + int64(b.Size()), math.MaxInt32}
	}
	r.w.noteBatch(b, r.log.options.Load().Config.IndexIntervalBytes)
	r.buf = append(r.buf, b.Bytes()...)
	if len(r.buf) >= rewriteBufferBytes {
		return r.flush()
	}
	return nil
}

// Size returns the bytes appended so far.
func (r *Rewrite) Size() int64 { return r.w.end.position }

func (r *Rewrite) flush() error {
	position := r.w.end.position - int64(len(r.buf))
	if _, err := r.file.WriteAt(r.buf, position); err != nil {
		return fmt.Errorf("write %s: %w", r.segment.path(logSuffix), err)
	}
	r.buf = r.buf[:0]
	return nil
}

// Abort gives the rewrite up.
func (r *Rewrite) Abort() {
	r.segment.release()
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix} {
		_ = removeFile(r.log.env.fs, r.segment.path(suffix)) // Or at the next start.
	}
}

// Commit puts the new segment in the place of the old ones, which make up the
// log up to the segment that begins at upTo, and notes that compaction has been
// over everything below cleanedTo. On an error before the
// swap the old segments stay; one during the swap takes the log offline, and a
// restart finishes it.
func (r *Rewrite) Commit(upTo, cleanedTo kafka.Offset) error {
	if r.w.end.nextOffset > upTo {
		r.Abort()
		return &UnexpectedOffsetError{BaseOffset: upTo, LogEndOffset: r.w.end.nextOffset}
	}
	r.upTo = upTo
	if err := r.store(); err != nil {
		r.Abort()
		return err
	}
	l := r.log
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	old, err := r.claim()
	if err != nil {
		r.Abort()
		return err
	}
	err = r.swap(old)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.swapping = false
	if err != nil {
		l.env.failLater(l, err)
		return fmt.Errorf("swap segments of %s at %d: %w", l.id, r.from, err)
	}
	r.show(old)
	l.w.synced.cleanedTo = max(l.w.synced.cleanedTo, cleanedTo)
	l.env.changed.Store(true)
	return nil
}

// store makes the .cleaned files durable.
func (r *Rewrite) store() error {
	s := r.segment
	if err := r.flush(); err != nil {
		return err
	}
	s.size.Store(r.w.end.position)
	s.maybeAppendTimeEntry(r.w.largest)
	s.largest.Store(&r.w.largest)
	if err := s.storeIndexes(); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(logSuffix), err)
	}
	return r.log.env.fs.SyncDir(r.log.dir)
}

// claim finds the old segments, keeps others from changing them, and opens all
// of their files: their readers must not open the new ones by the same names.
func (r *Rewrite) claim() ([]*segment, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, err
	}
	segments := *l.segments.Load()
	first, last := segmentNumber(segments, r.from), segmentNumber(segments, r.upTo)
	if first < 0 || last < 0 || r.upTo > l.w.synced.segmentBase {
		return nil, ErrBusy
	}
	old := slices.Clone(segments[first:last])
	for _, s := range old {
		f, err := s.open(vfs.ReadWrite)
		if err != nil {
			return nil, err
		}
		if err := s.readyIndexes(f, l.options.Load().Config.IndexIntervalBytes); err != nil {
			return nil, err
		}
	}
	l.w.swapping = true
	return old, nil
}

// swap renames and removes; see above.
func (r *Rewrite) swap(old []*segment) error {
	l, base := r.log, r.from
	if err := renameAll(l.env.fs, l.dir, base, cleanedSuffix, swapSuffix); err != nil {
		return err
	}
	if err := l.env.fs.SyncDir(l.dir); err != nil {
		return err
	}
	r.segment.stage = swapSuffix
	bases := make([]kafka.Offset, len(old))
	for i, s := range old {
		bases[i] = s.baseOffset
	}
	err := finishSwap(l.env.fs, l.dir, base, bases)
	r.segment.stage = ""
	return err
}

// show puts the new segment into the readers' view.
func (r *Rewrite) show(old []*segment) {
	l := r.log
	segments := *l.segments.Load()
	first := slices.Index(segments, old[0])
	shown := slices.Replace(slices.Clone(segments), first, first+len(old), r.segment)
	l.segments.Store(&shown)
	for _, s := range old {
		s.deleted.Store(true)
		s.release()
	}
}

// renameAll renames a segment's files from one stage to another, the .log last.
func renameAll(fsys vfs.FS, dir string, base kafka.Offset, from, to string) error {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, logSuffix} {
		name := fileName(dir, base, suffix)
		if err := fsys.Rename(name+from, name+to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rename %s: %w", name+from, err)
		}
	}
	return nil
}

// finishSwap removes the old segments and gives the .swap files their final
// names. It may be called again after a crash in the middle.
func finishSwap(fsys vfs.FS, dir string, base kafka.Offset, old []kafka.Offset) error {
	for _, o := range old {
		for _, suffix := range []string{indexSuffix, timeIndexSuffix, logSuffix} {
			if err := removeFile(fsys, fileName(dir, o, suffix)); err != nil {
				return err
			}
		}
	}
	if err := renameAll(fsys, dir, base, swapSuffix, ""); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// finishSwaps completes or undoes the replacement of segments that a crash
// interrupted. It reports whether it changed anything.
func (l *Log) finishSwaps(entries []fs.DirEntry) (bool, error) {
	var swaps, bases []kafka.Offset
	changed := false
	for _, e := range entries {
		base, suffix, ok := parseFileName(e.Name())
		switch {
		case strings.HasSuffix(e.Name(), cleanedSuffix):
			if err := removeFile(l.env.fs, l.dir+"/"+e.Name()); err != nil {
				return false, err
			}
			changed = true
		case ok && suffix == logSuffix+swapSuffix:
			swaps = append(swaps, base)
		case ok && suffix == logSuffix:
			bases = append(bases, base)
		}
	}
	for _, base := range swaps {
		changed = true
		end, err := l.swapEnd(base)
		if err != nil {
			return changed, err
		}
		old := slices.DeleteFunc(slices.Clone(bases), func(b kafka.Offset) bool {
			return b != base && (b < base || b >= end)
		})
		if err := finishSwap(l.env.fs, l.dir, base, old); err != nil {
			return changed, err
		}
	}
	for _, e := range entries {
		// An index whose .log was never renamed; nothing has happened then.
		if base, suffix, ok := parseFileName(e.Name()); ok && strings.HasSuffix(suffix, swapSuffix) &&
			suffix != logSuffix+swapSuffix && !slices.Contains(swaps, base) {
			changed = true
			if err := removeFile(l.env.fs, l.dir+"/"+e.Name()); err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// swapEnd returns where the batches of a .swap file end. An old segment that
// begins there or above may stay: it holds newer records, all of which the
// compaction dropped, and the next one will again.
func (l *Log) swapEnd(base kafka.Offset) (kafka.Offset, error) {
	name := fileName(l.dir, base, logSuffix) + swapSuffix
	f, err := l.env.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	w := newHeaderWalk(f, 0, size)
	defer w.close()
	end := base
	for {
		h, err := w.next()
		if errors.Is(err, io.EOF) {
			return end, f.Close()
		}
		if err != nil {
			return 0, errors.Join(&CorruptionError{name, w.position, err.Error()}, f.Close())
		}
		end = h.lastOffset + 1
	}
}
