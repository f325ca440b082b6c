package record_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/strandline/strandline/internal/record"
)

// benchmarkBatch is a batch of records with values that compress as text does.
func benchmarkBatch(codec record.Codec, records, valueSize int) []byte {
	b := record.NewBuilder(codec, record.DefaultLevel)
	var text []byte
	for i := 0; len(text) < valueSize+1000; i++ {
		text = fmt.Appendf(text, "%d the quick brown fox %x jumps over ", i*i, i*2654435761)
	}
	for i := range records {
		at := i * 37 % 1000
		b.Append(testNow+int64(i/50), nil, text[at:at+valueSize], nil)
	}
	return bytes.Clone(b.Build())
}

func BenchmarkValidateProduced(b *testing.B) {
	limits := testLimits()
	limits.MaxBatchBytes = 16 << 20
	for _, codec := range allCodecs() {
		for _, shape := range []struct{ records, valueSize int }{
			{1, 100},
			{140, 100},
			{5000, 100},
			{1000, 1024},
		} {
			b.Run(fmt.Sprintf("%s/%dx%d", codec, shape.records, shape.valueSize), func(b *testing.B) {
				data := benchmarkBatch(codec, shape.records, shape.valueSize)
				batch, _, err := record.Next(data)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := record.ValidateProduced(batch, limits); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(shape.records),
					"ns/record")
			})
		}
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, codec := range allCodecs() {
		b.Run(codec.String(), func(b *testing.B) {
			const records = 1000
			batch, _, err := record.Next(benchmarkBatch(codec, records, 100))
			if err != nil {
				b.Fatal(err)
			}
			var d record.Decompressor
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range d.Records(batch, 16<<20) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}

func BenchmarkBuilder(b *testing.B) {
	for _, codec := range allCodecs() {
		b.Run(codec.String(), func(b *testing.B) {
			const records = 100
			builder := record.NewBuilder(codec, record.DefaultLevel)
			key, value := []byte("some-key"), bytes.Repeat([]byte("value "), 16)
			b.ReportAllocs()
			for b.Loop() {
				for range records {
					builder.Append(testNow, key, value, nil)
				}
				builder.Build()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}

func BenchmarkCheckCRC(b *testing.B) {
	batch, _, err := record.Next(benchmarkBatch(record.CodecNone, 5000, 100))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(batch.Size()))
	for b.Loop() {
		if err := batch.CheckCRC(); err != nil {
			b.Fatal(err)
		}
	}
}
