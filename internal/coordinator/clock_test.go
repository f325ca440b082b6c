package coordinator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
)

// ClockSet implements shard.Clocked.
func (r *register) ClockSet(byMs int64) {
	if r.alarmMs != shard.NoDeadline {
		r.alarmMs += byMs
	}
}

// TestClockIsSet: deadlines are lengths of time, whatever somebody does to the clock, whether a request notices it
// first or nobody.
func TestClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -24 * time.Hour} {
		for _, asked := range []bool{false, true} {
			t.Run(fmt.Sprint(by, asked), func(t *testing.T) {
				var set atomic.Int64
				inBubble(t, func(o *coordinator.Options[*register]) {
					o.Now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
					o.WriteTimeout = 5 * time.Second
				}, func(b *bench) {
					testClockIsSet(t, b, asked, func() { set.Store(int64(by)) })
				})
			})
		}
	}
}

func testClockIsSet(t *testing.T, b *bench, asked bool, set func()) {
	if err := b.Do(3, func(m *register, nowMs int64, _ *shard.Effects) {
		m.alarmMs = nowMs + 10_000
		m.parked = append(m.parked, letter{&b.box, "alarm"})
	}); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * time.Second)
	b.mustPut("a", "k", "1")
	<-time.After(time.Second)
	b.expect("")
	set()
	if asked {
		if err := b.Do(3, func(*register, int64, *shard.Effects) {}); err != nil {
			t.Fatal(err)
		}
	}
	<-time.After(3999 * time.Millisecond)
	b.expect("")
	<-time.After(time.Millisecond)
	b.expect("a: COORDINATOR_NOT_AVAILABLE")
	<-time.After(2999 * time.Millisecond)
	b.p.set(func(p *fakePartition) { p.sync = true })
	b.expect("")
	<-time.After(time.Millisecond)
	b.expect("alarm: alarm")
	// A deadline that is set after it counts by the clock as it is.
	if err := b.Do(3, func(m *register, nowMs int64, _ *shard.Effects) {
		m.alarmMs = nowMs + 1000
		m.parked = append(m.parked, letter{&b.box, "next"})
	}); err != nil {
		t.Fatal(err)
	}
	<-time.After(999 * time.Millisecond)
	b.expect("")
	<-time.After(time.Millisecond)
	b.expect("next: alarm")
}
