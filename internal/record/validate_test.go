package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/record"
)

// seal gives the batch in buf a matching length and checksum.
func seal(buf []byte) []byte {
	binary.BigEndian.PutUint32(buf[8:], uint32(len(buf)-12))
	binary.BigEndian.PutUint32(buf[17:], crc32.Checksum(buf[21:], crc32.MakeTable(crc32.Castagnoli)))
	return buf
}

// rawBatch is a sealed batch of count records that has payload for them.
func rawBatch(codec record.Codec, count int, payload []byte) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	for range count {
		b.Append(testNow, nil, nil, nil)
	}
	buf := append(bytes.Clone(b.Build()[:record.HeaderSize]), payload...)
	buf[22] |= byte(codec)
	return seal(buf)
}

// compressed is payload compressed with codec.
func compressed(codec record.Codec, payload []byte) []byte {
	return record.NewCompressor(codec, record.DefaultLevel).Append(nil, payload)
}

// plainRecord is a record without its length: attributes, timestamp delta,
// offset delta, null key, null value, no headers.
func plainRecord() []byte { return []byte{0, 0, 0, 1, 1, 0} }

func withLength(body []byte) []byte { return append([]byte{byte(len(body) << 1)}, body...) }

func set16(at int, v uint16) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint16(b[at:], v) }
}

func set32(at int, v int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
}

func set64(at int, v int64) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
}

func both(first, second func([]byte)) func([]byte) {
	return func(b []byte) { first(b); second(b) }
}

func TestValidateProducedHeader(t *testing.T) {
	good := record.NewBuilder(record.CodecNone, 0)
	tests := []struct {
		name   string
		mutate func([]byte)
		want   record.Reason
	}{
		{"as built", func([]byte) {}, 0},
		{"base offset", set64(0, 5), record.ReasonInvalidRecord},
		{"leader epoch does not matter", set32(12, 77), 0},
		{"control batch", set16(21, 1<<5), record.ReasonInvalidRecord},
		{"delete horizon", set16(21, 1<<6), record.ReasonInvalidRecord},
		{"unknown attribute", set16(21, 1<<7), record.ReasonInvalidRecord},
		{"high attribute", set16(21, 1<<15), record.ReasonInvalidRecord},
		{"log append time", set16(21, 1<<3), record.ReasonInvalidTimestamp},
		{"unknown codec", set16(21, 5), record.ReasonUnsupportedCodec},
		{"codec not allowed", set16(21, 4), record.ReasonUnsupportedCodec},
		{"transactional without producer", set16(21, 1<<4), record.ReasonInvalidRecord},
		{"transactional", both(set16(21, 1<<4), both(set64(43, 9), both(set16(51, 0), set32(53, 0)))), 0},
		{"last offset delta too small", set32(23, 0), record.ReasonInvalidRecord},
		{"last offset delta negative", set32(23, -1), record.ReasonInvalidRecord},
		{"last offset delta too large", set32(23, math.MaxInt32), record.ReasonInvalidRecord},
		{"no records", set32(57, 0), record.ReasonInvalidRecord},
		{"negative records", set32(57, -1), record.ReasonInvalidRecord},
		{"fewer records than there are", both(set32(57, 1), set32(23, 0)), record.ReasonInvalidRecord},
		{"more records than there are", both(set32(57, 3), set32(23, 2)), record.ReasonInvalidRecord},
		{
			"most records", both(set32(57, math.MaxInt32), set32(23, math.MaxInt32-1)),
			record.ReasonInvalidRecord,
		},
		{"producer without epoch", both(set64(43, 9), set32(53, 0)), record.ReasonInvalidRecord},
		{"producer without sequence", both(set64(43, 9), set16(51, 0)), record.ReasonInvalidRecord},
		{"negative producer", set64(43, -2), record.ReasonInvalidRecord},
		{"epoch and sequence without producer", both(set16(51, 0), set32(53, 0)), 0},
		{"timestamp too far ahead", set64(27, testNow+3_600_001), record.ReasonInvalidTimestamp},
		{"timestamp just not too far ahead", set64(27, testNow+3_600_000), 0},
		{"timestamp beyond 64 bits", set64(27, math.MaxInt64), record.ReasonInvalidTimestamp},
		{"no timestamp", set64(27, record.NoTimestamp), 0},
		{"before 1970", set64(27, -testNow), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good.Append(testNow, []byte("k"), []byte("v"), nil)
			good.Append(testNow, []byte("k"), []byte("v"), nil)
			buf := bytes.Clone(good.Build())
			test.mutate(buf)
			limits := testLimits()
			limits.AllowedCodecs = record.NewCodecSet(record.CodecNone, record.CodecGzip)
			err := record.ValidateProduced(parseOne(t, seal(buf)), limits)
			checkReason(t, err, test.want)
		})
	}
}

