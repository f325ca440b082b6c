package wire_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// inBubble runs a test with a broker on a network in memory, where time is
// virtual.
func inBubble(t *testing.T, set func(b *broker), test func(t *testing.T, b *broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := netx.NewMemory()
		b := newBroker(t, memory.Host("127.0.0.1"))
		b.memory = memory
		if set != nil {
			set(b)
		}
		b.start()
		test(t, b)
		b.stop()
		<-b.stopped
		if st := b.server.Stats(); st.QueuedBytes != 0 || st.AnswerBytes != 0 {
			t.Errorf("%d bytes of requests and %d of answers are still held", st.QueuedBytes, st.AnswerBytes)
		}
	})
}

// logPause is longer than the log holds back lines of one kind.
const logPause = 6 * time.Second

// pass lets time pass. In a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }

// expectClosedAfter expects the connection's end between two points in time
// from now.
func (c *client) expectClosedAfter(least, most time.Duration) {
	c.t.Helper()
	start := time.Now()
	c.expectClosed()
	if d := time.Since(start); d < least || d > most {
		c.t.Errorf("closed after %s, want between %s and %s", d, least, most)
	}
}

func TestDeadlineEndsTheWait(t *testing.T) {
	inBubble(t, func(b *broker) { b.timeout = 3 * time.Second }, func(t *testing.T, b *broker) {
		c := b.dial()
		for i := range int32(3) {
			start := time.Now()
			c.send(keyPark, i, "body")
			c.expect(i, "late")
			if d := time.Since(start); d != 3*time.Second {
				t.Errorf("answered after %s", d)
			}
		}
	})
}

func TestTimerFollowsTheHeadOfTheQueue(t *testing.T) {
	inBubble(t, func(b *broker) { b.timeout = time.Hour }, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyPark, 1, "long") // Arms the timer for an hour from now.
		long := b.next()
		synctest.Wait()
		b.timeout = time.Second
		c.send(keyPark, 2, "short")
		b.next()
		synctest.Wait()
		start := time.Now()
		long.finish()
		c.expect(1, "long")
		c.expect(2, "late")
		if d := time.Since(start); d != time.Second {
			t.Errorf("the second answer came after %s", d)
		}
	})
}

func TestIdleConnectionIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyEcho, 1, "x")
		c.expect(1, "x")
		c.expectClosedAfter(10*time.Minute, 10*time.Minute+2*time.Second)
		if log := b.log.String(); log != "" {
			t.Errorf("logged %q", log)
		}
	})
}

func TestWaitingForAnAnswerIsNotIdle(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyPark, 1, "x")
		a := b.next()
		pass(time.Hour)
		a.finish()
		c.expect(1, "x")
	})
}

func TestSilentNewcomerIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		b.dial().expectClosedAfter(10*time.Second, 12*time.Second)
		c := b.dial()
		c.write([]byte{0, 0}) // Part of a first request does not help.
		c.expectClosedAfter(10*time.Second, 12*time.Second)
	})
}

func TestStalledFrameIsClosed(t *testing.T) {
	for _, part := range []int{2, 4, 9, 20_000} {
		inBubble(t, nil, func(t *testing.T, b *broker) {
			c := b.dial()
			c.send(keyEcho, 1, "x")
			c.expect(1, "x")
			c.write(frame(keyEcho, 0, 2, strings.Repeat("y", 50_000))[:part])
			c.expectClosedAfter(30*time.Second, 32*time.Second)
			synctest.Wait()
			if log := b.log.String(); !strings.Contains(log, "the client sent") {
				t.Errorf("logged %q", log)
			}
		})
	}
}

func TestTricklingFrameIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyEcho, 1, "x")
		c.expect(1, "x")
		f := frame(keyEcho, 0, 2, strings.Repeat("y", 10_000))
		start := time.Now()
		for _, x := range f {
			if _, err := c.Write([]byte{x}); err != nil {
				break
			}
			pass(5 * time.Second)
		}
		if d := time.Since(start); d < 30*time.Second || d > 40*time.Second {
			t.Errorf("closed after %s", d)
		}
	})
}

func TestHalfOpenPeerIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := netx.NewMemory()
		b := newBroker(t, memory.Host("127.0.0.1"))
		b.start()
		nc, err := memory.Host("10.0.0.1").Dial(t.Context(), b.addr)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{t, nc}
		c.send(keyEcho, 1, "x")
		c.expect(1, "x")
		memory.Partition("127.0.0.1", "10.0.0.1")
		c.send(keyEcho, 2, "lost")
		pass(11 * time.Minute)
		if n := b.server.Stats().Connections; n != 0 {
			t.Errorf("%d connections are open", n)
		}
		_ = nc.Close()
		b.stop()
		<-b.stopped
	})
}

func TestSlowReaderIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		// More than both sides' buffers hold; parked answers come behind it.
		for i := range int32(4) {
			c.send(keyEcho, i, strings.Repeat("x", 60_000))
		}
		c.send(keyPark, 9, "behind")
		parked := b.next()
		start := time.Now()
		<-parked.encoded
		if d := time.Since(start); d < 29*time.Second || d > 32*time.Second {
			t.Errorf("given up after %s", d)
		}
		if !parked.dropped.Load() {
			t.Error("the answer behind was not dropped")
		}
		synctest.Wait()
		if log := b.log.String(); !strings.Contains(log, "took no byte of an answer") {
			t.Errorf("logged %q", log)
		}
	})
}

func TestSlowReaderThatReadsIsServed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		for i := range int32(4) {
			c.send(keyEcho, i, strings.Repeat("x", 60_000))
		}
		for i := range int32(4) {
			pass(20 * time.Second)
			c.expect(i, strings.Repeat("x", 60_000))
		}
	})
}

func TestConnectionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := netx.NewMemory()
		b := newBroker(t, memory.Host("127.0.0.1"))
		b.options.Limits.MaxConnections = 3
		b.options.Limits.MaxConnectionsPerIP = 2
		refused := make(chan wire.CloseReason, 10)
		b.options.Events.ConnRefused = func(_ string, _ net.Addr, reason wire.CloseReason) {
			refused <- reason
		}
		b.start()
		dial := func(ip string) *client {
			nc, err := memory.Host(ip).Dial(t.Context(), b.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = nc.Close() })
			return &client{t, nc}
		}
		first, second := dial("10.0.0.1"), dial("10.0.0.1")
		dial("10.0.0.1").expectClosed()
		if got := <-refused; got != wire.ClosedTooManyIP {
			t.Errorf("refused because of %s", got)
		}
		third := dial("10.0.0.2")
		third.send(keyEcho, 1, "x")
		third.expect(1, "x")
		dial("10.0.0.3").expectClosed()
		if got := <-refused; got != wire.ClosedTooMany {
			t.Errorf("refused because of %s", got)
		}
		_ = first.Close()
		synctest.Wait()
		again := dial("10.0.0.1")
		for _, c := range []*client{second, again} {
			c.send(keyEcho, 2, "y")
			c.expect(2, "y")
		}
		if st := b.server.Stats(); st.Accepted != 4 || st.Refused != 2 || st.Connections != 3 {
			t.Errorf("stats %+v", st)
		}
		b.stop()
		<-b.stopped
	})
}

func TestPipelineIsBounded(t *testing.T) {
	inBubble(t, func(b *broker) { b.options.Limits.MaxPipelined = 5 }, func(t *testing.T, b *broker) {
		c := b.dial()
		for i := range int32(20) {
			c.send(keyPark, i, "x")
		}
		synctest.Wait()
		for i := range int32(20) {
			if n := b.handled.Load(); n != min(int64(i)+5, 20) {
				t.Fatalf("%d requests are under way after %d answers", n, i)
			}
			b.next().finish()
			c.expect(i, "x")
			synctest.Wait()
		}
	})
}
