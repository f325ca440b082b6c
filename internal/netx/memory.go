package netx

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// memoryBacklog is how many connections wait for Accept before a dial is
// refused.
const memoryBacklog = 128

// firstEphemeralPort is the first port that port 0 yields.
const firstEphemeralPort = 32768

// Memory is a network in memory, of any number of hosts. Nothing in it reads a
// real clock except through package time, and every wait is a channel operation
// or a timer, so it runs in a synctest bubble.
type Memory struct {
	// BufferBytes is what each direction of a connection holds before a write
	// blocks; 64 KiB if zero. It is read when a connection is made.
	BufferBytes int

	mu        sync.Mutex
	nextPort  uint16
	listeners map[netip.AddrPort]*memoryListener
	conns     map[*memoryConn]struct{}
	delay     time.Duration
	cut       map[route]bool
}

// route is a way that bytes take.
type route struct{ from, to netip.Addr }

// NewMemory returns an empty network.
func NewMemory() *Memory {
	return &Memory{
		nextPort:  firstEphemeralPort,
		listeners: map[netip.AddrPort]*memoryListener{},
		conns:     map[*memoryConn]struct{}{},
		cut:       map[route]bool{},
	}
}

// Host returns the network as the host with this IP address sees it. Names
// other than IP addresses do not resolve, except localhost.
func (m *Memory) Host(ip string) Network {
	return &memoryHost{memory: m, addr: netip.MustParseAddr(ip)}
}

// SetDelay makes every byte written from now on arrive d later.
func (m *Memory) SetDelay(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delay = d
}

// Partition stops everything between two hosts: bytes on their connections
// vanish from now on, as behind a switch that died, and dials hang until their
// context ends.
func (m *Memory) Partition(ip1, ip2 string) {
	m.setCut(ip1, ip2, true)
	m.setCut(ip2, ip1, true)
}

// PartitionOneWay is Partition for what one host sends to another: what comes back
// arrives. Dials hang in both directions, since a handshake needs both.
func (m *Memory) PartitionOneWay(from, to string) { m.setCut(from, to, true) }

// Heal undoes Partition, in both directions. Connections that lost bytes meanwhile
// stay broken: they fail as if reset, since there is nobody to send the bytes again.
func (m *Memory) Heal(ip1, ip2 string) {
	m.setCut(ip1, ip2, false)
	m.setCut(ip2, ip1, false)
}

// Reset breaks every connection between two hosts, as when one of them was
// powered off and came back.
func (m *Memory) Reset(ip1, ip2 string) {
	pair := hostPair(netip.MustParseAddr(ip1), netip.MustParseAddr(ip2))
	m.mu.Lock()
	var broken []*memoryConn
	for c := range m.conns {
		if hostPair(c.local.Addr(), c.remote.Addr()) == pair {
			broken = append(broken, c)
		}
	}
	m.mu.Unlock()
	for _, c := range broken {
		c.reset()
	}
}

func (m *Memory) setCut(from, to string, cut bool) {
	r := route{netip.MustParseAddr(from), netip.MustParseAddr(to)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[r] = cut
}

// path returns the delay from one host to another, and whether there is a way at all.
func (m *Memory) path(from, to netip.Addr) (delay time.Duration, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delay, !m.cut[route{from, to}]
}

// hostPair names two hosts in an order of its own.
func hostPair(a, b netip.Addr) [2]netip.Addr {
	if b.Less(a) {
		a, b = b, a
	}
	return [2]netip.Addr{a, b}
}

func (m *Memory) takePort(addr netip.Addr) netip.AddrPort {
	for {
		m.nextPort++
		if m.nextPort < firstEphemeralPort {
			m.nextPort = firstEphemeralPort
		}
		ap := netip.AddrPortFrom(addr, m.nextPort)
		if m.listeners[ap] == nil {
			return ap
		}
	}
}

// memoryHost is one host's view of a Memory network.
type memoryHost struct {
	memory *Memory
	addr   netip.Addr
}

func (h *memoryHost) resolve(address string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port %q: %w", port, err)
	}
	addr := h.addr
	if host != "" && host != "localhost" && host != "0.0.0.0" && host != "::" {
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	}
	return netip.AddrPortFrom(addr, uint16(number)), nil
}

// Listen implements Network.
func (h *memoryHost) Listen(_ context.Context, address string) (net.Listener, error) {
	ap, err := h.resolve(address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	m := h.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if ap.Port() == 0 {
		ap = m.takePort(ap.Addr())
	}
	if m.listeners[ap] != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
	}
	l := &memoryListener{
		memory: m, addr: ap,
		backlog: make(chan *memoryConn, memoryBacklog), closed: make(chan struct{}),
	}
	m.listeners[ap] = l
	return l, nil
}

// Dial implements Network.
func (h *memoryHost) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := h.dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return c, nil
}

func (h *memoryHost) dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := h.resolve(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m := h.memory
	_, there := m.path(h.addr, to.Addr())
	if _, back := m.path(to.Addr(), h.addr); !there || !back {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.listeners[to]
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := newMemoryPair(m, m.takePort(h.addr), to)
	select {
	case l.backlog <- far:
	default:
		return nil, syscall.ECONNREFUSED
	}
	m.conns[near], m.conns[far] = struct{}{}, struct{}{}
	return near, nil
}

// memoryListener accepts connections of a Memory network.
type memoryListener struct {
	memory  *Memory
	addr    netip.AddrPort
	backlog chan *memoryConn
	once    sync.Once
	closed  chan struct{}
}

// Accept implements net.Listener.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "memory", Addr: l.Addr(), Err: net.ErrClosed}
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "memory", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close implements net.Listener; connections nobody accepted are reset.
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.memory.mu.Lock()
		delete(l.memory.listeners, l.addr)
		l.memory.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog:
				c.reset()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *memoryListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }
