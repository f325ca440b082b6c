package wire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/strandline/strandline/internal/certs"
)

// Server accepts connections and serves them. Its methods are safe to call from
// any goroutine.
type Server struct {
	options Options // But for Limits, see limits.
	limits  atomic.Pointer[Limits]
	started time.Time
	nextID  atomic.Uint64
	blocks  blockPool
	answers budget    // Of what answers hold that were not sent.
	writers sync.Pool // of *Writer
	log     closeLog
	// handshakes has a slot for each TLS handshake that may be worked on at once.
	handshakes certs.Slots

	// times is indexed by the key of a request.
	times [maxTimedKey + 1]Times

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	clients  map[netip.Addr]*client
	stopped  bool
	served   sync.WaitGroup // One for each of conns.
	finished Stats          // Sums over connections that are gone.

	// What the sweeper finds. pressed says that long polls are to end early.
	requestPressure, answerPressure pressure
	pressed                         atomic.Bool
}

// client is an address that connections come from.
type client struct {
	conns    int // Guarded by the server's mu.
	requests holder
	answers  holder
}

// Stats are sums since the server was made.
type Stats struct {
	// Connections are open now, and ConnectionsLimit is the most that may be.
	Connections, ConnectionsLimit int
	// Closed counts connections that are gone, by reason.
	Closed [closeReasonCount]uint64
	// QueuedBytesLimit is the most that QueuedBytes may be, and QueuedWaiters are
	// the connections that wait for some of it.
	QueuedBytesLimit, QueuedWaiters int64
	// Accepted and Refused count connections.
	Accepted, Refused uint64
	// BytesIn and BytesOut count what went over the sockets.
	BytesIn, BytesOut int64
	// Requests counts requests that were read.
	Requests int64
	// QueuedBytes are the memory of requests held now, AnswerBytes that of answers.
	QueuedBytes, AnswerBytes int64
}

// New checks the options and makes a server. It takes the listeners over.
func New(o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Server{
		options: o, started: time.Now(),
		log:        closeLog{logger: o.Logger},
		handshakes: certs.NewSlots(),
		conns:      map[*Conn]struct{}{},
		clients:    map[netip.Addr]*client{},
	}
	return s, s.SetLimits(o.Limits)
}

// SetLimits replaces the limits. Connections that are open stay, also if they
// are too many now; time limits count from when they began.
func (s *Server) SetLimits(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	l.MaxConnections = min(l.MaxConnections, descriptorShare())
	s.limits.Store(&l)
	s.blocks.budget.setLimit(l.MaxQueuedBytes)
	s.answers.setLimit(l.MaxAnswerBytes)
	return nil
}

// descriptorShare returns how many of the process' descriptors connections may
// use: the rest are for files.
func descriptorShare() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(r.Cur/4*3) + 1
}

