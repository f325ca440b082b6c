package chaos_test

import (
	"slices"
	"testing"
	"time"
)

// TestCutHeals: a broker that was cut off for long is in sync again soon after that is over.
// Connections of before would be in the way: what is sent on them waits for a kernel that
// tries again after pauses that have doubled all the while.
func TestCutHeals(t *testing.T) {
	// The kernel's tries come 0.2, 0.6, 1.4, 3, 6.2, 12.6 and 25.4 s after the first, about.
	const cut, goal = 14 * time.Second, 4 * time.Second
	links, c, l := startLinkedLoad(t, "heal")
	l.slow(time.Millisecond)
	l.awaitMore(1000)
	node := 1 + controller(t, c.Addrs())%3
	others := slices.Delete(c.Addrs(), node-1, node) // It itself does not know that it was missing.
	links.Isolate(node)
	began := time.Now()
	for time.Since(began) < cut {
		l.awaitMore(100)
	}
	links.Heal()
	began = time.Now()
	awaitInSync(t.Context(), t, others, "heal")
	took := time.Since(began)
	t.Logf("broker %d, cut off for %v, was in sync again after %v", node, cut, took)
	if took > goal {
		t.Errorf("in sync after %v, the goal is %v", took, goal)
	}
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
}
