package peer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/peer"
	"github.com/strandline/strandline/internal/wire"
)

// world is a network with one listener and a connection to it.
type world struct {
	t      *testing.T
	memory *netx.Memory
	conn   *peer.Conn
	downs  atomic.Int64
}

const (
	serverIP = "10.0.0.1"
	clientIP = "10.0.0.2"
	address  = serverIP + ":9093"
)

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, o peer.Options, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, memory: netx.NewMemory()}
		o.Network = w.memory.Host(clientIP)
		w.conn = peer.Dial(func() (string, bool) { return address, true }, o)
		w.conn.OnDown(func(error) { w.downs.Add(1) })
		defer func() {
			if err := w.conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, w)
	})
}

func (w *world) server() netx.Network { return w.memory.Host(serverIP) }

// ask sends an echo and returns the version it went in.
func (w *world) ask(ctx context.Context, number int32) (int16, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = number
	resp, err := w.conn.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	answer := resp.(*kmsg.InitProducerIDResponse)
	if answer.ProducerID != int64(number) {
		w.t.Errorf("asked with %d, answered %d", number, answer.ProducerID)
	}
	return answer.ProducerEpoch, nil
}

func (w *world) mustAsk(number int32) {
	w.t.Helper()
	if _, err := w.ask(w.t.Context(), number); err != nil {
		w.t.Fatal(err)
	}
}

// wait sends a request that is answered when the test wants it.
func (w *world) wait(ctx context.Context) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := w.conn.Do(ctx, kmsg.NewPtrHeartbeatRequest())
		done <- err
	}()
	return done
}

func cause(err error) peer.Cause {
	var down *peer.DownError
	if !errors.As(err, &down) {
		return 0
	}
	return down.Cause
}

func TestAnswersFindTheirRequests(t *testing.T) {
	inWorld(t, peer.Options{MaxPending: 16}, func(t *testing.T, w *world) {
		listen(t, w.server(), address, slog.Default(), echo(4))
		var group sync.WaitGroup
		for i := range int32(500) {
			group.Go(func() {
				if version, err := w.ask(t.Context(), i); err != nil || version != 4 {
					t.Errorf("version %d, %v", version, err)
				}
			})
		}
		group.Wait()
		if w.downs.Load() != 0 || w.conn.Refused() {
			t.Error("the connection passes for broken")
		}
	})
}

// TestSendKeepsTheOrder: what was handed over first arrives first, whoever waits for which
// answer first, also while the connection is dialed.
func TestSendKeepsTheOrder(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		var arrived []int32
		api := echo(4)
		handle := api.Handle
		api.Handle = func(ctx context.Context, r *wire.Request) wire.Response {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.SetVersion(r.Version)
			if err := req.ReadFrom(bytes.Clone(r.Body)); err != nil {
				t.Error(err)
			}
			arrived = append(arrived, req.TransactionTimeoutMillis)
			return handle(ctx, r)
		}
		listen(t, w.server(), address, slog.Default(), api)
		var waits []func(context.Context) (kmsg.Response, error)
		for i := range int32(50) {
			sent := make(chan struct{})
			go func() { // Ends with Send; each begins when the one before is through.
				defer close(sent)
				req := kmsg.NewPtrInitProducerIDRequest()
				req.TransactionTimeoutMillis = i
				wait, err := w.conn.Send(t.Context(), req)
				if err != nil {
					t.Error(err)
				}
				waits = append(waits, wait)
			}()
			<-sent
		}
		for i, wait := range slices.Backward(waits) {
			resp, err := wait(t.Context())
			if err != nil || resp.(*kmsg.InitProducerIDResponse).ProducerID != int64(i) {
				t.Errorf("request %d is answered with %+v, %v", i, resp, err)
			}
		}
		if !slices.IsSorted(arrived) || len(arrived) != len(waits) {
			t.Errorf("they arrived as %v", arrived)
		}
	})
}

