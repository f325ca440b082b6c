package wire_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fillRequests has an address send large frames and stop in the middle, until it
// holds as much of the memory for requests as it is given.
func fillRequests(b *broker, ip string, conns int) []*client {
	var all []*client
	for range conns {
		c := b.dialFrom(ip)
		c.send(keyEcho, 1, "hello")
		c.expect(1, "hello")
		f := frame(keyEcho, 0, 2, strings.Repeat("x", 1<<20))
		go func() { _, _ = c.Write(f[:len(f)-1]) }()
		all = append(all, c)
	}
	synctest.Wait()
	return all
}

// TestOneAddressCannotTakeTheMemoryForRequests: another address is served at
// once, and the same one soon.
func TestOneAddressCannotTakeTheMemoryForRequests(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 8 << 20
	}, func(t *testing.T, b *broker) {
		fillRequests(b, "10.0.0.1", 64)
		if used := b.server.Stats().QueuedBytes; used < 4<<20 || used > 6<<20 {
			t.Errorf("one address holds %d bytes of %d", used, 8<<20)
		}
		body := strings.Repeat("y", 1<<20)
		start := time.Now()
		other := b.dialFrom("10.0.0.2")
		go other.send(keyEcho, 1, body)
		other.expect(1, body)
		if d := time.Since(start); d > 0 {
			t.Errorf("another address waited for %s", d)
		}
		same := b.dialFrom("10.0.0.1")
		go same.send(keyEcho, 1, "small")
		same.expect(1, "small")
		if d := time.Since(start); d > 35*time.Second {
			t.Errorf("the same address waited for %s", d)
		}
	})
}

// TestMemoryIsNotLeftToSlowFrames: two addresses hold all of it; a third is
// served within seconds.
func TestMemoryIsNotLeftToSlowFrames(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 8 << 20
	}, func(t *testing.T, b *broker) {
		fillRequests(b, "10.0.0.1", 6)
		fillRequests(b, "10.0.0.2", 6)
		body := strings.Repeat("y", 1<<20)
		start := time.Now()
		c := b.dialFrom("10.0.0.3")
		go c.send(keyEcho, 1, body)
		c.expect(1, body)
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("waited for %s", d)
		}
		synctest.Wait()
		if log := b.log.String(); !strings.Contains(log, "while others waited for memory") {
			t.Errorf("logged %q", log)
		}
	})
}

// TestSlowLinksAreServed: who sends at a modest pace is not closed although
// others wait for memory all the time.
func TestSlowLinksAreServed(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 8 << 20
	}, func(t *testing.T, b *broker) {
		fillRequests(b, "10.0.0.1", 64) // Some wait, whatever happens.
		slow := b.dialFrom("10.0.0.1")
		slow.send(keyEcho, 1, "hello")
		slow.expect(1, "hello")
		f := frame(keyEcho, 0, 2, strings.Repeat("z", 1<<20))
		var sending sync.WaitGroup
		sending.Go(func() {
			for len(f) > 0 {
				n := min(50<<10, len(f))
				if _, err := slow.Write(f[:n]); err != nil {
					t.Errorf("the slow link was closed: %v", err)
					return
				}
				f = f[n:]
				pass(500 * time.Millisecond)
			}
		})
		slow.expect(2, strings.Repeat("z", 1<<20))
		sending.Wait()
	})
}

// TestUnsentAnswersOfAConnectionAreBounded: its next request is not read while
// its answers hold too much.
func TestUnsentAnswersOfAConnectionAreBounded(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxUnsentBytes = 300_000
	}, func(t *testing.T, b *broker) {
		c := b.dial()
		body := strings.Repeat("x", 100_000)
		go func() {
			for i := range int32(50) {
				if _, err := c.Write(frame(keyCharge, 0, i, body)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if n := b.handled.Load(); n > 6 {
			t.Errorf("%d requests were handled for a client that reads nothing", n)
		}
		if held := b.server.Stats().AnswerBytes; held > 600_000 {
			t.Errorf("%d bytes of answers are held", held)
		}
		for i := range int32(50) {
			c.expect(i, body)
		}
	})
}

// TestUnsentAnswersOfAllAreBounded: many that read nothing leave memory for
// those who do.
func TestUnsentAnswersOfAllAreBounded(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxAnswerBytes = 4 << 20
		b.options.Limits.MaxUnsentBytes = 1 << 20
	}, func(t *testing.T, b *broker) {
		body := strings.Repeat("x", 100_000)
		most := int64(0)
		for i := range 60 {
			c := b.dialFrom(fmt.Sprintf("10.0.0.%d", 1+i%3))
			go func() {
				for i := range int32(50) {
					if _, err := c.Write(frame(keyCharge, 0, i, body)); err != nil {
						return
					}
				}
			}()
			synctest.Wait()
			most = max(most, b.server.Stats().AnswerBytes)
		}
		if most > 6<<20 {
			t.Errorf("%d bytes of answers were held", most)
		}
		start := time.Now()
		reader := b.dialFrom("10.0.1.1")
		for i := range int32(20) {
			go reader.send(keyCharge, i, body)
			reader.expect(i, body)
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("one that reads waited for %s", d)
		}
		synctest.Wait()
		if log := b.log.String(); !strings.Contains(log, "of its answers in") {
			t.Errorf("logged %q", log)
		}
	})
}

// TestLongPollsEndWhileMemoryIsScarce: a parked answer that holds much gives way.
func TestLongPollsEndWhileMemoryIsScarce(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxAnswerBytes = 1 << 20
	}, func(t *testing.T, b *broker) {
		parked := b.dialFrom("10.0.0.1")
		parked.send(keyPoll, 1, "x")
		b.next().req.Charge(1 << 20)
		c := b.dialFrom("10.0.0.2")
		go c.send(keyEcho, 1, "y")
		start := time.Now()
		parked.expect(1, "x")
		c.expect(1, "y")
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("waited for %s", d)
		}
	})
}

// TestLateChargeIsIgnored: an answer that is charged after its connection is
// gone costs nobody.
func TestLateChargeIsIgnored(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		c := b.dial()
		c.send(keyPark, 1, "x")
		a := b.next()
		_ = c.Close()
		synctest.Wait()
		a.req.Charge(1 << 20)
		if held := b.server.Stats().AnswerBytes; held != 0 {
			t.Errorf("%d bytes are held", held)
		}
		_, _ = io.Copy(io.Discard, c)
	})
}
