package errorfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func TestInjectedErrorsAndTranscript(t *testing.T) {
	f := errorfs.Wrap(memfs.New(), nil)
	f.Record()
	file, err := f.Open("a", vfs.ReadWrite|vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	f.SetInjector(errorfs.Nth(2, &errorfs.TornWrite{N: 3, Err: syscall.EIO}, func(o errorfs.Op) bool {
		return o.Kind == errorfs.Write
	}))
	if _, err := file.WriteAt([]byte("hello"), 0); err != nil {
		t.Fatal(err)
	}
	if n, err := file.WriteAt([]byte("HELLO"), 0); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Errorf("torn write: %d, %v", n, err)
	}
	f.SetInjector(errorfs.Matching(errorfs.Sync, "a", syscall.EIO))
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	f.SetInjector(errorfs.From(1, syscall.EROFS, func(o errorfs.Op) bool { return o.Kind.Changes() }))
	if err := f.Rename("a", "b"); !errors.Is(err, syscall.EROFS) {
		t.Errorf("rename: %v", err)
	}
	b := make([]byte, 5)
	if _, err := file.ReadAt(b, 0); err != nil || string(b) != "HELlo" {
		t.Errorf("read %q, %v", b, err)
	}
	want := []string{
		"open a rw create",
		"write a 0+5",
		"write a 0+5 -> torn after 3 bytes: input/output error",
		"sync a -> input/output error",
		"rename a b -> read-only file system",
		"read a 0+5",
	}
	if diff := cmp.Diff(want, f.Transcript()); diff != "" {
		t.Error(diff)
	}
}
