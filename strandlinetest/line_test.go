package strandlinetest_test

import (
	"context"
	"net"
	"sync"
)

// line is a client's way to the cluster: while it is held, the client hears and says nothing,
// as one that hangs; once it is cut, its connections are gone, as those of one that died.
// The zero value is a good line.
type line struct {
	mu    sync.Mutex
	dead  bool
	held  chan struct{} // Closed to go on; nil while it is not held.
	conns map[net.Conn]struct{}
}

// dial is the client's dialer.
func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	if l.conns == nil {
		l.conns = map[net.Conn]struct{}{}
	}
	l.conns[c] = struct{}{}
	return &lineConn{Conn: c, line: l, closed: make(chan struct{})}, nil
}

func (l *line) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = make(chan struct{})
	}
}

func (l *line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		close(l.held)
		l.held = nil
	}
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		_ = c.Close()
	}
}

// lineConn is a connection over a line. The client may close it while it is held.
type lineConn struct {
	net.Conn
	line   *line
	once   sync.Once
	closed chan struct{}
}

// pass waits while the line is held.
func (c *lineConn) pass() {
	c.line.mu.Lock()
	held := c.line.held
	c.line.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-c.closed:
	}
}

// Read implements net.Conn.
func (c *lineConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass()
	return n, err
}

// Write implements net.Conn.
func (c *lineConn) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.line.mu.Lock()
		defer c.line.mu.Unlock()
		delete(c.line.conns, c.Conn)
	})
	return c.Conn.Close()
}
