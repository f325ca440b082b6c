package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/vfs"
)

// entryFile is an append-only array of entries of one size: a file and a tail
// in memory that was not written out yet. Both indexes of a segment are one.
//
// One writer (the log's lock) calls append, flush and truncate; readers take a
// state and use it without a lock. A state is never changed but for its
// growing count, so a reader that holds an old one reads what was true then.
//
//	file:  | 0 | 1 | ... | flushed-1 |   tail: | flushed | ... | flushed+n-1 |
type entryFile struct {
	segment   *segment
	suffix    string
	entrySize int
	state     atomic.Pointer[entryState]

	openMu sync.Mutex
	file   atomic.Pointer[fileHandle]
	synced int         // Entries known to be on disk, or unknownSynced.
	wasCut atomic.Bool // The file was cut since it was last synced.
	// missing tells that there was no file when the log was opened.
	missing atomic.Bool
}

// entryState is what a reader sees.
type entryState struct {
	flushed int
	tail    []byte // Capacity allocated; the first n entries are set.
	n       atomic.Int32
}

// fileHandle holds an open file in an atomic pointer.
type fileHandle struct{ vfs.File }

// unknownSynced stands for entries of a file that an earlier process wrote.
const unknownSynced = -1

// The tail grows from few to many entries, so that an idle log stays small,
// and is written out when it is full.
const (
	minTailEntries = 8
	maxTailEntries = 512
)

func (e *entryFile) init(s *segment, suffix string, entrySize int) {
	e.segment, e.suffix, e.entrySize = s, suffix, entrySize
	e.state.Store(&entryState{})
}

// path returns the file's name. Most indexes of most logs are never opened, so
// that it is not kept.
func (e *entryFile) path() string { return e.segment.path(e.suffix) }

// count returns the number of entries.
func (s *entryState) count() int { return s.flushed + int(s.n.Load()) }

// full tells that the tail should be written out before the next append.
func (e *entryFile) full() bool { return e.state.Load().n.Load() >= maxTailEntries }

// append adds an entry to the tail.
func (e *entryFile) append(entry []byte) {
	s := e.state.Load()
	n := int(s.n.Load())
	if n*e.entrySize == len(s.tail) {
		s = e.makeRoom(s, n)
	}
	copy(s.tail[n*e.entrySize:], entry)
	s.n.Store(int32(n + 1))
}

func (e *entryFile) makeRoom(s *entryState, n int) *entryState {
	grown := &entryState{flushed: s.flushed}
	grown.tail = make([]byte, max(minTailEntries, min(4*n, n+maxTailEntries))*e.entrySize)
	copy(grown.tail, s.tail[:n*e.entrySize])
	grown.n.Store(int32(n))
	e.state.Store(grown)
	return grown
}

// flush writes the tail out, creating the file if need be.
func (e *entryFile) flush() error {
	s := e.state.Load()
	n := int(s.n.Load())
	f, err := e.open(vfs.ReadWrite | vfs.Create)
	if err != nil {
		return err
	}
	e.missing.Store(false)
	if n == 0 {
		return nil
	}
	position := int64(s.flushed) * int64(e.entrySize)
	if _, err := f.WriteAt(s.tail[:n*e.entrySize], position); err != nil {
		return fmt.Errorf("write %s: %w", e.path(), err)
	}
	e.state.Store(&entryState{flushed: s.flushed + n})
	return nil
}

// truncate keeps the first count entries.
func (e *entryFile) truncate(count int) error {
	s := e.state.Load()
	if count >= s.count() {
		return nil
	}
	kept := &entryState{flushed: min(count, s.flushed)}
	if extra := count - s.flushed; extra > 0 {
		kept.tail = make([]byte, max(extra, minTailEntries)*e.entrySize)
		copy(kept.tail, s.tail[:extra*e.entrySize])
		kept.n.Store(int32(extra))
	}
	e.synced = min(e.synced, count)
	if count < s.flushed {
		f, err := e.open(vfs.ReadWrite | vfs.Create)
		if err != nil {
			return err
		}
		e.wasCut.Store(true)
		if err := f.Truncate(int64(count) * int64(e.entrySize)); err != nil {
			return fmt.Errorf("truncate %s: %w", e.path(), err)
		}
	}
	e.state.Store(kept)
	return nil
}

// entry copies entry i of state s into dst, which is entrySize long.
func (e *entryFile) entry(s *entryState, i int, dst []byte) error {
	if i >= s.flushed {
		copy(dst, s.tail[(i-s.flushed)*e.entrySize:][:e.entrySize])
		return nil
	}
	f, err := e.open(vfs.ReadOnly)
	if err != nil {
		return err
	}
	if _, err := f.ReadAt(dst, int64(i)*int64(e.entrySize)); err != nil {
		return fmt.Errorf("read %s: %w", e.path(), err)
	}
	return nil
}

// search returns the number of leading entries for which before holds; they
// must come first.
func (e *entryFile) search(s *entryState, before func(entry []byte) bool) (int, error) {
	var buf [timeEntrySize]byte
	entry := buf[:e.entrySize]
	low, high := 0, s.count()
	if s.flushed > 0 && high > s.flushed { // Most lookups are near the end.
		copy(entry, s.tail[:e.entrySize])
		if before(entry) {
			low = s.flushed + 1
		} else {
			high = s.flushed
		}
	}
	for low < high {
		mid := int(uint(low+high) >> 1)
		if err := e.entry(s, mid, entry); err != nil {
			return 0, err
		}
		if before(entry) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// open returns the file, opening it at its first use. A file opened for
// reading is opened again when it is to be written.
func (e *entryFile) open(flag vfs.OpenFlag) (vfs.File, error) {
	if h := e.file.Load(); h != nil {
		return h.File, nil
	}
	e.openMu.Lock()
	defer e.openMu.Unlock()
	if h := e.file.Load(); h != nil {
		return h.File, nil
	}
	f, err := e.segment.fs.Open(e.path(), flag|vfs.ReadWrite)
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	e.file.Store(&fileHandle{f})
	return f, nil
}

// load reads the whole file; a missing one is empty.
func (e *entryFile) load() ([]byte, error) {
	if e.missing.Load() {
		return nil, nil
	}
	f, err := e.open(vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, size-size%int64(e.entrySize))
	if len(buf) == 0 {
		return nil, nil
	}
	if _, err := f.ReadAt(buf, 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", e.path(), err)
	}
	return buf, nil
}

// sync makes what was flushed durable.
func (e *entryFile) sync() error {
	h := e.file.Load()
	flushed := e.state.Load().flushed
	if cut := e.wasCut.Swap(false); h == nil || flushed == e.synced && !cut {
		return nil
	}
	if err := h.Sync(); err != nil {
		return err
	}
	e.synced = flushed
	return nil
}

func (e *entryFile) close() error {
	if h := e.file.Swap(nil); h != nil {
		return h.Close()
	}
	return nil
}
