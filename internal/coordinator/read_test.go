package coordinator_test

import (
	"context"
	"errors"
	"sync/atomic"
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

// TestDoubt: a broker that is out of touch with the controller, and whose replicas do not
// say that it is the coordinator, appends nothing for those who ask it to, and tells them so.
func TestDoubt(t *testing.T) {
	outOfTouch := false
	inBubble(t, func(o *coordinator.Options[*register]) {
		o.OutOfTouch = func() bool { return outOfTouch }
	}, func(b *bench) {
		b.p.sync = true
		for _, c := range []struct {
			outOfTouch, inDoubt bool
			want                string
		}{
			{false, false, "v"},
			{false, true, "v"},
			{true, false, "v"},
			{true, true, "NOT_COORDINATOR"},
			{true, false, "v"}, // The replicas were heard of again.
		} {
			outOfTouch, b.p.inDoubt = c.outOfTouch, c.inDoubt
			before := b.p.end
			b.mustPut("a", "k", "v")
			b.expect("a: " + c.want)
			if doubted := c.want != "v"; b.InDoubt(3) != doubted || (b.p.end == before) != doubted {
				t.Errorf("out of touch %v, in doubt %v: InDoubt %v, log end offset from %d to %d", c.outOfTouch, c.inDoubt,
					b.InDoubt(3), before, b.p.end)
			}
			if err := b.try(); err != nil {
				t.Errorf("a step that takes no record: %v", err)
			}
			err := b.DoSure(3, func(*register, int64, *shard.Effects) {})
			var code *kafka.Error
			if refused := errors.As(err, &code) && code.Code == kafka.ErrNotCoordinator; refused != (c.want != "v") {
				t.Errorf("out of touch %v, in doubt %v: DoSure %v", c.outOfTouch, c.inDoubt, err)
			}
		}
		if b.InDoubt(4) {
			t.Error("in doubt of a partition that it does not coordinate")
		}
	})
}

// TestDoubtEndsWaiting: who waits for records that the replicas do not have is sent away once
// they do not confirm the leader any more, and who would wait for them then is at once.
func TestDoubtEndsWaiting(t *testing.T) {
	var outOfTouch atomic.Bool
	inBubble(t, func(o *coordinator.Options[*register]) { o.OutOfTouch = outOfTouch.Load }, func(b *bench) {
		read := func(name string) {
			t.Helper()
			err := b.Do(3, func(m *register, _ int64, fx *shard.Effects) {
				fx.WaitFor(0)
				fx.Reply(letter{&b.box, name}, m.values["k"])
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		b.mustPut("a", "k", "1")
		read("b")
		<-time.After(time.Second)
		b.expect("")
		outOfTouch.Store(true)
		<-time.After(time.Second)
		b.expect("") // The replicas confirm that it leads.
		b.p.set(func(p *fakePartition) { p.inDoubt = true })
		<-time.After(time.Second)
		b.expect("a: NOT_COORDINATOR, b: NOT_COORDINATOR")
		read("c")
		b.expect("c: NOT_COORDINATOR")
		b.p.commit()
		read("d")
		b.expect("d: 1")
	})
}
