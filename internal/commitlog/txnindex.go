package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// AbortedTxn is a transaction that was aborted, as a log's index has it.
type AbortedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
	LastOffset  kafka.Offset // The marker's.
	// LastStableOffset is what it became with the marker, replication aside: every
	// transaction that begins below it ends at or below the marker.
	LastStableOffset kafka.Offset
}

// txnIndex is the list of the aborted transactions whose markers are in one
// segment, in the order of the markers: Kafka's .txnindex file, and entries that
// were not written out yet. A segment without such markers has none
// (docs/format/index.md).
//
// The file is written and synced before the checkpoint vouches for the markers, so
// what is below the recovery point is in it; what is above is made again when the
// log is read back. It has no checksum: a file with entries that cannot be is made
// again from the batches.
//
// mu is a leaf; one writer, the log under its lock, and any readers.
type txnIndex struct {
	segment *segment

	mu      sync.RWMutex
	checked bool // The file was looked at.
	flushed int  // Entries in the file.
	synced  int  // Of those, on disk; unknownSynced after a cut.
	last    kafka.Offset
	tail    []AbortedTxn
	file    vfs.File // nil until it is needed.
}

const (
	txnEntrySize    = 34
	txnEntryVersion = 0
	// maxTxnTail bounds what stays in memory.
	maxTxnTail = 512
	// txnReadEntries are read at once.
	txnReadEntries = 120
)

// errTxnIndexDamaged says that a file is not what was written.
var errTxnIndexDamaged = errors.New("the index of aborted transactions is damaged")

func newTxnIndex(s *segment) *txnIndex {
	return &txnIndex{segment: s, last: kafka.NoOffset}
}

// newEmptyTxnIndex is for a segment that has no file.
func newEmptyTxnIndex(s *segment) *txnIndex {
	x := newTxnIndex(s)
	x.checked = true
	return x
}

func (x *txnIndex) path() string { return x.segment.path(txnIndexSuffix) }

func appendTxnEntry(dst []byte, t AbortedTxn) []byte {
	be := binary.BigEndian
	dst = be.AppendUint16(dst, txnEntryVersion)
	dst = be.AppendUint64(dst, uint64(t.ProducerID))
	dst = be.AppendUint64(dst, uint64(t.FirstOffset))
	dst = be.AppendUint64(dst, uint64(t.LastOffset))
	return be.AppendUint64(dst, uint64(t.LastStableOffset))
}

// parseTxnEntry reads an entry; ok is false if it is none.
func parseTxnEntry(p []byte) (t AbortedTxn, ok bool) {
	be := binary.BigEndian
	t = AbortedTxn{
		ProducerID: kafka.ProducerID(be.Uint64(p[2:])), FirstOffset: kafka.Offset(be.Uint64(p[10:])),
		LastOffset: kafka.Offset(be.Uint64(p[18:])), LastStableOffset: kafka.Offset(be.Uint64(p[26:])),
	}
	ok = be.Uint16(p) == txnEntryVersion && t.ProducerID >= 0 && t.FirstOffset >= 0 &&
		t.FirstOffset < t.LastOffset && t.LastStableOffset >= 0 && t.LastStableOffset <= t.LastOffset+1
	return t, ok
}

// openLocked opens the file; mu is held for writing.
func (x *txnIndex) openLocked(flag vfs.OpenFlag) error {
	if x.file != nil {
		return nil
	}
	f, err := x.segment.fs.Open(x.path(), flag|vfs.ReadWrite)
	if err != nil {
		return fmt.Errorf("open index: %w", err)
	}
	x.file = f
	return nil
}

// checkLocked looks at the file at its first use. Entries rise, and their markers
// lie in the segment; what does not fit makes the error errTxnIndexDamaged.
func (x *txnIndex) checkLocked() error {
	if x.checked && x.flushed == 0 {
		return nil
	}
	if err := x.openLocked(vfs.ReadOnly); err != nil || x.checked {
		return err
	}
	size, err := x.file.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", x.path(), err)
	}
	if size == 0 || size%txnEntrySize != 0 {
		return errTxnIndexDamaged
	}
	x.flushed, x.synced, x.last = int(size/txnEntrySize), unknownSynced, x.segment.baseOffset-1
	err = x.eachLocked(0, func(_ int, t AbortedTxn) bool {
		if t.LastOffset <= x.last {
			x.last = kafka.NoOffset
			return false
		}
		x.last = t.LastOffset
		return true
	})
	if err == nil && x.last == kafka.NoOffset {
		err = errTxnIndexDamaged
	}
	if err != nil {
		return err
	}
	x.checked = true
	return nil
}

