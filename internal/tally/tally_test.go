package tally_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/tally"
)

func TestDurations(t *testing.T) {
	var h tally.Durations
	for _, d := range []time.Duration{
		-time.Second, 0, 50 * time.Microsecond, 50*time.Microsecond + 1, time.Millisecond, time.Hour,
	} {
		h.Add(d)
	}
	got := h.Read()
	if got.Count != 6 || math.Abs(got.Sum-3600.001100001) > 1e-9 {
		t.Errorf("count %d, sum %v", got.Count, got.Sum)
	}
	want := map[float64]uint64{50e-6: 3, 100e-6: 4, 500e-6: 4, 1e-3: 5, 10: 5}
	for _, b := range got.Buckets {
		if n, ok := want[b.UpperBound]; ok && n != b.Count {
			t.Errorf("at most %vs: %d, want %d", b.UpperBound, b.Count, n)
		}
		delete(want, b.UpperBound)
	}
	if len(want) > 0 {
		t.Errorf("no buckets for %v", want)
	}
}

func TestSizes(t *testing.T) {
	var h tally.Sizes
	h.Add(1024)
	h.Add(1025)
	h.Add(1 << 30)
	got := h.Read()
	if got.Count != 3 || got.Sum != 1024+1025+1<<30 || got.Buckets[0] != (tally.Bucket{UpperBound: 1024, Count: 1}) ||
		got.Buckets[len(got.Buckets)-1].Count != 2 {
		t.Errorf("got %+v", got)
	}
}

// Buckets rise, and nothing is lost under concurrent additions.
func TestConcurrent(t *testing.T) {
	var h tally.Durations
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for k := range 1000 {
				h.Add(time.Duration(i*k) * time.Microsecond)
				last := tally.Bucket{UpperBound: -1}
				for _, b := range h.Read().Buckets {
					if b.Count < last.Count || b.UpperBound <= last.UpperBound {
						t.Errorf("bucket %+v after %+v", b, last)
					}
					last = b
				}
			}
		})
	}
	g.Wait()
	if n := h.Read().Count; n != 8000 {
		t.Errorf("%d of 8000 counted", n)
	}
}

func BenchmarkDurations(b *testing.B) {
	var h tally.Durations
	b.ReportAllocs()
	for b.Loop() {
		h.Add(700 * time.Microsecond)
	}
}
