// Package seeds says from which seeds simulations run: each has a few of its own, and the
// environment may name others. STRANDLINE_SEEDS=17 runs a failure again, and
// STRANDLINE_SEEDS=1000-1999 looks for new ones.
package seeds

import (
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Of returns the seeds of a simulation: those below n, or those that the environment names.
func Of(t testing.TB, n int) iter.Seq[uint64] {
	t.Helper()
	first, last := uint64(0), uint64(n-1)
	if s := os.Getenv("STRANDLINE_SEEDS"); s != "" {
		var err error
		if first, last, err = parse(s); err != nil {
			t.Fatalf("STRANDLINE_SEEDS: %v", err)
		}
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed <= last; seed++ {
			if !yield(seed) {
				return
			}
		}
	}
}

func parse(s string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	first, err = strconv.ParseUint(from, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	last, err = strconv.ParseUint(to, 10, 32)
	if err == nil && last < first {
		err = fmt.Errorf("no seed is in %q", s)
	}
	return first, last, err
}
