package record

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame: magic, FLG, BD, content size if FLG says so, a byte of the
// header's checksum; then blocks, each a length (high bit: stored as it is),
// its data, and a checksum if FLG says so; a length of 0 ends the frame, and a
// checksum of the content follows if FLG says so.
const (
	lz4Magic       = 0x184D2204
	lz4FixedHeader = 4 + 2
	lz4Stored      = 1 << 31
)

// Bits of FLG.
const (
	lz4VersionMask     = 0xC0
	lz4Version1        = 0x40
	lz4Independent     = 0x20
	lz4BlockChecksum   = 0x10
	lz4ContentSize     = 0x08
	lz4ContentChecksum = 0x04
	lz4Reserved        = 0x02
	lz4DictID          = 0x01
)

// lz4MaxRatio is what a byte of an LZ4 block can at most come to.
const lz4MaxRatio = 255

var (
	errLZ4Truncated = errors.New("lz4: the data ends before the frame does")
	errLZ4Header    = errors.New("lz4: not a frame header of version 1")
	errLZ4Linked    = errors.New("lz4: the blocks depend on each other, which Java clients cannot " +
		"read: set block independence")
	errLZ4Dict      = errors.New("lz4: the frame needs a dictionary")
	errLZ4Checksum  = errors.New("lz4: a checksum does not match")
	errLZ4BlockSize = errors.New("lz4: a block is larger than the frame allows")
	errLZ4Corrupt   = errors.New("lz4: the block is malformed")
	errLZ4Trailing  = errors.New("lz4: there is data after the frame")
)

// lz4Source decompresses block by block. It reads frames itself instead of
// through the library's reader: it accepts what Java clients can read and
// nothing else, and takes memory for a block only as far as the block's bytes
// can come to something.
type lz4Source struct {
	rest     []byte
	flags    byte
	maxBlock int64
	block    []byte
}

func (z *lz4Source) open(src []byte) error {
	if len(src) < lz4FixedHeader+1 {
		return errLZ4Truncated
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return errLZ4Header
	}
	z.flags = src[4]
	sizeCode := src[5] >> 4
	switch {
	case z.flags&lz4VersionMask != lz4Version1, z.flags&lz4Reserved != 0, src[5]&0x8F != 0,
		sizeCode < 4:
		return errLZ4Header
	case z.flags&lz4DictID != 0:
		return errLZ4Dict
	case z.flags&lz4Independent == 0:
		return errLZ4Linked
	}
	z.maxBlock = 1 << (8 + 2*sizeCode) // 64 KiB, 256 KiB, 1 MiB, 4 MiB.
	end := lz4FixedHeader
	if z.flags&lz4ContentSize != 0 {
		end += 8
	}
	if len(src) <= end {
		return errLZ4Truncated
	}
	if byte(xxh32(src[4:end])>>8) != src[end] {
		return errLZ4Checksum
	}
	z.rest = src[end+1:]
	return nil
}

func (z *lz4Source) next(room int64) ([]byte, error) {
	for {
		data, stored, err := z.takeBlock()
		if err != nil {
			return nil, err
		}
		out := data
		if !stored {
			if out, err = z.decode(data, room); err != nil {
				return nil, err
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

// takeBlock cuts the next block off; io.EOF after the end mark.
func (z *lz4Source) takeBlock() (data []byte, stored bool, err error) {
	word, ok := z.takeUint32()
	if !ok {
		return nil, false, errLZ4Truncated
	}
	if word == 0 {
		return nil, false, z.end()
	}
	stored = word&lz4Stored != 0
	length := int64(word &^ lz4Stored)
	if length > z.maxBlock {
		return nil, false, errLZ4BlockSize
	}
	if length > int64(len(z.rest)) {
		return nil, false, errLZ4Truncated
	}
	data, z.rest = z.rest[:length], z.rest[length:]
	if z.flags&lz4BlockChecksum != 0 {
		sum, ok := z.takeUint32()
		if !ok {
			return nil, false, errLZ4Truncated
		}
		if sum != xxh32(data) {
			return nil, false, errLZ4Checksum
		}
	}
	return data, stored, nil
}

// end checks what follows the end mark. The content checksum is not compared,
// as in Kafka: the batch's own covers the same bytes.
func (z *lz4Source) end() error {
	if z.flags&lz4ContentChecksum != 0 {
		if _, ok := z.takeUint32(); !ok {
			return errLZ4Truncated
		}
	}
	if len(z.rest) > 0 {
		return errLZ4Trailing
	}
	// A second call must find the end again.
	z.rest, z.flags = lz4EndMark[:], z.flags&^lz4ContentChecksum
	return io.EOF
}

// lz4EndMark is never written.
var lz4EndMark [4]byte

func (z *lz4Source) decode(data []byte, room int64) ([]byte, error) {
	size := min(z.maxBlock, lz4MaxRatio*int64(len(data)))
	// One byte more than there is room for, to tell full from too large.
	capped := size > room
	if capped {
		size = max(room, 0) + 1
	}
	if int64(cap(z.block)) < size {
		z.block = make([]byte, size)
	}
	n, err := lz4.UncompressBlock(data, z.block[:size])
	if err != nil {
		if capped {
			return nil, ErrTooLarge
		}
		return nil, errLZ4Corrupt
	}
	return z.block[:n], nil
}

func (z *lz4Source) takeUint32() (word uint32, ok bool) {
	if len(z.rest) < 4 {
		return 0, false
	}
	word = binary.LittleEndian.Uint32(z.rest)
	z.rest = z.rest[4:]
	return word, true
}

func (z *lz4Source) release() { z.rest, z.block = nil, keep(z.block) }

// xxh32 is the 32-bit xxHash with seed 0, which the LZ4 frame checks itself
// with.
func xxh32(b []byte) uint32 {
	const (
		prime1 uint32 = 2654435761
		prime2 uint32 = 2246822519
		prime3 uint32 = 3266489917
		prime4 uint32 = 668265263
		prime5 uint32 = 374761393
	)
	length := uint32(len(b))
	h := prime5
	if len(b) >= 16 {
		v1, v2, v3, v4 := uint32(606290984), prime2, uint32(0), uint32(1640531535)
		for ; len(b) >= 16; b = b[16:] {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*prime2, 13) * prime1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*prime2, 13) * prime1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*prime2, 13) * prime1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*prime2, 13) * prime1
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) +
			bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += length
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h ^= h >> 15
	h *= prime2
	h ^= h >> 13
	h *= prime3
	return h ^ h>>16
}
