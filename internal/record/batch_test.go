package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

func TestNext(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(testNow, nil, []byte("one"), nil)
	one := bytes.Clone(b.Build())
	b.Append(testNow, nil, []byte("second"), nil)
	two := append(bytes.Clone(one), b.Build()...)

	first, rest, err := record.Next(two)
	if err != nil || !bytes.Equal(first.Bytes(), one) {
		t.Fatalf("first batch: %v", err)
	}
	second, rest, err := record.Next(rest)
	if err != nil || len(rest) != 0 || second.Size() != len(two)-len(one) {
		t.Fatalf("second batch: %d bytes, %d left, %v", second.Size(), len(rest), err)
	}
	for n := range one {
		if _, rest, err := record.Next(one[:n]); !errors.Is(err, record.ErrShort) || len(rest) != n {
			t.Errorf("%d bytes: %v, rest of %d", n, err, len(rest))
		}
	}
	if size, err := record.Size(one[:12]); err != nil || size != len(one) {
		t.Errorf("size %d, %v", size, err)
	}
	for name, test := range map[string]struct {
		mutate func([]byte)
		want   record.Reason
	}{
		"magic 0":         {func(b []byte) { b[16] = 0 }, record.ReasonInvalidRecord},
		"magic 1":         {func(b []byte) { b[16] = 1 }, record.ReasonInvalidRecord},
		"magic 3":         {func(b []byte) { b[16] = 3 }, record.ReasonInvalidRecord},
		"length of 48":    {set32(8, 48), record.ReasonCorrupt},
		"length of 0":     {set32(8, 0), record.ReasonCorrupt},
		"negative length": {set32(8, math.MinInt32), record.ReasonCorrupt},
	} {
		buf := bytes.Clone(one)
		test.mutate(buf)
		batch, _, err := record.Next(buf)
		if !batch.IsZero() {
			t.Errorf("%s: a batch came out", name)
		}
		checkReason(t, err, test.want)
	}
	huge := bytes.Clone(one)
	set32(8, math.MaxInt32)(huge)
	if _, _, err := record.Next(huge); !errors.Is(err, record.ErrShort) {
		t.Errorf("length of 2 GiB: %v", err)
	}
}

func TestLastSequenceWraps(t *testing.T) {
	for _, test := range []struct {
		base  int32
		count int
		want  int32
	}{
		{0, 1, 0},
		{0, 5, 4},
		{math.MaxInt32, 1, math.MaxInt32},
		{
			math.MaxInt32, 2,
			0,
		},
		{math.MaxInt32 - 1, 4, 1},
		{record.NoSequence, 4, record.NoSequence},
	} {
		b := record.NewBuilder(record.CodecNone, 0)
		b.SetProducer(1, 0, test.base)
		for range test.count {
			b.Append(0, nil, nil, nil)
		}
		if got := parseOne(t, b.Build()).LastSequence(); got != test.want {
			t.Errorf("%d records from %d end at %d, want %d", test.count, test.base, got, test.want)
		}
	}
}

// TestBuilderAgreesWithProtocolLibrary compares the bytes with those of another
// implementation.
func TestBuilderAgreesWithProtocolLibrary(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetBase(1234, 7)
	b.SetProducer(99, 3, 500)
	b.SetTransactional()
	b.Append(testNow, []byte("key"), nil, []record.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}})
	b.Append(testNow-300, nil, bytes.Repeat([]byte("v"), 300), nil)
	got := b.Build()

	var records []byte
	for _, r := range []kmsg.Record{
		{Key: []byte("key"), Headers: []kmsg.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}}},
		{TimestampDelta64: -300, OffsetDelta: 1, Value: bytes.Repeat([]byte("v"), 300)},
	} {
		r.Length = int32(len(r.AppendTo(nil)) - 1) // A length of 0 takes one byte.
		records = r.AppendTo(records)
	}
	want := kmsg.RecordBatch{
		FirstOffset: 1234, PartitionLeaderEpoch: 7, Magic: 2, Attributes: 1 << 4, LastOffsetDelta: 1,
		FirstTimestamp: testNow, MaxTimestamp: testNow, ProducerID: 99, ProducerEpoch: 3,
		FirstSequence: 500,
		NumRecords:    2, Records: records, Length: int32(len(records) + 49),
	}
	raw := want.AppendTo(nil)
	want.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	if diff := cmp.Diff(want.AppendTo(nil), got); diff != "" {
		t.Errorf("bytes (-library +ours):\n%s", diff)
	}
}

