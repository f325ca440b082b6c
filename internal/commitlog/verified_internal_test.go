package commitlog

import (
	"math/rand/v2"
	"testing"
)

// TestDistrust: whatever was trusted before, a range that could not be read is checked
// again, and the bytes around it are trusted as they were.
func TestDistrust(t *testing.T) {
	const size = 64
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s segment
		span := func() (int64, int64) {
			from := rng.Int64N(size)
			return from, from + 1 + rng.Int64N(size-from)
		}
		s.trustedFrom.Store(rng.Int64N(size + 1))
		for range rng.IntN(4) {
			s.verified.add(span())
		}
		trusts := func(at int64) bool { return at >= s.trustedFrom.Load() || s.verified.contains(at, at+1) }
		var before [size]bool
		for at := range int64(size) {
			before[at] = trusts(at)
		}
		from, to := span()
		s.distrust(from, to)
		for at := range int64(size) {
			if within := from <= at && at < to; trusts(at) != (before[at] && !within) {
				t.Fatalf("seed %d: byte %d is trusted: %v, after [%d, %d) was not readable; before: %v",
					seed, at, trusts(at), from, to, before[at])
			}
		}
	}
}