// ready makes the index usable by readers.
func (x *txnIndex) ready() error {
	x.mu.RLock()
	ready := x.checked && (x.flushed == 0 || x.file != nil)
	x.mu.RUnlock()
	if ready {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.checkLocked()
}

// eachLocked calls fn for the entries of the file from number i on, until it
// returns false.
func (x *txnIndex) eachLocked(i int, fn func(i int, t AbortedTxn) bool) error {
	var buf [txnReadEntries * txnEntrySize]byte
	for i < x.flushed {
		p := buf[:min(txnReadEntries, x.flushed-i)*txnEntrySize]
		if err := readFull(x.file, p, int64(i)*txnEntrySize); err != nil {
			return fmt.Errorf("read %s: %w", x.path(), err)
		}
		for ; len(p) > 0; p = p[txnEntrySize:] {
			t, ok := parseTxnEntry(p)
			if !ok {
				return errTxnIndexDamaged
			}
			if !fn(i, t) {
				return nil
			}
			i++
		}
	}
	return nil
}

// searchLocked returns the number of the first entry in the file whose marker is at
// or above an offset.
func (x *txnIndex) searchLocked(offset kafka.Offset) (int, error) {
	if offset > x.last {
		return x.flushed, nil
	}
	low, high := 0, x.flushed
	var p [txnEntrySize]byte
	for low < high {
		mid := int(uint(low+high) >> 1)
		if err := readFull(x.file, p[:], int64(mid)*txnEntrySize); err != nil {
			return 0, fmt.Errorf("read %s: %w", x.path(), err)
		}
		t, ok := parseTxnEntry(p[:])
		if !ok {
			return 0, errTxnIndexDamaged
		}
		if t.LastOffset < offset {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// collect adds the transactions that have records in [from, upTo). done says that
// no later segment has one.
func (x *txnIndex) collect(dst []AbortedTxn, from, upTo kafka.Offset) (_ []AbortedTxn, done bool, err error) {
	if err := x.ready(); err != nil {
		return dst, false, err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	take := func(_ int, t AbortedTxn) bool {
		if t.LastOffset >= from && t.FirstOffset < upTo {
			dst = append(dst, t)
		}
		done = t.LastStableOffset >= upTo
		return !done
	}
	if x.flushed > 0 {
		i, err := x.searchLocked(from)
		if err == nil {
			err = x.eachLocked(i, take)
		}
		if err != nil {
			return dst, false, err
		}
	}
	for i := 0; i < len(x.tail) && !done; i++ {
		take(i, x.tail[i])
	}
	return dst, done, nil
}

// add appends an entry. What can't be written out stays in memory.
func (x *txnIndex) add(t AbortedTxn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.checkLocked(); err != nil {
		return err
	}
	x.tail, x.last = append(x.tail, t), t.LastOffset
	if len(x.tail) >= maxTxnTail && len(x.tail)%maxTxnTail == 0 {
		_ = x.flushLocked()
	}
	return nil
}

func (x *txnIndex) flushLocked() error {
	if len(x.tail) == 0 {
		return nil
	}
	if err := x.openLocked(vfs.Create); err != nil {
		return err
	}
	buf := make([]byte, 0, len(x.tail)*txnEntrySize)
	for _, t := range x.tail {
		buf = appendTxnEntry(buf, t)
	}
	if _, err := x.file.WriteAt(buf, int64(x.flushed)*txnEntrySize); err != nil {
		return fmt.Errorf("write %s: %w", x.path(), err)
	}
	x.flushed += len(x.tail)
	x.tail = nil
	return nil
}

// flush writes out what is in memory.
func (x *txnIndex) flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.flushLocked()
}

// store makes all entries durable, and reports whether there was something to do:
// then the file's name may be new as well.
func (x *txnIndex) store() (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.flushLocked(); err != nil {
		return false, err
	}
	if x.file == nil || x.synced == x.flushed {
		return false, nil
	}
	if err := x.file.Sync(); err != nil {
		return false, fmt.Errorf("sync %s: %w", x.path(), err)
	}
	x.synced = x.flushed
	return true, nil
}

// cut removes the entries whose markers are at or above an offset, and reports
// whether there is one left.
func (x *txnIndex) cut(offset kafka.Offset) (left bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.checkLocked(); err != nil {
		return false, err
	}
	err = x.cutLocked(offset)
	return x.flushed+len(x.tail) > 0, err
}

func (x *txnIndex) cutLocked(offset kafka.Offset) error {
	n := len(x.tail)
	for n > 0 && x.tail[n-1].LastOffset >= offset {
		n--
	}
	x.tail = x.tail[:n]
	if n > 0 || x.flushed == 0 {
		x.last = kafka.NoOffset
		if n > 0 {
			x.last = x.tail[n-1].LastOffset
		}
		return nil
	}
	keep, err := x.searchLocked(offset)
	if err != nil {
		return err
	}
	if keep < x.flushed {
		if err := x.file.Truncate(int64(keep) * txnEntrySize); err != nil {
			return fmt.Errorf("truncate %s: %w", x.path(), err)
		}
		x.flushed, x.synced = keep, unknownSynced
	}
	x.last = kafka.NoOffset
	return x.eachLocked(max(keep-1, 0), func(_ int, t AbortedTxn) bool {
		x.last = t.LastOffset
		return true
	})
}

// replace makes the entries what they should be, in memory and in the file.
func (x *txnIndex) replace(entries []AbortedTxn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openLocked(vfs.Create); err != nil {
		return err
	}
	if err := x.file.Truncate(0); err != nil {
		return fmt.Errorf("truncate %s: %w", x.path(), err)
	}
	x.checked, x.flushed, x.synced = true, 0, unknownSynced
	x.tail, x.last = slices.Clone(entries), kafka.NoOffset
	if n := len(entries); n > 0 {
		x.last = entries[n-1].LastOffset
	}
	return x.flushLocked()
}

func (x *txnIndex) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.file == nil {
		return nil
	}
	f := x.file
	x.file = nil
	return f.Close()
}

// keepOpen opens the file, if there is one: its name will be another's.
func (x *txnIndex) keepOpen() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.checked && x.flushed == 0 {
		return nil
	}
	return x.openLocked(vfs.ReadOnly)
}

// txnIndexOf returns the index of a segment that gets an entry.
func (s *segment) txnIndexOf() *txnIndex {
	x := s.aborted.Load()
	if x == nil {
		x = newEmptyTxnIndex(s)
		s.aborted.Store(x)
	}
	return x
}

// dropTxnIndex forgets the index and removes its file.
func (s *segment) dropTxnIndex() error {
	if x := s.aborted.Swap(nil); x != nil {
		_ = x.close() // It goes.
	}
	return removeFile(s.fs, s.path(txnIndexSuffix))
}

// doubtTxnIndex leaves an empty file in the place of the index, which whoever needs it
// makes anew from the log: the transactions of a segment may have begun before it.
func (s *segment) doubtTxnIndex() error {
	x := newTxnIndex(s)
	if err := x.replace(nil); err != nil {
		return err
	}
	x.checked = false
	s.aborted.Store(x)
	return nil
}

// cutTxnIndex removes the entries of markers at or above an offset. An index that
// is empty then goes.
func (s *segment) cutTxnIndex(offset kafka.Offset) error {
	x := s.aborted.Load()
	if x == nil {
		return nil
	}
	left, err := x.cut(offset)
	if err != nil || left {
		return err
	}
	return s.dropTxnIndex()
}

// storesTxnIndex tells whether storeTxnIndex would have something to do.
func (s *segment) storesTxnIndex() bool {
	x := s.aborted.Load()
	if x == nil {
		return false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.tail) > 0 || x.file != nil && x.synced != x.flushed
}

// storeTxnIndex makes the index durable, and reports whether it changed.
func (s *segment) storeTxnIndex() (bool, error) {
	x := s.aborted.Load()
	if x == nil || s.deleted.Load() {
		return false, nil
	}
	changed, err := x.store()
	if errors.Is(err, fs.ErrNotExist) && s.deleted.Load() {
		return false, nil
	}
	return changed, err
}
