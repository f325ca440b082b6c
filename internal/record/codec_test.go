package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/strandline/strandline/internal/record"
)

// payloads are inputs of every size class of the codecs.
func payloads() map[string][]byte {
	random := make([]byte, 300_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog, "), 5_000)
	return map[string][]byte{
		"empty":          {},
		"one byte":       {7},
		"random":         random,
		"text":           text,
		"zeros":          make([]byte, 300_000),
		"one lz4 block":  text[:64<<10],
		"and a byte":     text[:64<<10+1],
		"snappy block":   text[:32<<10],
		"text and noise": append(text[:100_000:100_000], random...),
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	var d record.Decompressor
	for _, codec := range allCodecs() {
		levels := []int{record.DefaultLevel}
		if codec == record.CodecGzip || codec == record.CodecZstd {
			levels = append(levels, -5, 1, 9, 22)
		}
		for _, level := range levels {
			c := record.NewCompressor(codec, level)
			for name, payload := range payloads() {
				t.Run(fmt.Sprintf("%s/%d/%s", codec, level, name), func(t *testing.T) {
					src := c.Append([]byte("prefix"), payload)[len("prefix"):]
					got, err := d.Decompress(codec, []byte("before "), src, int64(len(payload)))
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, append([]byte("before "), payload...)) {
						t.Error("it is not what was compressed")
					}
					if len(payload) > 0 {
						if _, err := d.Decompress(codec, nil, src, int64(len(payload))-1); !errors.Is(err,
							record.ErrTooLarge) {
							t.Errorf("a byte less than needed: %v", err)
						}
					}
				})
			}
		}
	}
}

// foreign is a payload as other clients compress it.
func foreign(t testing.TB, payload []byte) map[string]struct {
	codec record.Codec
	src   []byte
} {
	t.Helper()
	type stream = struct {
		codec record.Codec
		src   []byte
	}
	write := func(open func(io.Writer) io.WriteCloser) []byte {
		var buf bytes.Buffer
		w := open(&buf)
		if _, err := w.Write(payload); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return buf.Bytes()
	}
	lz4Stream := func(options ...lz4.Option) []byte {
		return write(func(w io.Writer) io.WriteCloser {
			z := lz4.NewWriter(w)
			if err := z.Apply(options...); err != nil {
				t.Fatal(err)
			}
			return z
		})
	}
	zstdStream := func(options ...zstd.EOption) []byte {
		return write(func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w, options...)
			if err != nil {
				t.Fatal(err)
			}
			return z
		})
	}
	members := write(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	return map[string]stream{
		"snappy, raw":       {record.CodecSnappy, s2.EncodeSnappy(nil, payload)},
		"snappy, raw, best": {record.CodecSnappy, s2.EncodeSnappyBest(nil, payload)},
		"gzip":              {record.CodecGzip, members},
		"lz4, checksums": {record.CodecLZ4, lz4Stream(lz4.BlockChecksumOption(true),
			lz4.ChecksumOption(true))},
		"lz4, blocks of 4 MiB": {record.CodecLZ4, lz4Stream(lz4.BlockSizeOption(lz4.Block4Mb))},
		"lz4, content size":    {record.CodecLZ4, lz4Stream(lz4.SizeOption(uint64(len(payload))))},
		"zstd, stream":         {record.CodecZstd, zstdStream()},
		"zstd, window of 64 MiB": {record.CodecZstd, zstdStream(zstd.WithWindowSize(64<<20),
			zstd.WithEncoderConcurrency(1))},
		"zstd, single segment": {record.CodecZstd, zstdStream(zstd.WithSingleSegment(true),
			zstd.WithEncoderCRC(true))},
	}
}

func TestForeignStreams(t *testing.T) {
	for name, payload := range payloads() {
		for kind, stream := range foreign(t, payload) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				if len(stream.src) == 0 && len(payload) == 0 {
					return // The library writes nothing for nothing.
				}
				got, err := record.Decompress(stream.codec, nil, stream.src, int64(len(payload)))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, payload) {
					t.Error("it is not what was compressed")
				}
				if len(payload) == 0 {
					return
				}
				if _, err := record.Decompress(stream.codec, nil, stream.src,
					int64(len(payload))-1); !errors.Is(err, record.ErrTooLarge) {
					t.Errorf("a byte less than needed: %v", err)
				}
				for _, n := range []int{0, 1, len(stream.src) / 2, len(stream.src) - 1} {
					if _, err := record.Decompress(stream.codec, nil, stream.src[:n], 1<<30); err == nil {
						t.Errorf("cut off after %d of %d bytes: no error", n, len(stream.src))
					}
				}
			})
		}
	}
}

