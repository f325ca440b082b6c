package wire_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

func TestMemoryForRequestsIsBounded(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 50_000
	}, func(t *testing.T, b *broker) {
		body := strings.Repeat("x", 40_000)
		first, second, third := b.dialFrom("10.0.0.1"), b.dialFrom("10.0.0.2"), b.dialFrom("10.0.0.3")
		first.send(keyHold, 1, body)
		a := b.next()
		// A second one goes beyond the limit, alone.
		second.send(keyHold, 2, body)
		b2 := b.next()
		go third.send(keyEcho, 3, "small")
		synctest.Wait()
		if n := b.handled.Load(); n != 2 {
			t.Fatalf("%d requests were read", n)
		}
		if used := b.server.Stats().QueuedBytes; used < 80_000 || used > 100_000 {
			t.Errorf("%d bytes are in use", used)
		}
		// Waiting for memory is no fault of the client.
		pass(2 * time.Minute)
		a.req.Release() // Early, before the answer.
		b2.req.Release()
		b2.req.Release() // Again is allowed.
		synctest.Wait()
		b2.finish()
		second.expect(2, body)
		third.expect(3, "small")
		a.finish()
		first.expect(1, body)
	})
}

func TestMemoryIsNotTakenByAnnouncingAFrame(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *broker) {
		liar, honest := b.dial(), b.dial()
		liar.write([]byte{0x06, 0, 0, 0}) // 96 MiB.
		go func() { _, _ = liar.Write(make([]byte, 100_000)) }()
		synctest.Wait()
		if used := b.server.Stats().QueuedBytes; used > 256<<10 {
			t.Errorf("%d bytes are in use", used)
		}
		honest.send(keyEcho, 1, strings.Repeat("x", 60_000))
		honest.expect(1, strings.Repeat("x", 60_000))
		liar.expectClosedAfter(10*time.Second, 12*time.Second)
	})
}

func TestFramesLargerThanTheMemoryPassOneByOne(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 100_000
	}, func(t *testing.T, b *broker) {
		body := strings.Repeat("x", 3<<20)
		done := make(chan struct{})
		for i := range int32(5) {
			c := b.dial()
			go c.send(keyEcho, i, body)
			go func() {
				c.expect(i, body)
				done <- struct{}{}
			}()
		}
		for range 5 {
			<-done
		}
	})
}

func TestWaitingForMemoryEndsWithTheServer(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 50_000
	}, func(t *testing.T, b *broker) {
		holder := b.dial()
		holder.send(keyHold, 1, strings.Repeat("x", 60_000))
		b.next()
		fresh, begun := b.dial(), b.dial()
		go func() { _, _ = fresh.Write(frame(keyEcho, 0, 1, "x")) }()
		go func() { _, _ = begun.Write(frame(keyEcho, 0, 1, strings.Repeat("x", 1<<20))) }()
		synctest.Wait()
	})
}

func TestLimitsCanBeChanged(t *testing.T) {
	inBubble(t, func(b *broker) {
		b.options.Limits.MaxQueuedBytes = 50_000
	}, func(t *testing.T, b *broker) {
		holder, waiter := b.dial(), b.dial()
		holder.send(keyHold, 1, strings.Repeat("x", 60_000))
		a := b.next()
		go waiter.send(keyEcho, 1, "x")
		synctest.Wait()
		limits := wire.DefaultLimits()
		limits.MaxConnections = 2
		if err := b.server.SetLimits(limits); err != nil {
			t.Fatal(err)
		}
		waiter.expect(1, "x")
		b.dial().expectClosed()
		a.finish()
		if err := b.server.SetLimits(wire.Limits{}); err == nil {
			t.Error("limits of zero were taken")
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() wire.Options {
		return wire.Options{
			Listeners: []wire.Listener{{}}, Limits: wire.DefaultLimits(),
			Logger: slog.New(slog.DiscardHandler),
			APIs:   func(int16) (wire.API, bool) { return wire.API{}, false },
		}
	}
	if _, err := wire.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(o *wire.Options){
		"listeners": func(o *wire.Options) { o.Listeners = nil },
		"table":     func(o *wire.Options) { o.APIs = nil },
		"logger":    func(o *wire.Options) { o.Logger = nil },
		"frame":     func(o *wire.Options) { o.Limits.MaxRequestBytes = 7 },
		"huge":      func(o *wire.Options) { o.Limits.MaxRequestBytes = 1<<31 - 1 },
		"bytes":     func(o *wire.Options) { o.Limits.MaxQueuedBytes = 0 },
		"idle":      func(o *wire.Options) { o.Limits.MaxIdle = -1 },
	} {
		o := good()
		spoil(&o)
		if _, err := wire.New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// failing fails to accept a few times, then for good.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func TestAcceptIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := netx.NewMemory().Host("127.0.0.1").Listen(t.Context(), ":0")
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("the listener broke")
		f := &failing{l, []error{syscall.EMFILE, syscall.ECONNABORTED, syscall.ENFILE, gone}}
		log := &logtest.Log{}
		s, err := wire.New(wire.Options{
			Listeners: []wire.Listener{{Name: "PLAINTEXT", Listener: f}}, Limits: wire.DefaultLimits(),
			APIs:   func(int16) (wire.API, bool) { return wire.API{}, false },
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(context.Background()); !errors.Is(err, gone) {
			t.Errorf("Run: %v", err)
		}
		if !strings.Contains(log.String(), "too many open files") {
			t.Errorf("log %q", log.String())
		}
	})
}
