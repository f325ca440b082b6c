package idempotency_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
)

// BenchmarkTable says what a key costs: time, and memory once the table is full.
func BenchmarkTable(b *testing.B) {
	const keys = 100_000
	bounds := idempotency.Bounds{WindowMs: 1 << 60, MaxKeys: keys}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := idempotency.NewTable()
	n := uint64(0)
	add := func() {
		n++
		var key idempotency.Digest
		binary.BigEndian.PutUint64(key[:], n*0x9e3779b97f4a7c15)
		if _, outcome := table.Check(key, key, bounds, 0); outcome == idempotency.New {
			table.Observe(key, key, idempotency.Place{Offset: kafka.Offset(n)}, bounds)
		}
	}
	for range 3 * keys {
		add()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		add()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
}
