package memfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/strandline/strandline/internal/vfs"
)

// BlockSize is the unit in which bytes survive a crash and space is charged.
const BlockSize = 4096

const errNotDir = syscall.ENOTDIR

var (
	errEscapes  = errors.New("name leads out of the root")
	errNegative = errors.New("negative position or length")
)

type block [BlockSize]byte

// file is the bytes of a file, whatever names and handles it has.
type file struct {
	fs *FS

	mu      sync.RWMutex
	links   int // Directory entries.
	handles int // Open handles.
	modTime time.Time

	// blocks are the bytes a process sees; a nil block is a hole of zeros.
	// A block that is also in synced is never written again: the first write
	// after a Sync makes a copy.
	// Invariant: len(blocks) == blockCount(size), bytes past size are zero.
	blocks []*block
	size   int64
	// synced and syncedSize are what a crash leaves for certain. The last synced
	// block may have bytes past syncedSize that an earlier crash left.
	synced     []*block
	syncedSize int64
	// dirtyFrom is the index of the first block that may differ from synced.
	dirtyFrom int

	filled   int64 // Blocks that are no hole.
	reserved int64 // Blocks that Allocate asked for.
	// syncedReserved is what of them a crash leaves for certain.
	syncedReserved int64
}

func blockCount(sizeBytes int64) int { return int((sizeBytes + BlockSize - 1) / BlockSize) }

// chargeLocked accounts for the blocks the file is about to have.
func (f *file) chargeLocked(filled, reserved int64) error {
	delta := max(filled, reserved) - max(f.filled, f.reserved)
	if delta != 0 {
		if err := f.fs.charge(delta * BlockSize); err != nil {
			return err
		}
	}
	f.filled, f.reserved = filled, reserved
	return nil
}

func (f *file) truncateLocked(size int64) error {
	count := blockCount(size)
	if size < f.size {
		filled := f.filled
		for _, b := range f.blocks[count:] {
			if b != nil {
				filled--
			}
		}
		// Giving back never fails.
		_ = f.chargeLocked(filled, min(f.reserved, int64(count)))
		clear(f.blocks[count:])
		f.blocks = f.blocks[:count]
		f.dirtyFrom = min(f.dirtyFrom, max(0, count-1))
		if within := size % BlockSize; within != 0 && f.blocks[count-1] != nil {
			clear(f.writableLocked(count - 1)[within:])
		}
	} else {
		f.growLocked(count)
	}
	f.size, f.modTime = size, time.Now()
	return nil
}

func (f *file) growLocked(count int) {
	for len(f.blocks) < count {
		f.blocks = append(f.blocks, nil)
	}
}

// writableLocked returns block i for writing, copied first if a Sync holds it.
// The block exists, or the caller has charged for it.
func (f *file) writableLocked(i int) *block {
	f.dirtyFrom = min(f.dirtyFrom, i)
	b := f.blocks[i]
	if b == nil {
		b = new(block)
	} else if i < len(f.synced) && f.synced[i] == b {
		c := *b
		b = &c
	}
	f.blocks[i] = b
	return b
}

func (f *file) writeLocked(p []byte, position int64) (int, error) {
	written := 0
	for written < len(p) {
		i := int(position / BlockSize)
		if i >= len(f.blocks) || f.blocks[i] == nil {
			if err := f.chargeLocked(f.filled+1, f.reserved); err != nil {
				return written, err
			}
			f.growLocked(i + 1)
		}
		n := copy(f.writableLocked(i)[position%BlockSize:], p[written:])
		written += n
		position += int64(n)
		f.size = max(f.size, position)
	}
	f.modTime = time.Now()
	return written, nil
}

func (f *file) readLocked(p []byte, position int64) (int, error) {
	read := 0
	for read < len(p) && position < f.size {
		part := p[read:min(len(p), read+int(min(f.size-position, BlockSize-position%BlockSize)))]
		if b := f.blocks[position/BlockSize]; b != nil {
			copy(part, b[position%BlockSize:])
		} else {
			clear(part)
		}
		read += len(part)
		position += int64(len(part))
	}
	if read < len(p) {
		return read, io.EOF
	}
	return read, nil
}

