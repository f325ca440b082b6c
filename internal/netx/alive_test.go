package netx_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/netx"
)

// pair returns both ends of a connection to a listener, which the test's end closes.
func pair(t *testing.T, l net.Listener, network netx.Network) (near, far net.Conn) {
	t.Helper()
	near, err := network.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return near, far
}

// A connection is alive until the other side closes it, or says something that
// nobody asked for.
func TestAlive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, end := range map[string]func(net.Conn) error{
		"closes":  net.Conn.Close,
		"says so": func(c net.Conn) error { _, err := c.Write([]byte("?")); return err },
	} {
		near, far := pair(t, l, netx.TCP{})
		if !netx.Alive(near) {
			t.Errorf("%s: it is not alive before", name)
		}
		if err := end(far); err != nil {
			t.Fatal(err)
		}
		for netx.Alive(near) { // It takes the kernel a moment.
			if t.Context().Err() != nil {
				return
			}
			<-time.After(time.Millisecond)
		}
	}
	near, far := net.Pipe()
	defer near.Close()
	_ = far.Close()
	if !netx.Alive(near) {
		t.Error("of a connection without a socket the best is not believed")
	}
}

// What is handed over is accepted in turn; once the listener is closed it is closed.
func TestHandover(t *testing.T) {
	h := netx.NewHandover(&net.TCPAddr{Port: 7})
	near, far := net.Pipe()
	go h.Hand(far)
	got, err := h.Accept()
	if err != nil || got != far || h.Addr().String() != ":7" || h.Closed() {
		t.Errorf("%v %v at %s", got, err, h.Addr())
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Accept(); !errors.Is(err, net.ErrClosed) || !h.Closed() {
		t.Errorf("%v", err)
	}
	h.Hand(far)
	if _, err := near.Write([]byte("x")); err == nil {
		t.Error("a connection that came too late is open")
	}
}
