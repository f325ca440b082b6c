package record_test

import (
	"bytes"
	"testing"

	"github.com/strandline/strandline/internal/record"
)

// FuzzBatch takes any bytes for batches: nothing panics, what is accepted can be
// read, and the walks agree.
func FuzzBatch(f *testing.F) {
	for _, codec := range allCodecs() {
		f.Add(benchmarkBatch(codec, 3, 100), uint16(10), true)
		f.Add(append(benchmarkBatch(codec, 70, 10), benchmarkBatch(codec, 1, 0)...), uint16(1), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, piece uint16, resealed bool) {
		if resealed && len(data) >= record.HeaderSize {
			seal(data)
		}
		for {
			batch, rest, err := record.Next(data)
			if err != nil {
				return
			}
			checkBatch(t, batch, int(piece)+1)
			data = rest
		}
	})
}

func checkBatch(t *testing.T, batch record.Batch, piece int) {
	limits := testLimits()
	limits.MaxDecompressedBytes = 1 << 20
	if batch.Codec() == record.CodecNone {
		checkWalksAgree(t, bytes.Clone(batch.Bytes()), piece)
	}
	accepted := record.ValidateProduced(batch, limits) == nil
	count := int32(0)
	for r, err := range batch.Records(limits.MaxDecompressedBytes) {
		if err != nil {
			if accepted {
				t.Fatalf("accepted, but Records: %v", err)
			}
			return
		}
		if accepted && r.OffsetDelta != count {
			t.Fatalf("accepted, but record %d has offset delta %d", count, r.OffsetDelta)
		}
		count++
	}
	if !accepted {
		return
	}
	if count != batch.RecordCount() {
		t.Fatalf("accepted, but %d of %d records", count, batch.RecordCount())
	}
	b := record.NewBuilder(record.CodecNone, 0)
	b.Rewrite(batch)
	for r := range batch.Records(limits.MaxDecompressedBytes) {
		b.Keep(r)
	}
	again := parseOne(t, b.Build())
	if again.RecordCount() != count || again.MaxTimestamp() != batch.MaxTimestamp() {
		t.Fatalf("built anew, it has %d records and max timestamp %d", again.RecordCount(),
			again.MaxTimestamp())
	}
}

// fuzzCodec takes any bytes for a payload of the codec: nothing panics and
// nothing exceeds the bound; and any bytes for content: they come back.
func fuzzCodec(f *testing.F, codec record.Codec) {
	const bound = 1 << 20
	for name, payload := range payloads() {
		if len(payload) > 100_000 {
			payload = payload[:100_000]
		}
		f.Add(compressed(codec, payload))
		if name == "text" {
			for _, stream := range foreign(f, payload[:1000]) {
				if stream.codec == codec {
					f.Add(stream.src)
				}
			}
		}
	}
	var d record.Decompressor
	c := record.NewCompressor(codec, record.DefaultLevel)
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := d.Decompress(codec, nil, data, bound)
		if len(out) > bound {
			t.Fatalf("%d bytes came out, the bound is %d", len(out), bound)
		}
		again, err2 := record.Decompress(codec, nil, data, bound)
		if (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(out, again) {
			t.Fatalf("a used decompressor gave %d bytes, %v; another %d bytes, %v", len(out), err,
				len(again), err2)
		}
		back, err := d.Decompress(codec, nil, c.Append(nil, data), int64(len(data)))
		if err != nil || !bytes.Equal(back, data) {
			t.Fatalf("the content did not come back: %v", err)
		}
	})
}

func FuzzGzip(f *testing.F) { fuzzCodec(f, record.CodecGzip) }

func FuzzSnappy(f *testing.F) { fuzzCodec(f, record.CodecSnappy) }

func FuzzLZ4(f *testing.F) { fuzzCodec(f, record.CodecLZ4) }

func FuzzZstd(f *testing.F) { fuzzCodec(f, record.CodecZstd) }