// Run accepts and serves until ctx ends. Then it accepts no more, reads no more
// requests, sends the answers that are on their way for at most Limits.Grace,
// closes everything and returns nil. It returns an error if a listener fails.
func (s *Server) Run(ctx context.Context) error {
	// Handlers may finish what they began: their context ends after the grace.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()
	group, ctx := errgroup.WithContext(ctx)
	for i := range s.options.Listeners {
		group.Go(func() error { return s.accept(serving, &s.options.Listeners[i]) })
	}
	group.Go(func() error { return s.sweepLoop(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		s.stop(endServing)
		return nil
	})
	return group.Wait()
}

// stop ends everything in order: listeners, then waiting answers, then
// connections.
func (s *Server) stop(endServing func()) {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	for _, l := range s.options.Listeners {
		_ = l.Listener.Close()
	}
	s.eachConn(func(c *Conn) {
		c.out.stopWaiting()
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	})
	late := time.AfterFunc(s.limits.Load().Grace, func() {
		endServing()
		s.eachConn(func(c *Conn) { c.kill(ClosedForStop, errStopped) })
	})
	s.served.Wait()
	late.Stop()
	s.blocks.close()
}

func (s *Server) eachConn(f func(c *Conn)) {
	s.mu.Lock()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// How long to wait after an accept failed for want of descriptors.
const (
	acceptRetryMin = 5 * time.Millisecond
	acceptRetryMax = time.Second
)

// accept takes connections from one listener until it is closed.
func (s *Server) accept(ctx context.Context, l *Listener) error {
	retry := acceptRetryMin
	for {
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
			retry = acceptRetryMin
			s.open(ctx, l, nc)
			continue
		case errors.Is(err, net.ErrClosed) && s.isStopped():
			return nil
		case !isTemporary(err):
			return fmt.Errorf("accept on listener %s: %w", l.Name, err)
		}
		s.log.write(ClosedTooMany, l.Name, l.Listener.Addr(), fmt.Errorf("accept: %w", err))
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
		retry = min(2*retry, acceptRetryMax)
	}
}

// isTemporary reports whether an accept may succeed later: out of descriptors or
// memory, or a client that gave up in between.
func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func (s *Server) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// open begins to serve a connection, or refuses it.
func (s *Server) open(ctx context.Context, l *Listener, nc net.Conn) {
	c := newConn(s, l, nc)
	reason, err := s.admit(c)
	if err != nil {
		_ = nc.Close()
		s.log.write(reason, l.Name, nc.RemoteAddr(), err)
		if f := s.options.Events.ConnRefused; f != nil {
			f(l.Name, nc.RemoteAddr(), reason)
		}
		return
	}
	// Owned by the server: stop waits for it through served.
	go c.serve(ctx)
}

// admit registers a connection if the limits allow it.
func (s *Server) admit(c *Conn) (CloseReason, error) {
	ip := ipOf(c.net.RemoteAddr())
	l := s.limits.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.clients[ip]
	if from == nil {
		from = &client{}
	}
	switch {
	case s.stopped:
		return ClosedForStop, errStopped
	case len(s.conns) >= l.MaxConnections:
		s.finished.Refused++
		return ClosedTooMany, fmt.Errorf(
			"%d connections are open, as many as max.connections allows", len(s.conns))
	case from.conns >= l.MaxConnectionsPerIP:
		s.finished.Refused++
		return ClosedTooManyIP, fmt.Errorf(
			"%d connections from %s are open, as many as max.connections.per.ip allows", from.conns, ip)
	}
	s.finished.Accepted++
	s.conns[c] = struct{}{}
	s.clients[ip], c.client = from, from
	from.conns++
	s.served.Add(1)
	return 0, nil
}

// ipOf returns the address that connections are counted by; all connections
// without one count as one client.
func ipOf(addr net.Addr) netip.Addr {
	if t, ok := addr.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// connClosed forgets a connection.
func (s *Server) connClosed(c *Conn, reason CloseReason, err error) {
	s.log.write(reason, c.listener.Name, c.net.RemoteAddr(), err)
	if f := s.options.Events.ConnClosed; f != nil {
		f(c, reason, err)
	}
	ip := ipOf(c.net.RemoteAddr())
	s.mu.Lock()
	delete(s.conns, c)
	if c.client.conns--; c.client.conns == 0 {
		delete(s.clients, ip)
	}
	s.finished.add(&c.activity)
	s.finished.Closed[reason]++
	s.mu.Unlock()
	s.served.Done()
}

func (st *Stats) add(a *activity) {
	st.BytesIn += a.bytesIn.Load()
	st.BytesOut += a.bytesOut.Load()
	st.Requests += a.requests.Load()
}

// Stats returns the sums.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.finished
	st.ConnectionsLimit = s.limits.Load().MaxConnections
	st.QueuedBytesLimit, st.QueuedWaiters = s.blocks.budget.limit.Load(), s.blocks.budget.waiting.Load()
	for c := range s.conns {
		st.add(&c.activity)
	}
	st.Connections = len(s.conns)
	st.QueuedBytes, st.AnswerBytes = s.blocks.budget.used.Load(), s.answers.used.Load()
	return st
}

// clock returns nanoseconds since the server was made, never 0.
func (s *Server) clock() int64 { return max(int64(time.Since(s.started)), 1) }

func (s *Server) takeWriter() *Writer {
	if w, ok := s.writers.Get().(*Writer); ok {
		return w
	}
	return &Writer{buf: make([]byte, 0, 1024)}
}

func (s *Server) returnWriter(w *Writer) {
	w.reset()
	s.writers.Put(w)
}
