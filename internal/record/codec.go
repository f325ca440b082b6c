package record

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
)

// Codec is what the records of a batch are compressed with.
type Codec uint8

// The codecs, by the number they have in a batch's attributes.
const (
	CodecNone   Codec = 0
	CodecGzip   Codec = 1
	CodecSnappy Codec = 2
	CodecLZ4    Codec = 3
	CodecZstd   Codec = 4
)

// String returns the codec's name in compression.type.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLZ4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return "codec " + strconv.Itoa(int(c))
}

// ParseCodec is the inverse of String; "uncompressed", Kafka's name in a
// topic's compression.type, is none too.
func ParseCodec(name string) (Codec, error) {
	if name == "uncompressed" {
		return CodecNone, nil
	}
	for c := CodecNone; c <= CodecZstd; c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return CodecNone, fmt.Errorf("compression %q: want none, gzip, snappy, lz4 or zstd", name)
}

// CodecSet is a set of codecs. The zero value stands for all of them.
type CodecSet uint8

// NewCodecSet returns the set of the given codecs.
func NewCodecSet(codecs ...Codec) CodecSet {
	var s CodecSet
	for _, c := range codecs {
		s |= 1 << c
	}
	return s
}

// Has reports whether c is in the set.
func (s CodecSet) Has(c Codec) bool { return c <= CodecZstd && (s == 0 || s&(1<<c) != 0) }

// ErrTooLarge says that a payload decompresses to more than the bound. It is
// found before that much memory was used.
var ErrTooLarge = errors.New("decompresses to more than the bound")

// chunkSize is how much of a gzip or zstd stream is decompressed at a time.
const chunkSize = 32 << 10

// keepBytes is the largest buffer that a pooled Decompressor keeps between
// uses, so that one large batch does not stay in memory for good.
const keepBytes = 1 << 20

// source gives a decompressed payload piece by piece. next returns a piece that
// lives until the following call, or io.EOF after the last one. room is how
// much the bound still allows: a source must not allocate for more.
type source interface {
	next(room int64) ([]byte, error)
}

// Decompressor decompresses payloads of every codec, one at a time, and keeps
// its tables and buffers for the next. The zero value is ready to use. It has
// one owner at a time.
type Decompressor struct {
	gzip   gzipSource
	snappy snappySource
	lz4    lz4Source
	zstd   zstdSource
	plain  plainSource

	records []byte // What Records decompressed to.
	stream  stream
}

// pool shares Decompressors between the connections of a broker.
var pool = sync.Pool{New: func() any { return new(Decompressor) }}

// takeDecompressor borrows from the pool. The caller gives it back with
// giveBack when nothing aliases its buffers any more.
func takeDecompressor() *Decompressor {
	d, _ := pool.Get().(*Decompressor)
	return d
}

// giveBack drops what is too large to keep, and every reference to the payload.
func (d *Decompressor) giveBack() {
	d.release()
	pool.Put(d)
}

func (d *Decompressor) release() {
	d.gzip.release()
	d.snappy.release()
	d.lz4.release()
	d.zstd.release()
	d.plain.rest = nil
	d.stream = stream{}
}

// Decompress appends the decompressed src to dst, at most maxBytes of it, or
// fails with ErrTooLarge (wrapped). maxBytes is a limit, not a hint: memory
// grows with what comes out, never with what a header says will.
func (d *Decompressor) Decompress(codec Codec, dst, src []byte, maxBytes int64) ([]byte, error) {
	defer d.release()
	s, err := d.open(codec, src, maxBytes)
	if err != nil {
		return dst, err
	}
	for {
		err := s.refill()
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		dst = append(dst, s.chunk...)
	}
}

// Decompress is Decompressor.Decompress with one of the package's pool.
func Decompress(codec Codec, dst, src []byte, maxBytes int64) ([]byte, error) {
	d := takeDecompressor()
	defer d.giveBack()
	return d.Decompress(codec, dst, src, maxBytes)
}

// open starts a payload. The stream is d's own and ends with the next open.
func (d *Decompressor) open(codec Codec, src []byte, maxBytes int64) (*stream, error) {
	var (
		from source
		err  error
	)
	switch codec {
	case CodecNone:
		d.plain.rest = src
		from = &d.plain
	case CodecGzip:
		from, err = &d.gzip, d.gzip.open(src)
	case CodecSnappy:
		from, err = &d.snappy, d.snappy.open(src)
	case CodecLZ4:
		from, err = &d.lz4, d.lz4.open(src)
	case CodecZstd:
		from, err = &d.zstd, d.zstd.open(src, maxBytes)
	default:
		err = errors.New("is not one of Kafka's codecs")
	}
	if err != nil {
		return nil, codecError(codec, err)
	}
	d.stream = stream{codec: codec, from: from, room: maxBytes}
	return &d.stream, nil
}

func codecError(codec Codec, err error) error { return fmt.Errorf("%s: %w", codec, err) }

// plainSource gives an uncompressed payload in one piece.
type plainSource struct {
	rest []byte
}

func (p *plainSource) next(int64) ([]byte, error) {
	if len(p.rest) == 0 {
		return nil, io.EOF
	}
	piece := p.rest
	p.rest = nil
	return piece, nil
}

// keep returns buf to keep for the next use, or nil if it grew too large.
func keep(buf []byte) []byte {
	if cap(buf) > keepBytes {
		return nil
	}
	return buf[:0]
}
