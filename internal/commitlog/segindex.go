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
	t, err := s.restoreIndexes(f, boundary{s.size.Load(), kafka.NoOffset}, s.trustedTo, interval)
	if err != nil {
		return err
	}
	if t.suspect != nil {
		return t.suspect
	}
	if t.largest.timestamp >= 0 {
		ok, err := s.confirms(f, t.largest)
		if err == nil && !ok {
			t, err = s.remakeIndexes(f, boundary{s.size.Load(), kafka.NoOffset}, interval)
		}
		if err = errors.Join(err, t.suspect); err != nil {
			return err
		}
	}
	s.largest.CompareAndSwap(nil, &t.largest)
	s.maybeAppendTimeEntry(t.largest)
	if s.offsets.state.Load().n.Load() > 0 {
		_ = s.storeIndexes() // It was rebuilt; not written, it is rebuilt again.
	}
	s.indexed.Store(true)
	return nil
}

// rebuildIndexes makes both indexes of a sealed segment anew.
func (s *segment) rebuildIndexes(f vfs.File, interval int64) error {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	t, err := s.remakeIndexes(f, boundary{s.size.Load(), kafka.NoOffset}, interval)
	if err = errors.Join(err, t.suspect); err != nil {
		s.indexed.Store(false) // It ends before what is suspected.
		return err
	}
	s.maybeAppendTimeEntry(t.largest)
	return s.storeIndexes()
}

// remakeIndexes forgets both indexes and makes them from the batches.
func (s *segment) remakeIndexes(f vfs.File, at boundary, interval int64) (tailState, error) {
	if _, err := s.loadIndexes(boundary{0, s.baseOffset}, 0); err != nil { // Cuts both.
		return tailState{}, err
	}
	nothing := indexEnd{indexHit: indexHit{0, kafka.NoOffset}, largest: s.noLargest()}
	return s.completeIndexes(f, nothing, at, interval)
}

// tailState is what a walk over the end of a segment finds out.
type tailState struct {
	sinceIndex int64
	largest    timestampOffset
	last       lastBatch
	suspect    error // Where the walk ended early, if it did.
}

// indexEnd is where the indexes of a segment end.
type indexEnd struct {
	indexHit                 // The last indexed batch.
	largest  timestampOffset // Of the batches up to that one.
	times    int             // Entries of the time index for them.
}

// restoreIndexes loads both indexes as far as trusted says that they are whole,
// and completes them up to at. The caller holds indexMu.
func (s *segment) restoreIndexes(f vfs.File, at boundary, trusted, interval int64) (tailState, error) {
	end, err := s.loadIndexes(at, trusted)
	if err != nil {
		return tailState{}, err
	}
	tail, err := s.completeIndexes(f, end, at, interval)
	if errors.Is(err, errLyingIndex) {
		return s.remakeIndexes(f, at, interval)
	}
	return tail, err
}

var errLyingIndex = errors.New("the last indexed batch is not where the index says")

// completeIndexes walks from the last indexed batch to at and adds the entries
// that are due.
func (s *segment) completeIndexes(f vfs.File, end indexEnd, at boundary, interval int64) (tailState, error) {
	t := tailState{largest: end.largest, last: lastBatch{leaderEpoch: kafka.NoLeaderEpoch}}
	w := newHeaderWalk(f, end.position, at.position)
	defer w.close()
	due := kafka.NoOffset // Unknown behind an entry of the index.
	if end.position == 0 {
		due = s.baseOffset
	}
	for first, added := true, false; ; first = false {
		if d := s.damageAt(w.position); d != nil {
			w.position, due = d.to.position, d.to.nextOffset
			first = false
		}
		position := w.position
		h, err := w.next()
		if first && end.position > 0 && (errors.Is(err, errBadHeader) || err == nil && !end.matches(h)) {
			return t, errLyingIndex
		}
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if errors.Is(err, errBadHeader) || err == nil && due != kafka.NoOffset && s.breaks(due, h.baseOffset) {
			t.suspect = s.suspect(position, "no record batch that continues the segment")
			return t, nil // Whoever reads there finds out more.
		}
		if err != nil {
			return t, err
		}
		due = h.lastOffset + 1
		if h.maxTimestamp > t.largest.timestamp {
			t.largest = timestampOffset{h.maxTimestamp, h.lastOffset}
		}
		indexed := first && end.position > 0
		if t.sinceIndex > interval && !indexed {
			if !added { // Later times must not stand before those of this batch.
				if err := s.times.truncate(end.times); err != nil {
					return t, err
				}
				added = true
			}
			s.appendOffsetEntry(h.lastOffset, h.position)
			s.maybeAppendTimeEntry(t.largest)
			t.sinceIndex = 0
		}
		t.sinceIndex += h.sizeBytes
		t.last = lastBatch{h.position, int32(h.sizeBytes), h.crc, h.leaderEpoch}
	}
}

