package wire_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// The times of a request are counted: what waits for its turn, what waits to be
// done, and what ends its connection.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, netx.NewMemory().Host("127.0.0.1"))
		const keySlow, keyWait, keyBad = 3, 4, 5
		b.options.APIs = func(key int16) (wire.API, bool) {
			api := wire.API{Key: key, Max: 3, FlexibleFrom: flexibleFrom}
			switch key {
			case keySlow:
				api.Handle = func(ctx context.Context, r *wire.Request) wire.Response {
					<-time.After(20 * time.Millisecond)
					return b.echo(ctx, r)
				}
			case keyWait:
				api.Handle = b.park
			case keyBad:
				api.Handle = func(context.Context, *wire.Request) wire.Response { return wire.Close("bad") }
			default:
				return wire.API{}, false
			}
			return api, true
		}
		b.start()
		c := b.dial()
		c.write(append(frame(keySlow, 0, 1, "a"), frame(keyWait, 0, 2, "b")...))
		c.expect(1, "a")
		answer := b.next()
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		check := func(key int16, queued, total uint64, queuedSum, totalSum time.Duration) {
			t.Helper()
			for k, times := range b.server.Times() {
				q, all := times.Queued.Read(), times.Total.Read()
				if k == key && (q.Count != queued || all.Count != total || q.Sum != queuedSum.Seconds() ||
					all.Sum != totalSum.Seconds()) {
					t.Errorf("key %d: %d began after %v s, %d were answered after %v s", k, q.Count, q.Sum, all.Count, all.Sum)
				}
			}
		}
		check(keySlow, 1, 1, 0, 20*time.Millisecond)
		check(keyWait, 1, 0, 20*time.Millisecond, 0) // In flight; it waited for the first.
		answer.finish()
		c.expect(2, "b")
		check(keyWait, 1, 1, 20*time.Millisecond, 120*time.Millisecond)
		c.write(frame(keyBad, 0, 3, ""))
		c.expectClosed()
		synctest.Wait()
		check(keyBad, 1, 1, 0, 0)
		keys := 0
		for range b.server.Times() {
			keys++
		}
		st := b.server.Stats()
		if keys != 3 || st.Closed[wire.ClosedRequest] != 1 || st.QueuedBytes != 0 || st.QueuedBytesLimit != 64<<20 {
			t.Errorf("%d keys; %+v", keys, st)
		}
		b.stop()
		<-b.stopped
	})
}
