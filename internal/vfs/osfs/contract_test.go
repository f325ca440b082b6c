package osfs_test

import (
	"testing"

	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/osfs"
	"github.com/strandline/strandline/internal/vfs/vfstest"
)

func TestContract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) vfs.FS {
		f, err := osfs.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f
	})
}
