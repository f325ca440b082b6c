package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Compaction replaces a run of sealed segments by one that has fewer records at
// the same offsets. The files change hands by Kafka's names:
//
//  1. .log.cleaned and its indexes are written and synced. A crash: they are
//     removed, nothing has happened.
//  2. They are renamed to .swap, the .log last. That is the moment from which on
//     the new segment counts: a crash from here on is finished at the next start.
//  3. The old segments' files are removed, and that is synced: the next start
//     must not find old files beside the new one and nothing that says so.
//  4. The .swap files get their final names.
//
// Only segments that the checkpoint on disk has left behind are replaced, so
// that the position it remembers is never in one of them, and a start never
// takes the gaps between their batches for a torn tail.

// swap renames and removes; see above.
func (r *Rewrite) swap(old []*segment) error {
	l, base := r.log, r.from
	if err := renameAll(l.env.fs, l.dir, base, cleanedSuffix, swapSuffix); err != nil {
		return err
	}
	if err := l.env.fs.SyncDir(l.dir); err != nil {
		return err
	}
	r.segment.stage = swapSuffix
	bases := make([]kafka.Offset, len(old))
	for i, s := range old {
		bases[i] = s.baseOffset
	}
	err := finishSwap(l.env.fs, l.dir, base, bases)
	r.segment.stage = ""
	return err
}

// show puts the new segment into the readers' view.
func (r *Rewrite) show(old []*segment) {
	l := r.log
	segments := *l.segments.Load()
	first := slices.Index(segments, old[0])
	shown := slices.Replace(slices.Clone(segments), first, first+len(old), r.segment)
	l.segments.Store(&shown)
	l.retire(old)
}

// renameAll renames a segment's files from one stage to another, the .log last.
func renameAll(fsys vfs.FS, dir string, base kafka.Offset, from, to string) error {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix, logSuffix} {
		name := fileName(dir, base, suffix)
		if err := fsys.Rename(name+from, name+to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rename %s: %w", name+from, err)
		}
	}
	return nil
}

// finishSwap removes the old segments and gives the .swap files their final
// names. It may be called again after a crash in the middle.
func finishSwap(fsys vfs.FS, dir string, base kafka.Offset, old []kafka.Offset) error {
	for _, o := range old {
		for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix, logSuffix} {
			if err := removeFile(fsys, fileName(dir, o, suffix)); err != nil {
				return err
			}
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := renameAll(fsys, dir, base, swapSuffix, ""); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// finishSwaps completes or undoes the replacement of segments that a crash
// interrupted. It reports whether it changed anything.
func (l *Log) finishSwaps(entries []fs.DirEntry) (bool, error) {
	var swaps, bases []kafka.Offset
	changed := false
	for _, e := range entries {
		base, suffix, ok := parseFileName(e.Name())
		switch {
		case strings.HasSuffix(e.Name(), cleanedSuffix):
			if err := removeFile(l.env.fs, l.dir+"/"+e.Name()); err != nil {
				return false, err
			}
			changed = true
		case ok && suffix == logSuffix+swapSuffix:
			swaps = append(swaps, base)
		case ok && suffix == logSuffix:
			bases = append(bases, base)
		}
	}
	for _, base := range swaps {
		changed = true
		end, err := l.swapEnd(base)
		if err != nil {
			return changed, err
		}
		old := slices.DeleteFunc(slices.Clone(bases), func(b kafka.Offset) bool {
			return b != base && (b < base || b >= end)
		})
		if err := finishSwap(l.env.fs, l.dir, base, old); err != nil {
			return changed, err
		}
	}
	for _, e := range entries {
		// An index whose .log was never renamed; nothing has happened then.
		if base, suffix, ok := parseFileName(e.Name()); ok && strings.HasSuffix(suffix, swapSuffix) &&
			suffix != logSuffix+swapSuffix && !slices.Contains(swaps, base) {
			changed = true
			if err := removeFile(l.env.fs, l.dir+"/"+e.Name()); err != nil {
				return changed, err
			}
		}
	}
	return changed, nil
}

// swapEnd returns where the batches of a .swap file end. An old segment that
// begins there or above may stay: it holds newer records, all of which the
// compaction dropped, and the next one will again.
func (l *Log) swapEnd(base kafka.Offset) (kafka.Offset, error) {
	name := fileName(l.dir, base, logSuffix) + swapSuffix
	f, err := l.env.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, errors.Join(err, f.Close())
	}
	w := newHeaderWalk(f, 0, size)
	defer w.close()
	end := base
	for {
		h, err := w.next()
		if errors.Is(err, io.EOF) {
			return end, f.Close()
		}
		if err != nil {
			return 0, errors.Join(&CorruptionError{name, w.position, err.Error()}, f.Close())
		}
		end = h.lastOffset + 1
	}
}
