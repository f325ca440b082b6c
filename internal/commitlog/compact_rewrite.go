package commitlog

import (
	"fmt"
	"math"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// Rewrite is the replacement of a run of segments, under way. It is used by one
// goroutine, which ends it by Commit or Abort.
type Rewrite struct {
	log        *Log
	segment    *segment // Writes to the .cleaned files.
	from, upTo kafka.Offset
	file       vfs.File
	buf        []byte
	w          writer // For the indexes alone.
	// repairs says that what is replaced is damaged, and that no gap comes of it.
	repairs bool
}

// rewriteBufferBytes is written at once.
const rewriteBufferBytes = 256 << 10

// BeginRewrite starts to replace segments, the first of which begins at from.
func (l *Log) BeginRewrite(from kafka.Offset) (*Rewrite, error) {
	r := &Rewrite{log: l, from: from}
	r.segment = newSegment(l, from)
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

// AppendAborted adds an aborted transaction whose marker is in the new segment, in
// the order of the markers.
func (r *Rewrite) AppendAborted(t AbortedTxn) error {
	r.log.hasAborted.Store(true)
	return r.segment.txnIndexOf().add(t)
}

// Size returns the bytes appended so far.
func (r *Rewrite) Size() int64 { return r.w.end.position }

func (r *Rewrite) flush() error {
	position := r.w.end.position - int64(len(r.buf))
	if _, err := r.file.WriteAt(r.buf, position); err != nil {
		return fmt.Errorf("write %s: %w", r.segment.path(logSuffix), err)
	}
	r.file.StartWriteback(position, int64(len(r.buf))) // The sync at the end has little left to do.
	r.buf = r.buf[:0]
	return nil
}

// Abort gives the rewrite up.
func (r *Rewrite) Abort() {
	r.segment.release()
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		_ = removeFile(r.log.env.fs, r.segment.path(suffix)) // Or at the next start.
	}
}

// Commit puts the new segment in the place of the old ones, which make up the
// log up to the segment that begins at upTo, and notes that compaction has been
// over everything below cleanedTo. On an error before the swap the old segments
// stay; one during the swap takes the log offline, and a restart finishes it.
func (r *Rewrite) Commit(upTo, cleanedTo kafka.Offset) error {
	if r.w.end.nextOffset > upTo {
		r.Abort()
		return &UnexpectedOffsetError{BaseOffset: upTo, LogEndOffset: r.w.end.nextOffset}
	}
	r.upTo = upTo
	l := r.log
	err := r.store()
	if err == nil && !r.repairs {
		err = l.allowGaps(upTo)
	}
	if err == nil {
		// Whatever moved the recovery point past the old segments: it is on disk
		// when this returns.
		err = l.env.checkpoint()
	}
	if err != nil {
		r.Abort()
		return err
	}
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
	l.noteCleanedLocked(cleanedTo)
	l.env.changed.Store(true) // The old segments are given up with the next checkpoint.
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
	if _, err := s.storeTxnIndex(); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path(logSuffix), err)
	}
	return nil // Their names become durable as .swap.
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
		if r.repairs {
			continue // Nobody reads it.
		}
		if err := s.readyIndexes(f, l.options.Load().Config.IndexIntervalBytes); err != nil {
			return nil, err
		}
		for _, e := range []*entryFile{&s.offsets, &s.times} {
			if _, err := e.open(vfs.ReadWrite | vfs.Create); err != nil {
				return nil, err
			}
		}
		if x := s.aborted.Load(); x != nil {
			if err := x.keepOpen(); err != nil {
				return nil, err
			}
		}
	}
	l.w.swapping = true
	return old, nil
}
