package express

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Route is a kind of request that a Lane answers: with a method, and a path of
// Prefix, one segment, and Suffix.
type Route struct {
	Method, Prefix, Suffix string
	// Param is the name of the segment, as Request.PathValue knows it, and Pattern
	// what Request.Pattern is.
	Param, Pattern string
	Handler        http.Handler

	begin string // Of the request line.
}

// Options make a Lane.
type Options struct {
	Listener net.Listener
	Routes   []Route
	// IdleTimeout is how long a connection may ask for nothing, RequestTimeout how
	// long a request may take to arrive here before it is left to net/http, and
	// WriteTimeout how long a client may take to take an answer.
	IdleTimeout, RequestTimeout, WriteTimeout time.Duration
}

// Lane is a listener's express lane.
type Lane struct {
	o       Options
	rest    rest
	serving sync.WaitGroup // The goroutines of connections.

	stopped atomic.Bool
	mu      sync.Mutex
	conns   map[*conn]struct{}
}

// New returns a Lane that does not run yet.
func New(o Options) *Lane {
	l := &Lane{o: o, conns: map[*conn]struct{}{}}
	l.o.Routes = append([]Route(nil), o.Routes...)
	for i := range l.o.Routes {
		r := &l.o.Routes[i]
		r.begin = r.Method + " " + r.Prefix
	}
	l.rest = rest{addr: o.Listener.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}
	return l
}

// Rest returns the listener of connections that are left to net/http. It ends when
// Run does.
func (l *Lane) Rest() net.Listener { return &l.rest }

// Run accepts connections until ctx ends or the listener fails. Then those that ask
// for nothing are closed, and the others when they are answered, or grace is over.
func (l *Lane) Run(ctx context.Context, grace time.Duration) error {
	defer context.AfterFunc(ctx, func() { _ = l.o.Listener.Close() })()
	err := l.accept(ctx)
	if ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		err = nil
	}
	_ = l.rest.Close()
	l.stop(false)
	force := time.AfterFunc(grace, func() { l.stop(true) })
	l.serving.Wait()
	force.Stop()
	return err
}

// The pauses between tries to accept while there is no room, for descriptors say.
const (
	acceptRetryMin = 5 * time.Millisecond
	acceptRetryMax = time.Second
)

func (l *Lane) accept(ctx context.Context) error {
	retry := acceptRetryMin
	for {
		nc, err := l.o.Listener.Accept()
		if err == nil {
			retry = acceptRetryMin
			c := newConn(l, nc)
			l.begin(c)
			go c.serve(ctx) // Owned by Run, which waits for it.
			continue
		}
		var temporary interface{ Temporary() bool }
		if !errors.As(err, &temporary) || !temporary.Temporary() {
			return err
		}
		timer := time.NewTimer(retry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return net.ErrClosed
		}
		retry = min(2*retry, acceptRetryMax)
	}
}

// begin counts a connection in.
func (l *Lane) begin(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	l.serving.Add(1)
}

func (l *Lane) end(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	l.serving.Done()
}

// stop closes the connections that ask for nothing, or all. Whoever is done with a
// request after it sees that the lane has stopped.
func (l *Lane) stop(all bool) {
	l.stopped.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if all || !c.busy.Load() {
			_ = c.net.Close()
		}
	}
}

// rest is the listener of connections that net/http serves.
type rest struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (r *rest) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (r *rest) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

// Addr implements net.Listener.
func (r *rest) Addr() net.Addr { return r.addr }

// hand gives a connection to net/http, with what was read of it.
func (r *rest) hand(c net.Conn, read []byte) {
	if len(read) > 0 {
		c = &resumed{Conn: c, read: read}
	}
	select {
	case r.conns <- c:
	case <-r.closed:
		_ = c.Close()
	}
}

// resumed is a connection of which something was read already.
type resumed struct {
	net.Conn
	read []byte // Read by one goroutine at a time.
}

// Read implements net.Conn.
func (c *resumed) Read(p []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.read)
	if c.read = c.read[n:]; len(c.read) == 0 {
		c.read = nil
	}
	return n, nil
}

// CloseWrite says that nothing more is sent, where the connection can say so.
func (c *resumed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// isTimeout reports whether a deadline has passed.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// remoteAddr is how a request knows its client.
func remoteAddr(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil {
		return strings.Clone(a.String())
	}
	return ""
}
