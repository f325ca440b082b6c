package journal

import "testing"

// TestWaitsThatGatherNothing: where each wish waits for the answer to the one before,
// rounds start at once; they are spaced again as soon as waiting would gather something.
func TestWaitsThatGatherNothing(t *testing.T) {
	var p pace
	waits := func(rounds, wishes, more int) (n int) {
		for range rounds {
			if p.isWorthWaiting(wishes) {
				n++
				p.waited(more)
			}
		}
		return n
	}
	if n := waits(100, 1, 0); n != vainWaits+(100-vainWaits)/probeEvery {
		t.Errorf("one client in a row waited %d times in 100 rounds", n)
	}
	if n := waits(probeEvery+50, 1, 1); n < 50 {
		t.Errorf("with more to gather, %d of %d rounds waited", n, probeEvery+50)
	}
	waits(100, 1, 0)
	if n := waits(50, 2, 3); n < 50-probeCrowd {
		t.Errorf("with several at once, %d of 50 rounds waited", n)
	}
}
