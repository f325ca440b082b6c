package wire_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// The APIs of these tests. Bodies of echo are returned as they are.
const (
	keyEcho   = 1000 // Answers at once.
	keyPark   = 1001 // Answers when the test says so.
	keyPoll   = 1002 // Likewise, and is a long poll.
	keyMute   = 1003 // Never answers.
	keyClose  = 1004 // Closes the connection.
	keyHold   = 1005 // Like park, and holds its memory.
	keyAPIs   = 18   // ApiVersions.
	keyFailed = 1006 // Fails to encode.
	keyCharge = 1007 // Like echo, charges what it holds.
)

// flexibleFrom is the first flexible version of all APIs of these tests.
const flexibleFrom = 2

// answer is a response that the test controls.
type answer struct {
	req      *wire.Request
	body     []byte
	done     atomic.Bool
	deadline time.Time
	late     []byte // The body if it was not done in time.
	encoded  chan struct{}
	write    func(w *wire.Writer) error
	dropped  atomic.Bool
}

func (a *answer) Done() bool          { return a.done.Load() }
func (a *answer) Deadline() time.Time { return a.deadline }

func (a *answer) Encode(w *wire.Writer) error {
	defer close(a.encoded)
	a.dropped.Store(w.Discards())
	if a.write != nil {
		return a.write(w)
	}
	body := a.body
	if !a.done.Load() && a.late != nil {
		body = a.late
	}
	w.Append(func(dst []byte) []byte { return append(dst, body...) })
	return nil
}

// finish makes the answer ready.
func (a *answer) finish() {
	a.done.Store(true)
	a.req.Wake()
}

// broker is a server under test and what its handlers saw.
type broker struct {
	t       testing.TB
	server  *wire.Server
	options wire.Options
	addr    string
	network netx.Network
	memory  *netx.Memory // Behind network, in a bubble.
	stop    context.CancelFunc
	stopped chan struct{}
	log     *logtest.Log

	// parked yields the answers of the waiting APIs in order.
	parked chan *answer
	// timeout is their deadline, if positive.
	timeout time.Duration
	handled atomic.Int64
	write   func(w *wire.Writer) error
}

// newBroker makes a broker that start starts.
func newBroker(t testing.TB, network netx.Network) *broker {
	b := &broker{
		t: t, network: network, log: &logtest.Log{},
		parked: make(chan *answer, 1000), stopped: make(chan struct{}),
	}
	b.options = wire.Options{
		APIs: b.api, Limits: wire.DefaultLimits(),
		Logger: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	return b
}

// start runs the broker until the test ends.
func (b *broker) start() {
	b.t.Helper()
	l, err := b.network.Listen(b.t.Context(), "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.addr = l.Addr().String()
	if len(b.options.Listeners) == 0 {
		b.options.Listeners = []wire.Listener{{Name: "PLAINTEXT"}}
	}
	b.options.Listeners[0].Listener = l
	if b.server, err = wire.New(b.options); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() {
		defer close(b.stopped)
		if err := b.server.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	b.t.Cleanup(func() {
		b.stop()
		<-b.stopped
	})
}

func (b *broker) api(key int16) (wire.API, bool) {
	api := wire.API{Key: key, Min: 0, Max: 3, FlexibleFrom: flexibleFrom}
	switch key {
	case keyEcho, keyAPIs:
		api.Quick, api.Handle = true, b.echo
	case keyCharge:
		api.Handle = func(_ context.Context, r *wire.Request) wire.Response {
			b.handled.Add(1)
			body := bytes.Clone(r.Body)
			r.Release()
			r.Charge(int64(len(body)))
			return echoed{body}
		}
	case keyMute:
		api.Handle = func(context.Context, *wire.Request) wire.Response {
			b.handled.Add(1)
			return nil
		}
	case keyClose:
		api.Handle = func(context.Context, *wire.Request) wire.Response {
			return wire.Close("the test asked for it")
		}
	case keyPark, keyPoll, keyHold, keyFailed:
		api.LongPoll = key == keyPoll
		api.Handle = b.park
	default:
		return wire.API{}, false
	}
	return api, true
}

// echoed answers with the request's body, or "unsupported".
type echoed struct{ body []byte }

func (echoed) Done() bool          { return true }
func (echoed) Deadline() time.Time { return time.Time{} }
func (e echoed) Encode(w *wire.Writer) error {
	w.Bytes(e.body)
	return nil
}

func (b *broker) echo(_ context.Context, r *wire.Request) wire.Response {
	b.handled.Add(1)
	if r.UnsupportedVersion {
		return echoed{[]byte("unsupported")}
	}
	return echoed{r.Body}
}

func (b *broker) park(_ context.Context, r *wire.Request) wire.Response {
	b.handled.Add(1)
	a := &answer{req: r, body: bytes.Clone(r.Body), encoded: make(chan struct{}), write: b.write}
	if b.timeout > 0 {
		a.deadline, a.late = r.Received.Add(b.timeout), []byte("late")
	}
	if r.Key != keyHold {
		r.Release()
	}
	b.parked <- a
	return a
}

// next returns the next parked answer.
func (b *broker) next() *answer { return <-b.parked }

// client is a connection to a broker.
type client struct {
	t testing.TB
	net.Conn
}

func (b *broker) dial() *client {
	b.t.Helper()
	c, err := b.network.Dial(b.t.Context(), b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return &client{b.t, c}
}

// dialFrom opens a connection from another host.
func (b *broker) dialFrom(ip string) *client {
	b.t.Helper()
	c, err := b.memory.Host(ip).Dial(b.t.Context(), b.addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return &client{b.t, c}
}

// frame returns a whole request.
func frame(key, version int16, id int32, body string) []byte {
	b := []byte{0, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = append(b, 0, 4)
	b = append(b, "test"...)
	if version >= flexibleFrom {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// send writes version 0 requests of one key.
func (c *client) send(key int16, id int32, body string) {
	c.t.Helper()
	c.write(frame(key, 0, id, body))
}

// receive reads one answer of a version that is not flexible.
func (c *client) receive() (id int32, body string) {
	c.t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		c.t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c, rest); err != nil {
		c.t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:])), string(rest)
}

// expect reads one answer and compares it.
func (c *client) expect(id int32, body string) {
	c.t.Helper()
	if gotID, got := c.receive(); gotID != id || got != body {
		c.t.Fatalf("answer %d %q, want %d %q", gotID, got, id, body)
	}
}

// expectClosed reads until the end.
func (c *client) expectClosed() {
	c.t.Helper()
	if b, _ := io.ReadAll(c); len(b) > 0 {
		c.t.Fatalf("%q instead of the end", b)
	}
}
