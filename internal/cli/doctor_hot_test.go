package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// A key is found in what came while the doctor watched, also when the newest records are a
// burst of others, and what is older than that does not count.
func TestHottestKey(t *testing.T) {
	for _, c := range []struct {
		name             string
		start, seen, end int64
		hotFrom, hotTo   int64
		least, most      float64
	}{
		{"all of it", 0, 0, 50_000, 0, 50_000, 1, 1},
		{"a burst of others at the end", 0, 0, 50_000, 0, 48_000, 0.7, 0.8},
		{"before it was watched", 0, 40_000, 50_000, 0, 40_000, 0, 0.05},
		{"little came", 100, 2_000, 2_010, 0, 2_010, 1, 1},
		{"few records", 5, 5, 8, 0, 8, 1, 1},
	} {
		seen := map[int64]bool{}
		key, share := cli.HottestKey(c.start, c.seen, c.end, func(offset int64) string {
			if seen[offset] || offset < c.start || offset >= c.end {
				t.Errorf("%s: offset %d is read twice, or is none", c.name, offset)
			}
			seen[offset] = true
			if offset >= c.hotFrom && offset < c.hotTo {
				return "hot"
			}
			return fmt.Sprint(offset)
		})
		if share < c.least || share > c.most || (key == "hot") != (c.least > 0) {
			t.Errorf("%s: key %q has %.2f", c.name, key, share)
		}
		if want := min(1000, c.end-c.start); int64(len(seen)) != want {
			t.Errorf("%s: %d records are read, want %d", c.name, len(seen), want)
		}
	}
}

// A partition without a leader does not keep the doctor from watching the others.
func TestDoctorWatchesWhatHasALeader(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	c.run(0, "topic", "create", "lonely", "--partitions", "3", "-r", "1", "-c", "min.insync.replicas=1")
	c.run(0, "topic", "create", "orders", "--partitions", "3", "--durability", "strict")
	cluster.Kill(3)
	var out string
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out, "without a leader") && time.Now().Before(end); {
		out, _, _ = c.try("cluster", "doctor", "--watch", "1ms")
	}
	// The broker that is down comes back, or another in its place.
	if !strings.Contains(out, "cluster add --replication-factor 3") {
		t.Errorf("of a cluster of three brokers:\n%s", out)
	}
	if !strings.Contains(out, "without a leader") || !strings.Contains(out, "ok\ttraffic\tno partition takes far more") {
		t.Errorf("with a partition that has no leader:\n%s", out)
	}
}
