package certs

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
)

// Listen puts TLS over a listener. Connections shake hands when they are first read or
// written, within the deadlines that are set on them and in their turns (Slots), so that
// nobody's slowness keeps others waiting. failed is told of a handshake that failed, unless
// the other side said nothing.
func Listen(l net.Listener, config *tls.Config, failed func(from net.Addr, err error)) *Listener {
	return &Listener{l, config, failed, NewSlots()}
}

// Listener is a listener with TLS.
type Listener struct {
	net.Listener
	config *tls.Config
	failed func(from net.Addr, err error)
	slots  Slots
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.Server(nc), nil
}

// Server puts TLS over a connection of the listener below.
func (l *Listener) Server(nc net.Conn) net.Conn {
	t := l.slots.Turns(nc)
	return &conn{Conn: tls.Server(t, l.config), turns: t, failed: l.failed}
}

// conn is a connection that tells of a handshake that fails.
type conn struct {
	*tls.Conn
	turns  *Turns
	failed func(from net.Addr, err error)
	once   sync.Once
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	c.once.Do(c.handshake)
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.once.Do(c.handshake)
	return c.Conn.Write(p)
}

// handshake shakes hands. The connection remembers how that ended.
func (c *conn) handshake() {
	err := c.turns.During(nil, c.Handshake)
	if err == nil {
		return
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && isHTTP(header.RecordHeader) {
		// It would wait for an answer that it understands.
		_, _ = io.WriteString(header.Conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n"+
			"Content-Type: text/plain\r\n\r\nThis is an HTTPS listener: use https://\n")
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) { // It may never have begun.
		c.failed(c.RemoteAddr(), err)
	}
}

// isHTTP reports whether a request begins so.
func isHTTP(begin [5]byte) bool {
	switch string(begin[:4]) {
	case "GET ", "HEAD", "POST", "PUT ", "OPTI", "DELE", "PATC":
		return true
	}
	return false
}
