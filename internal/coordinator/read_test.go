package coordinator_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
)

// TestReads: a step that changes nothing is run when the lease or the replicas say that
// this broker is the coordinator; else it is refused, after a while.
func TestReads(t *testing.T) {
	leased, later := true, time.Time{}
	inBubble(t, func(o *coordinator.Options[*register]) {
		o.Leased = func() bool { return leased || !later.IsZero() && time.Now().After(later) }
	}, func(b *bench) {
		read := func(ctx context.Context, r coordinator.Reading[*register]) (ran bool, code kafka.Code) {
			err := r.Run(ctx, func(*register, int64, *shard.Effects) { ran = true })
			var coded *kafka.Error
			switch {
			case errors.As(err, &coded):
				code = coded.Code
			case err != nil:
				t.Errorf("not an error for clients: %v", err)
			}
			return ran, code
		}
		expect := func(what string, r coordinator.Reading[*register], want kafka.Code, within time.Duration) {
			t.Helper()
			began := time.Now()
			ran, code := read(b.t.Context(), r)
			if ran != (want == kafka.ErrNone) || code != want || time.Since(began) > within {
				t.Errorf("%s: ran %v, %v after %v", what, ran, code, time.Since(began))
			}
		}
		expect("leased", b.BeginRead(3), kafka.ErrNone, 0)
		if b.p.asked != 0 {
			t.Errorf("with the lease the replicas were asked %d times", b.p.asked)
		}
		expect("another partition", b.BeginRead(4), kafka.ErrNotCoordinator, 0)
		leased = false
		expect("the replicas confirm it", b.BeginRead(3), kafka.ErrNone, 0)
		b.p.deny = errNotLeader
		expect("deposed", b.BeginRead(3), kafka.ErrNotCoordinator, 0)
		b.p.deny = context.DeadlineExceeded
		expect("no answer", b.BeginRead(3), kafka.ErrNotCoordinator, partition.ConfirmTimeout)
		// Those that are begun together wait together.
		first, second := b.BeginRead(3), b.BeginRead(3)
		expect("the first without an answer", first, kafka.ErrNotCoordinator, partition.ConfirmTimeout)
		b.p.deny = nil
		expect("the second, which has one", second, kafka.ErrNone, 0)
		// The lease comes back meanwhile.
		b.p.deny, later = context.DeadlineExceeded, time.Now().Add(partition.ConfirmTimeout/2)
		expect("leased again", b.BeginRead(3), kafka.ErrNone, partition.ConfirmTimeout)
		later = time.Time{}
		pending := b.BeginRead(3)
		b.Resign(3)
		b.p.deny = nil
		expect("dropped meanwhile", pending, kafka.ErrNotCoordinator, 0)
	})
}