func checkReason(t *testing.T, err error, want record.Reason) {
	t.Helper()
	var got record.Reason
	if invalid, ok := errors.AsType[*record.InvalidError](err); ok {
		got = invalid.Reason
	} else if err != nil {
		t.Fatalf("untyped error %v", err)
	}
	if got != want {
		t.Errorf("got %v, want %v: %v", got, want, err)
	}
}

func TestValidateProducedRecords(t *testing.T) {
	tests := []struct {
		name string
		body []byte // Without its length.
		ok   bool
	}{
		{"plain", plainRecord(), true},
		{"unused attribute bits", []byte{0xFF, 0, 0, 1, 1, 0}, true},
		{"empty key and value", []byte{0, 0, 0, 0, 0, 0}, true},
		{"header", []byte{0, 0, 0, 1, 1, 2, 2, 'h', 2, 'v'}, true},
		{"header with null value", []byte{0, 0, 0, 1, 1, 2, 0, 1}, true},
		{"long varints", []byte{0, 0x80, 0x80, 0, 0x80, 0, 0x81, 0, 0x81, 0x80, 0, 0x80, 0}, true},
		{"longest varlong", []byte{
			0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 1, 1,
			0,
		}, true},
		{"varlong too long", []byte{
			0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0,
			1, 1, 0,
		}, false},
		{"varlong overflows", []byte{
			0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2, 0, 1, 1,
			0,
		}, false},
		{"varint too long", []byte{0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0}, false},
		{"varint overflows", []byte{0, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 0}, false},
		{"offset delta", []byte{0, 0, 2, 1, 1, 0}, false},
		{"negative offset delta", []byte{0, 0, 1, 1, 1, 0}, false},
		{"key length below null", []byte{0, 0, 0, 3, 1, 0}, false},
		{"value length below null", []byte{0, 0, 0, 1, 3, 0}, false},
		{"key beyond the record", []byte{0, 0, 0, 8, 1, 0}, false},
		{"value beyond the record", []byte{0, 0, 0, 1, 4, 0}, false},
		{"key of 2 GiB", []byte{0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 1, 0}, false},
		{"negative header count", []byte{0, 0, 0, 1, 1, 1}, false},
		{"header count of 2^31-1", []byte{0, 0, 0, 1, 1, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F}, false},
		{"header with null key", []byte{0, 0, 0, 1, 1, 2, 1, 1}, false},
		{"header key beyond the record", []byte{0, 0, 0, 1, 1, 2, 4, 'h'}, false},
		{"header value length below null", []byte{0, 0, 0, 1, 1, 2, 0, 3}, false},
		{"header value beyond the record", []byte{0, 0, 0, 1, 1, 2, 0, 2}, false},
		{"bytes after the headers", []byte{0, 0, 0, 1, 1, 0, 0}, false},
		{"too short", []byte{0, 0, 0, 1, 1}, false},
		{"empty", nil, false},
	}
	for _, test := range tests {
		for _, codec := range allCodecs() {
			t.Run(test.name+"/"+codec.String(), func(t *testing.T) {
				payload := withLength(test.body)
				batch := parseOne(t, rawBatch(codec, 1, compressed(codec, payload)))
				want := record.ReasonInvalidRecord
				if test.ok {
					want = 0
				}
				checkReason(t, record.ValidateProduced(batch, testLimits()), want)
			})
		}
	}
}

