package nearest_test

import (
	"slices"
	"testing"

	"github.com/strandline/strandline/internal/nearest"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"topic", "topci", 1},
		{"create", "crate", 1},
		{"kitten", "sitting", 3},
		{"é", "e", 1},
	} {
		if got := nearest.Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestTo(t *testing.T) {
	names := slices.Values([]string{"orders", "payments", "events"})
	for word, want := range map[string]string{"order": "orders", "paymnets": "payments", "zebra": "", "": ""} {
		if got := nearest.To(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
