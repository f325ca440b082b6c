package cleaner

import (
	"hash/maphash"

	"github.com/strandline/strandline/internal/kafka"
)

// offsetMap holds the latest offset of each key in bounded memory: an open
// addressed table of hashes that grows as it fills.
//
//	Invariant: used <= limit < len(slots), so that a search ends.
type offsetMap struct {
	seeds    [2]maphash.Seed
	slots    []slot
	used     int
	maxSlots int
}

// slot is free while its offset is not positive: offsets are stored plus one.
type slot struct {
	hash   [2]uint64
	offset int64
}

const (
	// slotBytes is the memory of one key.
	slotBytes = 24
	// maxLoad is how full the table may get, in percent: beyond it probes get
	// long.
	maxLoad = 75
	// firstSlots is how large a table begins, and minSlots what it may have at
	// the least, whatever the bound.
	firstSlots = 1024
	minSlots   = 64
)

// newOffsetMap returns an empty map that takes at most maxBytes, also while it
// grows.
func newOffsetMap(maxBytes int64) *offsetMap {
	most := int(max(minSlots, maxBytes/slotBytes))
	return &offsetMap{
		seeds:    [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		slots:    make([]slot, min(firstSlots, most)),
		maxSlots: most,
	}
}

// limit returns how many keys the table takes before it must grow.
func limit(slots int) int { return slots * maxLoad / 100 }

// reserve makes room for n more keys. It reports false if the bound does not
// allow that.
func (m *offsetMap) reserve(n int) bool {
	for m.used+n > limit(len(m.slots)) {
		// Both tables are there while one is copied to the other.
		size := min(2*len(m.slots), m.maxSlots-len(m.slots))
		if size <= len(m.slots) {
			return false
		}
		m.grow(size)
	}
	return true
}

func (m *offsetMap) grow(size int) {
	old := m.slots
	m.slots = make([]slot, size)
	for i := range old {
		if old[i].offset > 0 {
			*m.find(old[i].hash) = old[i]
		}
	}
}

// put notes that key is at offset; a later offset replaces an earlier one. Room
// for it was reserved.
func (m *offsetMap) put(key []byte, offset kafka.Offset) {
	hash := m.hash(key)
	s := m.find(hash)
	if s.offset == 0 {
		m.used++
		s.hash = hash
	}
	s.offset = max(s.offset, int64(offset)+1)
}

// latest returns the latest offset of key, or NoOffset.
func (m *offsetMap) latest(key []byte) kafka.Offset {
	return kafka.Offset(m.find(m.hash(key)).offset - 1)
}

func (m *offsetMap) hash(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
}

// find returns the slot of a hash, or the free one that is to be its.
func (m *offsetMap) find(hash [2]uint64) *slot {
	i := hash[0] % uint64(len(m.slots))
	for {
		s := &m.slots[i]
		if s.offset == 0 || s.hash == hash {
			return s
		}
		if i++; i == uint64(len(m.slots)) {
			i = 0
		}
	}
}
