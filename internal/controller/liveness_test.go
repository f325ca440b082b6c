package controller_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
)

const (
	ms   = time.Millisecond
	tick = 50 * ms
)

func patience() controller.Patience {
	return controller.Patience{Session: 1500 * ms, Grace: 500 * ms, Tick: tick}
}

// watch is a Liveness with a clock that calls Expired every tick.
type watch struct {
	*controller.Liveness
	now time.Time
}

func newWatch(ids ...kafka.BrokerID) *watch {
	start := time.Unix(1000, 0)
	return &watch{controller.NewLiveness(patience(), ids, start), start}
}

// pass lets time pass and returns who has expired at the end.
func (w *watch) pass(d time.Duration) (ids []kafka.BrokerID) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(min(tick, end.Sub(w.now)))
		ids = w.Expired(w.now)
	}
	return ids
}

func TestLiveness(t *testing.T) {
	is := func(t *testing.T, got []kafka.BrokerID, want ...kafka.BrokerID) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("expired: %v, want %v", got, want)
		}
	}
	t.Run("silence", func(t *testing.T) {
		w := newWatch(1, 2)
		is(t, w.pass(1000*ms))
		w.Heartbeat(1, 7, w.now)
		is(t, w.pass(450*ms))
		is(t, w.pass(50*ms), 2)
		is(t, w.pass(950*ms), 2)
		is(t, w.pass(50*ms), 1, 2)
		w.Forget(1, w.now)
		is(t, w.pass(50*ms), 2)
		w.Heartbeat(2, 7, w.now)
		w.Forget(2, w.now) // Too late: it was heard of.
		is(t, w.pass(1450*ms))
		is(t, w.pass(50*ms), 2)
	})
	t.Run("seen", func(t *testing.T) {
		w := newWatch(1, 2)
		w.Heartbeat(2, 7, w.now)
		w.Heartbeat(3, 7, w.now)
		if w.Seen(1) || !w.Seen(2) || !w.Seen(3) || w.Seen(4) {
			t.Error("who was heard of is not who is seen")
		}
	})
	t.Run("a connection that ends", func(t *testing.T) {
		w := newWatch(1)
		w.Heartbeat(1, 7, w.now)
		w.Down(1, w.now)
		w.Down(9, w.now) // Has no session.
		is(t, w.pass(450*ms))
		is(t, w.pass(50*ms), 1)
	})
	t.Run("a connection that ends and comes back", func(t *testing.T) {
		w := newWatch(1)
		w.Down(1, w.now)
		is(t, w.pass(450*ms))
		w.Heartbeat(1, 7, w.now)
		is(t, w.pass(1450*ms))
		is(t, w.pass(50*ms), 1)
	})
	t.Run("the end of a connection puts nothing off", func(t *testing.T) {
		w := newWatch(1)
		is(t, w.pass(1450*ms))
		w.Down(1, w.now)
		is(t, w.pass(50*ms), 1)
	})
	t.Run("refused twice", func(t *testing.T) {
		w := newWatch(1)
		w.Refused(1, w.now)
		is(t, w.Expired(w.now))
		w.Refused(1, w.now)
		is(t, w.Expired(w.now), 1)
		w.Refused(9, w.now)
	})
	t.Run("refused, heard of, refused", func(t *testing.T) {
		w := newWatch(1)
		w.Refused(1, w.now)
		w.Heartbeat(1, 7, w.now)
		w.Refused(1, w.now)
		is(t, w.Expired(w.now))
	})
	t.Run("an old process", func(t *testing.T) {
		w := newWatch(1)
		w.Heartbeat(1, 7, w.now)
		is(t, w.pass(1000*ms))
		w.Heartbeat(1, 6, w.now)
		is(t, w.pass(500*ms), 1)
	})
	t.Run("this node slept", func(t *testing.T) {
		w := newWatch(1)
		is(t, w.pass(1000*ms))
		w.now = w.now.Add(time.Minute)
		is(t, w.Expired(w.now))
		is(t, w.pass(400*ms))
		is(t, w.pass(100*ms), 1)
	})
}

// A broker that sends its heartbeats is never held for failed, however irregular
// the controller runs; one that stops is, after a session of the controller's own
// running time, and one tick's tolerance for each call.
func TestLivenessLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWatch(1, 2)
		silent := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			w.Heartbeat(1, 1, w.now)
			d := time.Duration(rapid.IntRange(1, 400).Draw(t, "ms")) * ms
			if rapid.IntRange(0, 9).Draw(t, "sleeps") == 0 {
				w.now = w.now.Add(d * 20) // Without a tick.
				w.Heartbeat(1, 1, w.now)  // It waited in the socket.
				if d*20 <= 2*tick {
					silent += d * 20
				} else {
					silent += tick
				}
			} else {
				for left := d; left > 0; left -= tick {
					w.now = w.now.Add(min(tick, left))
					if slices.Contains(w.Expired(w.now), 1) {
						t.Fatal("a broker that sends heartbeats has expired")
					}
				}
				silent += d
			}
			expired := w.Expired(w.now)
			if slices.Contains(expired, 1) {
				t.Fatal("a broker that sends heartbeats has expired")
			}
			if got, want := slices.Contains(expired, 2), silent >= patience().Session; got != want {
				t.Fatalf("silent for %v: expired is %v", silent, got)
			}
		}
	})
}
