package netx

import (
	"net"
	"sync"
)

// Handover is a listener of connections that somebody else has accepted.
type Handover struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewHandover returns a listener; addr is what it says that its address is.
func NewHandover(addr net.Addr) *Handover {
	return &Handover{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Hand gives a connection to whoever accepts here, for which it waits. Once the
// listener is closed it closes the connection.
func (h *Handover) Hand(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close()
	}
}

// Closed reports whether the listener is closed.
func (h *Handover) Closed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (h *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *Handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr implements net.Listener.
func (h *Handover) Addr() net.Addr { return h.addr }