func (f *file) syncLocked() {
	from := min(f.dirtyFrom, len(f.synced))
	clear(f.synced[from:])
	f.synced = append(f.synced[:from], f.blocks[from:]...)
	f.syncedSize, f.syncedReserved = f.size, f.reserved
	f.dirtyFrom = len(f.blocks)
}

func (f *file) info(base string) fs.FileInfo {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return info{name: base, size: f.size, mode: 0o644, modTime: f.modTime}
}

func (f *file) unlinked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links--
	f.maybeFreeLocked()
}

// maybeFreeLocked gives the space back once no name and no handle is left. The
// bytes stay for a CrashClone, in which the name may come back.
func (f *file) maybeFreeLocked() {
	if f.links <= 0 && f.handles == 0 {
		_ = f.chargeLocked(0, 0)
	}
}

// handle implements vfs.File.
type handle struct {
	file   *file
	name   string
	flag   vfs.OpenFlag
	closed atomic.Bool
}

// check refuses what the handle cannot do: after Close, writing without
// ReadWrite, and unaligned access of a Direct file.
func (h *handle) check(op string, p []byte, position int64, write bool) error {
	switch {
	case h.closed.Load():
		return pathError(op, h.name, fs.ErrClosed)
	case position < 0:
		return pathError(op, h.name, errNegative)
	case write && h.flag&vfs.ReadWrite == 0:
		return pathError(op, h.name, syscall.EBADF)
	case h.flag&vfs.Direct != 0 && len(p) > 0:
		address := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
		if (uintptr(position)|uintptr(len(p))|address)%vfs.DirectAlign != 0 {
			return pathError(op, h.name, syscall.EINVAL)
		}
	}
	return nil
}

// ReadAt implements vfs.File.
func (h *handle) ReadAt(p []byte, position int64) (int, error) {
	if err := h.check("read", p, position, false); err != nil {
		return 0, err
	}
	h.file.mu.RLock()
	defer h.file.mu.RUnlock()
	return h.file.readLocked(p, position)
}

// WriteAt implements vfs.File.
func (h *handle) WriteAt(p []byte, position int64) (int, error) {
	if err := h.check("write", p, position, true); err != nil {
		return 0, err
	}
	h.file.fs.crash.RLock()
	defer h.file.fs.crash.RUnlock()
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	n, err := h.file.writeLocked(p, position)
	if err != nil {
		err = pathError("write", h.name, err)
	}
	return n, err
}

// Size implements vfs.File.
func (h *handle) Size() (int64, error) {
	if err := h.check("stat", nil, 0, false); err != nil {
		return 0, err
	}
	h.file.mu.RLock()
	defer h.file.mu.RUnlock()
	return h.file.size, nil
}

// Truncate implements vfs.File.
func (h *handle) Truncate(size int64) error {
	if err := h.check("truncate", nil, size, true); err != nil {
		return err
	}
	h.file.fs.crash.RLock()
	defer h.file.fs.crash.RUnlock()
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	return h.file.truncateLocked(size)
}

// Sync implements vfs.File.
func (h *handle) Sync() error {
	if err := h.check("sync", nil, 0, false); err != nil {
		return err
	}
	h.file.fs.crash.RLock()
	defer h.file.fs.crash.RUnlock()
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	h.file.syncLocked()
	return nil
}

// StartWriteback implements vfs.File; it does nothing.
func (h *handle) StartWriteback(int64, int64) {}

// Allocate implements vfs.File.
func (h *handle) Allocate(position, length int64) error {
	if length <= 0 {
		return pathError("allocate", h.name, errNegative)
	}
	if err := h.check("allocate", nil, position, true); err != nil {
		return err
	}
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	reserved := max(h.file.reserved, int64(blockCount(position+length)))
	if err := h.file.chargeLocked(h.file.filled, reserved); err != nil {
		return pathError("allocate", h.name, err)
	}
	return nil
}

// Fd implements vfs.File: there is no descriptor.
func (h *handle) Fd() (uintptr, bool) { return 0, false }

// Close implements vfs.File.
func (h *handle) Close() error {
	if h.closed.Swap(true) {
		return pathError("close", h.name, fs.ErrClosed)
	}
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	h.file.handles--
	h.file.maybeFreeLocked()
	return nil
}