// loadIndexes looks at both files and keeps their good entries below at and
// trusted.
func (s *segment) loadIndexes(at boundary, trusted int64) (indexEnd, error) {
	data, err := s.offsets.load()
	if err != nil {
		return indexEnd{}, err
	}
	times, err := s.times.load()
	if err != nil {
		return indexEnd{}, err
	}
	good := goodOffsetEntries(data, at.position, trusted)
	below, sealed := at.nextOffset, at.nextOffset == kafka.NoOffset
	if sealed {
		below = math.MaxInt64
	}
	goodTimes := s.goodTimeEntries(times, below)
	if goodTimes == 0 || sealed && goodTimes*timeEntrySize < len(times) {
		good = 0 // The time index is gone, or wrong: make both anew.
	}
	end := indexEnd{indexHit: indexHit{0, kafka.NoOffset}, largest: s.noLargest()}
	if good > 0 {
		end.lastOffset, end.position = s.parseOffsetEntry(data[(good-1)*offsetEntrySize:])
		end.times = s.goodTimeEntries(times, end.lastOffset+1)
	}
	if end.times > 0 {
		end.largest = s.parseTimeEntry(times[(end.times-1)*timeEntrySize:])
	}
	if !sealed {
		goodTimes = end.times
	}
	s.offsets.keep(good)
	s.times.keep(goodTimes)
	// Entries of batches that are gone must not be there when others have their
	// offsets.
	return end, errors.Join(
		s.offsets.cutTo(good, len(data)),
		s.times.cutTo(goodTimes, len(times)),
	)
}

func (s *segment) noLargest() timestampOffset {
	return timestampOffset{timestamp: noTimestamp, offset: s.baseOffset}
}

// cutIndexes removes the entries of batches at or above at. The indexes are
// usable; the caller holds indexMu.
func (s *segment) cutIndexes(at boundary) (indexEnd, error) {
	end := indexEnd{indexHit: indexHit{0, kafka.NoOffset}, largest: s.noLargest()}
	st := s.offsets.state.Load()
	n, err := s.offsets.search(st, func(e []byte) bool {
		_, position := s.parseOffsetEntry(e)
		return position < at.position
	})
	if err == nil && n > 0 {
		end.lastOffset, end.position, err = s.offsetEntry(st, n-1)
	}
	if err != nil {
		return end, err
	}
	times := s.times.state.Load()
	if n > 0 {
		end.times, err = s.times.search(times, func(e []byte) bool {
			return s.parseTimeEntry(e).offset <= end.lastOffset
		})
	}
	if err == nil && end.times > 0 {
		end.largest, err = s.timeEntry(times, end.times-1)
	}
	return end, errors.Join(err,
		s.offsets.truncate(n), s.times.truncate(end.times))
}

// goodOffsetEntries counts the leading entries that rise and lie below limit and
// trusted.
func goodOffsetEntries(data []byte, limit, trusted int64) int {
	last, position, n := int32(-1), int64(0), 0
	for e := data; len(e) >= offsetEntrySize; e = e[offsetEntrySize:] {
		relative := int32(binary.BigEndian.Uint32(e))
		p := int64(int32(binary.BigEndian.Uint32(e[4:])))
		if relative <= last || p <= position || p >= limit || p >= trusted {
			break
		}
		last, position, n = relative, p, n+1
	}
	return n
}

// goodTimeEntries counts the leading entries that rise and are of batches below
// an offset.
func (s *segment) goodTimeEntries(data []byte, below kafka.Offset) int {
	last, n := s.noLargest(), 0
	for e := data; len(e) >= timeEntrySize; e = e[timeEntrySize:] {
		t := s.parseTimeEntry(e)
		if t.timestamp <= last.timestamp || n > 0 && t.offset <= last.offset ||
			t.offset < s.baseOffset || t.offset >= below {
			break
		}
		last, n = t, n+1
	}
	return n
}

// keep sets how many entries of the file count.
func (e *entryFile) keep(count int) {
	e.synced = unknownSynced
	e.state.Store(&entryState{flushed: count})
}

// cutTo cuts a file of so many bytes to count entries. The next sync of the
// segment includes it.
func (e *entryFile) cutTo(count, fileBytes int) error {
	if fileBytes <= count*e.entrySize {
		return nil
	}
	f, err := e.open(vfs.ReadWrite)
	if err != nil {
		return err
	}
	e.wasCut.Store(true)
	if err := f.Truncate(int64(count) * int64(e.entrySize)); err != nil {
		return fmt.Errorf("truncate %s: %w", e.path(), err)
	}
	return nil
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

// flushIndexes writes the indexes out, creating the files. The time index goes
// before the offset index: one that is on disk is never ahead of it.
func (s *segment) flushIndexes() error {
	if x := s.aborted.Load(); x != nil {
		if err := x.flush(); err != nil {
			return err
		}
	}
	if err := s.times.flush(); err != nil {
		return err
	}
	return s.offsets.flush()
}

// storeIndexes writes both indexes out for good: an offset index on disk is
// never ahead of the time index, not even after power loss.
func (s *segment) storeIndexes() error {
	if err := s.times.flush(); err != nil {
		return err
	}
	if err := s.times.sync(); err != nil {
		return err
	}
	if err := s.offsets.flush(); err != nil {
		return err
	}
	return s.offsets.sync()
}

// dropIndexes forgets all indexes, to make them anew.
func (s *segment) dropIndexes() error {
	s.offsets.keep(0)
	s.times.keep(0)
	s.trustedTo = 0
	s.indexed.Store(true)
	return errors.Join(
		removeFile(s.fs, s.path(indexSuffix)), removeFile(s.fs, s.path(timeIndexSuffix)), s.dropTxnIndex())
}
