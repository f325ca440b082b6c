package commitlog

import (
	"math"
	"slices"
	"sync/atomic"
)

// verifiedRanges remembers which bytes of a segment have passed their batches'
// CRC since the log was opened, and which were written since then. Reads of
// those are served without touching them.
//
// Readers and writers may call it from any goroutine.
type verifiedRanges struct {
	ranges atomic.Pointer[[]byteRange]
}

// byteRange is the bytes [from, to) of a file.
type byteRange struct{ from, to int64 }

// maxVerifiedRanges bounds what is remembered of a segment that is read in
// many places at once; beyond it the shortest range is forgotten and would be
// checked again.
const maxVerifiedRanges = 16

func (v *verifiedRanges) contains(from, to int64) bool {
	p := v.ranges.Load()
	if p == nil {
		return false
	}
	for _, r := range *p {
		if r.from <= from && to <= r.to {
			return true
		}
	}
	return false
}

// add merges a range in.
func (v *verifiedRanges) add(from, to int64) {
	for {
		old := v.ranges.Load()
		var merged []byteRange
		if old != nil {
			merged = slices.Clone(*old)
		}
		merged = mergeRange(merged, byteRange{from, to})
		if v.ranges.CompareAndSwap(old, &merged) {
			return
		}
	}
}

// mergeRange adds r to sorted, disjoint ranges.
func mergeRange(ranges []byteRange, r byteRange) []byteRange {
	out := make([]byteRange, 0, len(ranges)+1)
	for _, o := range ranges {
		if o.to < r.from || r.to < o.from {
			out = append(out, o)
			continue
		}
		r.from, r.to = min(r.from, o.from), max(r.to, o.to)
	}
	at, _ := slices.BinarySearchFunc(out, r, func(a, b byteRange) int { return int(a.from - b.from) })
	out = slices.Insert(out, at, r)
	if len(out) > maxVerifiedRanges {
		shortest := 0
		for i, o := range out {
			if o.to-o.from < out[shortest].to-out[shortest].from {
				shortest = i
			}
		}
		out = slices.Delete(out, shortest, shortest+1)
	}
	return out
}

// cut forgets everything at or above position.
func (v *verifiedRanges) cut(position int64) { v.forget(position, math.MaxInt64) }

// forget forgets the bytes [from, to).
func (v *verifiedRanges) forget(from, to int64) {
	for {
		old := v.ranges.Load()
		if old == nil {
			return
		}
		var kept []byteRange
		for _, r := range *old {
			for _, left := range []byteRange{{r.from, min(r.to, from)}, {max(r.from, to), r.to}} {
				if left.from < left.to {
					kept = append(kept, left)
				}
			}
		}
		if v.ranges.CompareAndSwap(old, &kept) {
			return
		}
	}
}

// distrust has the bytes [from, to) read from the disk and checked before they are
// served again.
func (s *segment) distrust(from, to int64) {
	for {
		trusted := s.trustedFrom.Load()
		if trusted >= to {
			break
		}
		if s.trustedFrom.CompareAndSwap(trusted, to) {
			if trusted < from {
				s.verified.add(trusted, from)
			}
			break
		}
	}
	s.verified.forget(from, to)
}
