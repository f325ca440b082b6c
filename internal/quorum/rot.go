package quorum

import "encoding/binary"

// sectorBytes is the smallest piece that a disk writes whole.
const sectorBytes = 512

// paddingByte fills a frame up: with it a frame's last sector never reads as zeros,
// which is how one reads that was never written.
const paddingByte = 0xff

// isRotten tells rot from a torn write, where a frame should begin and no whole one
// does: tail is the rest of the file, from that position on, and nothing follows it
// that was written later. A kill leaves the beginning of a write, so the file ends
// within the frame. A loss of power leaves out sectors, which then read as zeros.
// Anything else was whole once, was synced, and perhaps told of.
func isRotten(tail []byte, position int64, sequence uint64) bool {
	if len(tail) < frameHeaderBytes || missesSector(tail[:frameHeaderBytes], position) {
		return false
	}
	if binary.LittleEndian.Uint64(tail[8:]) != sequence {
		return true // The header is there, and is not what was written.
	}
	// The length is told twice, in case one of them is what was damaged: a frame of
	// which no part is missing by either was whole.
	told := int64(binary.LittleEndian.Uint32(tail))
	counted, ok := payloadLength(tail[frameHeaderBytes:])
	return isAllThere(tail, position, told) || ok && isAllThere(tail, position, counted)
}

// isAllThere reports whether nothing is missing of a frame with a payload so long.
func isAllThere(tail []byte, position, length int64) bool {
	end := frameHeaderBytes + alignUp(length)
	return end <= int64(len(tail)) && !missesSector(tail[:end], position)
}

// missesSector reports whether a sector of what stands at a position reads as zeros.
func missesSector(b []byte, position int64) bool {
	for len(b) > 0 {
		n := min(int64(len(b)), sectorBytes-position%sectorBytes)
		if isZero(b[:n]) {
			return true
		}
		b, position = b[n:], position+n
	}
	return false
}

// payloadLength returns how long a payload is by what it says of its entries; false
// if it ends before.
func payloadLength(payload []byte) (int64, bool) {
	have := int64(len(payload))
	if have < payloadHeaderBytes {
		return 0, false
	}
	n := int64(payloadHeaderBytes)
	for range binary.LittleEndian.Uint32(payload[24:]) {
		if have-n < entryHeaderBytes {
			return 0, false
		}
		n += entryHeaderBytes + int64(binary.LittleEndian.Uint32(payload[n+17:]))
	}
	return n, n <= have
}
