package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// TimestampOffset is a record found by its timestamp.
type TimestampOffset struct {
	Offset      kafka.Offset
	Timestamp   int64
	LeaderEpoch kafka.LeaderEpoch
}

// OffsetForTimestamp returns the first record below upTo whose timestamp is at
// or after timestamp. It reports false if there is none.
func (l *Log) OffsetForTimestamp(
	timestamp int64, upTo kafka.Offset,
) (found TimestampOffset, ok bool, err error) {
	err = l.surveying(func() (err error) {
		found, ok, err = l.offsetForTimestamp(timestamp, upTo)
		return err
	})
	return found, ok, err
}

func (l *Log) offsetForTimestamp(timestamp int64, upTo kafka.Offset) (TimestampOffset, bool, error) {
	from := l.LogStartOffset()
	segments := l.holdSegments()
	defer releaseSegments(segments)
	for _, s := range segments {
		largest, err := l.largestOf(s)
		if err != nil {
			if s.deleted.Load() {
				continue
			}
			return TimestampOffset{}, false, err
		}
		if largest.timestamp < timestamp {
			continue
		}
		start, err := s.offsetBeforeTimestamp(timestamp, l.options.Load().Config.IndexIntervalBytes)
		if err != nil {
			return TimestampOffset{}, false, err
		}
		return l.findRecord(max(from, start), upTo, func(b record.Batch) bool {
			return b.MaxTimestamp() >= timestamp
		}, func(r record.Record) bool { return r.Timestamp >= timestamp })
	}
	return TimestampOffset{}, false, nil
}

// OffsetOfMaxTimestamp returns the first record below upTo that has the log's
// largest timestamp. It reports false if the log is empty.
func (l *Log) OffsetOfMaxTimestamp(upTo kafka.Offset) (found TimestampOffset, ok bool, err error) {
	err = l.surveying(func() (err error) {
		found, ok, err = l.offsetOfMaxTimestamp(upTo)
		return err
	})
	return found, ok, err
}

func (l *Log) offsetOfMaxTimestamp(upTo kafka.Offset) (TimestampOffset, bool, error) {
	best := timestampOffset{timestamp: noTimestamp}
	segments := l.holdSegments()
	defer releaseSegments(segments)
	for _, s := range segments {
		largest, err := l.largestOf(s)
		if err != nil {
			if s.deleted.Load() {
				continue
			}
			return TimestampOffset{}, false, err
		}
		if largest.timestamp > best.timestamp {
			best = largest
		}
	}
	if best.timestamp < 0 {
		return TimestampOffset{}, false, nil
	}
	if best.offset >= upTo || best.offset < l.LogStartOffset() {
		return l.scanMaxTimestamp(upTo)
	}
	return l.findRecord(best.offset, upTo, func(b record.Batch) bool { return true },
		func(r record.Record) bool { return r.Timestamp == best.timestamp })
}

// scanMaxTimestamp is OffsetOfMaxTimestamp for the rare case that the largest
// timestamp is not readable yet, or not any more.
func (l *Log) scanMaxTimestamp(upTo kafka.Offset) (TimestampOffset, bool, error) {
	best := timestampOffset{timestamp: noTimestamp}
	err := l.eachBatch(l.LogStartOffset(), upTo, func(b record.Batch) bool {
		if t := b.MaxTimestamp(); t > best.timestamp {
			best = timestampOffset{t, b.LastOffset()}
		}
		return true
	})
	if err != nil || best.timestamp < 0 {
		return TimestampOffset{}, false, err
	}
	return l.findRecord(best.offset, upTo, func(record.Batch) bool { return true },
		func(r record.Record) bool { return r.Timestamp == best.timestamp })
}

// holdSegments returns all segments with a reference each: their files stay
// open whatever retention and compaction do meanwhile.
func (l *Log) holdSegments() []*segment {
	for {
		segments := *l.segments.Load()
		n := 0
		for n < len(segments) && segments[n].acquire() {
			n++
		}
		if n == len(segments) {
			return segments
		}
		releaseSegments(segments[:n]) // One is gone, so there is a newer list.
	}
}

func releaseSegments(segments []*segment) {
	for _, s := range segments {
		s.release()
	}
}

