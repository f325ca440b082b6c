// Package errorfs wraps a vfs.FS so that operations fail on command and leave
// a transcript.
//
// Before each operation the Injector is asked; an error it returns is the
// operation's result, and the operation does not happen (or, for a *TornWrite,
// happens in part). An Injector may also block, to be a disk that hangs, or
// look at the wrapped FS, to crash it at that very point.
//
// All methods may be called from any goroutine; the injector must allow that,
// as those of this package do. Rot of bytes is absent: a test flips them with
// WriteAt on the wrapped FS. Size, StartWriteback and Fd never fail and are not
// recorded.
package errorfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/vfs"
)

// Kind is what an operation does.
type Kind string

// The kinds of operation.
const (
	Open      Kind = "open"
	MkdirAll  Kind = "mkdir"
	ReadDir   Kind = "readdir"
	Remove    Kind = "remove"
	RemoveAll Kind = "removeall"
	Rename    Kind = "rename"
	Stat      Kind = "stat"
	SyncDir   Kind = "syncdir"
	Lock      Kind = "lock"
	Usage     Kind = "usage"
	Read      Kind = "read"
	Write     Kind = "write"
	Truncate  Kind = "truncate"
	Sync      Kind = "sync"
	Allocate  Kind = "allocate"
	Close     Kind = "close"
)

// Changes reports whether the operation may change what is on disk.
func (k Kind) Changes() bool {
	switch k {
	case MkdirAll, Remove, RemoveAll, Rename, SyncDir, Write, Truncate, Sync, Allocate:
		return true
	default:
		return false
	}
}

// Op is one operation.
type Op struct {
	Kind     Kind
	Name     string
	NewName  string       // Of Rename.
	Flag     vfs.OpenFlag // Of Open.
	Position int64        // Of Read, Write and Allocate.
	Length   int64        // Of these; the size of Truncate.
}

// String returns the operation as a line of a transcript.
func (o Op) String() string {
	switch o.Kind {
	case Open:
		return fmt.Sprintf("open %s%s", o.Name, flags(o.Flag))
	case Rename:
		return fmt.Sprintf("rename %s %s", o.Name, o.NewName)
	case Read, Write, Allocate:
		return fmt.Sprintf("%s %s %d+%d", o.Kind, o.Name, o.Position, o.Length)
	case Truncate:
		return fmt.Sprintf("truncate %s %d", o.Name, o.Length)
	case Usage:
		return "usage"
	default:
		return fmt.Sprintf("%s %s", o.Kind, o.Name)
	}
}

func flags(flag vfs.OpenFlag) string {
	var b strings.Builder
	for _, f := range []struct {
		bit  vfs.OpenFlag
		name string
	}{
		{vfs.ReadWrite, "rw"},
		{vfs.Create, "create"},
		{vfs.Exclusive, "exclusive"},
		{vfs.Truncate, "truncate"},
		{vfs.Direct, "direct"},
	} {
		if flag&f.bit != 0 {
			b.WriteByte(' ')
			b.WriteString(f.name)
		}
	}
	return b.String()
}

// Injector decides on an operation before it happens: nil lets it pass.
type Injector func(Op) error

// TornWrite is what an Injector returns to let the first N bytes of a write
// through before it fails.
type TornWrite struct {
	N   int
	Err error
}

// Error implements error.
func (e *TornWrite) Error() string { return fmt.Sprintf("torn after %d bytes: %v", e.N, e.Err) }

// Unwrap returns the reason.
func (e *TornWrite) Unwrap() error { return e.Err }

// Nth returns an injector that fails the n-th operation, counted from 1, that
// matches; a nil match means all.
func Nth(n int64, err error, match func(Op) bool) Injector {
	var seen atomic.Int64
	return func(o Op) error {
		if (match == nil || match(o)) && seen.Add(1) == n {
			return err
		}
		return nil
	}
}

// From returns an injector that fails the n-th matching operation and all
// matching ones after it: a disk that died.
func From(n int64, err error, match func(Op) bool) Injector {
	var seen atomic.Int64
	return func(o Op) error {
		if (match == nil || match(o)) && seen.Add(1) >= n {
			return err
		}
		return nil
	}
}

// Matching returns an injector that fails every operation of a kind on names
// that fit the pattern of path.Match, or on all if the pattern is empty.
func Matching(kind Kind, pattern string, err error) Injector {
	return func(o Op) error {
		if o.Kind != kind {
			return nil
		}
		if pattern != "" {
			if ok, _ := path.Match(pattern, o.Name); !ok {
				return nil
			}
		}
		return err
	}
}

