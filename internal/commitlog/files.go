package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/strandline/strandline/internal/vfs"
)

// maxSmallFile bounds the files that are read as a whole: metadata, epochs,
// snapshots, checkpoints.
const maxSmallFile = 64 << 20

// readFile reads a small file.
func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, err
	}
	data, err := readAll(f, name)
	return data, errors.Join(err, f.Close())
}

func readAll(f vfs.File, name string) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", name, err)
	}
	if size > maxSmallFile {
		return nil, &CorruptionError{Path: name, Reason: fmt.Sprintf("%d bytes are too many", size)}
	}
	data := make([]byte, size)
	if size == 0 {
		return data, nil
	}
	if n, err := f.ReadAt(data, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(data)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// replaceFile puts data under a name so that a crash leaves the old or the new
// file. With durable it is on disk when this returns.
func replaceFile(fsys vfs.FS, name string, data []byte, durable bool) error {
	temp := name + tempSuffix
	f, err := fsys.Open(temp, vfs.ReadWrite|vfs.Create|vfs.Truncate)
	if err != nil {
		return fmt.Errorf("create %s: %w", temp, err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = fsys.Remove(temp) // A leftover is removed at the next start as well.
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("rename %s: %w", temp, err)
	}
	if !durable {
		return nil
	}
	return fsys.SyncDir(path.Dir(name))
}

// makeDir makes a directory below the root, durably, and reports true, unless it
// is there.
func makeDir(fsys vfs.FS, name string) (bool, error) {
	if _, err := fsys.Stat(name); err == nil {
		return false, nil
	}
	if err := fsys.MkdirAll(name); err != nil {
		return false, fmt.Errorf("make %s: %w", name, err)
	}
	return true, fsys.SyncDir(".")
}

// removeFile removes a file, if it is there.
func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