// largestOf returns a segment's largest timestamp, without the log's lock unless
// it is the active one.
func (l *Log) largestOf(s *segment) (timestampOffset, error) {
	if t := s.largest.Load(); t != nil {
		return *t, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.largestLocked(s)
}

// offsetBeforeTimestamp returns an offset at or below the first record at or
// after timestamp, by the time index. An entry that lies sends the search to the
// segment's beginning.
func (s *segment) offsetBeforeTimestamp(timestamp, interval int64) (kafka.Offset, error) {
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return s.baseOffset, err
	}
	if err := s.readyIndexes(f, interval); err != nil {
		return s.baseOffset, err
	}
	st := s.times.state.Load()
	n, err := s.times.search(st, func(e []byte) bool {
		return s.parseTimeEntry(e).timestamp < timestamp
	})
	if err != nil || n == 0 {
		return s.baseOffset, err
	}
	t, err := s.timeEntry(st, n-1)
	if err != nil {
		return s.baseOffset, err
	}
	if ok, err := s.confirms(f, t); err != nil || !ok {
		return s.baseOffset, err
	}
	return t.offset, nil
}

// confirms tells whether the batch that t names has that timestamp.
func (s *segment) confirms(f vfs.File, t timestampOffset) (bool, error) {
	hit, err := s.indexedBefore(t.offset)
	if err != nil {
		return false, err
	}
	w := newHeaderWalk(f, hit.position, s.size.Load())
	defer w.close()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errBadHeader):
			return false, nil
		case err != nil:
			return false, err
		case h.lastOffset >= t.offset:
			return h.lastOffset == t.offset && h.maxTimestamp == t.timestamp, nil
		}
	}
}

// findRecord returns the first record in [from, upTo) that matches, in a batch
// that may have one.
func (l *Log) findRecord(
	from, upTo kafka.Offset, mayHave func(record.Batch) bool, matches func(record.Record) bool,
) (found TimestampOffset, ok bool, err error) {
	limit := l.options.Load().Config.MaxDecompressedBytes
	var walkErr error
	err = l.eachBatch(from, upTo, func(b record.Batch) bool {
		if !mayHave(b) {
			return true
		}
		for r, err := range b.Records(limit) {
			if err != nil {
				walkErr = fmt.Errorf("look into batch at %d of %s: %w", b.BaseOffset(), l.id, err)
				return false
			}
			offset := b.BaseOffset() + kafka.Offset(r.OffsetDelta)
			if offset >= l.LogStartOffset() && matches(r) {
				found, ok = TimestampOffset{offset, r.Timestamp, b.LeaderEpoch()}, true
				return false
			}
		}
		return true
	})
	if err == nil {
		err = walkErr
	}
	return found, ok, err
}

// readAheadBytes is how much eachBatch reads at once.
const readAheadBytes = 64 << 10

// eachBatch calls fn for the batches of [from, upTo) until it returns false. A
// batch is valid during the call.
func (l *Log) eachBatch(from, upTo kafka.Offset, fn func(record.Batch) bool) error {
	var buf []byte
	for from < upTo {
		c, err := l.Read(from, readAheadBytes, upTo, true)
		if err != nil {
			return err
		}
		if c.Size() == 0 {
			return nil
		}
		buf, err = c.AppendTo(buf[:0])
		c.Release()
		if err != nil {
			return err
		}
		for rest := buf; len(rest) > 0; {
			b, next, err := record.Next(rest)
			if err != nil {
				return err
			}
			if !fn(b) {
				return nil
			}
			rest = next
		}
		from = c.NextOffset()
	}
	return nil
}

// SegmentInfo describes one segment.
type SegmentInfo struct {
	BaseOffset       kafka.Offset
	SizeBytes        int64
	LargestTimestamp int64 // -1 if none is known.
	Active           bool
}

// Segments describes all segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	segments := l.holdSegments()
	defer releaseSegments(segments)
	out := make([]SegmentInfo, 0, len(segments))
	for i, s := range segments {
		info := SegmentInfo{
			BaseOffset: s.baseOffset, SizeBytes: s.size.Load(), LargestTimestamp: noTimestamp,
			Active: i+1 == len(segments),
		}
		if t, err := l.largestOf(s); err == nil {
			info.LargestTimestamp = t.timestamp
		}
		out = append(out, info)
	}
	return out
}

// segmentNumber returns the position of the segment with a base offset, or -1.
func segmentNumber(segments []*segment, base kafka.Offset) int {
	i := sort.Search(len(segments), func(i int) bool { return segments[i].baseOffset >= base })
	if i == len(segments) || segments[i].baseOffset != base {
		return -1
	}
	return i
}
