package quorum_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// frameTail reaches from the end of a frame into its payload.
const frameTail = 9

// rewriteFile replaces a file's bytes.
func rewriteFile(t *testing.T, disk vfs.FS, name string, data []byte) {
	t.Helper()
	file, err := disk.Open(name, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// A log that was cut after a stop in order has no torn tail: it is refused and left as
// it is. After a crash the same is a torn tail. A log that was damaged is refused after
// either.
func TestLogCutAfterAStop(t *testing.T) {
	disk := memfs.New()
	n := start(t, options(disk, &list{}))
	<-n.Ready()
	mustAdd(t, n, "a", "b", "c", "d", "e")
	crashed := disk.CrashClone(1, 100)
	n.stop(t)
	i := slices.IndexFunc(fileNames(t, disk), func(name string) bool { return strings.HasPrefix(name, "segment-") })
	name := "data/quorum/" + fileNames(t, disk)[i]
	whole := readAll(t, disk, name)
	for what, data := range map[string][]byte{
		"cut in half": whole[:len(whole)/2],
		"last bit": func() []byte {
			b := slices.Clone(whole)
			b[len(strings.TrimRight(string(b), "\x00"))-frameTail] ^= 1
			return b
		}(),
	} {
		clone := disk.CrashClone(1, 100)
		rewriteFile(t, clone, name, data)
		var corrupt *quorum.CorruptionError
		for range 2 { // The first start must not repair it.
			if _, err := quorum.Open(options(clone, &list{})); !errors.As(err, &corrupt) {
				t.Errorf("%s: %v", what, err)
			}
		}
		torn := crashed.CrashClone(1, 100)
		rewriteFile(t, torn, name, data)
		if what == "cut in half" {
			start(t, options(torn, &list{})).stop(t)
		} else if _, err := quorum.Open(options(torn, &list{})); !errors.As(err, &corrupt) {
			t.Errorf("%s after a crash: %v", what, err)
		}
	}
	if err := disk.Remove(name); err != nil {
		t.Fatal(err)
	}
	var corrupt *quorum.CorruptionError
	if _, err := quorum.Open(options(disk, &list{})); !errors.As(err, &corrupt) {
		t.Errorf("removed: %v", err)
	}
}

// Neither an old note nor a damaged one keeps a sound log from starting.
func TestNoteOfAStop(t *testing.T) {
	disk := memfs.New()
	n := start(t, options(disk, &list{}))
	<-n.Ready()
	mustAdd(t, n, "a")
	n.stop(t)
	note := readAll(t, disk, "data/quorum/stopped")
	n = start(t, options(disk, &list{}))
	<-n.Ready()
	mustAdd(t, n, "b")
	n.stop(t)
	if later := readAll(t, disk, "data/quorum/stopped"); slices.Equal(later, note) {
		t.Error("the second stop did not renew the note")
	}
	rewriteFile(t, disk, "data/quorum/stopped", note)
	start(t, options(disk, &list{})).stop(t)
	for i := range note {
		clone := disk.CrashClone(1, 100)
		damaged := slices.Clone(note)
		damaged[i] ^= 1
		rewriteFile(t, clone, "data/quorum/stopped", damaged)
		start(t, options(clone, &list{})).stop(t)
	}
}
