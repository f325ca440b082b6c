package wire_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

func TestStopSendsWhatIsOnItsWay(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		idle, busy, polling := b.dial(), b.dial(), b.dial()
		idle.send(keyEcho, 1, "x")
		idle.expect(1, "x")
		busy.send(keyPark, 2, "ack")
		ack := b.next()
		polling.send(keyPoll, 3, "nothing yet")
		b.next()
		start := time.Now()
		b.stop()
		idle.expectClosed()
		polling.expect(3, "nothing yet") // It stops waiting at once.
		polling.expectClosed()
		if d := time.Since(start); d > 0 {
			t.Errorf("the idle ones took %s", d)
		}
		ack.finish()
		busy.expect(2, "ack")
		busy.expectClosed()
		<-b.stopped
		if _, err := b.network.Dial(t.Context(), b.addr); err == nil {
			t.Error("it still listens")
		}
	})
}

func TestStopDoesNotWaitForever(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyPark, 1, "never done")
		a := b.next()
		start := time.Now()
		b.stop()
		<-b.stopped
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("stopped after %s", d)
		}
		<-a.encoded
		if !a.dropped.Load() {
			t.Error("the answer does not know that nobody gets it")
		}
		c.expectClosed()
	})
}

func TestStopEndsTheHandlersContext(t *testing.T) {
	inBubble(t, func(b *broker) {
		api := b.options.APIs
		b.options.APIs = func(key int16) (wire.API, bool) {
			a, ok := api(key)
			if key == keyMute {
				a.Handle = func(ctx context.Context, _ *wire.Request) wire.Response {
					<-ctx.Done()
					return echoed{[]byte("interrupted")}
				}
			}
			return a, ok
		}
	}, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyMute, 1, "")
		synctest.Wait()
		start := time.Now()
		b.stop()
		<-b.stopped
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("stopped after %s", d)
		}
	})
}

func TestDeadConnectionReleasesEverything(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network netx.Network) {
		b := newBroker(t, network)
		closed := make(chan wire.CloseReason, 1)
		b.options.Events.ConnClosed = func(_ *wire.Conn, reason wire.CloseReason, _ error) {
			closed <- reason
		}
		b.start()
		c := b.dial()
		for i := range int32(10) {
			c.send(keyHold, i, strings.Repeat("x", 20_000))
		}
		var answers []*answer
		for range 10 {
			answers = append(answers, b.next())
		}
		_ = c.Close()
		if got := <-closed; got != wire.ClosedByPeer {
			t.Errorf("closed because of %s", got)
		}
		for _, a := range answers {
			<-a.encoded
			a.req.Wake() // Late, and harmless.
		}
		if used := b.server.Stats().QueuedBytes; used != 0 {
			t.Errorf("%d bytes are still held", used)
		}
	})
}

func TestObservers(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Events = wire.Events{
			ConnOpened: func(c *wire.Conn) {
				c.SetValue("opened", c.RemoteAddr().String())
			},
			RequestDone: func(s *wire.RequestStats) {
				if s.Conn.Value("opened") != s.Conn.RemoteAddr().String() || s.Conn.Listener() != "PLAINTEXT" {
					b.t.Errorf("connection %v", s.Conn)
				}
				if s.Key == keyPark && (s.Total != time.Second || s.ResponseBytes != 8+4) {
					b.t.Errorf("parked: %+v", s)
				}
				if s.Key == keyMute && (s.Total != 0 || s.ResponseBytes != 0) {
					b.t.Errorf("unanswered: %+v", s)
				}
				if want := int64(len(frame(s.Key, 0, 0, "body"))); s.RequestBytes != want {
					b.t.Errorf("request of %d bytes, want %d", s.RequestBytes, want)
				}
				b.handled.Add(1000)
			},
		}
	}, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyMute, 1, "body")
		c.send(keyPark, 2, "body")
		a := b.next()
		pass(time.Second)
		a.finish()
		c.expect(2, "body")
		synctest.Wait()
		if n := b.handled.Load(); n != 2002 {
			t.Errorf("%d requests and observations", n)
		}
		st := b.server.Stats()
		if st.Requests != 2 || st.BytesOut != 12 || st.BytesIn != 2*int64(len(frame(0, 0, 0, "body"))) {
			t.Errorf("stats %+v", st)
		}
	})
}
