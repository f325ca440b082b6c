package netx

import (
	"net"
	"net/netip"
	"sync"
)

// Limit is why a connection was one too many.
type Limit string

// The limits, by the names of their settings.
const (
	LimitInAll     Limit = "max.connections"
	LimitByAddress Limit = "max.connections.per.ip"
)

// Limits say how many connections a Limited listener lets there be at a time.
type Limits struct {
	InAll     int
	ByAddress int
	// Refused takes a connection that is one too many, and closes it; open is how
	// many there are from its address, or in all. It must not block. With nil such a
	// connection is closed.
	Refused func(c net.Conn, limit Limit, open int)
}

// LimitStats are the connections there are, and there were.
type LimitStats struct {
	Open                                     int
	Accepted, RefusedInAll, RefusedByAddress uint64
}

// Limited is a listener with limits: nobody who accepts sees what is one too many. A connection counts until it is closed.
type Limited struct {
	net.Listener
	limits Limits

	mu    sync.Mutex
	from  map[netip.Addr]int // Addresses without a connection are not in it.
	stats LimitStats
}

// NewLimited puts limits on a listener.
func NewLimited(l net.Listener, limits Limits) *Limited {
	return &Limited{Listener: l, limits: limits, from: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *Limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ip := ipOf(c.RemoteAddr())
		limit, open := l.admit(ip)
		if limit == "" {
			return &limitedConn{Conn: c, listener: l, ip: ip}, nil
		}
		if l.limits.Refused == nil {
			_ = c.Close()
			continue
		}
		l.limits.Refused(c, limit, open)
	}
}

// admit counts a connection in, or says which limit forbids that.
func (l *Limited) admit(ip netip.Addr) (limit Limit, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stats.Open >= l.limits.InAll:
		l.stats.RefusedInAll++
		return LimitInAll, l.stats.Open
	case l.from[ip] >= l.limits.ByAddress:
		l.stats.RefusedByAddress++
		return LimitByAddress, l.from[ip]
	}
	l.stats.Open++
	l.stats.Accepted++
	l.from[ip]++
	return "", 0
}

func (l *Limited) closed(ip netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Open--
	if l.from[ip]--; l.from[ip] == 0 {
		delete(l.from, ip)
	}
}

// Stats returns the connections there are, and there were.
func (l *Limited) Stats() LimitStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// ipOf returns the address that connections are counted by; all connections
// without one count as one client.
func ipOf(addr net.Addr) netip.Addr {
	if t, ok := addr.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	listener *Limited
	ip       netip.Addr
	once     sync.Once
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.listener.closed(c.ip) })
	return err
}

// CloseWrite says that nothing more is sent, where the connection can say so.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
