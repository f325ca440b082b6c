package cleaner

import (
	"hash/maphash"

	"github.com/strandline/strandline/internal/kafka"
)

// offsetMap holds the latest offset of each key in fixed memory: an open
// addressed table of hashes.
type offsetMap struct {
	seeds [2]maphash.Seed
	slots []slot
	used  int
	limit int
}

// slot is free while its offset is not positive: offsets are stored plus one.
type slot struct {
	hash   [2]uint64
	offset int64
}

// slotBytes is the memory of one key.
const slotBytes = 24

// maxLoad is how full the table may get, in percent: beyond it probes get long.
const maxLoad = 75

// newOffsetMap returns a map of at most so many bytes, but no fewer than what
// a few keys need.
func newOffsetMap(maxBytes int64) *offsetMap {
	n := max(64, maxBytes/slotBytes)
	m := &offsetMap{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	m.slots = make([]slot, n)
	m.limit = int(n * maxLoad / 100)
	return m
}

func (m *offsetMap) clear() {
	clear(m.slots)
	m.used = 0
}

// room returns how many more keys fit.
func (m *offsetMap) room() int { return m.limit - m.used }

// put notes that key is at offset; a later offset replaces an earlier one.
func (m *offsetMap) put(key []byte, offset kafka.Offset) {
	s, hash := m.find(key)
	if s.offset == 0 {
		m.used++
		s.hash = hash
	}
	s.offset = max(s.offset, int64(offset)+1)
}

// latest returns the latest offset of key, or NoOffset.
func (m *offsetMap) latest(key []byte) kafka.Offset {
	s, _ := m.find(key)
	return kafka.Offset(s.offset - 1)
}

// find returns the key's slot, or the free one that is the key's.
func (m *offsetMap) find(key []byte) (*slot, [2]uint64) {
	hash := [2]uint64{maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)}
	i := hash[0] % uint64(len(m.slots))
	for {
		s := &m.slots[i]
		if s.offset == 0 || s.hash == hash {
			return s, hash
		}
		if i++; i == uint64(len(m.slots)) {
			i = 0
		}
	}
}
