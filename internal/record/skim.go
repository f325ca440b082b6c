package record

import "encoding/binary"

// skim walks over records of the common shape, fast, and returns the position
// of the first that is not, or p's end. It passes only what step passes too,
// which the tests hold it to:
//
//	no integer of more than two bytes, no header, the offset delta due next,
//	a key if one is required, a timestamp well within the limits.
//
// It is what a produced record costs besides its checksum, about 10 ns. So it
// takes the first integers out of one word in a register, spells out the one
// and two byte cases instead of calling for them, which Go would not inline, and
// leaves everything else to step: the last few bytes of p for one, where a word
// cannot be loaded.
func (w *walk) skim(p []byte, i int) int {
	const headRoom = 16 // The word, and the key's length after its 7 bytes.
	index, topDelta := w.index, w.topDelta
	for index < w.count && len(p)-i >= headRoom {
		x := binary.LittleEndian.Uint64(p[i:])
		at := i
		var length, timestamp, offset, keyLen, valueLen uint64
		if x&0x80 == 0 {
			length, x, at = x&0x7F, x>>16, at+2 // With the attributes.
		} else if x&0x8000 == 0 {
			length, x, at = x&0x7F|x>>1&0x3F80, x>>24, at+3
		} else {
			break
		}
		end := at - 1 + int(length>>1)
		if x&0x80 == 0 {
			timestamp, x, at = x&0x7F, x>>8, at+1
		} else if x&0x8000 == 0 {
			timestamp, x, at = x&0x7F|x>>1&0x3F80, x>>16, at+2
		} else {
			break
		}
		if x&0x80 == 0 {
			offset, at = x&0x7F, at+1
		} else if x&0x8000 == 0 {
			offset, at = x&0x7F|x>>1&0x3F80, at+2
		} else {
			break
		}
		if offset != uint64(index)<<1 || length&1 != 0 || end > len(p) {
			break
		}
		if keyLen, at = shortVarint(p, at); keyLen == 1 && w.minKey < 0 {
			keyLen = 0 // Null.
		}
		at += int(keyLen >> 1)
		if keyLen&1 != 0 || at >= end-1 { // The value's length and the header count need room.
			break
		}
		if valueLen, at = shortVarint(p, at); valueLen == 1 {
			valueLen = 0 // Null.
		}
		at += int(valueLen >> 1)
		delta := zigzag(timestamp)
		if valueLen&1 != 0 || at != end-1 || p[at] != 0 || delta < w.minDelta || delta > w.maxDelta {
			break
		}
		topDelta = max(topDelta, delta)
		index++
		i = end
	}
	w.index, w.topDelta = index, topDelta
	return i
}

// notShort is a length that no caller accepts.
const notShort = 3

// shortVarint reads an integer of one or two bytes, not zigzagged; notShort if
// it is longer. p must have both bytes.
func shortVarint(p []byte, i int) (v uint64, next int) {
	v = uint64(p[i])
	if v < 0x80 {
		return v, i + 1
	}
	if c := uint64(p[i+1]); c < 0x80 {
		return v&0x7F | c<<7, i + 2
	}
	return notShort, i
}