func TestLargeWindowStaysInBound(t *testing.T) {
	payload := make([]byte, 2<<20)
	for kind, stream := range foreign(t, payload) {
		t.Run(kind, func(t *testing.T) {
			if _, err := record.Decompress(stream.codec, nil, stream.src, 1<<20); !errors.Is(err,
				record.ErrTooLarge) {
				t.Errorf("got %v", err)
			}
			if got, err := record.Decompress(stream.codec, nil, stream.src, 2<<20); err != nil ||
				len(got) != len(payload) {
				t.Errorf("got %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestLargeWindowIsUsed decompresses what refers back further than the small
// window that is tried first.
func TestLargeWindowIsUsed(t *testing.T) {
	half := make([]byte, 8<<20+1000)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range half {
		half[i] = byte(rng.Uint32())
	}
	payload := append(half, half...)
	for _, singleSegment := range []bool{false, true} {
		w, err := zstd.NewWriter(nil, zstd.WithWindowSize(64<<20),
			zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
			zstd.WithSingleSegment(singleSegment), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		src := w.EncodeAll(payload, nil)
		if len(src) > 10<<20 {
			t.Fatalf("the encoder did not look back: %d bytes", len(src))
		}
		got, err := record.Decompress(record.CodecZstd, nil, src, int64(len(payload)))
		if err != nil || !bytes.Equal(got, payload) {
			t.Errorf("single segment %v: %d bytes, %v", singleSegment, len(got), err)
		}
		if singleSegment {
			continue
		}
		src[len(src)-10] ^= 1
		if _, err := record.Decompress(record.CodecZstd, nil, src, int64(len(payload))); err == nil {
			t.Error("damaged, but no error")
		}
	}
}

// snappyOf is a raw block that declares a length.
func snappyOf(declared uint64, elements ...byte) []byte {
	return append(binary.AppendUvarint(nil, declared), elements...)
}

// xerialOf frames blocks, each with the length it is said to have.
func xerialOf(length uint32, block []byte) []byte {
	head := []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}
	return append(binary.BigEndian.AppendUint32(head, length), block...)
}

// lz4Of is a frame with the given flags and descriptor, and a right checksum.
func lz4Of(flags, descriptor byte, rest ...byte) []byte {
	head := []byte{4, 0x22, 0x4D, 0x18, flags, descriptor}
	return append(append(head, byte(record.XXH32(head[4:])>>8)), rest...)
}

func TestForgedPayloads(t *testing.T) {
	tests := []struct {
		name  string
		codec record.Codec
		src   []byte
	}{
		// CVE-2023-34455: chunk lengths of 2 GiB for a few bytes.
		{"xerial chunk of 2 GiB", record.CodecSnappy, xerialOf(0x7FFFFFFF, snappyOf(1, 0, 'a'))},
		{"xerial chunk of 4 GiB", record.CodecSnappy, xerialOf(0xFFFFFFFF, snappyOf(1, 0, 'a'))},
		{"xerial block declares 1 GiB", record.CodecSnappy, xerialOf(7, snappyOf(1<<30, 0, 'a'))},
		{"snappy declares 1 GiB", record.CodecSnappy, snappyOf(1<<30, 0, 'a')},
		{"snappy declares 2^63", record.CodecSnappy, snappyOf(1<<63, 0, 'a')},
		{"snappy declares less", record.CodecSnappy, snappyOf(1, 1<<2, 'a', 'b')},
		{"snappy literal of 4 GiB", record.CodecSnappy, snappyOf(1<<20, 63<<2, 0xFF, 0xFF, 0xFF, 0xFF,
			'a')},
		{"snappy literal's length cut off", record.CodecSnappy, snappyOf(1<<20, 63<<2, 0xFF)},
		{"snappy copy from before the start", record.CodecSnappy, snappyOf(5, 0, 'a', 1, 9)},
		{"s2's copy with offset 0", record.CodecSnappy, snappyOf(9, 0, 'a', 1, 1, 1, 0)},
		{"snappy copies cut off", record.CodecSnappy, snappyOf(9, 0, 'a', 1)},
		{"snappy wide copy cut off", record.CodecSnappy, snappyOf(9, 0, 'a', 2, 1)},
		{"snappy widest copy cut off", record.CodecSnappy, snappyOf(9, 0, 'a', 3, 1, 0, 0)},
		{"xerial header alone, cut off", record.CodecSnappy, xerialOf(0, nil)[:18]},
		{"gzip header", record.CodecGzip, []byte{0x1F, 0x8B, 8, 0}},
		{"gzip magic", record.CodecGzip, bytes.Repeat([]byte{1}, 100)},
		{"lz4 magic", record.CodecLZ4, bytes.Repeat([]byte{1}, 100)},
		{"lz4 legacy frame", record.CodecLZ4, []byte{2, 0x21, 0x4C, 0x18, 0, 0, 0, 0, 0}},
		{"lz4 version", record.CodecLZ4, lz4Of(0xA0, 0x40, 0, 0, 0, 0)},
		{"lz4 reserved flag", record.CodecLZ4, lz4Of(0x62, 0x40, 0, 0, 0, 0)},
		{"lz4 dictionary", record.CodecLZ4, lz4Of(0x61, 0x40, 0, 0, 0, 0)},
		{"lz4 linked blocks", record.CodecLZ4, lz4Of(0x40, 0x40, 0, 0, 0, 0)},
		{"lz4 block size", record.CodecLZ4, lz4Of(0x60, 0x30, 0, 0, 0, 0)},
		{"lz4 header checksum", record.CodecLZ4, []byte{4, 0x22, 0x4D, 0x18, 0x60, 0x40, 0, 0, 0, 0, 0}},
		{"lz4 no end mark", record.CodecLZ4, lz4Of(0x60, 0x40)},
		{"lz4 no content checksum", record.CodecLZ4, lz4Of(0x64, 0x40, 0, 0, 0, 0)},
		{"lz4 trailing bytes", record.CodecLZ4, lz4Of(0x60, 0x40, 0, 0, 0, 0, 0)},
		{"lz4 block larger than the frame's", record.CodecLZ4, lz4Of(0x60, 0x40, 0xFF, 0xFF, 0xFF, 0x7F)},
		{"lz4 block cut off", record.CodecLZ4, lz4Of(0x60, 0x70, 0xFF, 0xFF, 0, 0)},
		{"lz4 block checksum", record.CodecLZ4, lz4Of(0x70, 0x40, 1, 0, 0, 0x80, 'a', 1, 2, 3, 4, 0, 0,
			0, 0)},
		{"lz4 block checksum cut off", record.CodecLZ4, lz4Of(0x70, 0x40, 1, 0, 0, 0x80, 'a', 1, 2)},
		{"lz4 malformed block", record.CodecLZ4, lz4Of(0x60, 0x40, 3, 0, 0, 0, 0x10, 'a', 9, 0, 0, 0, 0)},
		{"zstd magic", record.CodecZstd, bytes.Repeat([]byte{1}, 100)},
		{"zstd window of 2 GiB", record.CodecZstd, []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 0xA8, 1, 0, 0}},
		{"zstd content of 2^62", record.CodecZstd, []byte{
			0x28, 0xB5, 0x2F, 0xFD, 0xE0, 0, 0, 0, 0, 0, 0,
			0, 0x40, 1, 0, 0,
		}},
		{"unknown codec", record.Codec(5), []byte{1, 2, 3}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const bound = 256 << 20
			if allocated := allocatedBy(func() {
				if out, err := record.Decompress(test.codec, nil, test.src, bound); err == nil {
					t.Errorf("no error, %d bytes", len(out))
				}
			}); allocated > 16<<20 {
				t.Errorf("it allocated %d bytes for %d", allocated, len(test.src))
			}
		})
	}
}

func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBombsAreStreamed shows that validating what decompresses to much takes
// memory of neither the bound nor the content.
func TestBombsAreStreamed(t *testing.T) {
	const size = 16 << 20
	body := append([]byte{0, 0, 0, 1}, binary.AppendUvarint(nil, size<<1)...)
	payload := withLargeLength(append(append(body, make([]byte, size)...), 0))
	for _, codec := range []record.Codec{record.CodecGzip, record.CodecLZ4, record.CodecZstd} {
		t.Run(codec.String(), func(t *testing.T) {
			batch := parseOne(t, rawBatch(codec, 1, compressed(codec, payload)))
			limits := testLimits()
			limits.MaxDecompressedBytes = 2 * size
			allocated := allocatedBy(func() {
				if err := record.ValidateProduced(batch, limits); err != nil {
					t.Error(err)
				}
			})
			if allocated > 8<<20 {
				t.Errorf("it allocated %d bytes", allocated)
			}
		})
	}
}

// TestBombsAreRefused shows that what decompresses to far more than the bound, or
// says that it does, is refused with memory for the bound alone.
func TestBombsAreRefused(t *testing.T) {
	const bound, size = 1 << 20, 128 << 20
	body := append([]byte{0, 0, 0, 1}, binary.AppendUvarint(nil, size<<1)...)
	payload := withLargeLength(append(append(body, make([]byte, size)...), 0))
	for _, codec := range []record.Codec{record.CodecGzip, record.CodecSnappy, record.CodecLZ4, record.CodecZstd} {
		t.Run(codec.String(), func(t *testing.T) {
			bomb := compressed(codec, payload)
			var err, refused error
			allocated := allocatedBy(func() { _, err = record.Decompress(codec, nil, bomb, bound) })
			if !errors.Is(err, record.ErrTooLarge) {
				t.Errorf("decompress: %v", err)
			}
			if allocated > 8<<20 {
				t.Errorf("decompress allocated %d bytes", allocated)
			}
			batch, limits := parseOne(t, rawBatch(codec, 1, bomb)), testLimits()
			limits.MaxBatchBytes, limits.MaxDecompressedBytes = len(bomb)+1000, bound
			allocated = allocatedBy(func() { refused = record.ValidateProduced(batch, limits) })
			var invalid *record.InvalidError
			if !errors.As(refused, &invalid) || invalid.Reason != record.ReasonTooLarge {
				t.Errorf("validate: %v", refused)
			}
			if allocated > 8<<20 {
				t.Errorf("validate allocated %d bytes", allocated)
			}
		})
	}
}

func TestParseCodec(t *testing.T) {
	for _, codec := range allCodecs() {
		if got, err := record.ParseCodec(codec.String()); err != nil || got != codec {
			t.Errorf("%s: got %v, %v", codec, got, err)
		}
	}
	if _, err := record.ParseCodec("producer"); err == nil {
		t.Error("no error")
	}
}
