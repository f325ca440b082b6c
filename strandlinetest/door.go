package strandlinetest

import (
	"net"
	"sync"
)

// waitingRoom is how many connections wait to be accepted.
const waitingRoom = 128

// door is where clients find a node: a loopback port that stays the node's own,
// whether it runs or not. Connections to one that does not run are reset.
type door struct {
	outside net.Listener

	mu     sync.Mutex
	inside *doorway // nil while the node does not run.
}

// openDoor takes a free port. The door closes with its listener.
func openDoor() (*door, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &door{outside: l}
	go d.run() // Ends with close.
	return d, nil
}

func (d *door) close() { _ = d.outside.Close() }

func (d *door) run() {
	for {
		c, err := d.outside.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		if !d.inside.admit(c) {
			reset(c)
		}
		d.mu.Unlock()
	}
}

// reset closes a connection as the kernel refuses one: without a word.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// enter returns a listener for one run of the node.
func (d *door) enter() net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = &doorway{door: d, conns: make(chan net.Conn, waitingRoom), closed: make(chan struct{})}
	return d.inside
}

// doorway is a door as one run of its node has it.
type doorway struct {
	door   *door
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// admit takes a connection, if there is room; the door's lock is held.
func (w *doorway) admit(c net.Conn) bool {
	if w == nil {
		return false
	}
	select {
	case w.conns <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (w *doorway) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: w.Addr(), Err: net.ErrClosed}
	}
}

// Close implements net.Listener: the door stays.
func (w *doorway) Close() error {
	w.once.Do(func() {
		w.door.mu.Lock()
		if w.door.inside == w {
			w.door.inside = nil
		}
		w.door.mu.Unlock()
		close(w.closed)
		for len(w.conns) > 0 {
			reset(<-w.conns)
		}
	})
	return nil
}

// Addr implements net.Listener.
func (w *doorway) Addr() net.Addr { return w.door.outside.Addr() }
