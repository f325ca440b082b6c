package commitlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// segment is one .log file with its two indexes. All segments of a log but the
// last are sealed: nothing is appended to them any more.
//
// A segment counts its users: the log's own view, each Chunk that was read from
// it, each operation on it. When the last is gone its files are closed; a
// deleted segment's files have been unlinked by then.
//
//	Invariant: bytes [0, size) of the file are whole batches, unless the disk
//	           has corrupted them; offsets rise and are at least baseOffset.
type segment struct {
	fs         vfs.FS
	dir        string
	baseOffset kafka.Offset
	stage      string       // .cleaned while a compaction writes it.
	size       atomic.Int64 // Bytes that readers may see.
	refs       atomic.Int32

	openMu sync.Mutex
	file   atomic.Pointer[fileHandle]

	indexMu sync.Mutex
	indexed atomic.Bool // The indexes were looked at and may be used.
	offsets entryFile
	times   entryFile
	// aborted is nil in a segment without markers of aborted transactions.
	aborted atomic.Pointer[txnIndex]
	// trustedTo is the position below which both indexes are on disk; the log's
	// lock guards it.
	trustedTo int64

	verified verifiedRanges
	// trustedFrom is where the bytes begin that were written or checked by
	// this process.
	trustedFrom atomic.Int64
	// hints are boundaries where recent reads stopped, packed as in a tailRing:
	// where a sequential reader goes on. Zero is none.
	hints    [4]atomic.Uint64
	nextHint atomic.Uint32

	// largest is the largest timestamp; nil until it is known.
	largest atomic.Pointer[timestampOffset]
	// damages are what a survey found, by position; nil before there was one.
	damages atomic.Pointer[[]damage]
	// damagesMu is held to note what a survey found, and by truncations, which forget it.
	damagesMu sync.Mutex
	surveyMu  sync.Mutex
	// gapsTo is the log's: batches that begin at or below it may leave gaps.
	gapsTo  *atomic.Int64
	deleted atomic.Bool
	// replaced says that compaction gave the segment's names to another.
	replaced atomic.Bool
}

// timestampOffset is a timestamp and the offset of the batch that has it.
type timestampOffset struct {
	timestamp int64
	offset    kafka.Offset
}

// noTimestamp is the largest timestamp of a segment that has none.
const noTimestamp = -1

func newSegment(l *Log, base kafka.Offset) *segment {
	s := &segment{fs: l.env.fs, dir: l.dir, baseOffset: base, gapsTo: &l.gapsTo, trustedTo: math.MaxInt64}
	s.refs.Store(1)
	s.trustedFrom.Store(math.MaxInt64)
	s.offsets.init(s, indexSuffix, offsetEntrySize)
	s.times.init(s, timeIndexSuffix, timeEntrySize)
	return s
}

func (s *segment) path(suffix string) string { return fileName(s.dir, s.baseOffset, suffix+s.stage) }

// acquire takes a reference, unless the last one is gone already.
func (s *segment) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release drops a reference and closes the files with the last one.
func (s *segment) release() {
	switch n := s.refs.Add(-1); {
	case n == 0:
		s.closeFiles()
	case n < 0:
		panic("commitlog: segment released more often than acquired")
	}
}

func (s *segment) closeFiles() {
	if h := s.file.Swap(nil); h != nil {
		_ = h.Close() // Whatever needed to be durable was synced.
	}
	_ = s.offsets.close()
	_ = s.times.close()
	if x := s.aborted.Load(); x != nil {
		_ = x.close()
	}
}