func TestVersionsAreAgreedOn(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		listen(t, w.server(), address, slog.Default(), echo(1))
		if version, err := w.ask(t.Context(), 7); version != 1 || err != nil {
			t.Errorf("version %d, %v", version, err)
		}
		var unsupported *peer.UnsupportedError
		if _, err := w.conn.Do(t.Context(), kmsg.NewPtrHeartbeatRequest()); !errors.As(err, &unsupported) {
			t.Errorf("a request that is not in the table: %v", err)
		}
		w.mustAsk(8)
	})
}

func TestRefusedDialIsToldAndPausesGrow(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		start := time.Now()
		for range 5 {
			if _, err := w.ask(t.Context(), 1); cause(err) != peer.Refused || !peer.Died(err) {
				t.Fatalf("nobody listens: %v", err)
			}
		}
		if d := time.Since(start); d != (10+20+40+80)*time.Millisecond {
			t.Errorf("five dials took %s", d)
		}
		synctest.Wait()
		if w.downs.Load() != 5 || !w.conn.Refused() {
			t.Errorf("told of %d refusals", w.downs.Load())
		}
		listen(t, w.server(), address, slog.Default(), echo(4))
		start = time.Now()
		w.conn.Hasten()
		w.mustAsk(1)
		if time.Since(start) != 0 || w.conn.Refused() {
			t.Errorf("after Hasten it took %s", time.Since(start))
		}
	})
}

// A process that dies fails all that waits, once each, and is told at once; the next
// request finds its successor.
func TestClosedConnection(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		parked := make(chan chan struct{}, 10)
		h := listen(t, w.server(), address, slog.Default(), echo(4), park(parked))
		first, second := w.wait(t.Context()), w.wait(t.Context())
		releases := []chan struct{}{<-parked, <-parked}
		h.stop()
		for _, done := range []chan error{first, second} {
			if err := <-done; cause(err) != peer.Closed || !peer.Died(err) {
				t.Errorf("a request on its way: %v", err)
			}
		}
		synctest.Wait()
		if w.downs.Load() != 1 {
			t.Errorf("told %d times", w.downs.Load())
		}
		listen(t, w.server(), address, slog.Default(), echo(4))
		w.mustAsk(3)
		for _, r := range releases {
			close(r)
		}
	})
}

// Who stops waiting leaves the others alone, unless the connection is silent.
func TestContextEnds(t *testing.T) {
	inWorld(t, peer.Options{MaxPending: 3}, func(t *testing.T, w *world) {
		parked := make(chan chan struct{}, 10)
		listen(t, w.server(), address, slog.Default(), echo(4), park(parked))
		canceled, cancel := context.WithCancel(t.Context())
		gone, stays := w.wait(canceled), w.wait(t.Context())
		releases := []chan struct{}{<-parked, <-parked}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := w.ask(short, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind what waits: %v", err)
		}
		cancel()
		// All places are taken by requests without an answer.
		full, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := w.ask(full, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a place: %v", err)
		}
		cancel()
		for _, r := range releases {
			close(r)
		}
		if err := <-stays; err != nil {
			t.Errorf("the one that stayed: %v", err)
		}
		w.mustAsk(5)
		silent, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		behind := w.wait(t.Context())
		release := <-parked
		if _, err := w.ask(silent, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind silence: %v", err)
		}
		if err := <-behind; cause(err) != peer.Silent || peer.Died(err) {
			t.Errorf("what waits on a silent connection: %v", err)
		}
		close(release)
		if w.downs.Load() != 0 {
			t.Error("silence passes for death")
		}
		w.mustAsk(6)
	})
}

func TestCutNetwork(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		listen(t, w.server(), address, slog.Default(), echo(4))
		w.memory.Partition(serverIP, clientIP)
		start := time.Now()
		if _, err := w.ask(t.Context(), 1); cause(err) != peer.Unreachable || time.Since(start) != time.Second {
			t.Errorf("a dial into nothing: %v after %s", err, time.Since(start))
		}
		w.memory.Heal(serverIP, clientIP)
		w.mustAsk(1)
		w.memory.Partition(serverIP, clientIP)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := w.ask(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("into nothing: %v", err)
		}
		w.memory.Heal(serverIP, clientIP)
		w.mustAsk(1)
		if w.downs.Load() != 0 {
			t.Error("a cut passes for death")
		}
	})
}

