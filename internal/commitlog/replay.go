package commitlog

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// replay is one pass over the journal's entries.
type replay struct {
	dir *Dir
	// kept are the files for what frozen logs could not take.
	kept map[kafka.TopicIDPartition]*keptEntries
}

// keptEntries is a file with the appends that a log could not take.
type keptEntries struct {
	name     string
	position int64
	failed   bool
}

// run takes all entries into their logs.
func (r *replay) run() error {
	if err := r.dir.journal.Replay(r.take); err != nil {
		return fmt.Errorf("replay journal: %w", err)
	}
	for id, k := range r.kept {
		if err := r.dir.fs.SyncDir(LogDir(id)); err != nil {
			return err
		}
		if !k.failed {
			r.dir.options.Events.Alarm("records that a log could not take from the journal were put aside",
				fmt.Errorf("log %s: %d bytes are in %s", id, k.position, k.name))
		}
	}
	return nil
}

// take takes one entry into the log it belongs to.
//
// Appends at the log's end are appended again; those below it are in the
// segment already, or else what the segment has in their place is dropped. A
// truncation cuts only what this replay appended: a log's
// own files were truncated and synced before the truncation was answered, or
// the truncation was not answered and is done again by whoever wanted it.
func (r *replay) take(e journalEntry) error {
	l, ok := r.dir.Lookup(e.ID)
	switch {
	case !ok:
		return nil // The log was being deleted.
	case l.isUsable() && e.Truncate:
		return l.replayTruncate(e.Base)
	case l.isUsable():
		if err := l.replayAppend(e); err != nil || l.isUsable() {
			return err
		}
	}
	if e.Truncate {
		return nil
	}
	return r.keep(l, e)
}

func (l *Log) isUsable() bool { return l.corruption.Load() == nil && l.failure.Load() == nil }

// keep puts an append of a log that can't take it into a file that nothing reads
// but a person. It is no error if there is no space for it.
func (r *replay) keep(l *Log, e journalEntry) error {
	k := r.kept[l.id]
	if k == nil {
		if err := r.dir.fs.MkdirAll(l.dir); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
		l.w.hasDir = true
		name, err := l.cutName(e.Base, journalSuffix)
		if err != nil {
			return err
		}
		k = &keptEntries{name: name}
		r.kept[l.id] = k
	}
	if k.failed {
		return nil
	}
	err := appendTo(r.dir.fs, k.name, e.Data, k.position)
	k.position += int64(len(e.Data))
	if err != nil {
		k.failed = true
		r.dir.options.Events.Alarm("put aside what the journal has of "+l.id.String(), err)
	}
	return nil
}

func appendTo(fsys vfs.FS, name string, data []byte, position int64) error {
	f, err := fsys.Open(name, vfs.ReadWrite|vfs.Create)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, position)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replayAppend appends what the log lacks of an entry. If that is not to be had
// the log is frozen.
func (l *Log) replayAppend(e journalEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.dropStaleLocked(e); err != nil || l.corruption.Load() != nil {
		return err
	}
	i, at := l.lastBoundary()
	end := at.nextOffset
	if e.End <= end {
		return nil
	}
	bs, err := missingBatches(e, end)
	if err != nil {
		l.knownEnd = max(l.knownEnd, e.End)
		l.freeze(&CorruptionError{Path: journalDir, Reason: err.Error()}, i, at)
		return nil
	}
	if len(bs) == 0 {
		return nil
	}
	if l.w.active == nil {
		err := l.activateLocked()
		var corrupt *CorruptionError
		if errors.As(err, &corrupt) {
			l.knownEnd = max(l.knownEnd, e.End)
			l.freeze(corrupt, i, at)
			return nil
		}
		if err != nil {
			return err
		}
	}
	if l.replayedFrom == kafka.NoOffset {
		l.replayedFrom = end
	}
	cfg := l.options.Load().Config
	cfg.FlushMessages = 1<<63 - 1 // Recovery syncs at its end.
	return l.appendLocked(bs, &cfg, l.w.producers.nowMs)
}

// missingBatches returns the batches of an entry that a log with an end lacks.
// The first of them may lie behind a gap that compaction left.
func missingBatches(e journalEntry, end kafka.Offset) ([]record.Batch, error) {
	if e.Base > end {
		return nil, fmt.Errorf("the entry of [%d, %d) does not continue the log, which ends at %d", e.Base, e.End, end)
	}
	var bs []record.Batch
	for rest := e.Data; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err == nil {
			err = b.CheckCRC()
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("the entry of [%d, %d): %w", e.Base, e.End, err)
		case b.LastOffset() < end: // Is there.
		case b.BaseOffset() < end:
			return nil, fmt.Errorf("the batch of [%d, %d] in the journal reaches across the log's end at %d",
				b.BaseOffset(), b.LastOffset(), end)
		default:
			bs = append(bs, b)
		}
		rest = next
	}
	return bs, nil
}

func (l *Log) replayTruncate(to kafka.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replayedFrom == kafka.NoOffset || l.w.end.nextOffset <= to {
		return nil
	}
	l.w.rearranged = true
	return l.cutReplayedLocked(max(to, l.replayedFrom))
}

// cutReplayedLocked cuts the log during a replay. Damage that is met on the way to
// the cut freezes it.
func (l *Log) cutReplayedLocked(to kafka.Offset) error {
	i, at := l.lastBoundary()
	err := l.cutLocked(to)
	var corrupt *CorruptionError
	if errors.As(err, &corrupt) {
		l.knownEnd = max(l.knownEnd, at.nextOffset)
		l.freeze(corrupt, i, at)
		return nil
	}
	return err
}