// FS is a vfs.FS that asks an injector.
type FS struct {
	inner vfs.FS

	mu         sync.Mutex // Guards what follows.
	injector   Injector
	transcript []string
	recording  bool
}

// Wrap returns fsys with an injector, which may be nil.
func Wrap(fsys vfs.FS, injector Injector) *FS { return &FS{inner: fsys, injector: injector} }

// SetInjector replaces the injector; nil lets everything pass.
func (f *FS) SetInjector(injector Injector) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.injector = injector
}

// Record begins a new transcript.
func (f *FS) Record() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.transcript, f.recording = nil, true
}

// Transcript returns the operations since Record, those that failed included
// and marked.
func (f *FS) Transcript() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.transcript...)
}

func (f *FS) ask(o Op) error {
	f.mu.Lock()
	injector := f.injector
	f.mu.Unlock()
	var err error
	if injector != nil {
		err = injector(o) // Without the lock: it may block.
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.recording {
		line := o.String()
		if err != nil {
			line += " -> " + err.Error()
		}
		f.transcript = append(f.transcript, line)
	}
	if err != nil {
		return &fs.PathError{Op: string(o.Kind), Path: o.Name, Err: err}
	}
	return nil
}

// Open implements vfs.FS.
func (f *FS) Open(name string, flag vfs.OpenFlag) (vfs.File, error) {
	if err := f.ask(Op{Kind: Open, Name: name, Flag: flag}); err != nil {
		return nil, err
	}
	inner, err := f.inner.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &file{File: inner, fs: f, name: name}, nil
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(name string) error {
	if err := f.ask(Op{Kind: MkdirAll, Name: name}); err != nil {
		return err
	}
	return f.inner.MkdirAll(name)
}

// ReadDir implements vfs.FS.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.ask(Op{Kind: ReadDir, Name: name}); err != nil {
		return nil, err
	}
	return f.inner.ReadDir(name)
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	if err := f.ask(Op{Kind: Remove, Name: name}); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// RemoveAll implements vfs.FS.
func (f *FS) RemoveAll(name string) error {
	if err := f.ask(Op{Kind: RemoveAll, Name: name}); err != nil {
		return err
	}
	return f.inner.RemoveAll(name)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	if err := f.ask(Op{Kind: Rename, Name: oldName, NewName: newName}); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	if err := f.ask(Op{Kind: Stat, Name: name}); err != nil {
		return nil, err
	}
	return f.inner.Stat(name)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(name string) error {
	if err := f.ask(Op{Kind: SyncDir, Name: name}); err != nil {
		return err
	}
	return f.inner.SyncDir(name)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.ask(Op{Kind: Lock, Name: name}); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

// Usage implements vfs.FS.
func (f *FS) Usage() (free, total uint64, err error) {
	if err := f.ask(Op{Kind: Usage}); err != nil {
		return 0, 0, err
	}
	return f.inner.Usage()
}

// file is a vfs.File that asks. Size, StartWriteback and Fd are the wrapped
// file's; sendfile from the descriptor goes past the injector.
type file struct {
	vfs.File
	fs   *FS
	name string
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, position int64) (int, error) {
	if err := f.fs.ask(Op{Kind: Read, Name: f.name, Position: position, Length: int64(len(p))}); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, position)
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, position int64) (int, error) {
	err := f.fs.ask(Op{Kind: Write, Name: f.name, Position: position, Length: int64(len(p))})
	if err == nil {
		return f.File.WriteAt(p, position)
	}
	var torn *TornWrite
	if !errors.As(err, &torn) {
		return 0, err
	}
	n, writeErr := f.File.WriteAt(p[:min(torn.N, len(p))], position)
	if writeErr != nil {
		return n, writeErr
	}
	return n, err
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if err := f.fs.ask(Op{Kind: Truncate, Name: f.name, Length: size}); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.fs.ask(Op{Kind: Sync, Name: f.name}); err != nil {
		return err
	}
	return f.File.Sync()
}

// Allocate implements vfs.File.
func (f *file) Allocate(position, length int64) error {
	if err := f.fs.ask(Op{Kind: Allocate, Name: f.name, Position: position, Length: length}); err != nil {
		return err
	}
	return f.File.Allocate(position, length)
}

// Close implements vfs.File. A file whose Close failed is closed all the same.
func (f *file) Close() error {
	err := f.fs.ask(Op{Kind: Close, Name: f.name})
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}
