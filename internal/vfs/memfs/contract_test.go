package memfs_test

import (
	"testing"

	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/internal/vfs/vfstest"
)

func TestContract(t *testing.T) {
	vfstest.Run(t, func(*testing.T) vfs.FS { return memfs.New() })
}
