// Package vfstest is the contract of vfs.FS as tests: every implementation
// passes the same suite.
//
// What survives a crash is not part of it, since a real disk cannot be crashed
// here; package memfs tests that of itself, and test/ of the real one.
package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/strandline/strandline/internal/vfs"
)

// Run runs the suite; open returns an empty FS for each test.
func Run(t *testing.T, open func(t *testing.T) vfs.FS) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, vfs.FS)
	}{
		{"OpenFlags", testOpenFlags},
		{"ReadAndWrite", testReadAndWrite},
		{"ReadOnlyFilesRefuseWrites", testReadOnly},
		{"Truncate", testTruncate},
		{"AllocateChangesNothing", testAllocate},
		{"Direct", testDirect},
		{"ClosedFilesRefuse", testClosed},
		{"Directories", testDirectories},
		{"Rename", testRename},
		{"Remove", testRemove},
		{"RemovedFilesStayReadable", testRemovedOpenFile},
		{"Stat", testStat},
		{"NamesStayInside", testNames},
		{"Lock", testLock},
		{"Usage", testUsage},
		{"Concurrency", testConcurrency},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// must fails the test on an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantError fails the test unless err is target.
func wantError(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", what, err, target)
	}
}

// wantAnyError fails the test if there is no error.
func wantAnyError(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
	}
}