// open returns the .log file, opening it at its first use.
func (s *segment) open(flag vfs.OpenFlag) (vfs.File, error) {
	if h := s.file.Load(); h != nil {
		return h.File, nil
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if h := s.file.Load(); h != nil {
		return h.File, nil
	}
	f, err := s.fs.Open(s.path(logSuffix), flag|vfs.ReadWrite)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	s.file.Store(&fileHandle{f})
	return f, nil
}

// offsetEntrySize and timeEntrySize are the sizes of Kafka's index entries:
//
//	.index      relative last offset int32 | position int32
//	.timeindex  timestamp int64            | relative last offset int32
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

func (s *segment) appendOffsetEntry(lastOffset kafka.Offset, position int64) {
	if s.offsets.full() {
		_ = s.flushIndexes() // What can't be written now stays in memory.
	}
	var e [offsetEntrySize]byte
	binary.BigEndian.PutUint32(e[:], uint32(lastOffset-s.baseOffset))
	binary.BigEndian.PutUint32(e[4:], uint32(position))
	s.offsets.append(e[:])
}

// maybeAppendTimeEntry adds t unless the index ends with that timestamp or a
// larger one.
func (s *segment) maybeAppendTimeEntry(t timestampOffset) {
	if t.timestamp < 0 {
		return
	}
	st := s.times.state.Load()
	if n := st.count(); n > 0 {
		last, err := s.timeEntry(st, n-1)
		if err != nil || t.timestamp <= last.timestamp {
			return // An unreadable index is rebuilt when it is next needed.
		}
	}
	var e [timeEntrySize]byte
	binary.BigEndian.PutUint64(e[:], uint64(t.timestamp))
	binary.BigEndian.PutUint32(e[8:], uint32(t.offset-s.baseOffset))
	s.times.append(e[:])
}

// offsetEntry returns entry i of the offset index.
func (s *segment) offsetEntry(st *entryState, i int) (lastOffset kafka.Offset, position int64, err error) {
	var e [offsetEntrySize]byte
	if err := s.offsets.entry(st, i, e[:]); err != nil {
		return 0, 0, err
	}
	lastOffset, position = s.parseOffsetEntry(e[:])
	return lastOffset, position, nil
}

func (s *segment) parseOffsetEntry(e []byte) (lastOffset kafka.Offset, position int64) {
	relative := int32(binary.BigEndian.Uint32(e))
	return s.baseOffset + kafka.Offset(relative), int64(int32(binary.BigEndian.Uint32(e[4:])))
}

// timeEntry returns entry i of the time index.
func (s *segment) timeEntry(st *entryState, i int) (timestampOffset, error) {
	var e [timeEntrySize]byte
	if err := s.times.entry(st, i, e[:]); err != nil {
		return timestampOffset{}, err
	}
	return s.parseTimeEntry(e[:]), nil
}

func (s *segment) parseTimeEntry(e []byte) timestampOffset {
	relative := int32(binary.BigEndian.Uint32(e[8:]))
	return timestampOffset{
		timestamp: int64(binary.BigEndian.Uint64(e)),
		offset:    s.baseOffset + kafka.Offset(relative),
	}
}

// indexHit is an entry of the offset index, or the segment's beginning.
type indexHit struct {
	position   int64
	lastOffset kafka.Offset // Of the batch at position; NoOffset at the beginning.
}

// matches tells whether the batch at the hit is the one that was indexed.
func (i indexHit) matches(h batchHeader) bool {
	return i.lastOffset == kafka.NoOffset || i.lastOffset == h.lastOffset
}

// indexedBefore returns where to walk from to find offset: the last indexed
// batch whose last offset is at or below it.
func (s *segment) indexedBefore(offset kafka.Offset) (indexHit, error) {
	return s.lastIndexed(func(e []byte) bool {
		lastOffset, _ := s.parseOffsetEntry(e)
		return lastOffset <= offset
	})
}

// indexedBelow returns the last indexed batch at or below a position.
func (s *segment) indexedBelow(limit int64) (indexHit, error) {
	return s.lastIndexed(func(e []byte) bool {
		_, position := s.parseOffsetEntry(e)
		return position <= limit
	})
}

func (s *segment) lastIndexed(in func(entry []byte) bool) (indexHit, error) {
	st := s.offsets.state.Load()
	n, err := s.offsets.search(st, in)
	if err != nil || n == 0 {
		return indexHit{0, kafka.NoOffset}, err
	}
	lastOffset, position, err := s.offsetEntry(st, n-1)
	return indexHit{position, lastOffset}, err
}

// remember notes where a read stopped.
func (s *segment) remember(b boundary) {
	word := packBoundary(s.baseOffset, b)
	i := s.nextHint.Add(1)
	s.hints[i%uint32(len(s.hints))].Store(word)
}

// recall returns the boundary whose next offset is offset, if a read stopped
// there lately.
func (s *segment) recall(offset kafka.Offset) (boundary, bool) {
	for i := range s.hints {
		if word := s.hints[i].Load(); word != 0 {
			if b := unpackBoundary(s.baseOffset, word); b.nextOffset == offset {
				return b, true
			}
		}
	}
	return boundary{}, false
}

// forgetHints drops all hints; what follows a truncation may end elsewhere.
func (s *segment) forgetHints() {
	for i := range s.hints {
		s.hints[i].Store(0)
	}
}
