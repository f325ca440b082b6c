package netx_test

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/netx"
)

// dialed is a connection from an address.
type dialed struct {
	net.Conn
	from net.Addr
}

// RemoteAddr implements net.Conn.
func (d dialed) RemoteAddr() net.Addr { return d.from }

// script is a listener at which connections come in from those addresses, and
// then no more.
type script struct {
	net.Listener
	from []string
}

// Accept implements net.Listener.
func (s *script) Accept() (net.Conn, error) {
	if len(s.from) == 0 {
		return nil, net.ErrClosed
	}
	addr := &net.TCPAddr{IP: net.ParseIP(s.from[0]), Port: 1}
	s.from = s.from[1:]
	near, far := net.Pipe()
	_ = far.Close()
	return dialed{near, addr}, nil
}

// A connection that is one too many, in all or from its address, is closed before
// anybody sees it; one that is closed makes room for another, once.
func TestLimits(t *testing.T) {
	const a, mapped, b, c = "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "10.0.0.3"
	in := &script{from: []string{a, mapped, a, b, c, b}}
	var refused []string
	l := netx.NewLimited(in, netx.Limits{InAll: 3, ByAddress: 2, Refused: func(conn net.Conn, limit netx.Limit, open int) {
		_ = conn.Close()
		refused = append(refused, conn.RemoteAddr().(*net.TCPAddr).IP.String()+" "+string(limit))
		if limit == netx.LimitByAddress && open != 2 || limit == netx.LimitInAll && open != 3 {
			t.Errorf("%d open at %s", open, limit)
		}
	}})
	var open []net.Conn
	accept := func() {
		t.Helper()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	accept()
	accept()
	accept() // The third of a is refused on the way.
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	want := []string{a + " max.connections.per.ip", c + " max.connections", b + " max.connections"}
	if !slices.Equal(refused, want) {
		t.Errorf("refused %q, want %q", refused, want)
	}
	if diff := cmp.Diff(netx.LimitStats{Open: 3, Accepted: 3, RefusedInAll: 2, RefusedByAddress: 1}, l.Stats()); diff != "" {
		t.Error(diff)
	}
	in.from = []string{a, a}
	for range 2 { // Closed twice, it counts once.
		if err := open[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	accept()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	if st := l.Stats(); st.Open != 0 || st.Accepted != 4 || st.RefusedInAll != 3 {
		t.Errorf("%+v", st)
	}
}
