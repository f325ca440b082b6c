package commitlog

import (
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// replay takes one journal entry into the log it belongs to.
//
// Appends at the log's end are appended again; those below it are in the
// segment already. A truncation cuts only what this replay appended: a log's
// own files were truncated and synced before the truncation was answered, or
// the truncation was not answered and is done again by whoever wanted it.
func (d *Dir) replay(e journalEntry) error {
	l, ok := d.Lookup(e.ID)
	switch {
	case e.Truncate:
		if ok {
			return l.replayTruncate(e.Base)
		}
		return nil
	case !ok && e.Base > 0:
		return nil // The log was deleted; its directory is gone.
	case !ok:
		var err error
		if l, err = d.Log(e.ID, Options{Config: DefaultConfig()}); err != nil {
			return err
		}
	}
	return l.replayAppend(e)
}

func (l *Log) replayAppend(e journalEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.LogEndOffset()
	if l.w.active != nil {
		end = l.w.end.nextOffset
	}
	if e.End <= end || l.corruption.Load() != nil {
		return nil
	}
	if e.Base != end {
		l.env.events.Problem("journal entry does not continue its log",
			fmt.Errorf("log %s ends at %d, the entry has [%d, %d)", l.id, end, e.Base, e.End))
		return nil
	}
	var bs []record.Batch
	for rest := e.Data; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return fmt.Errorf("journal entry of log %s at %d: %w", l.id, e.Base, err)
		}
		bs, rest = append(bs, b), next
	}
	if len(bs) == 0 {
		return nil
	}
	if l.w.active == nil {
		if err := l.activateLocked(); err != nil {
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

func (l *Log) replayTruncate(to kafka.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replayedFrom == kafka.NoOffset || l.w.end.nextOffset <= to {
		return nil
	}
	return l.cutLocked(max(to, l.replayedFrom))
}
