package fetcher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// confirm has a broker that takes itself for the leader ask its replicas.
func (w *world) confirm(id kafka.BrokerID, topic string) error {
	w.t.Helper()
	p := w.at(id, topic, 0)
	wait := p.Confirm(p.LeaderEpoch())
	ctx, cancel := context.WithTimeout(w.t.Context(), partition.ConfirmTimeout)
	defer cancel()
	return wait(ctx)
}

func (w *world) confirmed(id kafka.BrokerID, topic string) {
	w.t.Helper()
	begin := time.Now()
	if err := w.confirm(id, topic); err != nil {
		w.t.Errorf("broker %d is not confirmed as the leader: %v", id, err)
	}
	if took := time.Since(begin); took > 20*time.Millisecond {
		w.t.Errorf("to confirm that broker %d leads took %v", id, took)
	}
}

func (w *world) unconfirmed(id kafka.BrokerID, topic string) {
	w.t.Helper()
	if err := w.confirm(id, topic); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Errorf("broker %d is confirmed as the leader, or refused otherwise: %v", id, err)
	}
}

// TestConfirmed: followers answer at once, also while their fetches wait for records, and
// as often as they are asked.
func TestConfirmed(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.create("others", 30, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		for range 5 {
			<-time.After(123 * time.Millisecond) // The followers' fetches are parked.
			w.confirmed(1, "orders")
			w.confirmed(1, "orders")
		}
		before := w.nodes[2].asked(1)
		<-time.After(10 * time.Second)
		if asked := w.nodes[2].asked(1) - before; asked > 22 {
			t.Errorf("%d requests in 10 s after that", asked)
		}
		// The same leader under another epoch counts anew.
		for range 3 {
			w.elect("orders", 0, 1, 1, 2, 3)
			<-time.After(100 * time.Millisecond)
			w.confirmed(1, "orders")
		}
	})
}

// TestConfirmedBehindRecords: followers that write answer too.
func TestConfirmedBehindRecords(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		for range 50 {
			info := w.produce(1, "orders", 0, "a")
			w.confirmed(1, "orders")
			w.acked(1, "orders", 0, info)
		}
	})
}

// TestDeposedIsNotConfirmed: whoever could have been elected has to answer, whether the
// others know of it or not.
func TestDeposedIsNotConfirmed(t *testing.T) {
	for name, deaf := range map[string][]kafka.BrokerID{
		"the leader does not know": {1}, "nor does the third": {1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			replicated(t, 3, func(t *testing.T, w *world) {
				w.create("orders", 1, 1, 2, 3)
				w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
				w.mu.Lock()
				for _, id := range deaf {
					w.deaf[id] = true
				}
				w.mu.Unlock()
				w.confirmed(1, "orders")
				w.elect("orders", 0, 2, 2, 3)
				w.unconfirmed(1, "orders")
				w.hear(1)
				if err := w.at(1, "orders", 0).Confirm(0)(t.Context()); err == nil {
					t.Error("a leader that knows of its successor is confirmed")
				}
				if len(deaf) > 1 {
					w.unconfirmed(2, "orders") // It has 3 in its ISR, which could have been elected after it.
					w.hear(3)
					<-time.After(100 * time.Millisecond)
				}
				w.confirmed(2, "orders")
			})
		})
	}
}

// TestFetchOnItsWay: a fetch that was sent before the leader asked says nothing.
func TestFetchOnItsWay(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.network.SetDelay(100 * time.Millisecond)
		<-time.After(2 * time.Second)
		w.produce(1, "orders", 0, "b")
		for w.at(2, "orders", 0).Log().DurableEnd() < 2 {
			<-time.After(time.Millisecond)
		}
		<-time.After(20 * time.Millisecond) // The fetch that acknowledges it is on its way, for 80 ms more.
		w.mu.Lock()
		w.deaf[1] = true
		w.mu.Unlock()
		w.elect("orders", 0, 2, 2)
		w.unconfirmed(1, "orders")
		if got := w.at(1, "orders", 0).HighWatermark(); got != 2 {
			t.Errorf("the fetch did not come: the high watermark is %d", got)
		}
	})
}

// TestWhoIsAsked: the ISR, whoever is eligible beside it, and nobody else.
func TestWhoIsAsked(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.mu.Lock()
		w.away = true // Nobody comes back into the ISR.
		w.mu.Unlock()
		w.network.Partition(host(1), host(3))
		w.unconfirmed(1, "orders")
		w.change("orders", 0, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1, 2} })
		w.confirmed(1, "orders")
		w.network.Partition(host(1), host(2))
		w.unconfirmed(1, "orders")
		w.change("orders", 0, func(p *metadata.Partition) { p.ISR, p.Eligible = []kafka.BrokerID{1}, []kafka.BrokerID{2} })
		w.unconfirmed(1, "orders")
		w.change("orders", 0, func(p *metadata.Partition) { p.Eligible = nil })
		w.confirmed(1, "orders")
	})
}

// TestShrunkWhileAsked: who is out of the ISR by the metadata is not waited for any more.
func TestShrunkWhileAsked(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.network.Partition(host(1), host(3))
		begin := time.Now()
		wait := w.at(1, "orders", 0).Confirm(0)
		time.AfterFunc(300*time.Millisecond, func() {
			w.change("orders", 0, func(p *metadata.Partition) { p.ISR = []kafka.BrokerID{1, 2} })
		})
		if err := wait(t.Context()); err != nil || time.Since(begin) > 320*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// TestNotJoined: a broker that has just started may know less than it did before, and led
// meanwhile. So it follows, and answers nothing.
func TestNotJoined(t *testing.T) {
	replicated(t, 2, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		w.nodes[2].outside.Store(true)
		w.unconfirmed(1, "orders")
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "b"))
		w.nodes[2].outside.Store(false)
		w.confirmed(1, "orders")
	})
}

// TestForgetfulFollower: a broker that led, and knows no more of it than that it followed
// before, does not have its log cut by the leader of that time.
func TestForgetfulFollower(t *testing.T) {
	replicated(t, 3, func(t *testing.T, w *world) {
		w.create("orders", 1, 1, 2, 3)
		w.acked(1, "orders", 0, w.produce(1, "orders", 0, "a"))
		before := w.nodes[2].known()
		w.mu.Lock()
		w.deaf[1] = true
		w.mu.Unlock()
		w.elect("orders", 0, 2, 2, 3)
		w.acked(2, "orders", 0, w.produce(2, "orders", 0, "b"))
		disk := w.crash(2, 100)
		n := w.start(2, disk)
		w.mu.Lock()
		w.nodes[2] = n
		n.mu.Lock()
		n.image = before
		n.mu.Unlock()
		n.applier.Apply(metadata.Diff(&metadata.Image{}, before))
		w.mu.Unlock()
		<-time.After(5 * time.Second)
		if end := w.at(2, "orders", 0).Log().LogEndOffset(); end != 2 {
			t.Errorf("the log of the broker that led ends at %d", end)
		}
		w.unconfirmed(1, "orders")
		w.hear(2)
		w.hear(1)
		w.acked(2, "orders", 0, w.produce(2, "orders", 0, "c"))
		w.same("orders", 0, 2, 3)
	})
}
