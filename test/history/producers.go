package history

import (
	"encoding/binary"
	"maps"
	"slices"
)

// The fields of a record batch that say who wrote it.
const (
	attributesAt      = 21
	lastOffsetDeltaAt = 23
	producerIDAt      = 43
	producerEpochAt   = 51
	baseSequenceAt    = 53
	batchHeaderBytes  = 61

	controlBit = 1 << 5
)

// written is what a batch says of its producer.
type written struct {
	producer int64
	epoch    int16
	first    int32 // Sequences.
	last     int32
	control  bool
}

// writtenBy reads a batch; ok is false for one without a producer id.
func writtenBy(batch []byte) (w written, ok bool) {
	if len(batch) < batchHeaderBytes {
		return written{}, false
	}
	w = written{
		producer: int64(binary.BigEndian.Uint64(batch[producerIDAt:])),
		epoch:    int16(binary.BigEndian.Uint16(batch[producerEpochAt:])),
		first:    int32(binary.BigEndian.Uint32(batch[baseSequenceAt:])),
		control:  binary.BigEndian.Uint16(batch[attributesAt:])&controlBit != 0,
	}
	w.last = w.first + int32(binary.BigEndian.Uint32(batch[lastOffsetDeltaAt:]))
	return w, w.producer >= 0
}

// checkProducers looks at replicas for what no client has to have seen: batches of a
// producer that was fenced behind those of whoever fenced it, and batches that stand
// twice.
func (h *History) checkProducers(note noter) {
	for _, r := range h.replicas {
		newest := map[int64]written{}
		for _, at := range slices.Sorted(maps.Keys(r.batches)) {
			w, ok := writtenBy(r.batches[at])
			if !ok {
				continue
			}
			before, known := newest[w.producer]
			switch {
			case !known:
			case w.epoch < before.epoch:
				note(Zombie, "broker %d, partition %d: producer %d has a batch of epoch %d at %d, behind one of epoch %d",
					r.broker, r.partition, w.producer, w.epoch, at, before.epoch)
				continue
			case w.control || w.first < 0:
				w.first, w.last = before.first, before.last // A marker has no sequences.
				if w.epoch > before.epoch {
					w.first, w.last = -1, -1
				}
			case w.epoch == before.epoch && before.last >= 0 && w.first <= before.last:
				note(Duplicate, "broker %d, partition %d: producer %d has a batch from sequence %d on at %d, behind sequence %d",
					r.broker, r.partition, w.producer, w.first, at, before.last)
				continue
			}
			newest[w.producer] = w
		}
	}
}
