package memfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"

	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, f vfs.FS, name string, flag vfs.OpenFlag) vfs.File {
	t.Helper()
	file, err := f.Open(name, flag)
	must(t, err)
	return file
}

func write(t *testing.T, file vfs.File, content string, position int64) {
	t.Helper()
	_, err := file.WriteAt([]byte(content), position)
	must(t, err)
}

// read returns a file's content, or "missing".
func read(t *testing.T, f vfs.FS, name string) string {
	t.Helper()
	file, err := f.Open(name, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return "missing"
	}
	must(t, err)
	size, err := file.Size()
	must(t, err)
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(b)
}

func TestCrashKeepsWhatWasSyncedAlone(t *testing.T) {
	f := memfs.New()
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create)
	write(t, file, "safe", 0)
	must(t, file.Sync())
	if got := read(t, f.CrashClone(1, 0), "a"); got != "missing" {
		t.Errorf("without SyncDir: %q", got)
	}
	must(t, f.SyncDir("."))
	write(t, file, "lost", 0)
	write(t, file, "more", 4)
	if got := read(t, f.CrashClone(1, 0), "a"); got != "safe" {
		t.Errorf("after a crash: %q, want what was synced", got)
	}
	if got := read(t, f.CrashClone(1, 100), "a"); got != "lostmore" {
		t.Errorf("after a kill: %q, want what was written", got)
	}
	must(t, file.Truncate(0))
	if got := read(t, f.CrashClone(1, 0), "a"); got != "safe" {
		t.Errorf("after an unsynced truncation: %q", got)
	}
	must(t, file.Sync())
	if got := read(t, f.CrashClone(1, 0), "a"); got != "" {
		t.Errorf("after a synced truncation: %q", got)
	}
}

func TestCrashTearsUnsyncedBlocks(t *testing.T) {
	f := memfs.New()
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create)
	must(t, f.SyncDir("."))
	const blocks = 8
	write(t, file, string(bytes.Repeat([]byte{'x'}, blocks*memfs.BlockSize)), 0)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		got := read(t, f.CrashClone(seed, 50), "a")
		if again := read(t, f.CrashClone(seed, 50), "a"); again != got {
			t.Fatalf("seed %d gave two results", seed)
		}
		for i := 0; i < len(got); i += memfs.BlockSize {
			b := got[i:min(len(got), i+memfs.BlockSize)]
			if b[0] != b[len(b)-1] || b[0] != 'x' && b[0] != 0 {
				t.Fatalf("seed %d: block %d is torn", seed, i/memfs.BlockSize)
			}
		}
		seen[got] = true
	}
	if len(seen) < 50 {
		t.Errorf("200 crashes had %d results", len(seen))
	}
}

func TestCrashKeepsAPrefixOfADirectorysChanges(t *testing.T) {
	f := memfs.New()
	for _, name := range []string{"tmp", "final"} {
		file := open(t, f, name, vfs.ReadWrite|vfs.Create)
		write(t, file, name, 0)
		must(t, file.Sync())
	}
	must(t, f.SyncDir("."))
	must(t, f.Rename("tmp", "final"), f.Remove("final"))
	for seed := range uint64(100) {
		c := f.CrashClone(seed, 50)
		state := read(t, c, "tmp") + " " + read(t, c, "final")
		if state != "tmp final" && state != "missing tmp" && state != "missing missing" {
			t.Fatalf("seed %d: %s", seed, state)
		}
	}
	must(t, f.SyncDir("."))
	if got := read(t, f.CrashClone(1, 0), "final"); got != "missing" {
		t.Errorf("a removed file came back as %q", got)
	}
}

func TestClonesShareNothing(t *testing.T) {
	f := memfs.New()
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create)
	write(t, file, "one", 0)
	must(t, file.Sync(), f.SyncDir("."))
	if _, err := f.Lock("lock"); err != nil {
		t.Fatal(err)
	}
	c := f.CrashClone(1, 100)
	lock, err := c.Lock("lock")
	must(t, err, lock.Close())
	write(t, open(t, c, "a", vfs.ReadWrite), "two", 0)
	if got := read(t, f, "a"); got != "one" {
		t.Errorf("a write to the clone changed the original to %q", got)
	}
	write(t, file, "six", 0)
	if got := read(t, c, "a"); got != "two" {
		t.Errorf("a write to the original changed the clone to %q", got)
	}
}

