package certs

import (
	"io"
	"net"
	"runtime"
)

// Slots bound how many TLS handshakes are computed at a time, which costs a stranger
// less than us: requests that are being answered keep the rest of the processors.
type Slots chan struct{}

// NewSlots returns slots for half of the processors.
func NewSlots() Slots { return make(Slots, max(runtime.GOMAXPROCS(0)/2, 1)) }

// Turns is a socket during a TLS handshake. What takes time of the processor has a slot;
// who waits for the other side has none, so that clients that are slow, or say nothing
// more, keep nobody waiting.
type Turns struct {
	net.Conn
	slots Slots
	over  bool // The handshake is over: set before anybody else has the connection.
	heard bool // The other side has said something.
}

// Turns returns a socket for TLS to read and write.
func (s Slots) Turns(nc net.Conn) *Turns { return &Turns{Conn: nc, slots: s} }

// During has its turn to shake hands over the socket, once. It returns io.EOF if quit is
// closed before its turn has come; a nil quit never is.
func (t *Turns) During(quit <-chan struct{}, handshake func() error) error {
	select {
	case t.slots <- struct{}{}:
	case <-quit:
		return io.EOF
	}
	err := handshake()
	<-t.slots
	t.over = true
	return err
}

// IsSilent reports whether the other side has said nothing: it came to see whether
// somebody listens, as load balancers do.
func (t *Turns) IsSilent() bool { return !t.heard }

// Read implements net.Conn.
func (t *Turns) Read(p []byte) (int, error) {
	n, err := t.without(t.Conn.Read, p)
	if !t.over && n > 0 {
		t.heard = true
	}
	return n, err
}

// Write implements net.Conn.
func (t *Turns) Write(p []byte) (int, error) { return t.without(t.Conn.Write, p) }

// without does something without the slot.
func (t *Turns) without(do func([]byte) (int, error), p []byte) (int, error) {
	if t.over {
		return do(p)
	}
	<-t.slots
	defer func() { t.slots <- struct{}{} }()
	return do(p)
}
