package main

import (
	"math"
	"slices"
	"time"
)

// Series is one figure of one side, one value a counted run, in run order.
type Series []float64

// Median returns the middle value, the mean of the two middle ones for an even
// number of runs, and NaN without any.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Range returns the smallest and the largest value, NaN without any.
func (s Series) Range() (low, high float64) {
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	return slices.Min(s), slices.Max(s)
}

// Latencies collects durations. It is not safe for concurrent use.
type Latencies struct {
	values []time.Duration
	sorted bool
}

// NewLatencies makes room for n durations, so that recording does not allocate
// in the middle of a measurement.
func NewLatencies(n int) *Latencies {
	return &Latencies{values: make([]time.Duration, 0, n)}
}

// Add records one duration.
func (l *Latencies) Add(d time.Duration) {
	l.values = append(l.values, d)
	l.sorted = false
}

// Len returns how many durations were recorded.
func (l *Latencies) Len() int { return len(l.values) }

// Quantile returns the nearest-rank quantile: the smallest recorded duration
// that at least the share q (0 < q <= 1) of all does not exceed. It returns 0
// when nothing was recorded.
func (l *Latencies) Quantile(q float64) time.Duration {
	if len(l.values) == 0 {
		return 0
	}
	if !l.sorted {
		slices.Sort(l.values)
		l.sorted = true
	}
	// The small subtraction keeps 0.99*100 = 99.00000000000001 at rank 99.
	rank := int(math.Ceil(q*float64(len(l.values)) - 1e-9))
	return l.values[min(max(rank, 1), len(l.values))-1]
}

// milliseconds converts for the tables.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
