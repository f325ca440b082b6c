package commitlog

import (
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
)

// boundary is a place between two batches of a segment: bytes below position
// hold what is below nextOffset, and the next batch begins at position.
type boundary struct {
	position   int64
	nextOffset kafka.Offset // One past the last offset of the batch before.
}

// tailRing remembers the newest batch boundaries of the active segment, so that
// reads at the hot end of a log, bounded by the high watermark, never scan the
// file. Its newest boundary is also how an append becomes visible to readers:
// one atomic store that moves position and offset together.
//
// One writer adds; readers take no lock. A reader loads head, searches the
// slots, and then checks that head has not come near enough to overwrite the
// slot it found. A slot overwritten during the search sends the search down to
// older slots, which are overwritten as well, so the check sees it.
//
//	Invariant: slots hold successive boundaries of one segment, in order of
//	position and of offset; the oldest of a new ring is where the segment ended
//	when the ring was made.
type tailRing struct {
	segment *segment
	head    atomic.Uint64 // Boundaries ever added, at least 1.
	slots   [ringSlots]atomic.Uint64
}

// ringSlots bounds the boundaries remembered: 1 KiB a log that is written to.
const ringSlots = 128

func newTailRing(s *segment, end boundary) *tailRing {
	r := &tailRing{segment: s}
	r.add(end)
	return r
}

// packBoundary puts a boundary into one word: both halves are relative to the
// segment, which is what limits a segment to 2 GiB and 2^31 offsets.
func packBoundary(base kafka.Offset, b boundary) uint64 {
	return uint64(uint32(b.nextOffset-base))<<32 | uint64(uint32(b.position))
}

func unpackBoundary(base kafka.Offset, word uint64) boundary {
	return boundary{
		position:   int64(uint32(word)),
		nextOffset: base + kafka.Offset(word>>32),
	}
}

func (r *tailRing) add(b boundary) {
	head := r.head.Load()
	r.slots[head%ringSlots].Store(packBoundary(r.segment.baseOffset, b))
	r.head.Store(head + 1)
}

// end returns the newest boundary.
func (r *tailRing) end() boundary {
	for {
		head := r.head.Load()
		word := r.slots[(head-1)%ringSlots].Load()
		if r.head.Load()-head < ringSlots-1 {
			return unpackBoundary(r.segment.baseOffset, word)
		}
	}
}

// atOffset returns the last boundary whose next offset is at or below offset:
// the first batch that reaches offset begins there. It reports false if that
// is older than what the ring remembers.
func (r *tailRing) atOffset(offset kafka.Offset) (boundary, bool) {
	return r.last(func(b boundary) bool { return b.nextOffset <= offset })
}

// atPosition returns the last boundary at or below limit. It reports false if
// that is older than what the ring remembers.
func (r *tailRing) atPosition(limit int64) (boundary, bool) {
	return r.last(func(b boundary) bool { return b.position <= limit })
}

// last returns the newest boundary for which in holds; in holds for a prefix.
func (r *tailRing) last(in func(boundary) bool) (boundary, bool) {
	head := r.head.Load()
	oldest := uint64(0)
	if head >= ringSlots {
		oldest = head - (ringSlots - 1) // The one before may be overwritten just now.
	}
	low, high := oldest, head
	for low < high {
		mid := (low + high) / 2
		if in(unpackBoundary(r.segment.baseOffset, r.slots[mid%ringSlots].Load())) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == oldest {
		return boundary{}, false
	}
	b := unpackBoundary(r.segment.baseOffset, r.slots[(low-1)%ringSlots].Load())
	return b, r.head.Load()-(low-1) < ringSlots
}