func TestValidateProducedPayload(t *testing.T) {
	one := withLength(plainRecord())
	large := withLargeLength(append([]byte{0, 0, 0, 1, 0x80, 0x80, 0x80, 1}, make([]byte, 1<<20+1)...))
	tests := []struct {
		name    string
		payload []byte
		want    record.Reason
	}{
		{"one record", one, 0},
		{"a large record", large, 0},
		{"bytes after it", append(bytes.Clone(one), 0), record.ReasonInvalidRecord},
		{"a record too many", append(bytes.Clone(one), one...), record.ReasonInvalidRecord},
		{"nothing", nil, record.ReasonInvalidRecord},
		{"cut off in the length", []byte{0x80}, record.ReasonInvalidRecord},
		{"cut off", one[:4], record.ReasonInvalidRecord},
		{"longer than there is", []byte{100, 0, 0, 0, 1, 1, 0}, record.ReasonInvalidRecord},
		{"negative length", []byte{1, 0, 0, 0, 1, 1, 0}, record.ReasonInvalidRecord},
		{"more than the bound", nil, record.ReasonTooLarge},
	}
	limits := testLimits()
	limits.MaxBatchBytes, limits.MaxDecompressedBytes = 4<<20, 2<<20
	for _, test := range tests {
		for _, codec := range allCodecs() {
			t.Run(test.name+"/"+codec.String(), func(t *testing.T) {
				count, want := 1, test.want
				if want == record.ReasonTooLarge {
					// The walk must get as far as the bound: one record fills it.
					body := append([]byte{0, 0, 0, 1, 0x80, 0x80, 0x80, 2}, make([]byte, 2<<20+1)...)
					test.payload = withLargeLength(body)
					if codec == record.CodecNone {
						want = 0
					}
				}
				batch := parseOne(t, rawBatch(codec, count, compressed(codec, test.payload)))
				checkReason(t, record.ValidateProduced(batch, limits), want)
			})
		}
	}
}

// withLargeLength is withLength for a body that needs more bytes for it.
func withLargeLength(body []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(body))<<1), body...)
}

func TestValidateProducedLimits(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(testNow, []byte("k"), nil, nil)
	b.Append(testNow-100, nil, nil, nil)
	batch := parseOne(t, bytes.Clone(b.Build()))
	tests := []struct {
		name   string
		change func(*record.ProduceLimits)
		want   record.Reason
		index  int32
	}{
		{"none", func(*record.ProduceLimits) {}, 0, 0},
		{"size", func(l *record.ProduceLimits) { l.MaxBatchBytes = batch.Size() }, 0, 0},
		{
			"size too large", func(l *record.ProduceLimits) { l.MaxBatchBytes = batch.Size() - 1 },
			record.ReasonTooLarge, -1,
		},
		{
			"key required", func(l *record.ProduceLimits) { l.KeyRequired = true },
			record.ReasonInvalidRecord, 1,
		},
		{
			"behind", func(l *record.ProduceLimits) { l.TimestampBeforeMaxMs = 99 },
			record.ReasonInvalidTimestamp, 1,
		},
		{"just not behind", func(l *record.ProduceLimits) { l.TimestampBeforeMaxMs = 100 }, 0, 0},
		{
			"ahead", func(l *record.ProduceLimits) { l.NowMs -= 3_600_001 },
			record.ReasonInvalidTimestamp, 0,
		},
		{"ahead under LogAppendTime", func(l *record.ProduceLimits) {
			l.NowMs, l.LogAppendTime = 0, true
		}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			limits := testLimits()
			test.change(&limits)
			err := record.ValidateProduced(batch, limits)
			checkReason(t, err, test.want)
			if invalid, ok := errors.AsType[*record.InvalidError](err); ok &&
				invalid.RecordIndex != test.index {
				t.Errorf("record index %d, want %d", invalid.RecordIndex, test.index)
			}
		})
	}
}

func TestValidateProducedCorrectsMaxTimestamp(t *testing.T) {
	b := record.NewBuilder(record.CodecZstd, 0)
	b.Append(testNow, nil, nil, nil)
	b.Append(testNow+7, nil, nil, nil)
	buf := bytes.Clone(b.Build())
	set64(35, 0)(buf)
	batch := parseOne(t, seal(buf))
	checkReason(t, record.ValidateProduced(batch, testLimits()), 0)
	if batch.MaxTimestamp() != testNow+7 {
		t.Errorf("max timestamp is %d", batch.MaxTimestamp())
	}
	if err := batch.CheckCRC(); err != nil {
		t.Error(err)
	}
}

