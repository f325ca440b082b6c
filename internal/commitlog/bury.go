package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Delete removes logs for good. When it returns they are gone, whatever crashes; their files
// are removed by Run, since that takes long where there are thousands, and whoever deletes
// topics has others waiting. That it fails with one log does not keep it from the others.
func (d *Dir) Delete(ids ...kafka.TopicIDPartition) error {
	var asides []string
	var errs []error
	for _, id := range ids {
		l := d.takeOut(id)
		if l == nil {
			continue
		}
		// Renamed first: a crash in the middle must not leave half a log.
		aside := l.dir + deletedSuffix
		err := d.makeWay(aside)
		if err == nil {
			err = d.fs.Rename(l.dir, aside)
		}
		switch {
		case err == nil:
			asides = append(asides, aside)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, fmt.Errorf("remove %s: %w", l.dir, err))
		}
	}
	if len(asides) == 0 {
		return errors.Join(errs...)
	}
	if err := d.fs.SyncDir(topicsDir); err != nil { // Once for all.
		return errors.Join(append(errs, fmt.Errorf("remove %d logs: %w", len(asides), err))...)
	}
	d.unburied.add(asides)
	return errors.Join(errs...)
}

// buryAll removes the files of deleted logs until ctx ends. What is left then, the next start
// removes.
func (d *Dir) buryAll(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.unburied.grown:
		}
		for ctx.Err() == nil && d.buryNext() {
		}
	}
}

// buryNext removes the files of one deleted log; false if there is none.
func (d *Dir) buryNext() bool {
	aside, ok := d.unburied.one()
	if !ok {
		return false
	}
	if err := d.buryIfAny(aside); err != nil {
		d.options.Events.Problem("remove deleted log", err)
	}
	return true
}

// makeWay removes what is left of a log with the same id that was deleted before: its files may
// be there still, and the directory is until a checkpoint is written.
func (d *Dir) makeWay(aside string) error {
	err := d.buryIfAny(aside)
	return errors.Join(err, d.tombstones.clear(d.fs, aside))
}

// buryIfAny removes the files in the directory of a deleted log, if there are any.
func (d *Dir) buryIfAny(aside string) error {
	if !d.unburied.has(aside) {
		return nil
	}
	d.burying.Lock()
	defer d.burying.Unlock()
	if !d.unburied.has(aside) {
		return nil // Meanwhile they have gone.
	}
	defer d.unburied.remove(aside)
	return d.bury(aside)
}

// bury removes what is in the directory of a deleted log. The directory itself
// stays until a checkpoint no longer has the log: a start that finds neither
// would report that its data is lost.
func (d *Dir) bury(aside string) error {
	entries, err := d.fs.ReadDir(aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // Removed as another's of the same id.
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := d.fs.RemoveAll(aside + "/" + e.Name()); err != nil {
			return err
		}
	}
	d.tombstones.add(aside)
	d.env.changed.Store(true)
	return nil
}

// unburied are the directories of deleted logs that still have files. It is safe for
// concurrent use.
type unburied struct {
	grown chan struct{} // Has room for one.

	mu  sync.Mutex
	all map[string]struct{}
}

func newUnburied() unburied {
	return unburied{grown: make(chan struct{}, 1), all: map[string]struct{}{}}
}

func (u *unburied) add(asides []string) {
	u.mu.Lock()
	for _, aside := range asides {
		u.all[aside] = struct{}{}
	}
	u.mu.Unlock()
	select {
	case u.grown <- struct{}{}:
	default:
	}
}

func (u *unburied) remove(aside string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, aside)
}

func (u *unburied) has(aside string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.all[aside]
	return ok
}

// one returns any of them.
func (u *unburied) one() (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for aside := range u.all {
		return aside, true
	}
	return "", false
}

// tombstones are the empty directories of deleted logs, which go with the next checkpoint. It is
// safe for concurrent use.
type tombstones struct {
	mu   sync.Mutex
	all  map[string]int // Tells those of one name apart: see remove.
	last int
}

func newTombstones() tombstones { return tombstones{all: map[string]int{}} }

func (t *tombstones) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.all[name] = t.last
}

func (t *tombstones) list() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.all)
}

// remove removes one that was listed, unless another log of its id was deleted since: a checkpoint
// that was being written then has that one, whose directory has to wait for the next.
func (t *tombstones) remove(fsys vfs.FS, name string, which int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[name] != which {
		return nil
	}
	delete(t.all, name)
	return fsys.RemoveAll(name)
}

// clear removes whatever has a name that is needed.
func (t *tombstones) clear(fsys vfs.FS, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, name)
	return fsys.RemoveAll(name)
}