func openFile(t *testing.T, f vfs.FS, name string, flag vfs.OpenFlag) vfs.File {
	t.Helper()
	file, err := f.Open(name, flag)
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func writeFile(t *testing.T, f vfs.FS, name, content string) {
	t.Helper()
	file, err := f.Open(name, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	must(t, err)
	_, err = file.WriteAt([]byte(content), 0)
	must(t, err, file.Sync(), file.Close())
}

func readFile(t *testing.T, f vfs.FS, name string) string {
	t.Helper()
	file, err := f.Open(name, vfs.ReadOnly)
	must(t, err)
	defer file.Close()
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := file.ReadAt(b, 0); n != len(b) {
		t.Fatalf("read %s: %d bytes of %d: %v", name, n, len(b), err)
	}
	return string(b)
}

func testOpenFlags(t *testing.T, f vfs.FS) {
	_, err := f.Open("a", vfs.ReadOnly)
	wantError(t, "open a missing file", err, fs.ErrNotExist)
	_, err = f.Open("a", vfs.ReadWrite)
	wantError(t, "open a missing file for writing", err, fs.ErrNotExist)
	_, err = f.Open("no/a", vfs.ReadWrite|vfs.Create)
	wantError(t, "create without the directory", err, fs.ErrNotExist)
	writeFile(t, f, "a", "hello")
	_, err = f.Open("a", vfs.ReadWrite|vfs.Create|vfs.Exclusive)
	wantError(t, "exclusive open of an existing file", err, fs.ErrExist)
	_, err = f.Open("a/b", vfs.ReadWrite|vfs.Create)
	wantAnyError(t, "create below a file", err)
	openFile(t, f, "a", vfs.ReadWrite|vfs.Create)
	if got := readFile(t, f, "a"); got != "hello" {
		t.Errorf("after an open with Create: %q", got)
	}
	openFile(t, f, "a", vfs.ReadWrite|vfs.Truncate)
	if got := readFile(t, f, "a"); got != "" {
		t.Errorf("after an open with Truncate: %q", got)
	}
	openFile(t, f, "b", vfs.ReadWrite|vfs.Create|vfs.Exclusive)
	openFile(t, f, "c", vfs.ReadWrite|vfs.Create|vfs.Exclusive|vfs.Direct)
}

func testReadAndWrite(t *testing.T, f vfs.FS) {
	file := openFile(t, f, "a", vfs.ReadWrite|vfs.Create)
	n, err := file.WriteAt([]byte("world"), 10_000)
	must(t, err)
	if n != 5 {
		t.Errorf("wrote %d bytes, want 5", n)
	}
	size, err := file.Size()
	must(t, err)
	if size != 10_005 {
		t.Errorf("size %d, want 10005", size)
	}
	b := make([]byte, 8)
	n, err = file.ReadAt(b, 9_998)
	if n != 7 || err != io.EOF || string(b[:n]) != "\x00\x00world" {
		t.Errorf("read at the end: %d, %v, %q", n, err, b[:n])
	}
	n, err = file.ReadAt(b, 20_000)
	if n != 0 || err != io.EOF {
		t.Errorf("read behind the end: %d, %v", n, err)
	}
	n, err = file.ReadAt(b[:5], 10_000)
	if n != 5 || err != nil && err != io.EOF {
		t.Errorf("read up to the end: %d, %v", n, err)
	}
	n, err = file.ReadAt(nil, 0)
	if n != 0 || err != nil {
		t.Errorf("read nothing: %d, %v", n, err)
	}
	_, err = file.WriteAt([]byte("W"), 10_000)
	must(t, err)
	if got := readFile(t, f, "a")[10_000:]; got != "World" {
		t.Errorf("after writing over: %q", got)
	}
	_, err = file.ReadAt(b, -1)
	wantAnyError(t, "read at a negative position", err)
	_, err = file.WriteAt(b, -1)
	wantAnyError(t, "write at a negative position", err)
	file.StartWriteback(0, 10_005)
	must(t, file.Sync())
}

func testReadOnly(t *testing.T, f vfs.FS) {
	writeFile(t, f, "a", "hello")
	file := openFile(t, f, "a", vfs.ReadOnly)
	_, err := file.WriteAt([]byte("x"), 0)
	wantAnyError(t, "write", err)
	wantAnyError(t, "truncate", file.Truncate(0))
	if got := readFile(t, f, "a"); got != "hello" {
		t.Errorf("content %q", got)
	}
}

func testTruncate(t *testing.T, f vfs.FS) {
	writeFile(t, f, "a", "hello world")
	file := openFile(t, f, "a", vfs.ReadWrite)
	must(t, file.Truncate(5))
	if got := readFile(t, f, "a"); got != "hello" {
		t.Errorf("cut: %q", got)
	}
	must(t, file.Truncate(8))
	if got := readFile(t, f, "a"); got != "hello\x00\x00\x00" {
		t.Errorf("grown: %q", got)
	}
	must(t, file.Truncate(0), file.Truncate(100_000))
	b := make([]byte, 100_000)
	if n, err := file.ReadAt(b, 0); n != len(b) {
		t.Fatal(n, err)
	}
	if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		t.Error("bytes came back after truncating to zero")
	}
	wantAnyError(t, "truncate to a negative size", file.Truncate(-1))
}

func testAllocate(t *testing.T, f vfs.FS) {
	writeFile(t, f, "a", "hello")
	file := openFile(t, f, "a", vfs.ReadWrite)
	must(t, file.Allocate(0, 1<<20))
	if got := readFile(t, f, "a"); got != "hello" {
		t.Errorf("content has %d bytes, want 5", len(got))
	}
}

// aligned returns n bytes aligned for a Direct file.
func aligned(n int) []byte {
	b := make([]byte, n+vfs.DirectAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (vfs.DirectAlign - 1)
	return b[skip : skip+n]
}

func testDirect(t *testing.T, f vfs.FS) {
	file := openFile(t, f, "a", vfs.ReadWrite|vfs.Create|vfs.Direct)
	b := aligned(2 * vfs.DirectAlign)
	for i := range b {
		b[i] = byte(i % 251)
	}
	_, err := file.WriteAt(b, vfs.DirectAlign)
	must(t, err, file.Sync())
	got := aligned(4 * vfs.DirectAlign)
	n, err := file.ReadAt(got, 0)
	if n != 3*vfs.DirectAlign || err != io.EOF {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if !slices.Equal(got[vfs.DirectAlign:n], b) {
		t.Error("read other bytes than were written")
	}
	if s := readFile(t, f, "a"); s[vfs.DirectAlign:] != string(b) {
		t.Error("another handle reads other bytes")
	}
}

func testClosed(t *testing.T, f vfs.FS) {
	file := openFile(t, f, "a", vfs.ReadWrite|vfs.Create)
	must(t, file.Close())
	_, err := file.ReadAt(make([]byte, 1), 0)
	wantError(t, "read", err, fs.ErrClosed)
	_, err = file.WriteAt(make([]byte, 1), 0)
	wantError(t, "write", err, fs.ErrClosed)
	_, err = file.Size()
	wantAnyError(t, "size", err)
	wantError(t, "truncate", file.Truncate(0), fs.ErrClosed)
	wantError(t, "sync", file.Sync(), fs.ErrClosed)
	wantError(t, "allocate", file.Allocate(0, 1), fs.ErrClosed)
	wantError(t, "close", file.Close(), fs.ErrClosed)
	file.StartWriteback(0, 1)
}

func testDirectories(t *testing.T, f vfs.FS) {
	must(t, f.MkdirAll("a/b/c"), f.MkdirAll("a/b"), f.MkdirAll("."), f.SyncDir("a/b"), f.SyncDir("."))
	writeFile(t, f, "a/b/z", "1")
	writeFile(t, f, "a/b/d", "22")
	wantAnyError(t, "mkdir through a file", f.MkdirAll("a/b/d/e"))
	list, err := f.ReadDir("a/b")
	must(t, err)
	var names []string
	for _, d := range list {
		names = append(names, d.Name())
		if d.IsDir() != (d.Name() == "c") {
			t.Errorf("%s: IsDir %v", d.Name(), d.IsDir())
		}
	}
	if want := []string{"c", "d", "z"}; !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}
	list, err = f.ReadDir(".")
	must(t, err)
	if len(list) != 1 || list[0].Name() != "a" {
		t.Errorf("listed the root as %v", list)
	}
	_, err = f.ReadDir("a/x")
	wantError(t, "list a missing directory", err, fs.ErrNotExist)
	wantError(t, "sync a missing directory", f.SyncDir("a/x"), fs.ErrNotExist)
}

func testRename(t *testing.T, f vfs.FS) {
	must(t, f.MkdirAll("d"), f.MkdirAll("e/full"))
	writeFile(t, f, "a", "one")
	writeFile(t, f, "b", "two")
	must(t, f.Rename("a", "b"))
	if got := readFile(t, f, "b"); got != "one" {
		t.Errorf("replaced: %q", got)
	}
	must(t, f.Rename("b", "d/b"), f.SyncDir("d"), f.SyncDir("."))
	_, err := f.Stat("b")
	wantError(t, "stat the old name", err, fs.ErrNotExist)
	must(t, f.Rename("d", "g"))
	if got := readFile(t, f, "g/b"); got != "one" {
		t.Errorf("below a renamed directory: %q", got)
	}
	wantError(t, "rename a missing file", f.Rename("x", "y"), fs.ErrNotExist)
	wantAnyError(t, "rename a directory over a full one", f.Rename("g", "e"))
	must(t, f.MkdirAll("empty"))
	wantAnyError(t, "rename a directory over an empty one", f.Rename("g", "empty"))
	wantAnyError(t, "rename a file over a directory", f.Rename("g/b", "e"))
	must(t, f.Rename("g/b", "g/b"))
	if got := readFile(t, f, "g/b"); got != "one" {
		t.Errorf("renamed to itself: %q", got)
	}
}

func testRemove(t *testing.T, f vfs.FS) {
	must(t, f.MkdirAll("d/e"))
	writeFile(t, f, "d/e/a", "x")
	wantAnyError(t, "remove a directory that is not empty", f.Remove("d"))
	must(t, f.Remove("d/e/a"), f.Remove("d/e"))
	wantError(t, "remove a missing file", f.Remove("d/e"), fs.ErrNotExist)
	writeFile(t, f, "d/a", "x")
	must(t, f.RemoveAll("d"), f.RemoveAll("d"), f.RemoveAll("no/such"))
	_, err := f.Stat("d")
	wantError(t, "stat", err, fs.ErrNotExist)
}

func testRemovedOpenFile(t *testing.T, f vfs.FS) {
	writeFile(t, f, "a", "hello")
	file := openFile(t, f, "a", vfs.ReadWrite)
	must(t, f.Remove("a"))
	b := make([]byte, 5)
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF || string(b) != "hello" {
		t.Errorf("read %q, %v", b, err)
	}
	_, err := file.WriteAt([]byte("J"), 0)
	must(t, err, file.Sync())
	writeFile(t, f, "a", "other")
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF || string(b) != "Jello" {
		t.Errorf("read %q, %v", b, err)
	}
}

func testStat(t *testing.T, f vfs.FS) {
	must(t, f.MkdirAll("d"))
	writeFile(t, f, "d/a", "hello")
	info, err := f.Stat("d/a")
	must(t, err)
	if info.Name() != "a" || info.Size() != 5 || info.IsDir() {
		t.Errorf("file: %s, %d bytes, directory %v", info.Name(), info.Size(), info.IsDir())
	}
	info, err = f.Stat("d")
	must(t, err)
	if info.Name() != "d" || !info.IsDir() {
		t.Errorf("directory: %s, directory %v", info.Name(), info.IsDir())
	}
	info, err = f.Stat(".")
	must(t, err)
	if !info.IsDir() {
		t.Error("the root is no directory")
	}
	_, err = f.Stat("x")
	wantError(t, "stat a missing file", err, fs.ErrNotExist)
}

func testNames(t *testing.T, f vfs.FS) {
	for _, name := range []string{"../a", "d/../../a", "/a", ""} {
		_, err := f.Open(name, vfs.ReadWrite|vfs.Create)
		wantAnyError(t, "open "+name, err)
	}
	wantAnyError(t, "mkdir", f.MkdirAll("../x"))
	wantAnyError(t, "remove", f.RemoveAll("../x"))
	writeFile(t, f, "a", "x")
	wantAnyError(t, "rename", f.Rename("a", "../a"))
}

func testLock(t *testing.T, f vfs.FS) {
	lock, err := f.Lock("lock")
	must(t, err)
	_, err = f.Lock("lock")
	wantError(t, "lock twice", err, vfs.ErrLocked)
	must(t, lock.Close())
	lock, err = f.Lock("lock")
	must(t, err, lock.Close())
}

func testUsage(t *testing.T, f vfs.FS) {
	free, total, err := f.Usage()
	must(t, err)
	if total == 0 || free > total {
		t.Errorf("free %d, total %d", free, total)
	}
}

func testConcurrency(t *testing.T, f vfs.FS) {
	file := openFile(t, f, "a", vfs.ReadWrite|vfs.Create)
	var g sync.WaitGroup
	for i := range 4 {
		g.Go(func() {
			b := make([]byte, 1000)
			for k := range b {
				b[k] = byte(i + 1)
			}
			for n := range 50 {
				position := int64(n*4+i) * 1000
				if _, err := file.WriteAt(b, position); err != nil {
					t.Error(err)
				}
				got := make([]byte, 1000)
				if _, err := file.ReadAt(got, position); err != nil && err != io.EOF || !slices.Equal(got, b) {
					t.Errorf("read other bytes than were written: %v", err)
				}
				if err := file.Sync(); err != nil && n%10 == 0 {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
}
