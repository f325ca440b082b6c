package strandlinetest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
)

// errKilled is what a killed broker gets from its disk.
var errKilled = errors.New("the process was killed")

// process is one run of a broker, as far as the rest of the world can tell a part of a
// process from a whole one: everything that it does to its disk and its network goes
// through here. Paused, it does nothing, and what is sent to it waits in its
// connections. Killed, its connections end, and nothing that it still does is seen.
//
// What it cannot hold back is the broker's own clock: a paused broker finds out while
// it is paused how much time goes by, and a stopped process afterwards.
type process struct {
	killed chan struct{}

	mu     sync.Mutex
	paused chan struct{} // Closed to go on; nil while it is not paused.
	open   map[io.Closer]struct{}
}

func newProcess() *process {
	return &process{killed: make(chan struct{}), open: map[io.Closer]struct{}{}}
}

func (p *process) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// kill ends what the process has open, as the kernel does for one that dies.
func (p *process) kill() {
	p.mu.Lock()
	open := p.open
	if open != nil {
		close(p.killed)
	}
	p.open = nil
	p.mu.Unlock()
	for c := range open {
		_ = c.Close()
	}
}

// pass waits while the process is paused, and fails once it was killed.
func (p *process) pass() error {
	for {
		p.mu.Lock()
		dead, paused := p.open == nil, p.paused
		p.mu.Unlock()
		switch {
		case dead:
			return errKilled
		case paused == nil:
			return nil
		}
		select {
		case <-paused:
		case <-p.killed:
		}
	}
}

// wait lets time go by, as long as the process lives.
func (p *process) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.killed:
	}
}

// own has the end of the process close something. It is closed at once, with false,
// where that was already.
func (p *process) own(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *process) disown(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// disk returns a disk as the process sees it: with the faults that it has.
func (p *process) disk(inner vfs.FS, faults func(*process, errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(inner, func(o errorfs.Op) error {
		if err := p.pass(); err != nil {
			return err
		}
		if err := faults(p, o); err != nil {
			return err
		}
		return p.pass() // It may have been killed while it waited.
	})
}

// network returns a network as the process sees it.
func (p *process) network(inner netx.Network) netx.Network { return &processNetwork{inner, p} }

type processNetwork struct {
	inner   netx.Network
	process *process
}

// Listen implements netx.Network.
func (n *processNetwork) Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := n.inner.Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	return n.process.listener(l), nil
}

// Dial implements netx.Network.
func (n *processNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	if n.process.pass() != nil {
		return nil, net.ErrClosed
	}
	c, err := n.inner.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return n.process.conn(c)
}

// listener returns a listener of the process.
func (p *process) listener(l net.Listener) net.Listener {
	p.own(l)
	return &processListener{l, p}
}

type processListener struct {
	net.Listener
	process *process
}

// Accept implements net.Listener.
func (l *processListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.process.pass() != nil {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return l.process.conn(c)
}

// Close implements net.Listener.
func (l *processListener) Close() error {
	l.process.disown(l.Listener)
	return l.Listener.Close()
}

func (p *process) conn(c net.Conn) (net.Conn, error) {
	if !p.own(c) {
		return nil, net.ErrClosed
	}
	return &processConn{c, p}, nil
}

// processConn is a connection of the process. What was read while it was paused is
// seen when it goes on.
type processConn struct {
	net.Conn
	process *process
}

// Read implements net.Conn.
func (c *processConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.process.pass() != nil {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *processConn) Write(b []byte) (int, error) {
	if c.process.pass() != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *processConn) Close() error {
	c.process.disown(c.Conn)
	return c.Conn.Close()
}

// CloseWrite says that nothing more is sent, where the connection can say so.
func (c *processConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