func TestRewriteKeepsOffsets(t *testing.T) {
	for _, codec := range allCodecs() {
		t.Run(codec.String(), func(t *testing.T) {
			b := record.NewBuilder(codec, 0)
			b.SetBase(1000, 4)
			b.SetProducer(5, 1, 70)
			for i := range 10 {
				b.Append(testNow+int64(i), []byte{byte('a' + i)}, []byte("value"), nil)
			}
			old := parseOne(t, bytes.Clone(b.Build()))

			b.Rewrite(old)
			var want []record.Record
			for _, r := range collect(t, old) {
				if r.OffsetDelta%4 == 2 {
					b.Keep(r)
					want = append(want, r)
				}
			}
			kept := parseOne(t, bytes.Clone(b.Build()))
			if diff := cmp.Diff(want, collect(t, kept)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if kept.LastOffset() != 1009 || kept.BaseOffset() != 1000 || kept.LastSequence() != 79 ||
				kept.LeaderEpoch() != 4 ||
				kept.MaxTimestamp() != testNow+6 || kept.RecordCount() != 2 || kept.Codec() != codec {
				t.Errorf("header: %x", kept.Bytes()[:record.HeaderSize])
			}
			if err := kept.CheckCRC(); err != nil {
				t.Error(err)
			}

			b.Rewrite(kept)
			b.SetDeleteHorizon(testNow + 99)
			for _, r := range want {
				b.Keep(r)
			}
			horizon := parseOne(t, bytes.Clone(b.Build()))
			if ms, ok := horizon.DeleteHorizon(); !ok || ms != testNow+99 {
				t.Errorf("delete horizon %d, %v", ms, ok)
			}
			if diff := cmp.Diff(want, collect(t, horizon)); diff != "" {
				t.Errorf("records under a delete horizon (-want +got):\n%s", diff)
			}

			b.Rewrite(old) // Nothing is kept but the last sequence.
			empty := parseOne(t, b.Build())
			if empty.RecordCount() != 0 || empty.LastOffset() != 1009 || empty.LastSequence() != 79 ||
				len(collect(t, empty)) != 0 {
				t.Errorf("empty batch: %x", empty.Bytes())
			}
		})
	}
}

func TestRewriteUnderLogAppendTime(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(testNow, []byte("a"), nil, nil)
	b.Append(testNow, []byte("b"), nil, nil)
	old := parseOne(t, bytes.Clone(b.Build()))
	old.StampLogAppendTime(testNow + 5)
	b.Rewrite(old)
	for _, r := range collect(t, old)[1:] {
		b.Keep(r)
	}
	kept := parseOne(t, b.Build())
	if got := collect(t, kept); len(got) != 1 || got[0].Timestamp != testNow+5 ||
		kept.TimestampType() != record.LogAppendTime {
		t.Errorf("records %+v", got)
	}
}

func TestControlBatch(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(7, 2, record.NoSequence)
	b.SetTransactional()
	b.SetControl()
	b.Append(testNow, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9}, nil)
	batch := parseOne(t, b.Build())
	if !batch.IsControl() || !batch.IsTransactional() || batch.LastSequence() != record.NoSequence {
		t.Errorf("attributes %b, last sequence %d", batch.Attributes(), batch.LastSequence())
	}
	checkReason(t, record.ValidateProduced(batch, testLimits()), record.ReasonInvalidRecord)
}

