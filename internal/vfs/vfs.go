// Package vfs is the only door to the disk.
//
// Every room that stores something takes an FS and touches files through it
// alone, so that tests can crash, corrupt, fill up and delay the disk on
// command (package memfs, package errorfs). Package osfs is the real one.
//
// Names are slash-separated and relative to the FS's root: the data directory.
// An FS never follows a name out of its root. All methods may be called from
// any goroutine; a File's ReadAt and WriteAt may run concurrently on disjoint
// ranges.
//
// What is durable when: bytes written with WriteAt survive a crash only after
// Sync returned nil; a file's existence, removal or new name survives only
// after SyncDir of its directory returned nil. A Sync that returned an error
// is final: what was not synced is unknown from then on, and calling Sync again
// proves nothing.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked is returned by Lock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// OpenFlag says how to open a file.
type OpenFlag int

// The flags of Open, to be combined.
const (
	ReadOnly  OpenFlag = 0
	ReadWrite OpenFlag = 1 << iota // Reading and writing.
	Create                         // Create the file if it is not there.
	Exclusive                      // With Create: fail if it is there.
	Truncate                       // Cut to zero bytes.
	Direct                         // Bypass the page cache where possible; the caller aligns memory, position and length to DirectAlign.
)

// DirectAlign is the alignment in bytes that a Direct file asks of memory,
// position and length.
const DirectAlign = 4096

// FS is a directory tree on some disk.
type FS interface {
	// Open opens a file. A missing file gives an error that is fs.ErrNotExist.
	Open(name string, flag OpenFlag) (File, error)
	// MkdirAll makes a directory and its parents; their existence is durable
	// after SyncDir of each parent.
	MkdirAll(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; a missing one is no error.
	RemoveAll(name string) error
	// Rename moves a file or directory, replacing a file at newName. A directory there is in
	// the way, an empty one too.
	Rename(oldName, newName string) error
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock on a file, which it creates, until the
	// result is closed or the process ends. It returns ErrLocked at once when
	// another holder has it.
	Lock(name string) (io.Closer, error)
	// Usage returns the bytes free to this process and the total bytes of the
	// file system.
	Usage() (free, total uint64, err error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size returns the file's length in bytes.
	Size() (int64, error)
	// Truncate sets the file's length in bytes.
	Truncate(size int64) error
	// Sync makes the file's bytes and length durable (fdatasync).
	Sync() error
	// StartWriteback asks the disk to begin writing dirty bytes of the range;
	// it is a hint and waits for nothing. It makes a later Sync cheap.
	StartWriteback(position, length int64)
	// Allocate reserves disk blocks for the range without changing what is
	// read; ErrUnsupported is not reported but treated as done.
	Allocate(position, length int64) error
	// Fd returns the descriptor for sendfile, and false where there is none
	// (in memory). It is valid until Close.
	Fd() (uintptr, bool)
}
