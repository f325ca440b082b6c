package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

// Java clients put snappy into xerial's framing: a header of 16 bytes (magic,
// version, compatible version), then blocks of a big-endian length and a raw
// snappy block. Others send one raw block.
const (
	xerialHeaderSize = 16
	xerialLengthSize = 4
)

// xerialMagic is never written.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

var (
	errSnappyTruncated = errors.New("snappy: the data ends before a block does")
	errSnappyCorrupt   = errors.New("snappy: the block is malformed")
	errSnappyLength    = errors.New("snappy: a block does not have the length it declares")
)

// snappySource decompresses block by block. A raw block is one piece, as its
// copies may reach back to its start; a forged length costs nothing, because
// the length is computed from the block before memory is taken for it
// (CVE-2023-34455).
type snappySource struct {
	rest   []byte
	xerial bool
	block  []byte
}

func (s *snappySource) open(src []byte) error {
	s.xerial = len(src) >= xerialHeaderSize && bytes.Equal(src[:len(xerialMagic)], xerialMagic)
	s.rest = src
	if s.xerial {
		s.rest = src[xerialHeaderSize:]
	} else if len(src) == 0 {
		return errSnappyTruncated
	}
	return nil
}

func (s *snappySource) next(room int64) ([]byte, error) {
	if len(s.rest) == 0 {
		return nil, io.EOF
	}
	block := s.rest
	if s.xerial {
		if len(s.rest) < xerialLengthSize {
			return nil, errSnappyTruncated
		}
		length := int64(binary.BigEndian.Uint32(s.rest))
		s.rest = s.rest[xerialLengthSize:]
		if length > int64(len(s.rest)) {
			return nil, errSnappyTruncated
		}
		block, s.rest = s.rest[:length], s.rest[length:]
	} else {
		s.rest = nil
	}
	return s.decode(block, room)
}

func (s *snappySource) decode(block []byte, room int64) ([]byte, error) {
	declared, n := binary.Uvarint(block)
	if n <= 0 {
		return nil, errSnappyCorrupt
	}
	if declared > uint64(max(room, 0)) {
		return nil, ErrTooLarge
	}
	length, ok := snappyLength(block[n:])
	if !ok {
		return nil, errSnappyCorrupt
	}
	if length != int64(declared) {
		return nil, errSnappyLength
	}
	if int64(cap(s.block)) < length {
		s.block = make([]byte, length)
	}
	out, err := s2.Decode(s.block[:length], block)
	if err != nil {
		return nil, errSnappyCorrupt
	}
	return out, nil
}

func (s *snappySource) release() { s.rest, s.block = nil, keep(s.block) }

// snappyLength walks the elements of a raw block without its length and sums
// what they produce. ok is false if the last one is cut off, or if a copy has
// offset 0: the s2 decoder takes that for an extension of its own, which no
// other client's decoder knows.
func snappyLength(block []byte) (length int64, ok bool) {
	i := 0
	for i < len(block) {
		tag := block[i]
		switch tag & 3 {
		case 0: // A literal.
			n := int64(tag >> 2)
			i++
			if n >= 60 {
				size := int(n) - 59
				if len(block)-i < size {
					return 0, false
				}
				n = 0
				for k := size - 1; k >= 0; k-- {
					n = n<<8 | int64(block[i+k])
				}
				i += size
			}
			n++
			if n > int64(len(block)-i) {
				return 0, false
			}
			i += int(n)
			length += n
		case 1: // A copy of 4..11 bytes, offset of 11 bits.
			if len(block)-i < 2 || tag>>5 == 0 && block[i+1] == 0 {
				return 0, false
			}
			length += int64(4 + tag>>2&7)
			i += 2
		case 2: // A copy of 1..64 bytes, offset of 16 bits.
			if len(block)-i < 3 || block[i+1]|block[i+2] == 0 {
				return 0, false
			}
			length += int64(1 + tag>>2)
			i += 3
		default: // A copy of 1..64 bytes, offset of 32 bits.
			if len(block)-i < 5 || binary.LittleEndian.Uint32(block[i+1:]) == 0 {
				return 0, false
			}
			length += int64(1 + tag>>2)
			i += 5
		}
	}
	return length, true
}
