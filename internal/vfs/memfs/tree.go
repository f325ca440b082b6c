package memfs

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"strings"
	"time"
)

// node is a *dir or a *file.
type node interface {
	info(base string) fs.FileInfo
	// unlinked tells the node that its directory entry is gone.
	unlinked()
}

// change is one atomic change of a directory.
type change struct {
	set    map[string]node
	remove []string
}

// dir is a directory. Its fields are guarded by FS.mu.
type dir struct {
	entries map[string]node
	// synced is what a crash leaves for certain, and pending the changes
	// since. Invariant: synced with pending applied in order equals entries.
	synced  map[string]node
	pending []change
}

func newDir() *dir { return &dir{entries: map[string]node{}, synced: map[string]node{}} }

// apply makes a change visible, to become durable at the next sync.
func (d *dir) apply(c change) {
	c.applyTo(d.entries)
	d.pending = append(d.pending, c)
}

func (c change) applyTo(entries map[string]node) {
	for _, base := range c.remove {
		delete(entries, base)
	}
	maps.Copy(entries, c.set)
}

func (d *dir) sync() {
	for _, c := range d.pending {
		c.applyTo(d.synced)
	}
	d.pending = nil
}

func (d *dir) unlinked() {
	for _, n := range d.entries {
		n.unlinked()
	}
}

func (d *dir) info(base string) fs.FileInfo {
	return info{name: base, mode: fs.ModeDir | 0o755}
}

// parent finds the directory that holds name, and the last element of name.
// For the root it returns the root and ".".
func (f *FS) parent(op, name string) (*dir, string, error) {
	parts, err := split(op, name)
	if err != nil {
		return nil, "", err
	}
	if len(parts) == 0 {
		return f.root, ".", nil
	}
	d := f.root
	for _, part := range parts[:len(parts)-1] {
		n, ok := d.entries[part]
		if !ok {
			return nil, "", pathError(op, name, fs.ErrNotExist)
		}
		if d, ok = n.(*dir); !ok {
			return nil, "", pathError(op, name, errNotDir)
		}
	}
	return d, parts[len(parts)-1], nil
}

// dir finds a directory.
func (f *FS) dir(op, name string) (*dir, error) {
	parent, base, err := f.parent(op, name)
	if err != nil {
		return nil, err
	}
	if base == "." {
		return f.root, nil
	}
	n, ok := parent.entries[base]
	if !ok {
		return nil, pathError(op, name, fs.ErrNotExist)
	}
	d, ok := n.(*dir)
	if !ok {
		return nil, pathError(op, name, errNotDir)
	}
	return d, nil
}

// split cuts a name into its elements; the root has none.
func split(op, name string) ([]string, error) {
	clean := path.Clean(name)
	if !fs.ValidPath(clean) {
		return nil, pathError(op, name, errEscapes)
	}
	if clean == "." {
		return nil, nil
	}
	return strings.Split(clean, "/"), nil
}

// info implements fs.FileInfo.
type info struct {
	name    string
	size    int64
	mode    fs.FileMode
	modTime time.Time
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.modTime }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
