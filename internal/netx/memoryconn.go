package netx

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// defaultBufferBytes is what one direction of a connection holds.
const defaultBufferBytes = 64 << 10

// memoryConn is one end of a connection.
type memoryConn struct {
	memory        *Memory
	local, remote netip.AddrPort
	in, out       *stream
	peer          *memoryConn
}

func newMemoryPair(m *Memory, a, b netip.AddrPort) (near, far *memoryConn) {
	size := m.BufferBytes
	if size <= 0 {
		size = defaultBufferBytes
	}
	ab, ba := newStream(size), newStream(size)
	near = &memoryConn{memory: m, local: a, remote: b, in: ba, out: ab}
	far = &memoryConn{memory: m, local: b, remote: a, in: ab, out: ba}
	near.peer, far.peer = far, near
	return near, far
}

// Read implements net.Conn.
func (c *memoryConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write implements net.Conn.
func (c *memoryConn) Write(p []byte) (int, error) {
	delay, open := c.memory.path(c.local.Addr(), c.remote.Addr())
	n, err := c.out.write(p, delay, !open)
	return n, c.wrap("write", err)
}

// Close implements net.Conn: the peer reads what was written, then EOF, and
// its writes fail.
func (c *memoryConn) Close() error {
	c.memory.mu.Lock()
	delete(c.memory.conns, c)
	c.memory.mu.Unlock()
	delay, open := c.memory.path(c.local.Addr(), c.remote.Addr())
	c.in.closeRead(net.ErrClosed, syscall.ECONNRESET)
	c.out.closeWrite(delay, !open)
	return nil
}

// reset breaks both directions at both ends.
func (c *memoryConn) reset() {
	c.in.closeRead(syscall.ECONNRESET, syscall.ECONNRESET)
	c.out.closeRead(syscall.ECONNRESET, syscall.ECONNRESET)
}

// wrap gives an error the form that package net gives it.
func (c *memoryConn) wrap(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // The stream's own bare EOF.
		return err
	}
	return &net.OpError{Op: op, Net: "memory", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// LocalAddr implements net.Conn.
func (c *memoryConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr implements net.Conn.
func (c *memoryConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *memoryConn) SetDeadline(t time.Time) error {
	c.in.readBy.set(t)
	c.out.writeBy.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.readBy.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.writeBy.set(t)
	return nil
}

// piece is what one write put into a stream; it can be read from due on.
type piece struct {
	data []byte
	due  time.Time
	fin  bool // The writer closed.
}

// stream is one direction of a connection.
type stream struct {
	readBy, writeBy deadline

	mu       sync.Mutex
	changed  chan struct{} // Closed and replaced whenever something below changes.
	pieces   []piece
	held     int // Invariant: bytes in pieces, <= size.
	size     int
	lost     bool // Bytes vanished: nothing written later may be read.
	readErr  error
	writeErr error
}

func newStream(size int) *stream {
	return &stream{changed: make(chan struct{}), size: size}
}

func (s *stream) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n, wait, err := s.readLocked(p)
		changed := s.changed
		s.mu.Unlock()
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if expired := s.readBy.wait(changed, wait); expired {
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// readLocked reads what is due; wait is how long the next piece takes, if one
// is under way.
func (s *stream) readLocked(p []byte) (n int, wait time.Duration, err error) {
	if s.readErr != nil {
		return 0, 0, s.readErr
	}
	if s.readBy.expired() {
		return 0, 0, os.ErrDeadlineExceeded
	}
	for len(s.pieces) > 0 && n < len(p) {
		first := &s.pieces[0]
		if wait := time.Until(first.due); wait > 0 {
			return n, wait, nil
		}
		if first.fin {
			if n == 0 {
				return 0, 0, io.EOF
			}
			return n, 0, nil
		}
		copied := copy(p[n:], first.data)
		n += copied
		s.held -= copied
		if first.data = first.data[copied:]; len(first.data) == 0 {
			s.pieces = s.pieces[1:]
		}
		s.changeLocked()
	}
	return n, 0, nil
}

func (s *stream) write(p []byte, delay time.Duration, lose bool) (int, error) {
	written := 0
	for {
		s.mu.Lock()
		n, err := s.writeLocked(p[written:], delay, lose)
		changed := s.changed
		s.mu.Unlock()
		if written += n; err != nil || written == len(p) {
			return written, err
		}
		if expired := s.writeBy.wait(changed, 0); expired {
			return written, os.ErrDeadlineExceeded
		}
	}
}

func (s *stream) writeLocked(p []byte, delay time.Duration, lose bool) (int, error) {
	if s.writeErr != nil {
		return 0, s.writeErr
	}
	if s.writeBy.expired() {
		return 0, os.ErrDeadlineExceeded
	}
	if lose || s.lost {
		if !lose && len(p) > 0 {
			s.readErr, s.writeErr = syscall.ECONNRESET, syscall.ECONNRESET
			s.changeLocked()
			return 0, s.writeErr
		}
		s.lost = s.lost || len(p) > 0
		return len(p), nil
	}
	n := min(len(p), s.size-s.held)
	if n > 0 {
		s.pieces = append(s.pieces, piece{data: bytes.Clone(p[:n]), due: time.Now().Add(delay)})
		s.held += n
		s.changeLocked()
	}
	return n, nil
}

// closeRead ends reading with one error and writing with another; what is in
// the stream is gone.
func (s *stream) closeRead(readErr, writeErr error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr == nil {
		s.readErr = readErr
	}
	if s.writeErr == nil {
		s.writeErr = writeErr
	}
	s.pieces, s.held = nil, 0
	s.changeLocked()
}

// closeWrite ends writing; the reader gets what is in the stream, then EOF.
func (s *stream) closeWrite(delay time.Duration, lose bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr == nil && !lose && !s.lost {
		s.pieces = append(s.pieces, piece{due: time.Now().Add(delay), fin: true})
	}
	s.writeErr = net.ErrClosed
	s.changeLocked()
}

// deadline is a point in time that may be moved while others wait for it.
type deadline struct {
	mu    sync.Mutex
	at    time.Time
	moved chan struct{} // Closed and replaced by set.
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	if d.moved != nil {
		close(d.moved)
	}
	d.moved = make(chan struct{})
}

func (d *deadline) get() (time.Time, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved == nil {
		d.moved = make(chan struct{})
	}
	return d.at, d.moved
}

func (d *deadline) expired() bool {
	at, _ := d.get()
	return !at.IsZero() && !time.Now().Before(at)
}

// wait returns when changed is closed, after wait if that is positive, when
// the deadline was moved, or with true when it has passed.
func (d *deadline) wait(changed <-chan struct{}, wait time.Duration) (expired bool) {
	at, moved := d.get()
	var due, late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-changed:
	case <-due:
	case <-moved:
	case <-late:
		return true
	}
	return false
}
