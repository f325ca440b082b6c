package commitlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// A frozen log lacks a part of its end that was durable. A follower need not throw all of
// it away for that: it cuts the end off and fetches it again. That gives offsets back that
// were acknowledged, so nobody may count on the replica while it is done.
//
// The steps are those of TruncateTo, and a crash after each leaves a frozen log that ends
// at the same place, or a shorter one that is not frozen.

// DamagedFrom returns where a frozen log is whole up to: CutDamage has it end there. It
// reports false if nothing is left before that, or the log is not frozen.
func (l *Log) DamagedFrom() (kafka.Offset, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, at, ok, err := l.damagedFromLocked()
	return at.nextOffset, ok, err
}

// damagedFromLocked returns where a frozen log is whole up to, and in which segment.
func (l *Log) damagedFromLocked() (i int, at boundary, ok bool, err error) {
	corrupt, segments, ring := l.corruption.Load(), *l.segments.Load(), l.ring.Load()
	i = len(segments) - 1
	if corrupt == nil || i < 0 || ring == nil || ring.segment != segments[i] {
		return i, at, false, nil
	}
	at = ring.end()
	if s := segments[i]; corrupt.Path == s.path(logSuffix) && corrupt.Position < at.position {
		// The last batch is not what was synced: it goes as well.
		if at, err = l.boundaryAt(s, corrupt.Position); err != nil {
			return i, at, false, err
		}
	}
	if at.nextOffset > l.LogEndOffset() {
		// A batch there has another base offset than it had, which its checksum does not cover:
		// what seems to be whole ends beyond what there was.
		at = boundary{0, segments[i].baseOffset}
	}
	return i, at, at.nextOffset > l.LogStartOffset(), nil
}

// boundaryAt returns the boundary at a position, or the segment's beginning if the headers
// do not lead there.
func (l *Log) boundaryAt(s *segment, position int64) (boundary, error) {
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return boundary{}, err
	}
	w := newHeaderWalk(f, 0, position)
	defer w.close()
	at := boundary{0, s.baseOffset}
	for at.position < position {
		h, err := w.next()
		if errors.Is(err, errBadHeader) || err == nil && s.breaks(at.nextOffset, h.baseOffset) {
			return boundary{0, s.baseOffset}, nil
		}
		if err != nil {
			return boundary{}, err
		}
		at = h.end()
	}
	return at, nil
}

// CutDamage has a frozen log end where it is whole up to, and take appends again. No
// append and no truncation may run meanwhile.
func (l *Log) CutDamage() error {
	l.mu.Lock()
	i, at, ok, err := l.damagedFromLocked()
	l.mu.Unlock()
	if err == nil && !ok {
		err = errors.New("nothing before the damage is whole")
	}
	if err == nil {
		err = l.cutDamage(i, at)
	}
	if err != nil {
		return fmt.Errorf("cut the damaged end of %s off: %w", l.id, err)
	}
	return nil
}

func (l *Log) cutDamage(i int, at boundary) error {
	if err := l.env.commit.Truncate(l, at.nextOffset); err != nil {
		return err
	}
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.lowerCheckpoint(at.nextOffset); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.truncations++
	if err := l.thawLocked(i, at); err != nil {
		l.env.failLater(l, err)
		return err
	}
	return nil
}

func (l *Log) thawLocked(i int, at boundary) error {
	l.cuts.Add(1)
	defer l.cuts.Add(1)
	segments := *l.segments.Load()
	if err := l.putAsideLocked(segments[i], at); err != nil {
		return err
	}
	l.knownEnd = 0
	segments[i].size.Store(at.position) // What lies behind is not to be looked at.
	if err := l.cutLastLocked(slices.Clone(segments[:i+1]), at); err != nil {
		return err
	}
	if err := l.w.file.Sync(); err != nil {
		return err
	}
	if err := l.env.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.corruption.Store(nil)
	l.damaged.Store(nil)
	l.env.reports.forget(func(c Corruption) bool { return c.ID == l.id })
	l.env.changed.Store(true)
	return nil
}

// putAsideLocked puts aside what lies behind a boundary in a segment, and the segments behind
// it, the newest first, which readers of a frozen log don't see: nobody knows yet whether
// another replica has all of that. Producer snapshots above the boundary go.
func (l *Log) putAsideLocked(s *segment, at boundary) error {
	files, err := l.listFiles()
	if err != nil {
		return err
	}
	for _, offset := range files.snapshots {
		if offset > at.nextOffset {
			if err := removeFile(l.env.fs, fileName(l.dir, offset, snapshotSuffix)); err != nil {
				return err
			}
		}
	}
	var report RecoveredLog
	for n := len(files.segments) - 1; n >= 0 && files.segments[n].base > s.baseOffset; n-- {
		later := newSegment(l, files.segments[n].base)
		later.size.Store(files.segments[n].size)
		if err := l.dropSegment(later, &report); err != nil {
			return err
		}
		if err := l.env.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	return l.keepTail(s, at)
}

// keepTail copies a segment from a boundary on to another file. It is no error if there is
// no space for it.
func (l *Log) keepTail(s *segment, at boundary) error {
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil || size <= at.position {
		return err
	}
	name, err := l.cutName(at.nextOffset, logSuffix+cutSuffix)
	if err != nil {
		return err
	}
	if err := copyRange(l.env.fs, f, at.position, size, name); err != nil {
		l.env.events.Alarm("put aside the damaged end of a log", err)
		return removeFile(l.env.fs, name)
	}
	return l.env.fs.SyncDir(l.dir)
}