func TestFullDisk(t *testing.T) {
	f := memfs.New()
	f.SetCapacity(4 * memfs.BlockSize)
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create)
	n, err := file.WriteAt(make([]byte, 5*memfs.BlockSize), 0)
	if n != 4*memfs.BlockSize || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	must(t, file.Sync())
	write(t, file, "still writable", 0)
	free, total, err := f.Usage()
	if err != nil || free != 0 || total != 4*memfs.BlockSize {
		t.Errorf("free %d, total %d, %v", free, total, err)
	}
	must(t, file.Truncate(memfs.BlockSize))
	other := open(t, f, "b", vfs.ReadWrite|vfs.Create)
	must(t, other.Allocate(0, 3*memfs.BlockSize))
	if err := file.Allocate(0, 2*memfs.BlockSize); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("allocate on a full disk: %v", err)
	}
	write(t, other, "in its own space", 2*memfs.BlockSize)
	must(t, f.Remove("b"))
	if free, _, _ := f.Usage(); free != 0 {
		t.Errorf("%d bytes free while the removed file is open", free)
	}
	must(t, other.Close())
	if free, _, _ := f.Usage(); free != 3*memfs.BlockSize {
		t.Errorf("%d bytes free after the last close, want 3 blocks", free)
	}
}

func TestDirectRefusesUnalignedAccess(t *testing.T) {
	f := memfs.New()
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create|vfs.Direct)
	if _, err := file.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("unaligned write: %v", err)
	}
}

// Bytes behind the length that survived are unseen, and come back with a later
// length that survives without what was written in their place.
func TestCrashShowsStaleBytes(t *testing.T) {
	f := memfs.New()
	file := open(t, f, "a", vfs.ReadWrite|vfs.Create)
	write(t, file, "safe", 0)
	must(t, file.Sync(), f.SyncDir("."))
	write(t, file, "old", 4)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		second := f.CrashClone(seed, 50)
		if got := read(t, second, "a"); got != "safe" {
			continue // The length survived.
		}
		file := open(t, second, "a", vfs.ReadWrite)
		write(t, file, "\x00\x00", 5) // Behind a hole, which reads as zeros.
		if got := read(t, second, "a"); got != "safe\x00\x00\x00" {
			t.Fatalf("a process sees %q", got)
		}
		write(t, file, "new", 4)
		must(t, file.Close())
		seen[read(t, second.CrashClone(seed+1000, 50), "a")] = true
		file = open(t, second, "a", vfs.ReadWrite)
		must(t, file.Sync(), file.Close())
		if got := read(t, second.CrashClone(seed, 50), "a"); got != "safenew" {
			t.Errorf("after a sync: %q", got)
		}
	}
	for _, want := range []string{"safe", "safenew", "safeold"} {
		if !seen[want] {
			t.Errorf("never %q among %v", want, seen)
		}
	}
}

// What a kill left unsynced is lost if the power goes next.
func TestKillThenPowerLoss(t *testing.T) {
	f := memfs.New()
	must(t, f.MkdirAll("dir"), f.SyncDir("."))
	file := open(t, f, "dir/a", vfs.ReadWrite|vfs.Create)
	write(t, file, "safe", 0)
	must(t, file.Sync(), f.SyncDir("dir"))
	write(t, file, "more", 4)
	other := open(t, f, "dir/b", vfs.ReadWrite|vfs.Create)
	write(t, other, "unnamed", 0)
	must(t, other.Sync(), f.Remove("dir/a"))
	killed := f.CrashClone(1, 100)
	if a, b := read(t, killed, "dir/a"), read(t, killed, "dir/b"); a != "missing" || b != "unnamed" {
		t.Errorf("after a kill: %q, %q", a, b)
	}
	lost := killed.CrashClone(1, 0)
	if a, b := read(t, lost, "dir/a"), read(t, lost, "dir/b"); a != "safe" || b != "missing" {
		t.Errorf("after a kill and a loss of power: %q, %q", a, b)
	}
	must(t, killed.SyncDir("dir"))
	if a, b := read(t, killed.CrashClone(1, 0), "dir/a"), read(t, killed.CrashClone(1, 0), "dir/b"); a != "missing" || b != "unnamed" {
		t.Errorf("after a kill, a sync and a loss of power: %q, %q", a, b)
	}
}
