package osfs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A lock ends with its holder, though a process that is being started still has a copy of the
// descriptor.
func TestALockEndsWithItsHolder(t *testing.T) {
	f, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lock, err := f.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(int(lock.(lockFile).Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(copied) }()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := f.Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
