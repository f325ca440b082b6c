package memfs

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/strandline/strandline/internal/vfs"
)

// unlimited is the size of a disk whose capacity was never set.
const unlimited = 1 << 40

// FS is a file system in memory. The zero value is not usable; see New.
type FS struct {
	// crash is held for reading by everything that changes the tree or a
	// file, and for writing by CrashClone, which must see one moment.
	// Order: crash -> mu -> file.mu -> spaceMu.
	crash sync.RWMutex

	mu    sync.Mutex
	root  *dir
	locks map[string]bool

	spaceMu  sync.Mutex
	capacity int64 // Bytes; negative: unlimited.
	used     int64 // Blocks charged, in bytes. Invariant: may exceed capacity only after SetCapacity.
}

// New returns an empty file system without a limit of capacity.
func New() *FS {
	return &FS{root: newDir(), locks: map[string]bool{}, capacity: -1}
}

// SetCapacity limits the disk: a write that needs more blocks fails with
// ENOSPC. A negative number lifts the limit.
func (f *FS) SetCapacity(sizeBytes int64) {
	f.spaceMu.Lock()
	defer f.spaceMu.Unlock()
	f.capacity = sizeBytes
}

// Open implements vfs.FS.
func (f *FS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, base, err := f.parent("open", name)
	if err != nil {
		return nil, err
	}
	if base == "." {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	n, found := parent.entries[base]
	switch {
	case !found && flag&vfs.Create == 0:
		return nil, pathError("open", name, fs.ErrNotExist)
	case found && flag&vfs.Create != 0 && flag&vfs.Exclusive != 0:
		return nil, pathError("open", name, fs.ErrExist)
	case !found:
		n = &file{fs: f, links: 1, modTime: time.Now()}
		parent.apply(change{set: map[string]node{base: n}})
	}
	opened, ok := n.(*file)
	if !ok {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if flag&vfs.Truncate != 0 {
		if err := opened.truncateLocked(0); err != nil {
			return nil, pathError("open", name, err)
		}
	}
	opened.handles++
	return &handle{file: opened, name: name, flag: flag}, nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string) error {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	parts, err := split("mkdir", name)
	if err != nil {
		return err
	}
	d := f.root
	for _, part := range parts {
		n, ok := d.entries[part]
		if !ok {
			n = newDir()
			d.apply(change{set: map[string]node{part: n}})
		}
		if d, ok = n.(*dir); !ok {
			return pathError("mkdir", name, syscall.ENOTDIR)
		}
	}
	return nil
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.dir("readdir", name)
	if err != nil {
		return nil, err
	}
	list := make([]fs.DirEntry, 0, len(d.entries))
	for base, n := range d.entries {
		list = append(list, fs.FileInfoToDirEntry(n.info(base)))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, base, err := f.parent("remove", name)
	if err != nil {
		return err
	}
	n, ok := parent.entries[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if d, ok := n.(*dir); ok && len(d.entries) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	parent.apply(change{remove: []string{base}})
	n.unlinked()
	return nil
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, base, err := f.parent("removeall", name)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	n, ok := parent.entries[base]
	if !ok {
		return nil
	}
	parent.apply(change{remove: []string{base}})
	n.unlinked()
	return nil
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	from, oldBase, err := f.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := f.parent("rename", newName)
	if err != nil {
		return err
	}
	moved, ok := from.entries[oldBase]
	if !ok {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	replaced, ok := to.entries[newBase]
	if ok && replaced == moved {
		return nil
	}
	if d, isDir := replaced.(*dir); ok && isDir {
		if _, movesDir := moved.(*dir); !movesDir {
			return pathError("rename", newName, syscall.EISDIR)
		}
		if len(d.entries) > 0 {
			return pathError("rename", newName, syscall.ENOTEMPTY)
		}
		return pathError("rename", newName, fs.ErrExist)
	}
	if from == to {
		from.apply(change{set: map[string]node{newBase: moved}, remove: []string{oldBase}})
	} else {
		to.apply(change{set: map[string]node{newBase: moved}})
		from.apply(change{remove: []string{oldBase}})
	}
	if ok {
		replaced.unlinked()
	}
	return nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parent, base, err := f.parent("stat", name)
	if err != nil {
		return nil, err
	}
	if base == "." {
		return f.root.info("."), nil
	}
	n, ok := parent.entries[base]
	if !ok {
		return nil, pathError("stat", name, fs.ErrNotExist)
	}
	return n.info(base), nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	f.crash.RLock()
	defer f.crash.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := f.dir("sync", name)
	if err != nil {
		return err
	}
	d.sync()
	return nil
}

// Lock implements vfs.FS. A lock excludes others on the same FS; a CrashClone
// has none.
func (f *FS) Lock(name string) (io.Closer, error) {
	h, err := f.Open(name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return nil, err
	}
	name = path.Clean(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.locks[name] {
		_ = h.Close()
		return nil, pathError("lock", name, vfs.ErrLocked)
	}
	f.locks[name] = true
	return &lock{fs: f, name: name, handle: h}, nil
}

// lock is a held lock.
type lock struct {
	fs     *FS
	name   string
	handle vfs.File
}

// Close releases the lock.
func (l *lock) Close() error {
	if err := l.handle.Close(); err != nil {
		return err
	}
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

// Usage implements vfs.FS. Without a capacity the disk looks very large.
func (f *FS) Usage() (free, total uint64, err error) {
	f.spaceMu.Lock()
	defer f.spaceMu.Unlock()
	capacity := f.capacity
	if capacity < 0 {
		capacity = unlimited
	}
	return uint64(max(0, capacity-f.used)), uint64(capacity), nil
}

// charge takes delta bytes of the disk, or gives them back.
func (f *FS) charge(delta int64) error {
	f.spaceMu.Lock()
	defer f.spaceMu.Unlock()
	if delta > 0 && f.capacity >= 0 && f.used+delta > f.capacity {
		return syscall.ENOSPC
	}
	f.used += delta
	return nil
}
