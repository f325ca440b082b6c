// Package tally counts how long things took and how large they were, in
// histograms that hot paths add to and a scrape reads.
//
// It may assume nothing of its callers: any number of goroutines add and read at
// the same time. Adding costs a few comparisons and two atomic additions, and
// allocates nothing. The zero value of each type is ready for use.
//
// Invariant: the buckets of a type are the same for all of its values and never
// change, so that histograms of brokers and of releases can be added up.
//
// Deliberately absent: names, labels, and any form of export (package metrics).
package tally

import (
	"sync/atomic"
	"time"
)

// durationBounds are the inclusive upper bounds of the buckets of Durations, in
// nanoseconds. Constant.
var durationBounds = [...]int64{
	50_000, 100_000, 250_000, 500_000,
	1e6, 2.5e6, 5e6, 10e6, 25e6, 50e6, 100e6, 250e6, 500e6,
	1e9, 2.5e9, 5e9, 10e9,
}

// sizeBounds are the same for Sizes, in bytes. Constant.
var sizeBounds = [...]int64{
	1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
}

// Durations is a histogram of times.
type Durations struct {
	counts [len(durationBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // In nanoseconds.
}

// Add counts a duration; a negative one, of a clock that was set back, is none.
func (h *Durations) Add(d time.Duration) {
	n := max(int64(d), 0)
	h.counts[bucket(durationBounds[:], n)].Add(1)
	h.sum.Add(n)
}

// Read returns the histogram as it is now, in seconds.
func (h *Durations) Read() Histogram {
	return read(h.counts[:], durationBounds[:], float64(h.sum.Load())/1e9, 1e9)
}

// Used reports whether anything was added.
func (h *Durations) Used() bool {
	for i := range h.counts {
		if h.counts[i].Load() > 0 {
			return true
		}
	}
	return false
}

// Sizes is a histogram of bytes.
type Sizes struct {
	counts [len(sizeBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

// Add counts a size.
func (h *Sizes) Add(bytes int64) {
	h.counts[bucket(sizeBounds[:], bytes)].Add(1)
	h.sum.Add(bytes)
}

// Read returns the histogram as it is now, in bytes.
func (h *Sizes) Read() Histogram {
	return read(h.counts[:], sizeBounds[:], float64(h.sum.Load()), 1)
}

func bucket(bounds []int64, n int64) int {
	for i, b := range bounds {
		if n <= b {
			return i
		}
	}
	return len(bounds)
}

// Histogram is what a histogram has counted, in base units.
type Histogram struct {
	Count uint64
	Sum   float64
	// Buckets count what was at most UpperBound, those of the buckets below
	// included. What was larger is in Count alone.
	Buckets []Bucket
}

// Bucket is one bucket of a Histogram.
type Bucket struct {
	UpperBound float64
	Count      uint64
}

// read adds the buckets up. Additions that run at the same time may be in the
// sum and not yet in the counts, or the other way round.
func read(counts []atomic.Uint64, bounds []int64, sum, unit float64) Histogram {
	h := Histogram{Sum: sum, Buckets: make([]Bucket, len(bounds))}
	for i, b := range bounds {
		h.Count += counts[i].Load()
		h.Buckets[i] = Bucket{float64(b) / unit, h.Count}
	}
	h.Count += counts[len(bounds)].Load()
	return h
}
