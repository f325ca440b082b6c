package record

import (
	"bytes"
	"errors"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdStreamWindow is the largest window that is streamed. The decoder
	// allocates the window a frame declares, so it must be small enough to
	// give to a stranger; 8 MiB is what the format asks every decoder to
	// support, and every level up to 19 stays within.
	zstdStreamWindow = 8 << 20

	// zstdMaxWindow is the largest window there is: Kafka's levels 20 to 22
	// reach it, whatever the size of the batch.
	zstdMaxWindow = 128 << 20
)

// Parts of a frame's header: the magic, the descriptor, and the window unless
// the frame is a single segment, whose window is its content.
const (
	zstdDescriptorAt     = 4
	zstdSingleSegmentBit = 1 << 5
	zstdWindowLogBase    = 10
)

// zstdSource streams zstd frames on the caller's goroutine.
type zstdSource struct {
	in      bytes.Reader
	decoder *zstd.Decoder
	chunk   []byte
	whole   []byte // What large came to; nil when streaming.
}

func (z *zstdSource) open(src []byte, maxBytes int64) error {
	var header zstd.Header
	if err := header.Decode(src); err != nil {
		return noEOF(err)
	}
	window := header.WindowSize
	if header.SingleSegment {
		window = header.FrameContentSize
	}
	if header.HasFCS && header.FrameContentSize > uint64(max(maxBytes, 0)) {
		return ErrTooLarge
	}
	if window > zstdStreamWindow && !header.Skippable {
		return z.large(src, window, maxBytes)
	}
	if z.decoder == nil {
		d, err := newZstdDecoder(zstdStreamWindow)
		if err != nil {
			return err
		}
		z.decoder = d
	}
	if z.chunk == nil {
		z.chunk = make([]byte, chunkSize)
	}
	z.in.Reset(src)
	return noEOF(z.decoder.Reset(&z.in))
}

func newZstdDecoder(maxWindow uint64) (*zstd.Decoder, error) {
	return zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1), // No goroutines.
		zstd.WithDecoderMaxWindow(maxWindow),
		zstd.WithDecodeBuffersBelow(0))
}

// large decompresses everything, for a frame whose declared window is too large
// to be believed. A window beyond what was decompressed so far is of no use, so
// it tries a small one first, and a larger one only if that many bytes did come
// out.
func (z *zstdSource) large(src []byte, declared uint64, maxBytes int64) error {
	if declared > zstdMaxWindow {
		return zstd.ErrWindowSizeExceeded
	}
	for window := uint64(zstdStreamWindow); ; window *= 4 {
		window = min(window, zstdMaxWindow)
		out, err := readWithWindow(src, window, maxBytes)
		if err == nil {
			z.whole = out
			return nil
		}
		if errors.Is(err, ErrTooLarge) || uint64(len(out)) < window || window >= declared {
			return err
		}
	}
}

// readWithWindow decompresses a frame as if it declared the given window, a
// power of two.
func readWithWindow(src []byte, window uint64, maxBytes int64) ([]byte, error) {
	d, err := newZstdDecoder(window)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	descriptor, rest := src[zstdDescriptorAt], src[zstdDescriptorAt+1:]
	if descriptor&zstdSingleSegmentBit == 0 {
		rest = rest[1:] // The window it has.
	}
	patched := make([]byte, 0, len(src)+1)
	patched = append(patched, src[:zstdDescriptorAt]...)
	patched = append(patched, descriptor&^zstdSingleSegmentBit,
		byte(bits.TrailingZeros64(window)-zstdWindowLogBase)<<3)
	patched = append(patched, rest...)
	if err := d.Reset(bytes.NewReader(patched)); err != nil {
		return nil, noEOF(err)
	}
	out := []byte{}
	chunk := make([]byte, chunkSize)
	for {
		piece, err := readChunk(d, chunk)
		if err == io.EOF { //nolint:errorlint // Only the bare value means the end.
			return out, nil
		}
		if err != nil {
			return out, err
		}
		if int64(len(out)+len(piece)) > maxBytes {
			return out, ErrTooLarge
		}
		out = append(out, piece...)
	}
}

func (z *zstdSource) next(int64) ([]byte, error) {
	if z.whole == nil {
		return readChunk(z.decoder, z.chunk)
	}
	piece := z.whole
	z.whole = z.whole[len(z.whole):]
	if len(piece) == 0 {
		return nil, io.EOF
	}
	return piece, nil
}

func (z *zstdSource) release() {
	z.whole = nil
	z.in.Reset(nil)
	if z.decoder != nil {
		_ = z.decoder.Reset(nil) // It only fails on a closed decoder.
	}
}
