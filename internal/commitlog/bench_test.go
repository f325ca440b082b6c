package commitlog_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/osfs"
)

// benchDir is a directory on disk whose journal nobody runs, so that the cost
// of the log alone is measured.
func benchDir(b *testing.B, dir string) *commitlog.Dir {
	b.Helper()
	fsys, err := osfs.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1}
	commitlog.DiscardJournal(&o)
	d, err := commitlog.OpenDir(fsys, o)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

func benchBatch(valueBytes, records int) record.Batch {
	builder := record.NewBuilder(record.CodecNone, 0)
	for range records {
		builder.Append(1000, nil, make([]byte, valueBytes), nil)
	}
	batch, _, err := record.Next(append([]byte(nil), builder.Build()...))
	if err != nil {
		panic(err)
	}
	return batch
}

func benchLog(b *testing.B, d *commitlog.Dir, id byte) *commitlog.Log {
	b.Helper()
	l, err := d.Log(logID(id), commitlog.Options{Config: commitlog.DefaultConfig()})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		name           string
		bytes, records int
	}{{"1x100B", 100, 1}, {"16x1KiB", 1024, 16}} {
		b.Run(c.name, func(b *testing.B) {
			d := benchDir(b, b.TempDir())
			l := benchLog(b, d, 1)
			batches := []record.Batch{benchBatch(c.bytes, c.records)}
			b.SetBytes(int64(batches[0].Size()))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.AppendAsLeader(batches, 1, time.UnixMilli(2000)); err != nil {
					b.Fatal(err)
				}
			}
			_ = d.Close(false)
		})
	}
}

// BenchmarkAppendIdempotent has the building of the batch in it.
func BenchmarkAppendIdempotent(b *testing.B) {
	d := benchDir(b, b.TempDir())
	l := benchLog(b, d, 1)
	builder := record.NewBuilder(record.CodecNone, 0)
	value, sequence := make([]byte, 100), int32(0)
	batches := make([]record.Batch, 1)
	b.ReportAllocs()
	for b.Loop() {
		builder.SetProducer(7, 0, sequence)
		builder.Append(1000, nil, value, nil)
		batches[0], _, _ = record.Next(builder.Build())
		if _, err := l.AppendAsLeader(batches, 1, time.UnixMilli(2000)); err != nil {
			b.Fatal(err)
		}
		sequence++
	}
	_ = d.Close(false)
}

func BenchmarkRead(b *testing.B) {
	d := benchDir(b, b.TempDir())
	l := benchLog(b, d, 1)
	batches := []record.Batch{benchBatch(1024, 16)}
	for range 5000 {
		if _, err := l.AppendAsLeader(batches, 1, time.UnixMilli(2000)); err != nil {
			b.Fatal(err)
		}
	}
	end := l.LogEndOffset()
	b.Run("tail", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c, err := l.Read(end-32, 1<<20, end-16, true)
			if err != nil || c.Size() == 0 {
				b.Fatal(c.Size(), err)
			}
			c.Release()
		}
	})
	b.Run("sequential 1MiB", func(b *testing.B) {
		b.ReportAllocs()
		at := kafka.Offset(0)
		for b.Loop() {
			c, err := l.Read(at, 1<<20, end, true)
			if err != nil || c.Size() == 0 {
				b.Fatal(c.Size(), err)
			}
			c.Release()
			if at = c.NextOffset(); at >= end {
				at = 0
			}
		}
	})
	_ = d.Close(false)
}

// BenchmarkRestart opens 3,000 logs that were written to and never checkpointed,
// as after kill -9, and those that were.
func BenchmarkRestart(b *testing.B) {
	const logs = 3000
	dir := b.TempDir()
	d := benchDir(b, dir)
	batches := []record.Batch{benchBatch(100, 10)}
	for i := range logs {
		l, err := d.Log(kafka.TopicIDPartition{ID: kafka.TopicID{byte(i), byte(i >> 8)}},
			commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			b.Fatal(err)
		}
		for range 5 {
			if _, err := l.AppendAsLeader(batches, 1, time.UnixMilli(2000)); err != nil {
				b.Fatal(err)
			}
		}
	}
	_ = d.Close(false)
	for _, name := range []string{"nothing checkpointed", "all checkpointed"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				d := benchDir(b, dir)
				b.StopTimer()
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/logs, "heap-B/log")
				if n := len(d.Logs()); n != logs {
					b.Fatalf("%d logs", n)
				}
				_ = d.Close(false)
				b.StartTimer()
			}
		})
	}
}
