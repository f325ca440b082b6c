package record_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/record"
)

// allCodecs is every codec, by value.
func allCodecs() []record.Codec {
	return []record.Codec{
		record.CodecNone, record.CodecGzip, record.CodecSnappy, record.CodecLZ4,
		record.CodecZstd,
	}
}

const testNow = 1_700_000_000_000

// testLimits allows what a topic with Kafka's defaults allows.
func testLimits() record.ProduceLimits {
	return record.ProduceLimits{
		MaxBatchBytes:        1 << 20,
		MaxDecompressedBytes: 16 << 20,
		NowMs:                testNow,
		TimestampBeforeMaxMs: math.MaxInt64,
		TimestampAfterMaxMs:  3_600_000,
	}
}

// parseOne is Next for a buffer of exactly one batch.
func parseOne(t testing.TB, buf []byte) record.Batch {
	t.Helper()
	b, rest, err := record.Next(buf)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	if len(rest) != 0 {
		t.Fatalf("%d bytes left after the batch", len(rest))
	}
	return b
}

// collect returns the records of b, their headers copied.
func collect(t testing.TB, b record.Batch) []record.Record {
	t.Helper()
	var got []record.Record
	for r, err := range b.Records(64 << 20) {
		if err != nil {
			t.Fatalf("Records: %v", err)
		}
		r.Headers = append([]record.Header(nil), r.Headers...)
		got = append(got, r)
	}
	return got
}

func TestBuildValidateAndReadBack(t *testing.T) {
	for _, codec := range allCodecs() {
		t.Run(codec.String(), func(t *testing.T) {
			b := record.NewBuilder(codec, record.DefaultLevel)
			for range 2 { // A builder is reusable.
				b.SetProducer(7, 3, math.MaxInt32)
				b.SetTransactional()
				b.Append(testNow, []byte("key"), []byte("value"), []record.Header{
					{Key: "h", Value: nil},
					{Key: "", Value: []byte{}},
				})
				b.Append(testNow+5, nil, []byte{}, nil)
				b.Append(testNow-5, []byte{}, nil, nil)
				batch := parseOne(t, b.Build())
				if err := record.ValidateProduced(batch, testLimits()); err != nil {
					t.Fatalf("ValidateProduced: %v", err)
				}
				batch.Stamp(100, 9)
				if err := batch.CheckCRC(); err != nil {
					t.Fatalf("after Stamp: %v", err)
				}
				want := []record.Record{
					{
						Offset: 100, Timestamp: testNow, Key: []byte("key"), Value: []byte("value"),
						Headers: []record.Header{{Key: "h"}, {Value: []byte{}}},
					},
					{Offset: 101, OffsetDelta: 1, Timestamp: testNow + 5, Value: []byte{}},
					{Offset: 102, OffsetDelta: 2, Timestamp: testNow - 5, Key: []byte{}},
				}
				if diff := cmp.Diff(want, collect(t, batch)); diff != "" {
					t.Errorf("records (-want +got):\n%s", diff)
				}
				if got := batch.LastSequence(); got != 1 {
					t.Errorf("last sequence %d, want 1 after the wrap", got)
				}
				if batch.MaxTimestamp() != testNow+5 || batch.BaseTimestamp() != testNow {
					t.Errorf("timestamps %d..%d", batch.BaseTimestamp(), batch.MaxTimestamp())
				}
				if batch.LastOffset() != 102 || batch.LeaderEpoch() != 9 || batch.ProducerID() != 7 ||
					batch.ProducerEpoch() != 3 {
					t.Errorf("header: last offset %d, leader epoch %d, producer %d/%d",
						batch.LastOffset(), batch.LeaderEpoch(), batch.ProducerID(), batch.ProducerEpoch())
				}
				batch.StampLogAppendTime(testNow + 1000)
				if err := batch.CheckCRC(); err != nil {
					t.Fatalf("after StampLogAppendTime: %v", err)
				}
				for _, r := range collect(t, batch) {
					if r.Timestamp != testNow+1000 {
						t.Errorf("record %d has timestamp %d", r.OffsetDelta, r.Timestamp)
					}
				}
			}
		})
	}
}
