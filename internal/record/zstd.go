package record

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdStreamWindow is the largest window that is streamed. The decoder
	// allocates the window a frame declares, so it must be small enough to
	// give to a stranger; 8 MiB is what the format asks every decoder to
	// support, and every level up to 19 stays within.
	zstdStreamWindow = 8 << 20

	// zstdMaxWindow is the largest window there is: Kafka's levels 20 to 22
	// reach it. Such frames are decompressed into memory that grows with what
	// comes out.
	zstdMaxWindow = 128 << 20
)

// zstdSource streams zstd frames on the caller's goroutine.
type zstdSource struct {
	in      bytes.Reader
	streams *zstd.Decoder
	blocks  *zstd.Decoder // For large windows; capped by its destination.
	chunk   []byte
	whole   []byte // What a large-window frame came to; nil when streaming.
	given   bool
}

func (z *zstdSource) open(src []byte, maxBytes int64) error {
	z.whole, z.given = nil, false
	var header zstd.Header
	if err := header.Decode(src); err != nil {
		return noEOF(err)
	}
	window := header.WindowSize
	if header.SingleSegment {
		window = header.FrameContentSize // The content is the window.
		if window > uint64(max(maxBytes, 0)) {
			return ErrTooLarge
		}
	}
	if window > zstdMaxWindow {
		return zstd.ErrWindowSizeExceeded
	}
	if window > zstdStreamWindow {
		return z.openLarge(src, maxBytes)
	}
	if z.streams == nil {
		d, err := zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(zstdStreamWindow),
			zstd.WithDecodeBuffersBelow(0))
		if err != nil {
			return err
		}
		z.streams, z.chunk = d, make([]byte, chunkSize)
	}
	z.in.Reset(src)
	return noEOF(z.streams.Reset(&z.in))
}

// openLarge decompresses everything, trying twice the memory as often as it
// does not fit.
func (z *zstdSource) openLarge(src []byte, maxBytes int64) error {
	if z.blocks == nil {
		d, err := zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(zstdMaxWindow),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
		z.blocks = d
	}
	for size := int64(max(4*len(src), chunkSize)); ; size *= 4 {
		size = min(size, maxBytes)
		out, err := z.blocks.DecodeAll(src, make([]byte, 0, max(size, 0)))
		if err == nil {
			z.whole = out
			return nil
		}
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return noEOF(err)
		}
		if size >= maxBytes {
			return ErrTooLarge
		}
	}
}

func (z *zstdSource) next(int64) ([]byte, error) {
	if z.whole == nil {
		return readChunk(z.streams, z.chunk)
	}
	if z.given || len(z.whole) == 0 {
		return nil, io.EOF
	}
	z.given = true
	return z.whole, nil
}

func (z *zstdSource) release() {
	z.whole = nil
	z.in.Reset(nil)
	if z.streams != nil {
		_ = z.streams.Reset(nil) // It only fails on a closed decoder.
	}
}
