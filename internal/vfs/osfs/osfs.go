// Package osfs is the vfs.FS of the operating system.
//
// Names are resolved below a root directory through os.Root, so that no name,
// however it came about, reaches a file outside of it. It assumes Linux.
package osfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/internal/vfs"
)

// FS is a directory of the operating system.
type FS struct {
	dir  string
	root *os.Root
}

// Open makes the directory if need be and returns the FS below it. Close
// releases its handle.
func Open(dir string) (*FS, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	return OpenExisting(dir)
}

// OpenExisting is Open for a directory that must be there already.
func OpenExisting(dir string) (*FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	return &FS{dir: dir, root: root}, nil
}

// Dir returns the directory as it was given to Open.
func (f *FS) Dir() string { return f.dir }

// Close releases the handle on the root; open files stay usable.
func (f *FS) Close() error { return f.root.Close() }

// Open implements vfs.FS.
func (f *FS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	mode := os.O_RDONLY
	if flag&vfs.ReadWrite != 0 {
		mode = os.O_RDWR
	}
	if flag&vfs.Create != 0 {
		mode |= os.O_CREATE
	}
	if flag&vfs.Exclusive != 0 {
		mode |= os.O_EXCL
	}
	if flag&vfs.Truncate != 0 {
		mode |= os.O_TRUNC
	}
	if flag&vfs.Direct != 0 {
		// A file system without O_DIRECT (tmpfs before Linux 6.6) refuses the
		// open with EINVAL; the same bytes through the page cache are as good.
		if file, err := f.root.OpenFile(name, mode|unix.O_DIRECT, 0o644); err == nil {
			return &osFile{file}, nil
		} else if !errors.Is(err, unix.EINVAL) {
			return nil, err
		}
	}
	file, err := f.root.OpenFile(name, mode, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{file}, nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string) error { return f.root.MkdirAll(name, 0o755) }

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.root.FS(), name) }

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error { return f.root.Remove(name) }

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error { return f.root.RemoveAll(name) }

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error { return f.root.Rename(oldName, newName) }

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.root.Stat(name) }

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	d, err := f.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	file, err := f.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = vfs.ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path.Join(f.dir, name), err)
	}
	return file, nil
}

// Usage implements vfs.FS.
func (f *FS) Usage() (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.dir, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", f.dir, err)
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

// osFile adds what os.File lacks.
type osFile struct{ *os.File }

// Size implements vfs.File.
func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Sync implements vfs.File by fdatasync, which writes the length but leaves
// out times nobody here relies on.
func (f *osFile) Sync() error {
	for {
		err := unix.Fdatasync(int(f.File.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

// StartWriteback implements vfs.File.
func (f *osFile) StartWriteback(position, length int64) {
	_ = unix.SyncFileRange(int(f.File.Fd()), position, length, unix.SYNC_FILE_RANGE_WRITE)
}

// Allocate implements vfs.File.
func (f *osFile) Allocate(position, length int64) error {
	err := unix.Fallocate(int(f.File.Fd()), unix.FALLOC_FL_KEEP_SIZE, position, length)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// Fd implements vfs.File.
func (f *osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }
