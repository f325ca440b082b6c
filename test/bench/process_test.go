package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseCPU(t *testing.T) {
	stat := "77 (odd) name (x)) S 1 77 77 0 -1 4194304 100 0 0 0 1234 66 0 0 20 0 9 0 100 1 1"
	got, err := parseCPU(stat)
	if err != nil {
		t.Fatal(err)
	}
	if want := 13 * time.Second; got != want {
		t.Errorf("CPU time = %v, want %v", got, want)
	}
	for _, bad := range []string{"", "77 (x) S 1", strings.Replace(stat, "1234", "many", 1)} {
		if _, err := parseCPU(bad); err == nil {
			t.Errorf("parseCPU(%q) found a time", bad)
		}
	}
}

func TestParseResident(t *testing.T) {
	got, err := parseResident("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t  1000 kB\nThreads:\t1\n")
	if err != nil || got != 1.024 {
		t.Errorf("resident = %v MB, %v, want 1.024", got, err)
	}
	if _, err := parseResident("Name:\tx\n"); err == nil {
		t.Error("a status without VmRSS gave a size")
	}
}

func TestOrderTurnsRound(t *testing.T) {
	sides := []Side{OursSynced, KafkaSynced, KafkaUnsynced}
	even, odd := order(sides, 0), order(sides, 1)
	slices.Reverse(odd)
	if !slices.Equal(even, sides) || !slices.Equal(odd, sides) {
		t.Errorf("rounds run %v and, reversed, %v, want %v", even, odd, sides)
	}
	if warmUp := order(sides, -1); warmUp[0] != KafkaUnsynced {
		t.Errorf("the uncounted round starts with %v", warmUp[0])
	}
}

func TestWorkloadsAreComplete(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		seen := map[string]bool{}
		for _, w := range workloads(fullScale(), nodes) {
			if seen[w.Name] || w.Run == nil || len(w.Sides) == 0 {
				t.Errorf("%d nodes: workload %q is doubled or cannot run", nodes, w.Name)
			}
			seen[w.Name] = true
			for _, g := range w.Goals {
				if !slices.Contains(w.Figures, g.Figure) || !slices.Contains(w.Sides, g.Of) {
					t.Errorf("%d nodes, %s: the goal %q speaks of what is not measured", nodes, w.Name, g)
				}
			}
		}
	}
}
