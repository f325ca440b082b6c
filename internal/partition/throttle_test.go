package partition_test

import (
	"math"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/partition"
)

// A throttle lets a second's worth through at once, and then its rate.
func TestThrottleRate(t *testing.T) {
	rate := int64(1000)
	th := &partition.Throttle{Rate: func() int64 { return rate }}
	at, sent := time.Unix(1_700_000_000, 0), 0
	for range 1000 {
		if th.Allows(at) {
			th.Spend(300, at)
			sent += 300
		}
		at = at.Add(10 * time.Millisecond)
	}
	if sent < 10_000 || sent > 11_500 {
		t.Errorf("%d bytes in 10 seconds", sent)
	}
	th.Spend(1<<40, at)
	if th.Allows(at.Add(time.Hour)) {
		t.Error("what was overdrawn is forgotten")
	}
	rate = math.MaxInt64
	if !th.Allows(at) {
		t.Error("no bound binds")
	}
	if none := (*partition.Throttle)(nil); !none.Allows(at) {
		t.Error("no throttle binds")
	}
}

func TestThrottledReplicas(t *testing.T) {
	some := partition.ThrottledReplicas{Some: []partition.ThrottledReplica{{Partition: 1, Broker: 2}}}
	if !some.Has(1, 2) || some.Has(2, 1) || some.Has(1, 1) {
		t.Error("the list is not what counts")
	}
	if all := (partition.ThrottledReplicas{All: true}); !all.Has(7, 7) {
		t.Error("* is not all")
	}
}
