package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Check returns what is wrong with all that was noted, in a fixed order.
func (h *History) Check() []Violation {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := slices.Clone(h.found)
	note := func(r Rule, format string, args ...any) {
		found = append(found, Violation{r, fmt.Sprintf(format, args...)})
	}
	h.checkAcked(note)
	h.checkStored(note)
	h.checkDuplicates(note)
	h.checkOverwritten(note)
	h.checkReordered(note)
	h.checkReplicas(note)
	h.checkProducers(note)
	h.checkTransactions(note)
	h.checkStates(note)
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
	return found
}

// noter takes what a check finds.
type noter func(r Rule, format string, args ...any)

// checkAcked holds what was acknowledged against what was read.
func (h *History) checkAcked(note noter) {
	for _, v := range slices.Sorted(maps.Keys(h.acked)) {
		at := h.acked[v]
		got, seen := h.read[at]
		inTheEnd, there := h.final[at]
		switch {
		case seen && got != v:
			note(InconsistentOffset, "value %x was acknowledged at %v, where %x was read", v, at, got)
		case there && inTheEnd != v:
			note(InconsistentOffset, "value %x was acknowledged at %v, where %x is in the end", v, at, inTheEnd)
		case h.final != nil && !there:
			note(Unseen, "value %x was acknowledged at %v, where nothing is in the end", v, at)
		case !seen && h.passed(at) && h.sent[v].txn == nil: // Who is read_committed may pass it over.
			note(LostWrite, "value %x was acknowledged at %v, and readers of %d saw it nowhere",
				v, at, h.reached[at.Partition])
		}
	}
}

// checkStored looks for what was acknowledged without a place.
func (h *History) checkStored(note noter) {
	if h.final == nil {
		return
	}
	there := map[Value]bool{}
	for _, v := range h.final {
		there[v] = true
	}
	for _, v := range slices.Sorted(maps.Keys(h.stored)) {
		if !there[v] {
			note(Unseen, "value %x was acknowledged, and is nowhere in the end", v)
		}
	}
}

// passed reports whether somebody read beyond a place.
func (h *History) passed(at Place) bool {
	reached, ok := h.reached[at.Partition]
	return ok && reached > at.Offset
}

func (h *History) checkDuplicates(note noter) {
	if h.MayRepeat {
		return
	}
	first := map[Value]Place{}
	for _, at := range slices.SortedFunc(maps.Keys(h.read), comparePlaces) {
		v := h.read[at]
		if other, twice := first[v]; twice {
			note(Duplicate, "value %x was read at %v and at %v", v, other, at)
			continue
		}
		first[v] = at
	}
}

func comparePlaces(a, b Place) int {
	return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// checkOverwritten holds what was read against the log in the end.
func (h *History) checkOverwritten(note noter) {
	if h.final == nil || h.Sparse {
		return
	}
	for _, at := range slices.SortedFunc(maps.Keys(h.read), comparePlaces) {
		v := h.read[at]
		if now, there := h.final[at]; !there || now != v {
			note(BeyondWatermark, "value %x was read at %v, where in the end there is another, or nothing", v, at)
		}
	}
}

// checkReordered looks for values of a producer that stand behind later ones of it.
func (h *History) checkReordered(note noter) {
	if h.Sender == nil {
		return
	}
	type way struct {
		sender    uint64
		partition int32
	}
	last, seen := map[way]Value{}, map[Value]bool{}
	for _, at := range slices.SortedFunc(maps.Keys(h.final), comparePlaces) {
		v := h.final[at]
		if seen[v] {
			continue // A duplicate, and told as that.
		}
		seen[v] = true
		w := way{h.Sender(v), at.Partition}
		if before, ok := last[w]; ok && v < before {
			note(Reordered, "value %x stands at %v, behind %x, which was sent after it", v, at, before)
			continue
		}
		last[w] = v
	}
}

func (h *History) checkStates(note noter) {
	for _, s := range h.states {
		if s.InSync < s.Replicas || s.LastStableOffset != s.HighWatermark || s.HighWatermark != s.LogEndOffset {
			note(NotHealed, "partition %d: %d of %d replicas are in sync; its log ends at %d, its high watermark "+
				"is %d, its last stable offset %d", s.Partition, s.InSync, s.Replicas, s.LogEndOffset,
				s.HighWatermark, s.LastStableOffset)
		}
	}
}

// replica is one replica's log.
type replica struct {
	broker    int
	partition int32
	until     int64
	batches   map[int64][]byte // By base offset.
}

// The fields of a record batch that are looked at.
const (
	batchHeadBytes = 12 // Its base offset and its length.
	batchLengthAt  = 8
)

// Replica notes a replica's log: the bytes of its segments, in order. What begins at or
// above until, its high watermark, may differ from others.
func (h *History) Replica(broker int, partition int32, until int64, log []byte) {
	r := replica{broker, partition, until, map[int64][]byte{}}
	for len(log) >= batchHeadBytes {
		base := int64(binary.BigEndian.Uint64(log))
		n := batchHeadBytes + int(binary.BigEndian.Uint32(log[batchLengthAt:]))
		if n > len(log) {
			break // Torn, which recovery cuts.
		}
		r.batches[base] = log[:n]
		log = log[n:]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replicas = append(h.replicas, r)
}

// checkReplicas compares every replica with the first of its partition.
func (h *History) checkReplicas(note noter) {
	first := map[int32]replica{}
	for _, r := range h.replicas {
		one, ok := first[r.partition]
		if !ok {
			first[r.partition] = r
			continue
		}
		if at, differ := one.parts(r); differ {
			note(ReplicasDiffer, "partition %d: brokers %d and %d have different batches at %d",
				r.partition, one.broker, r.broker, at)
		}
	}
}

// parts returns where two replicas differ, from where both have begun.
func (r replica) parts(other replica) (at int64, differ bool) {
	if len(r.batches) == 0 || len(other.batches) == 0 {
		return 0, len(r.batches) != len(other.batches)
	}
	a, b := slices.Sorted(maps.Keys(r.batches)), slices.Sorted(maps.Keys(other.batches))
	begin, end := max(a[0], b[0]), min(r.until, other.until)
	for _, offsets := range [][]int64{a, b} {
		for _, at := range offsets {
			if at >= begin && at < end && !bytes.Equal(r.batches[at], other.batches[at]) {
				return at, true
			}
		}
	}
	return 0, false
}
