package commitlog

import (
	"fmt"
	"sort"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// A crash can leave bytes of an append that was never acknowledged behind the
// length of a file, in its last block. The next process does not see them and
// writes other batches in their place, into memory. If it crashes in turn, and
// the new length reached the disk and that block did not, the old bytes are
// there: whole batches that continue the log, and not those that were
// acknowledged. The journal has those, so it wins.

// readBack are the batches that recovery found in a log's own files where the
// journal may have others. Below from nothing was read, or the files were synced
// or compacted since and are right.
type readBack struct {
	from  kafka.Offset
	found []foundBatch // Rising.
}

// foundBatch tells one batch from another at the same place. The CRC covers all
// but the two offsets and epochs that a leader stamps.
type foundBatch struct {
	base  kafka.Offset
	crc   uint32
	epoch kafka.LeaderEpoch
}

func fingerprint(b record.Batch) foundBatch {
	return foundBatch{b.BaseOffset(), b.CRC(), b.LeaderEpoch()}
}

// newReadBack is for a scan that begins at an offset. It returns nil if the
// journal has nothing of the log.
func newReadBack(r recovery, begin kafka.Offset) *readBack {
	if len(r.cover.Runs) == 0 {
		return nil
	}
	c := r.point()
	return &readBack{from: max(begin, c.recoveryPoint, c.cleanedTo, r.cover.Runs[0].Base)}
}

// note takes a batch in that was found. A nil readBack takes none.
func (r *readBack) note(b record.Batch) {
	if r != nil && b.BaseOffset() >= r.from {
		r.found = append(r.found, fingerprint(b))
	}
}

// differs returns the first batch of an entry in whose place another was found
// below end, where what was found ends.
func (r *readBack) differs(e journalEntry, end kafka.Offset) (record.Batch, bool) {
	if r == nil || len(r.found) == 0 || e.Base >= end {
		return record.Batch{}, false
	}
	for rest := e.Data; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err != nil || b.BaseOffset() >= end {
			break // Whoever appends the entry finds what is wrong.
		}
		rest = next
		if b.BaseOffset() < r.from {
			continue
		}
		i := r.at(b.BaseOffset())
		if i == len(r.found) || r.found[i] != fingerprint(b) {
			return b, true
		}
	}
	return record.Batch{}, false
}

// at returns the number of the first batch at or above an offset.
func (r *readBack) at(offset kafka.Offset) int {
	return sort.Search(len(r.found), func(i int) bool { return r.found[i].base >= offset })
}

// dropStaleLocked cuts the log where the journal's entry has another batch than
// was found in the files. What a replay appended is not compared.
func (l *Log) dropStaleLocked(e journalEntry) error {
	foundEnd := l.w.end.nextOffset
	if l.replayedFrom != kafka.NoOffset {
		foundEnd = min(foundEnd, l.replayedFrom)
	}
	b, differs := l.readBack.differs(e, foundEnd)
	if !differs {
		return nil
	}
	report := RecoveredLog{ID: l.id, From: foundEnd, HealedTo: e.End}
	before := l.Size()
	l.w.rearranged = true
	if err := l.cutReplayedLocked(b.BaseOffset()); err != nil || l.corruption.Load() != nil {
		return err
	}
	l.readBack.found = l.readBack.found[:l.readBack.at(l.w.end.nextOffset)]
	l.replayedFrom = kafka.NoOffset // The replay goes on from here.
	report.CutReason = fmt.Sprintf("the journal has another batch at offset %d: this one was left by an earlier crash",
		b.BaseOffset())
	report.BytesCut, report.LogEndOffset = before-l.Size(), l.LogEndOffset()
	report.CutPath, report.CutPosition = l.w.active.path(logSuffix), l.w.end.position
	l.env.events.Recovered(report)
	return nil
}
