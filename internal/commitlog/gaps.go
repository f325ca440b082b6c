package commitlog

import (
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Batches of a log continue one another, and where one does not, something is
// wrong. Two things leave gaps that are right: compaction, and copying a log that
// was compacted. Both say so in the checkpoint before they do it.

// openGaps takes over where there may be gaps in a log that is opened. Where is
// not known: they may be anywhere.
func (l *Log) openGaps(r recovery) {
	c := &l.w.synced
	if r.lost || c.cleanedTo > 0 {
		c.flags |= entryGaps
	}
	if c.flags&entryGaps != 0 {
		l.gapsTo.Store(int64(c.recoveryPoint))
	}
}

// mayHaveGaps tells whether the checkpoint says that there may be gaps.
func (l *Log) mayHaveGaps() bool { return l.w.synced.flags&entryGaps != 0 }

// allowGaps makes gaps right, durably, before batches that begin at or below an
// offset. The first time both checkpoint files have to say so: one of them may be
// unreadable one day.
func (l *Log) allowGaps(to kafka.Offset) error {
	l.mu.Lock()
	known := l.mayHaveGaps()
	l.w.synced.flags |= entryGaps
	l.noteGapLocked(to)
	l.mu.Unlock()
	if known {
		return nil
	}
	if err := l.env.checkpoint(); err != nil {
		return err
	}
	return l.env.checkpoint()
}

// noteGapLocked notes a batch behind a gap.
func (l *Log) noteGapLocked(base kafka.Offset) {
	l.gapsTo.Store(max(l.gapsTo.Load(), int64(base)))
}

// allowFollowersGap allows the gap that a follower's batches are about to leave.
func (l *Log) allowFollowersGap(bs []record.Batch) error {
	due := l.LogEndOffset()
	for _, b := range bs {
		if base := b.BaseOffset(); base > due {
			return l.allowGaps(base)
		}
		due = b.LastOffset() + 1
	}
	return nil
}
