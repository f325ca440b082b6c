package commitlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// A hole is mended from another replica: replicas are the same bytes, so the lost
// batches fit into their place to the byte, and nothing around them moves.
//
//	segment   | whole ... | hole: damaged bytes | whole ...
//	           position -> from                 to
//	offsets               from.nextOffset       to.nextOffset
//
// Invariants:
//
//	what is written lies within the hole, or behind the end of a sealed segment that
//	is too short
//	each batch that is written has a right CRC, begins where the one before ended, and
//	has the leader epoch that this log's history has for its offsets: so it is the one
//	that was there
//	a hole is a hole until all of it is written and synced: nothing in it is served
//
// The bytes are written in their place, not to a new file that is swapped in: they
// overwrite what nobody can read, a crash half way leaves a smaller hole, which the next
// reader finds by the same checks, and a sector has the same neighbours before and after.
//
// Where compaction may have left gaps there is nothing to tell the batches that were
// there from others that would be as dense, and an old value could come back behind the
// tombstone of its key: such a log is not mended (UnfitError).

// UnfitError says that a hole can't be mended with what another replica has.
type UnfitError struct{ Reason string }

// Error implements error.
func (e *UnfitError) Error() string { return "does not fit into the damaged place: " + e.Reason }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// Mending is the mending of one hole, under way. It is used by one goroutine, which ends
// it by Commit or Abort. Truncations, retention and appends may run meanwhile: a mending
// that they overtake fails with ErrBusy.
type Mending struct {
	log    *Log
	read   segmentRead // Holds the segment.
	hole   Hole
	at     boundary // What was written ends here.
	open   bool     // The hole is at the end of a sealed segment, and may have any size.
	epochs epochHistory
	epoch  kafka.LeaderEpoch // Of the batch before.
}

// BeginMend begins to mend a hole.
func (l *Log) BeginMend(h Hole) (*Mending, error) {
	if int64(h.From) < l.gapsTo.Load() {
		return nil, unfit("the log was compacted")
	}
	m := &Mending{log: l, read: segmentRead{from: h.base}, hole: h, at: h.damage.from, epoch: kafka.NoLeaderEpoch}
	if !l.findSegment(h.base, &m.read) {
		return nil, ErrBusy
	}
	if err := m.begin(); err != nil {
		m.Abort()
		return nil, err
	}
	return m, nil
}

func (m *Mending) begin() (err error) {
	if m.read.segment.baseOffset != m.hole.base || !m.read.segment.isNoted(m.hole.damage.from.position) {
		return ErrBusy // It was deleted, cut, or mended meanwhile.
	}
	m.open = m.read.segment != m.log.lastSegment() && m.hole.damage.to == m.read.whole
	if m.epochs, err = m.log.epochsToCheck(); err != nil {
		return err
	}
	if m.epochs == nil {
		return unfit("which leader epochs were there is not known")
	}
	if m.read.file, err = m.read.segment.open(vfs.ReadWrite); err != nil {
		return err
	}
	return nil
}

func (l *Log) lastSegment() *segment {
	segments := *l.segments.Load()
	if len(segments) == 0 {
		return nil
	}
	return segments[len(segments)-1]
}

// Next returns the offset of the next batch that is needed; the hole's end if there is
// none.
func (m *Mending) Next() kafka.Offset { return m.at.nextOffset }

// Write takes the next batches, as another replica has them. Those below Next and those
// behind the hole are left out. It returns an *UnfitError if they are not what was there.
func (m *Mending) Write(bs []record.Batch) error {
	at, epoch := m.at, m.epoch
	var data []byte
	for _, b := range bs {
		if b.LastOffset() < at.nextOffset {
			continue
		}
		if b.BaseOffset() >= m.hole.To {
			break
		}
		if err := m.check(b, at, epoch); err != nil {
			return err
		}
		data = append(data, b.Bytes()...)
		at, epoch = boundary{at.position + int64(b.Size()), b.LastOffset() + 1}, b.LeaderEpoch()
	}
	if len(data) == 0 {
		return nil
	}
	err := m.held(func() error {
		if _, err := m.read.file.WriteAt(data, m.at.position); err != nil {
			return fmt.Errorf("write %s at position %d: %w", m.read.segment.path(logSuffix), m.at.position, err)
		}
		return nil
	})
	if err == nil {
		m.at, m.epoch = at, epoch
	}
	return err
}

// check tells why a batch is not the one that was at a boundary.
func (m *Mending) check(b record.Batch, at boundary, before kafka.LeaderEpoch) error {
	base, last, epoch := b.BaseOffset(), b.LastOffset(), b.LeaderEpoch()
	end := at.position + int64(b.Size())
	switch {
	case b.CheckCRC() != nil:
		return fmt.Errorf("batch at offset %d: %w", base, b.CheckCRC())
	case base != at.nextOffset:
		return unfit("a batch begins at offset %d where %d is due", base, at.nextOffset)
	case last >= m.hole.To:
		return unfit("a batch reaches to offset %d, and what is whole begins at %d", last, m.hole.To)
	case b.RecordCount() == 0:
		return unfit("the records at offset %d are lost there too", base) // A repair leaves such batches.
	case epoch < before, !m.hasEpoch(base, epoch), !m.hasEpoch(last, epoch):
		return unfit("leader epoch %d at offset %d, where this log had %d", epoch, base, m.epochs.at(base))
	case int64(last-m.hole.base) > math.MaxInt32, end > math.MaxInt32:
		return unfit("a segment that begins at offset %d can't hold what is missing", m.hole.base)
	case !m.open && end > m.hole.damage.to.position:
		return unfit("the batches up to offset %d end at position %d, and what is whole begins at %d",
			last, end, m.hole.damage.to.position)
	}
	return nil
}

// hasEpoch tells whether the history knows no other epoch of an offset.
func (m *Mending) hasEpoch(offset kafka.Offset, epoch kafka.LeaderEpoch) bool {
	known := m.epochs.at(offset)
	return known == kafka.NoLeaderEpoch || known == epoch
}

// held calls fn while nothing can cut the log, if nothing has since the mending began.
func (m *Mending) held(fn func() error) error {
	l := m.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if l.wasCut(&m.read) || m.read.segment.deleted.Load() {
		return ErrBusy
	}
	return fn()
}

// Commit makes the hole part of the log again, durably.
func (m *Mending) Commit(source kafka.BrokerID) error {
	defer m.read.segment.release()
	l, s, d := m.log, m.read.segment, m.hole.damage
	switch {
	case m.at.nextOffset != d.to.nextOffset:
		return unfit("it ends at offset %d, and what is whole begins at %d", m.at.nextOffset, d.to.nextOffset)
	case !m.open && m.at.position != d.to.position:
		return unfit("it ends at position %d, and what is whole begins at %d", m.at.position, d.to.position)
	}
	if m.open && m.at.position < d.to.position {
		err := m.held(func() error { return m.read.file.Truncate(m.at.position) })
		if err != nil {
			return fmt.Errorf("cut what follows the last batch of %s: %w", s.path(logSuffix), err)
		}
	}
	if err := m.read.file.Sync(); err != nil {
		l.Failed(err)
		l.env.breakDown(err)
		return l.Err()
	}
	if err := m.held(m.showLocked); err != nil {
		return err
	}
	path := s.path(logSuffix)
	l.env.reports.forget(func(c Corruption) bool {
		return c.ID == l.id && c.Found.Path == path && !s.isNoted(c.Found.Position)
	})
	l.env.events.Mended(l.id, MendedHole{
		From: m.hole.From, To: m.hole.To, SizeBytes: m.at.position - d.from.position, Source: source,
		Path: path, Reason: d.reason,
	})
	return nil
}

// showLocked shows readers what was written, and makes anew what was made around it.
func (m *Mending) showLocked() error {
	l, s, d := m.log, m.read.segment, m.hole.damage
	if m.open {
		s.size.Store(m.at.position)
	}
	s.verified.add(d.from.position, m.at.position)
	s.forgetDamage(d)
	s.largest.Store(nil)
	l.damaged.Store(nil) // What is left of it is reported again.
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	s.trustedTo = 0
	if s != l.w.active {
		s.indexed.Store(false) // Whoever needs the indexes makes them anew.
		return nil
	}
	t, err := s.remakeIndexes(m.read.file, l.w.end, l.options.Load().Config.IndexIntervalBytes)
	if err = errors.Join(err, t.suspect); err == nil {
		err = s.storeIndexes() // The checkpoint says that they are on disk.
	}
	if err != nil {
		l.env.events.Problem("make the indexes of a mended segment anew", err)
		return nil
	}
	l.w.sinceIndex, l.w.largest, l.w.last = t.sinceIndex, t.largest, t.last
	if err := l.rereadProducersLocked(m.hole.From); err != nil {
		l.env.events.Problem("read producers of a mended segment anew", err)
	}
	return nil
}

// rereadProducersLocked loads the producer state again if it came from batches at or
// above an offset: their headers were damaged then, or left out.
func (l *Log) rereadProducersLocked(from kafka.Offset) error {
	p := &l.w.producers
	if p.loadedFrom > from || p.loadedTo <= from {
		return nil
	}
	if err := p.forgetSnapshots(l, func(o kafka.Offset) bool { return o > from }); err != nil {
		return err
	}
	i := len(*l.segments.Load()) - 1
	if err := p.restore(l, i, l.w.end); err != nil {
		return err
	}
	l.stability.reset(l.firstOpenLocked(), l.w.end.nextOffset)
	return nil
}

// Abort gives the mending up. What was written stays: it is what was there.
func (m *Mending) Abort() { m.read.segment.release() }
