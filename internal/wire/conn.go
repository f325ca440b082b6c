package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/strandline/strandline/internal/certs"
)

// Conn is one connection of a client.
//
// The read loop's goroutine owns it: it serves it, and it alone closes it. Others
// may call the exported methods, wake and kill.
type Conn struct {
	server   *Server
	listener *Listener
	client   *client // The address it comes from. Set before the connection is served.
	id       uint64
	net      net.Conn // What is read and written: socket itself, or TLS over it.
	socket   net.Conn
	turns    *certs.Turns // What TLS reads and writes; nil without.
	// raw is the socket, or nil where there is none to use directly.
	raw  syscall.RawConn
	in   reader
	out  flusher
	quit chan struct{} // Closed by kill.

	spare spareRequests

	killOnce sync.Once
	killed   *closeError // Set before quit is closed.

	activity activity
	values   sync.Map // What other rooms keep with the connection.
}

// activity is what the sweeper and the metrics look at. Times are nanoseconds
// since the server was made; 0 means that it is not so now.
type activity struct {
	bytesIn, bytesOut atomic.Int64
	requests          atomic.Int64
	opened            atomic.Int64 // When the connection arrived.
	lastRead          atomic.Int64 // When bytes arrived last, or the connection.
	frameSince        atomic.Int64 // The frame being read was begun.
	frameBytes        atomic.Int64 // Bytes of that frame read so far.
	writeSince        atomic.Int64 // A write began that the socket did not take.
	// noMemory says that the broker makes the client wait: no limit on the
	// client's time holds.
	noMemory atomic.Bool
	// starved is when it began to wait for memory in the middle of a frame.
	starved atomic.Int64
}

// ID returns a number that no other connection of this server has or had.
func (c *Conn) ID() uint64 { return c.id }

// Listener returns the name of the listener that the client connected to.
func (c *Conn) Listener() string { return c.listener.Name }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.net.RemoteAddr() }

// LocalAddr returns the address that the client reached.
func (c *Conn) LocalAddr() net.Addr { return c.net.LocalAddr() }

// Value returns what was stored under key, or nil. Keys are compared as those
// of a context are.
func (c *Conn) Value(key any) any {
	v, _ := c.values.Load(key)
	return v
}

// SetValue stores something with the connection.
func (c *Conn) SetValue(key, value any) { c.values.Store(key, value) }

func newConn(s *Server, l *Listener, nc net.Conn) *Conn {
	c := &Conn{
		server: s, listener: l, id: s.nextID.Add(1), net: nc, socket: nc,
		quit: make(chan struct{}),
	}
	if l.TLS != nil {
		c.turns = s.handshakes.Turns(nc)
		c.net = tls.Server(c.turns, l.TLS)
	}
	c.in.conn, c.out.conn = c, c
	c.out.init()
	if sc, ok := nc.(syscall.Conn); ok && l.TLS == nil {
		if raw, err := sc.SyscallConn(); err == nil {
			c.raw = raw
			c.in.readable, c.out.writable = c.in.readSocket, c.out.writeSocket
		}
	}
	now := s.clock()
	c.activity.opened.Store(now)
	c.activity.lastRead.Store(now)
	return c
}

// serve runs the connection until it is closed.
func (c *Conn) serve(ctx context.Context) {
	if f := c.server.options.Events.ConnOpened; f != nil {
		f(c)
	}
	err := c.handshake(ctx)
	if err == nil {
		err = c.in.loop(ctx)
	}
	if c.maybeDetach(err) {
		return
	}
	reason, err := c.explain(err)
	if reason == ClosedRequest || reason == ClosedForStop || reason == ClosedInvalid {
		late := time.AfterFunc(c.server.limits.Load().Grace, func() { c.kill(reason, err) })
		c.out.drain()
		late.Stop()
		if c.net != c.socket {
			_ = c.net.Close() // Says goodbye; a peer that is gone or slow gets none.
		}
	}
	c.kill(reason, err)
	c.out.close()
	c.in.close()
	_ = c.socket.Close()
	c.server.connClosed(c, reason, err)
}

// kill ends the connection from any goroutine: what waits on the socket or for
// memory returns. The first reason stands.
func (c *Conn) kill(reason CloseReason, err error) {
	c.killOnce.Do(func() {
		c.killed = &closeError{reason, err}
		close(c.quit)
		// Not Close, which waits for calls in progress.
		_ = c.net.SetDeadline(time.Unix(1, 0))
	})
}

// wake makes a flusher look at the queue.
func (c *Conn) wake() { c.out.wake() }

// explain finds the reason behind the error that ended the read loop.
func (c *Conn) explain(err error) (CloseReason, error) {
	select {
	case <-c.quit:
		return c.killed.reason, c.killed.err
	default:
	}
	var ce *closeError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && c.out.stopping():
		return ClosedForStop, errStopped
	case errors.As(err, &ce):
		return ce.reason, ce.err
	default:
		return ClosedByPeer, err
	}
}

// errStopped ends connections of a server that stops.
var errStopped = errors.New("the server stops")
