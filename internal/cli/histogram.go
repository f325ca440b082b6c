package cli

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// subBuckets is how many buckets share a power of two: a quantile is off by less
// than one part in subBuckets.
const (
	subBucketBits = 6
	subBuckets    = 1 << subBucketBits
)

// histogram counts durations in buckets that grow with them. It may be used from
// any goroutine; the zero value is empty.
type histogram struct {
	counts [(64 - subBucketBits + 1) * subBuckets]atomic.Uint64
	total  atomic.Uint64
	sum    atomic.Int64
	most   atomic.Int64
}

// bucketOf returns the bucket of a duration in nanoseconds. Below 2*subBuckets
// each value has its own.
func bucketOf(n uint64) int {
	shift := max(0, bits.Len64(n)-subBucketBits-1)
	return shift*subBuckets + int(n>>shift)
}

// bucketLimit returns the greatest value of a bucket.
func bucketLimit(bucket int) uint64 {
	shift := max(0, bucket/subBuckets-1)
	return uint64(bucket-shift*subBuckets+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	n := max(0, int64(d))
	h.counts[bucketOf(uint64(n))].Add(1)
	h.total.Add(1)
	h.sum.Add(n)
	for {
		most := h.most.Load()
		if n <= most || h.most.CompareAndSwap(most, n) {
			return
		}
	}
}

// quantile returns the duration that a share q of all do not exceed; 0 if there
// is none.
func (h *histogram) quantile(q float64) time.Duration {
	total := h.total.Load()
	rank := uint64(math.Ceil(q * float64(total)))
	seen := uint64(0)
	for i := range h.counts {
		seen += h.counts[i].Load()
		if seen >= rank && seen > 0 {
			return time.Duration(min(bucketLimit(i), uint64(h.most.Load())))
		}
	}
	return time.Duration(h.most.Load())
}

// latency is a histogram as --json shows it, in milliseconds.
type latency struct {
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
	Max  float64 `json:"max_ms"`
	Mean float64 `json:"mean_ms"`
}

// latency summarises the histogram; nil if it is empty.
func (h *histogram) latency() *latency {
	total := h.total.Load()
	if total == 0 {
		return nil
	}
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
	return &latency{
		P50: ms(h.quantile(0.5)), P90: ms(h.quantile(0.9)), P99: ms(h.quantile(0.99)),
		P999: ms(h.quantile(0.999)), Max: ms(time.Duration(h.most.Load())),
		Mean: ms(time.Duration(h.sum.Load() / int64(total))),
	}
}