func TestRecordsStopsWhenAsked(t *testing.T) {
	b := record.NewBuilder(record.CodecNone, 0)
	for range 3 {
		b.Append(testNow, nil, nil, nil)
	}
	n := 0
	for range parseOne(t, b.Build()).Records(0) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d records", n)
	}
}

func TestRecordsReportsDamage(t *testing.T) {
	one := withLength(plainRecord())
	var d record.Decompressor
	for _, codec := range allCodecs() {
		for name, payload := range map[string][]byte{
			"cut off":  one[:3],
			"trailing": append(bytes.Clone(one), 1),
			"nothing":  {},
		} {
			batch := parseOne(t, rawBatch(codec, 1, compressed(codec, payload)))
			for _, records := range []func(func(record.Record, error) bool){
				batch.Records(1 << 20),
				d.Records(batch, 1<<20),
			} {
				var last error
				for _, err := range records {
					last = err
				}
				if _, ok := errors.AsType[*record.InvalidError](last); !ok {
					t.Errorf("%s, %s: got %v", codec, name, last)
				}
			}
		}
		if codec == record.CodecNone {
			continue
		}
		batch := parseOne(t, rawBatch(codec, 1, compressed(codec, one)))
		for _, err := range batch.Records(int64(len(one)) - 1) {
			checkReason(t, err, record.ReasonTooLarge)
		}
	}
}

// TestHotPathDoesNotAllocate holds what a produce costs.
func TestHotPathDoesNotAllocate(t *testing.T) {
	limits := testLimits()
	data := benchmarkBatch(record.CodecNone, 140, 100)
	noAllocations(t, "validate", func() {
		batch, _, err := record.Next(data)
		if err == nil {
			err = record.ValidateProduced(batch, limits)
		}
		if err != nil {
			t.Fatal(err)
		}
		batch.Stamp(0, 6)
	})
	b := record.NewBuilder(record.CodecNone, 0)
	noAllocations(t, "build", func() {
		for range 10 {
			b.Append(testNow, []byte("key"), []byte("value"), nil)
		}
		b.Build()
	})
	// The pool may lose its decompressors to a garbage collection at any time,
	// so an owned one is measured; zstd has such a pool inside.
	var d record.Decompressor
	for _, codec := range []record.Codec{record.CodecGzip, record.CodecSnappy, record.CodecLZ4} {
		payload := compressed(codec, data)
		dst := make([]byte, 0, len(data))
		noAllocations(t, "decompress "+codec.String(), func() {
			if _, err := d.Decompress(codec, dst, payload, 1<<20); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func noAllocations(t *testing.T, what string, f func()) {
	t.Helper()
	if allocs := testing.AllocsPerRun(100, f); allocs >= 1 {
		t.Errorf("%s: %v allocations", what, allocs)
	}
}

// TestDocumentHasThePositions holds docs/format/record-batch.md to the code.
func TestDocumentHasThePositions(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format/record-batch.md")
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetBase(kafka.Offset(0x0102030405060708), 0x11121314)
	b.SetProducer(0x2122232425262728, 0x3132, 0x41424344)
	b.Append(0x5152535455565758, nil, nil, nil)
	raw := b.Build()
	for field, value := range map[string]any{
		"base offset":    int64(0x0102030405060708),
		"leader epoch":   int32(0x11121314),
		"producer id":    int64(0x2122232425262728),
		"producer epoch": int16(0x3132),
		"base sequence":  int32(0x41424344),
		"base timestamp": int64(0x5152535455565758),
	} {
		var want bytes.Buffer
		if err := binary.Write(&want, binary.BigEndian, value); err != nil {
			t.Fatal(err)
		}
		row := "| " + strconv.Itoa(bytes.Index(raw, want.Bytes())) + " | " + field + " |"
		if !strings.Contains(string(doc), row) {
			t.Errorf("the document lacks the row %q", row)
		}
	}
}
