package main

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSeriesMedian(t *testing.T) {
	for _, c := range []struct {
		series Series
		want   float64
	}{
		{Series{3}, 3},
		{Series{9, 1, 5}, 5},
		{Series{4, 1, 3, 2}, 2.5},
	} {
		if got := c.series.Median(); got != c.want {
			t.Errorf("median of %v = %v, want %v", c.series, got, c.want)
		}
	}
	if got := (Series{}).Median(); !math.IsNaN(got) {
		t.Errorf("median of nothing = %v, want NaN", got)
	}
}

func TestSeriesMedianKeepsRunOrder(t *testing.T) {
	s := Series{9, 1, 5}
	s.Median()
	if s[0] != 9 || s[1] != 1 || s[2] != 5 {
		t.Errorf("the median reordered the runs: %v", s)
	}
}

func TestSeriesRange(t *testing.T) {
	if low, high := (Series{4, 1, 3}).Range(); low != 1 || high != 4 {
		t.Errorf("range = %v to %v, want 1 to 4", low, high)
	}
}

func TestLatenciesQuantile(t *testing.T) {
	l := NewLatencies(100)
	for i := 100; i >= 1; i-- {
		l.Add(time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{
		0.001: 1, 0.5: 50, 0.505: 51, 0.99: 99, 0.999: 100, 1: 100,
	} {
		if got := l.Quantile(q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
	l.Add(0)
	if got := l.Quantile(0.001); got != 0 {
		t.Errorf("a value added after a quantile is not seen: got %d", got)
	}
	if got := NewLatencies(0).Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

// TestLatenciesQuantileDefinition checks the nearest-rank definition itself.
func TestLatenciesQuantileDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 200).Draw(t, "values")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		l := NewLatencies(len(values))
		for _, v := range values {
			l.Add(time.Duration(v))
		}
		got := l.Quantile(float64(percent) / 100)
		atMost, below := 0, 0
		for _, v := range values {
			if time.Duration(v) <= got {
				atMost++
			}
			if time.Duration(v) < got {
				below++
			}
		}
		if atMost*100 < percent*len(values) || below*100 >= percent*len(values) {
			t.Fatalf("quantile %d%% of %v = %d", percent, values, got)
		}
	})
}
