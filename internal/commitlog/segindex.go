package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Index files carry no checksum, as in Kafka, because they can be rebuilt. So
// they are looked at as a whole before their first use: entries must rise and
// point into the segment. What does not is cut off, and what is missing is
// added by walking over the segment's headers.

// readyIndexes makes the indexes of a sealed segment usable; it does nothing
// after the first time.
func (s *segment) readyIndexes(f vfs.File, interval int64) error {
	if s.indexed.Load() {
		return nil
	}
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.indexed.Load() {
		return nil
	}
	t, err := s.restoreIndexes(f, boundary{s.size.Load(), kafka.NoOffset}, interval)
	if err != nil {
		return err
	}
	s.largest.CompareAndSwap(nil, &t.largest)
	s.maybeAppendTimeEntry(t.largest)
	if s.offsets.state.Load().n.Load() > 0 {
		_ = s.flushIndexes() // It was rebuilt; not written, it is rebuilt again.
	}
	s.indexed.Store(true)
	return nil
}

// rebuildIndexes makes both indexes of a sealed segment anew.
func (s *segment) rebuildIndexes(f vfs.File, interval int64) error {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	s.offsets.keep(0, math.MaxInt)
	s.times.keep(0, math.MaxInt)
	if err := s.flushIndexes(); err != nil { // Cuts the files, which would be loaded.
		return err
	}
	t, err := s.restoreIndexes(f, boundary{s.size.Load(), kafka.NoOffset}, interval)
	if err != nil {
		return err
	}
	s.maybeAppendTimeEntry(t.largest)
	return s.flushIndexes()
}

// tailState is what a walk over the end of a segment finds out.
type tailState struct {
	sinceIndex int64
	largest    timestampOffset
	last       lastBatch
}

// restoreIndexes loads both indexes, keeps what is below at, and completes them
// up to there.
//
// The caller holds indexMu.
func (s *segment) restoreIndexes(f vfs.File, at boundary, interval int64) (tailState, error) {
	position, largest, err := s.loadIndexes(at)
	if err != nil {
		return tailState{}, err
	}
	t := tailState{largest: largest, last: lastBatch{leaderEpoch: kafka.NoLeaderEpoch}}
	w := newHeaderWalk(f, position, at.position)
	defer w.close()
	for first := true; ; first = false {
		h, err := w.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errBadHeader) {
			return t, nil // A bad header is found again by whoever reads there.
		}
		if err != nil {
			return t, err
		}
		if h.maxTimestamp > t.largest.timestamp {
			t.largest = timestampOffset{h.maxTimestamp, h.lastOffset}
		}
		indexed := first && position > 0
		if t.sinceIndex > interval && !indexed {
			s.appendOffsetEntry(h.lastOffset, h.position)
			s.maybeAppendTimeEntry(t.largest)
			t.sinceIndex = 0
		}
		t.sinceIndex += h.sizeBytes
		t.last = lastBatch{h.position, int32(h.sizeBytes), h.crc, h.leaderEpoch}
	}
}

// loadIndexes looks at both files and keeps their good entries below at. It
// returns the last indexed position and the largest indexed timestamp.
func (s *segment) loadIndexes(at boundary) (int64, timestampOffset, error) {
	data, err := s.offsets.load(s.path(indexSuffix))
	if err != nil {
		return 0, timestampOffset{}, err
	}
	good, position := goodOffsetEntries(data, at, s.baseOffset)
	times, err := s.times.load(s.path(timeIndexSuffix))
	if err != nil {
		return 0, timestampOffset{}, err
	}
	below := at.nextOffset
	if below == kafka.NoOffset {
		below = math.MaxInt64
	}
	goodTimes, largest := s.goodTimeEntries(times, below)
	if good > 0 && goodTimes == 0 {
		good, position = 0, 0 // The time index is gone: make both anew.
	}
	s.offsets.keep(good, len(data))
	s.times.keep(goodTimes, len(times))
	return position, largest, nil
}

// goodOffsetEntries counts the leading entries that rise and lie below at.
func goodOffsetEntries(data []byte, at boundary, base kafka.Offset) (int, int64) {
	last, position, n := int32(-1), int64(-1), 0
	for e := data; len(e) >= offsetEntrySize; e = e[offsetEntrySize:] {
		relative := int32(binary.BigEndian.Uint32(e))
		p := int64(int32(binary.BigEndian.Uint32(e[4:])))
		beyond := at.nextOffset != kafka.NoOffset && base+kafka.Offset(relative) >= at.nextOffset
		if relative <= last || p <= position || p == 0 || p >= at.position || beyond {
			break
		}
		last, position, n = relative, p, n+1
	}
	return n, max(position, 0)
}

// goodTimeEntries counts the leading entries that rise and are of batches below
// an offset, and returns the last of them.
func (s *segment) goodTimeEntries(data []byte, below kafka.Offset) (int, timestampOffset) {
	largest, n := timestampOffset{timestamp: noTimestamp, offset: s.baseOffset}, 0
	for e := data; len(e) >= timeEntrySize; e = e[timeEntrySize:] {
		t := s.parseTimeEntry(e)
		if t.timestamp <= largest.timestamp || n > 0 && t.offset <= largest.offset ||
			t.offset < s.baseOffset || t.offset >= below {
			break
		}
		largest, n = t, n+1
	}
	return n, largest
}

// keep sets how many entries of a file of so many bytes count. What lies beyond
// is cut off by the next flush.
func (e *entryFile) keep(count, fileBytes int) {
	e.synced = count
	e.excess = fileBytes > count*e.entrySize
	e.state.Store(&entryState{flushed: count})
}

// loadLargest returns the segment's largest timestamp and its batch's last
// offset.
func (s *segment) loadLargest(interval int64) (timestampOffset, error) {
	if t := s.largest.Load(); t != nil {
		return *t, nil
	}
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return timestampOffset{}, err
	}
	if err := s.readyIndexes(f, interval); err != nil {
		return timestampOffset{}, err
	}
	if t := s.largest.Load(); t != nil {
		return *t, nil
	}
	return timestampOffset{}, fmt.Errorf("largest timestamp of %s is unknown", s.path(logSuffix))
}

// flushIndexes writes both indexes out, creating the files.
func (s *segment) flushIndexes() error {
	return errors.Join(
		s.offsets.flush(s.path(indexSuffix)),
		s.times.flush(s.path(timeIndexSuffix)),
	)
}

// dropIndexes forgets both indexes, to make them anew.
func (s *segment) dropIndexes() {
	s.offsets.keep(0, math.MaxInt)
	s.times.keep(0, math.MaxInt)
	s.indexed.Store(true)
}
