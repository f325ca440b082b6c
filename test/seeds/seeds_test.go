package seeds_test

import (
	"slices"
	"testing"

	"github.com/strandline/strandline/test/seeds"
)

func TestOf(t *testing.T) {
	for named, want := range map[string][]uint64{"": {0, 1, 2}, "17": {17}, "8-9": {8, 9}} {
		t.Setenv("STRANDLINE_SEEDS", named)
		if got := slices.Collect(seeds.Of(t, 3)); !slices.Equal(got, want) {
			t.Errorf("%q names %v, want %v", named, got, want)
		}
	}
}