func TestIdleConnectionIsClosedUnnoticed(t *testing.T) {
	inWorld(t, peer.Options{IdleTimeout: time.Minute}, func(t *testing.T, w *world) {
		listen(t, w.server(), address, slog.Default(), echo(4))
		for range 3 {
			w.mustAsk(1)
			<-time.After(3 * time.Minute)
		}
		if w.downs.Load() != 0 {
			t.Error("an idle connection passes for a death")
		}
	})
}

func TestGarbage(t *testing.T) {
	for name, bytes := range map[string]string{
		"too long":      "\xff\xff\xff\xff",
		"too short":     "\x00\x00\x00\x02xx",
		"another id":    "\x00\x00\x00\x06\x00\x00\x00\x09xx",
		"no ApiVersion": "\x00\x00\x00\x06\x00\x00\x00\x01\x00\x23",
	} {
		inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
			l, err := w.server().Listen(t.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(bytes))
				served <- c
			}()
			if _, err := w.ask(t.Context(), 1); cause(err) != peer.Garbled {
				t.Errorf("%s: %v", name, err)
			}
			_ = (<-served).Close()
			_ = l.Close()
		})
	}
}

func TestCloseFailsWhatWaits(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		parked := make(chan chan struct{}, 10)
		listen(t, w.server(), address, slog.Default(), park(parked))
		waiting := w.wait(t.Context())
		release := <-parked
		for range 2 {
			if err := w.conn.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-waiting; cause(err) != peer.Ended {
			t.Errorf("on its way: %v", err)
		}
		if err := <-w.wait(t.Context()); cause(err) != peer.Ended {
			t.Errorf("after Close: %v", err)
		}
		close(release)
		if w.downs.Load() != 0 {
			t.Error("the own end passes for a death")
		}
	})
}

func TestUnknownAddress(t *testing.T) {
	c := peer.Dial(func() (string, bool) { return "", false }, peer.Options{Network: netx.NewMemory().Host(clientIP)})
	if err := c.Connect(t.Context()); cause(err) != peer.Unknown {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A listener that takes connections and says nothing holds a dial up, not for ever.
func TestSilentListener(t *testing.T) {
	inWorld(t, peer.Options{}, func(t *testing.T, w *world) {
		l, err := w.server().Listen(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := w.conn.Connect(t.Context()); cause(err) == 0 || peer.Died(err) || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		_ = l.Close()
	})
}

// A connection that leads to somebody else is given up for one to where the other side is
// now; what is asked next goes there. So is one to where it was before: whoever is there now
// would answer for it, for ever.
func TestRedial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := netx.NewMemory()
		at := address
		c := peer.Dial(func() (string, bool) { return at, true }, peer.Options{Network: memory.Host(clientIP)})
		const elsewhere = "10.0.0.3:9093"
		hosts := []*host{
			listen(t, memory.Host(serverIP), address, slog.New(slog.DiscardHandler), echo(3)),
			listen(t, memory.Host("10.0.0.3"), elsewhere, slog.New(slog.DiscardHandler), echo(4)),
		}
		w := &world{t: t, memory: memory, conn: c}
		expect := func(want int16) {
			t.Helper()
			if version, err := w.ask(t.Context(), 1); err != nil || version != want {
				t.Errorf("version %d, %v, want %d", version, err, want)
			}
		}
		c.Redial() // Nothing to give up.
		expect(3)
		expect(3)
		at = elsewhere
		expect(4)
		at = address
		expect(3)
		if led := c.Redial(); led != address {
			t.Errorf("it led to %q", led)
		}
		expect(3)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, h := range hosts {
			h.stop()
		}
	})
}
