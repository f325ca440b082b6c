package record

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// DefaultLevel stands for each codec's own default compression level.
const DefaultLevel = 0

// lz4BlockSize is the block size of the frames written here, as in Java
// clients.
const lz4BlockSize = 64 << 10

// snappyBlockSize is the block size of the xerial framing written here, as in
// Java clients.
const snappyBlockSize = 32 << 10

// Compressor compresses payloads with one codec and keeps its tables for the
// next. It has one owner at a time.
type Compressor struct {
	codec Codec

	out  bytes.Buffer // Only for gzip.
	gzip *gzip.Writer
	zstd *zstd.Encoder
	lz4  lz4.Compressor
}

// NewCompressor returns a Compressor for the codec. Levels are Kafka's
// (compression.gzip.level 1 to 9, compression.zstd.level up to 22); one out of
// range stands for the nearest, DefaultLevel for the codec's default. Snappy has
// none, and lz4 ignores it. An unknown codec panics: who writes batches knows
// the codecs.
func NewCompressor(codec Codec, level int) *Compressor {
	c := &Compressor{codec: codec}
	switch codec {
	case CodecNone, CodecSnappy, CodecLZ4:
	case CodecGzip:
		c.gzip = newGzipWriter(level)
	case CodecZstd:
		c.zstd = newZstdEncoder(level)
	default:
		panic("record: unknown " + codec.String())
	}
	return c
}

func newGzipWriter(level int) *gzip.Writer {
	if level <= 0 {
		level = gzip.DefaultCompression
	}
	w, err := gzip.NewWriterLevel(nil, min(level, gzip.BestCompression))
	if err != nil {
		panic(err) // The level is in range.
	}
	return w
}

// zstdWriteWindow keeps the encoder's memory small; batches are not much larger.
const zstdWriteWindow = 1 << 20

func newZstdEncoder(level int) *zstd.Encoder {
	speed := zstd.SpeedDefault
	if level != DefaultLevel {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	w, err := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(speed),
		zstd.WithEncoderCRC(false), // The batch has its own.
		zstd.WithWindowSize(zstdWriteWindow),
		zstd.WithZeroFrames(true))
	if err != nil {
		panic(err) // The options are constants.
	}
	return w
}

// Append appends the compressed src to dst.
func (c *Compressor) Append(dst, src []byte) []byte {
	switch c.codec {
	case CodecGzip:
		return c.appendGzip(dst, src)
	case CodecSnappy:
		return appendXerial(dst, src)
	case CodecLZ4:
		return c.appendLZ4(dst, src)
	case CodecZstd:
		return c.zstd.EncodeAll(src, dst)
	default:
		return append(dst, src...)
	}
}

func (c *Compressor) appendGzip(dst, src []byte) []byte {
	c.out.Reset()
	c.gzip.Reset(&c.out)
	// Writes to a bytes.Buffer do not fail.
	_, _ = c.gzip.Write(src)
	_ = c.gzip.Close()
	return append(dst, c.out.Bytes()...)
}

func appendXerial(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = binary.BigEndian.AppendUint32(dst, 1) // Version.
	dst = binary.BigEndian.AppendUint32(dst, 1) // Least version that reads it.
	for first := true; first || len(src) > 0; first = false {
		n := min(len(src), snappyBlockSize)
		at := len(dst)
		dst = grow(dst, xerialLengthSize+s2.MaxEncodedLen(n))
		block := s2.EncodeSnappy(dst[at+xerialLengthSize:], src[:n])
		binary.BigEndian.PutUint32(dst[at:], uint32(len(block)))
		dst, src = dst[:at+xerialLengthSize+len(block)], src[n:]
	}
	return dst
}

func (c *Compressor) appendLZ4(dst, src []byte) []byte {
	const blockSizeCode = 4 // 64 KiB.
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	header := [...]byte{lz4Version1 | lz4Independent, blockSizeCode << 4}
	dst = append(dst, header[:]...)
	dst = append(dst, byte(xxh32(header[:])>>8))
	for len(src) > 0 {
		n := min(len(src), lz4BlockSize)
		at := len(dst)
		dst = grow(dst, 4+n)
		// A block that does not shrink is stored as it is.
		size, err := c.lz4.CompressBlock(src[:n], dst[at+4:])
		if err != nil || size == 0 || size >= n {
			copy(dst[at+4:], src[:n])
			binary.LittleEndian.PutUint32(dst[at:], uint32(n)|lz4Stored)
			size = n
		} else {
			binary.LittleEndian.PutUint32(dst[at:], uint32(size))
		}
		dst, src = dst[:at+4+size], src[n:]
	}
	return append(dst, lz4EndMark[:]...)
}

// grow lengthens dst by n bytes of any content.
func grow(dst []byte, n int) []byte {
	for cap(dst)-len(dst) < n {
		dst = append(dst[:cap(dst)], 0)[:len(dst)]
	}
	return dst[:len(dst)+n]
}
