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
	"path/filepath"
	"syscall"

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
	if err := makeDurably(filepath.Clean(dir)); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	return OpenExisting(dir)
}

// makeDurably makes a directory and its parents so that a crash does not take
// a new one away again.
func makeDurably(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDurably(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
	file, err := f.root.OpenFile(name, mode, 0o644)
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	opened := &osFile{file, conn}
	if flag&vfs.Direct != 0 {
		opened.goDirect()
	}
	return opened, nil
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

// SyncAll makes the bytes, lengths and directory entries of all files durable at
// once, as if each had been synced (syncfs, which reports errors of write-back
// since Linux 5.8). Like a Sync that failed, one that failed proves nothing.
func (f *FS) SyncAll() error {
	d, err := f.root.Open(".")
	if err != nil {
		return err
	}
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return errors.Join(&fs.PathError{Op: "syncfs", Path: f.dir, Err: err}, d.Close())
	}
	return d.Close()
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
	return lockFile{file}, nil
}

// lockFile is a file that is locked until it is closed.
type lockFile struct{ *os.File }

// Close gives the lock back, and then the file, which alone would not, while a process that is being
// started has a copy of the descriptor, which it does until it runs its program.
func (l lockFile) Close() error {
	return errors.Join(unix.Flock(int(l.Fd()), unix.LOCK_UN), l.File.Close())
}

// Usage implements vfs.FS.
func (f *FS) Usage() (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(f.dir, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", f.dir, err)
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

// osFile adds what os.File lacks. Its system calls go through conn, which keeps
// a concurrent Close from handing the descriptor to another file meanwhile.
type osFile struct {
	*os.File
	conn syscall.RawConn
}

// call runs a system call on the descriptor, again while it is interrupted.
func (f *osFile) call(op string, call func(fd int) error) error {
	var result error
	err := f.conn.Control(func(fd uintptr) {
		for {
			if result = call(int(fd)); !errors.Is(result, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: fs.ErrClosed}
	}
	if result != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: result}
	}
	return nil
}

// goDirect turns the page cache off where the file system allows it; where it
// does not (tmpfs before Linux 6.6), the same bytes through the cache are as
// good. To open with O_DIRECT instead would create the file and fail then.
func (f *osFile) goDirect() {
	_ = f.call("fcntl", func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT)
		}
		return err
	})
}

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
func (f *osFile) Sync() error { return f.call("fdatasync", unix.Fdatasync) }

// StartWriteback implements vfs.File.
func (f *osFile) StartWriteback(position, length int64) {
	_ = f.call("sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, position, length, unix.SYNC_FILE_RANGE_WRITE)
	})
}

// Allocate implements vfs.File.
func (f *osFile) Allocate(position, length int64) error {
	err := f.call("fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, position, length)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// Fd implements vfs.File.
func (f *osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }
