package commitlog

import (
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Hole is a range of offsets that a log can't serve although it takes appends: their
// batches are damaged or missing in a segment, and what lies around them is whole.
type Hole struct {
	From, To kafka.Offset // [From, To).
	Found    *CorruptionError
	base     kafka.Offset // Of the segment,
	damage   damage       // and where in it.
}

// Holes returns the damage that is known and not below the log start, rising. What was
// reported and is not known in full is looked into first, which reads a segment.
//
// A frozen log has none that count: its end is not what was acknowledged.
func (l *Log) Holes() ([]Hole, error) {
	if err := l.lookInto(); err != nil {
		return nil, err
	}
	var holes []Hole
	for _, s := range *l.segments.Load() {
		damages := s.damages.Load()
		if damages == nil {
			continue
		}
		for _, d := range *damages {
			if d.to.nextOffset > l.LogStartOffset() {
				holes = append(holes, Hole{d.from.nextOffset, d.to.nextOffset, d.corruption(s), s.baseOffset, d})
			}
		}
	}
	return holes, nil
}

// lookInto surveys the segments with damage that was reported and that no survey has
// noted. What a survey does not find was not on the disk, or is gone.
func (l *Log) lookInto() error {
	for _, c := range l.env.reports.of(l.id) {
		s := l.segmentAtPath(c.Path)
		if s == nil || s.isNoted(c.Position) {
			continue
		}
		s.damagesMu.Lock()
		s.damages.Store(nil) // It is of before, and not all that there is.
		s.damagesMu.Unlock()
		if err := l.surveyPath(c.Path); err != nil {
			return err
		}
	}
	l.env.reports.forget(func(c Corruption) bool {
		if c.ID != l.id || l.corruption.Load() != nil {
			return false
		}
		s := l.segmentAtPath(c.Found.Path)
		return s == nil || !s.isNoted(c.Found.Position)
	})
	return nil
}

func (l *Log) segmentAtPath(path string) *segment {
	segments := *l.segments.Load()
	i := slices.IndexFunc(segments, func(s *segment) bool { return s.path(logSuffix) == path })
	if i < 0 {
		return nil
	}
	return segments[i]
}

// isNoted tells whether a survey has found the damage at a position.
func (s *segment) isNoted(position int64) bool {
	damages := s.damages.Load()
	return damages != nil && slices.ContainsFunc(*damages, func(d damage) bool {
		return d.from.position == position || d.from.position < position && position < d.to.position
	})
}

// forgetDamage takes one damage from those that are noted.
func (s *segment) forgetDamage(mended damage) {
	s.damagesMu.Lock()
	defer s.damagesMu.Unlock()
	noted := s.damages.Load()
	if noted == nil {
		return
	}
	left := slices.DeleteFunc(slices.Clone(*noted), func(d damage) bool { return d.from == mended.from })
	if len(left) == 0 {
		s.damages.Store(nil) // A later survey looks at all of it again.
		return
	}
	s.damages.Store(&left)
}

// of returns the damage that was reported of a log.
func (r *reports) of(id kafka.TopicIDPartition) []*CorruptionError {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*CorruptionError
	for _, c := range r.corrupt {
		if c.ID == id {
			found = append(found, c.Found)
		}
	}
	return found
}
