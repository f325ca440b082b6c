package record

import "errors"

var (
	errTruncated = errors.New("the bytes end inside a field")
	errVarint    = errors.New("a variable-length integer is longer than its type allows")
)

const (
	maxVarint32 = 5
	maxVarint64 = 10
)

// Records count with zigzag varints. The readers here take a slice and a
// position and return the position after, or a negative one: badTruncated or
// badVarint. That form, unlike an error, costs the hot walk nothing.
const (
	badTruncated = -1
	badVarint    = -2
)

func zigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// varint reads an integer of at most 64 bits.
func varint(p []byte, i int) (v int64, next int) {
	if i < len(p) && p[i] < 0x80 {
		return zigzag(uint64(p[i])), i + 1
	}
	return longVarint(p, i, maxVarint64)
}

// varint32 reads an integer of at most 32 bits.
func varint32(p []byte, i int) (v int64, next int) {
	if i < len(p) && p[i] < 0x80 {
		return zigzag(uint64(p[i])), i + 1
	}
	return longVarint(p, i, maxVarint32)
}

// longVarint reads an integer of any size, two bytes first.
func longVarint(p []byte, i, maxLen int) (v int64, next int) {
	if i+1 < len(p) && p[i+1] < 0x80 {
		return zigzag(uint64(p[i]&0x7F) | uint64(p[i+1])<<7), i + 2
	}
	var u uint64
	for n := range maxLen {
		if i+n >= len(p) {
			return 0, badTruncated
		}
		c := p[i+n]
		u |= uint64(c&0x7F) << (7 * n)
		if c < 0x80 {
			if overflows(c, n, maxLen) {
				return 0, badVarint
			}
			return zigzag(u), i + n + 1
		}
	}
	return 0, badVarint
}

// overflows reports whether c, the last byte of an integer and its n-th, has
// bits beyond the type's.
func overflows(c byte, n, maxLen int) bool {
	if n != maxLen-1 {
		return false
	}
	if maxLen == maxVarint32 {
		return c > 0x0F
	}
	return c > 0x01
}

func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func varintSize(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
