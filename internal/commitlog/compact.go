package commitlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// ErrBusy means that the segments are being changed by something else.
var ErrBusy = errors.New("segments are in use by another change")

// CleanableSegment describes a segment that may be compacted.
type CleanableSegment struct {
	BaseOffset kafka.Offset
	EndOffset  kafka.Offset // Where the next segment begins.
	SizeBytes  int64
	// FirstTimestamp and LargestTimestamp are of the first batch and of all of
	// them; -1 if there is none, or if the topic's configuration does not ask.
	FirstTimestamp   int64
	LargestTimestamp int64
	DirtyFrom        kafka.Offset // Compaction has been over what is below.
	Cleaned          bool         // Compaction has been over all of it.
}

// HasDirt tells whether there are sealed segments that compaction has not been
// over. It costs next to nothing and opens no file.
func (l *Log) HasDirt() bool {
	segments := *l.segments.Load()
	if len(segments) < 2 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return segments[len(segments)-1].baseOffset > l.w.synced.cleanedTo
}

// Cleanable returns the segments that may be compacted, oldest first: sealed
// ones with nothing at or above upTo, and on disk.
func (l *Log) Cleanable(upTo kafka.Offset) (segments []CleanableSegment, err error) {
	err = l.surveying(func() (err error) {
		segments, err = l.cleanable(upTo)
		return err
	})
	return segments, err
}

func (l *Log) cleanable(upTo kafka.Offset) ([]CleanableSegment, error) {
	if err := l.checkpointActive(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	err := l.writableLocked()
	synced, segments := l.w.synced, *l.segments.Load()
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	cfg := &l.options.Load().Config
	var out []CleanableSegment
	for i, s := range segments {
		if i+1 == len(segments) || segments[i+1].baseOffset > upTo || s.baseOffset >= synced.segmentBase {
			break
		}
		end := segments[i+1].baseOffset
		c := CleanableSegment{
			BaseOffset: s.baseOffset, EndOffset: end, SizeBytes: s.size.Load(),
			FirstTimestamp: noTimestamp, LargestTimestamp: noTimestamp,
			Cleaned:   end <= synced.cleanedTo,
			DirtyFrom: min(max(s.baseOffset, synced.cleanedTo, l.LogStartOffset()), end),
		}
		if !c.Cleaned {
			if err := s.describeAge(cfg, &c); err != nil {
				return nil, err
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// checkpointActive moves the recovery point into the active segment, so that
// the sealed ones lie behind it, unless it is there.
func (l *Log) checkpointActive() error {
	segments := *l.segments.Load()
	if len(segments) < 2 {
		return nil
	}
	if l.checkpointPoint().segmentBase == segments[len(segments)-1].baseOffset {
		return nil
	}
	return l.SyncFiles()
}

// describeAge looks up the timestamps that the configuration asks for.
func (s *segment) describeAge(cfg *Config, c *CleanableSegment) error {
	if cfg.MinCompactionLagMs <= 0 && cfg.MaxCompactionLagMs == forEverMs {
		return nil
	}
	if !s.acquire() {
		return ErrBusy // Deleted meanwhile.
	}
	defer s.release()
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return err
	}
	largest, err := s.loadLargest(cfg.IndexIntervalBytes)
	if err != nil {
		return err
	}
	c.LargestTimestamp = largest.timestamp
	w := newHeaderWalk(f, 0, s.size.Load())
	defer w.close()
	switch h, err := w.next(); {
	case err == nil:
		c.FirstTimestamp = h.maxTimestamp
	case !errors.Is(err, errBadHeader) && !errors.Is(err, io.EOF): // What is bad, Batches reports.
		return err
	}
	return nil
}

// forEverMs is what a topic's configuration says for no limit of time.
const forEverMs = 1<<63 - 1

// Batches calls fn for the batches of [from, upTo) until it returns an error,
// which it returns. A batch is valid during the call. The CRC of each was
// checked on its way from the disk, also where Read would trust it: a batch that
// is written anew gets a new CRC, which must not cover for what the disk did.
func (l *Log) Batches(from, upTo kafka.Offset, fn func(record.Batch) error) error {
	for from < upTo {
		if start := l.LogStartOffset(); from < start {
			return &OffsetOutOfRangeError{Offset: from, Start: start, End: l.LogEndOffset()}
		}
		q := segmentRead{from: from, upTo: upTo, interval: l.options.Load().Config.IndexIntervalBytes}
		if l.gone.Load() {
			return ErrDeleted
		}
		if !l.findSegment(from, &q) {
			continue // The log changes just now.
		}
		err := q.open()
		if err == nil {
			err = q.each(l, fn)
		}
		var suspect *suspectError
		if errors.As(err, &suspect) {
			err = errors.Join(err, q.survey(l)) // The next attempt knows.
		}
		q.segment.release()
		if err != nil && (q.segment.deleted.Load() || l.wasCut(&q)) {
			return ErrBusy // Deleted before we could read it.
		}
		if err != nil {
			return err
		}
		if q.whole.nextOffset <= from {
			return nil
		}
		from = q.whole.nextOffset
	}
	return nil
}

// each calls fn for the batches of the read that lie in this segment.
func (q *segmentRead) each(l *Log, fn func(record.Batch) error) error {
	if d := q.confine(); d != nil {
		return d.corruption(q.segment)
	}
	at, err := q.locate(q.from)
	if err != nil {
		return err
	}
	check, err := q.chain(l, at)
	if err != nil {
		return err
	}
	scan := newBatchScan(q.file, at.position, q.end.position)
	defer scan.close()
	for {
		position := scan.position
		b, err := scan.next()
		var torn *tornError
		switch {
		case errors.Is(err, io.EOF):
			if q.end.nextOffset < q.whole.nextOffset || q.segment.breaks(check.due, q.whole.nextOffset) {
				return q.segment.suspect(position, "the segment is damaged here, or shorter than it was")
			}
			return nil
		case errors.As(err, &torn):
			return q.segment.suspect(position, torn.reason)
		case err != nil:
			return fmt.Errorf("read %s: %w", q.segment.path(logSuffix), err)
		case b.BaseOffset() >= q.upTo:
			return nil
		}
		reason, err := check.check(b, position, q)
		if err == nil && reason != "" {
			err = q.segment.suspect(position, reason)
		}
		if err == nil {
			err = fn(b)
		}
		if err != nil {
			return err
		}
	}
}

// NoteCleaned notes that compaction has been over everything below to and that
// nothing had to change. It reaches the disk with the next checkpoint; a crash
// before that costs another look.
func (l *Log) NoteCleaned(to kafka.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteCleanedLocked(to)
}

func (l *Log) noteCleanedLocked(to kafka.Offset) {
	if to = min(to, l.w.synced.recoveryPoint); to > l.w.synced.cleanedTo {
		l.w.synced.cleanedTo = to
		l.env.changed.Store(true)
	}
}

// CleanedTo returns the offset below which compaction has been over everything.
func (l *Log) CleanedTo() kafka.Offset { return l.checkpointPoint().cleanedTo }

// retire gives up segments that compaction replaced. Who reads from an older
// list of segments may be about to open their files by name, and would get the
// new ones: so they are kept open until the next checkpoint.
func (l *Log) retire(old []*segment) {
	for _, s := range old {
		s.replaced.Store(true)
		s.deleted.Store(true)
	}
	l.env.doom(slices.Clone(old))
}