// TestBitFlips shows that no single flipped bit is accepted, except in the
// fields that the checksum leaves to the broker.
func TestBitFlips(t *testing.T) {
	b := record.NewBuilder(record.CodecLZ4, 0)
	b.Append(testNow, []byte("key"), []byte("value"), nil)
	good := bytes.Clone(b.Build())
	for bit := range len(good) * 8 {
		if at := bit / 8; at >= 12 && at < 16 { // The leader epoch.
			continue
		}
		buf := bytes.Clone(good)
		buf[bit/8] ^= 1 << (bit % 8)
		batch, _, err := record.Next(buf)
		if err == nil {
			err = record.ValidateProduced(batch, testLimits())
		}
		if err == nil {
			t.Errorf("bit %d of byte %d flipped and nobody saw", bit%8, bit/8)
		}
	}
}

// TestWalksAgree builds random batches, damages some, and shows that the three
// walks say the same: fast, record by record, and in pieces of any size.
func TestWalksAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := record.NewBuilder(record.CodecNone, 0)
		bytesOf := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 10),
			rapid.SliceOfN(rapid.Byte(), 60, 70),
			rapid.Custom(func(t *rapid.T) []byte {
				return make([]byte, rapid.IntRange(8180, 8200).Draw(t, "size"))
			}))
		for range rapid.IntRange(1, 150).Draw(t, "records") {
			var headers []record.Header
			if rapid.IntRange(0, 9).Draw(t, "with headers") == 0 {
				headers = []record.Header{{Key: "key", Value: bytesOf.Draw(t, "header")}}
			}
			b.Append(testNow+rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(-1e5, 1e5),
				rapid.Int64Range(0, 4e6)).Draw(t, "time"),
				bytesOf.Draw(t, "key"), bytesOf.Draw(t, "value"), headers)
		}
		buf := bytes.Clone(b.Build())
		for range rapid.IntRange(0, 2).Draw(t, "damages") {
			at := rapid.IntRange(record.HeaderSize, len(buf)-1).Draw(t, "at")
			buf[at] = rapid.Byte().Draw(t, "byte")
		}
		checkWalksAgree(t, seal(buf), rapid.IntRange(1, 300).Draw(t, "piece"))
	})
}

// checkWalksAgree compares the walks over an uncompressed batch.
func checkWalksAgree(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, buf []byte, piece int,
) {
	t.Helper()
	batch, _, err := record.Next(buf)
	if err != nil || batch.RecordCount() <= 0 {
		return
	}
	limits := testLimits()
	limits.TimestampBeforeMaxMs = 90_000
	limits.KeyRequired = batch.Size()%2 == 0
	slow := record.ValidateSlowly(batch, limits)
	pieces := record.ValidateInPieces(batch, limits, piece)
	if (slow == nil) != (pieces == nil) {
		t.Fatalf("slowly: %v; in pieces of %d: %v", slow, piece, pieces)
	}
	maxTimestamp := batch.MaxTimestamp()
	fast := record.ValidateProduced(batch, limits)
	if slow != nil && fast == nil {
		t.Fatalf("slowly: %v; fast: accepted", slow)
	}
	if slow == nil && fast != nil {
		invalid, ok := errors.AsType[*record.InvalidError](fast)
		if !ok || invalid.RecordIndex != record.WholeBatch {
			t.Fatalf("slowly: accepted; fast: %v", fast)
		}
	}
	if fast == nil {
		greatest, n := int64(math.MinInt64), int32(0)
		for r, err := range batch.Records(limits.MaxDecompressedBytes) {
			if err != nil {
				t.Fatalf("accepted, but Records: %v", err)
			}
			if r.OffsetDelta != n {
				t.Fatalf("record %d has offset delta %d", n, r.OffsetDelta)
			}
			greatest, n = max(greatest, r.Timestamp), n+1
		}
		if n != batch.RecordCount() || greatest != batch.MaxTimestamp() {
			t.Fatalf("%d records, max timestamp %d (was %d), header says %d, %d",
				n, greatest, maxTimestamp, batch.RecordCount(), batch.MaxTimestamp())
		}
	}
}
