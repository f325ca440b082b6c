package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/netx"
)

// The pauses between dials that fail.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// Options of a Conn. Network is required; zero values of the others mean the
// defaults.
type Options struct {
	Network netx.Network
	// TLS, if set, encrypts the connection. It is asked at each dial, since certificates
	// are renewed; the name of the other side is added to what it returns.
	TLS    func() *tls.Config
	Logger *slog.Logger
	// ClientID is what the connection calls itself in requests.
	ClientID string
	// DialTimeout is how long a dial with all that belongs to it may take, 1 s by
	// default. It is also how long a connection with requests waiting must have
	// been silent before a request that runs out of time ends it.
	DialTimeout time.Duration
	// IdleTimeout is when a connection that nobody uses is closed, 5 minutes by
	// default. It should be shorter than the other side's.
	IdleTimeout time.Duration
	// MaxPending is how many requests may be without an answer, 128 by default.
	// More wait.
	MaxPending int
	// MaxResponseBytes is the longest answer that is read, 128 MiB by default.
	MaxResponseBytes int
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ClientID == "" {
		o.ClientID = "strandline"
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = time.Second
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 5 * time.Minute
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 128
	}
	if o.MaxResponseBytes <= 0 {
		o.MaxResponseBytes = 128 << 20
	}
	return o
}

// Conn is a connection to one other broker. It dials when a request needs it, and
// again after it broke, with a pause that grows from 10 ms to 1 s while dials fail. One
// that leads to where the broker is not said to be any more counts as broken: who listens
// there by now may well answer.
type Conn struct {
	address   func() (string, bool)
	opt       Options
	formatter *kmsg.RequestFormatter
	// slots has one token per request without an answer.
	slots   chan struct{}
	closing chan struct{}
	running sync.WaitGroup // The goroutines of dials and links.

	mu      sync.Mutex
	link    *link    // Nil while there is none.
	attempt *attempt // The dial under way, or nil.
	// Before notBefore nobody dials; pause is what follows the next failure.
	notBefore time.Time
	pause     time.Duration
	hasten    chan struct{} // Closed to end a pause.
	refused   bool          // What the last dial met with.
	said      string        // What was last logged of dials.
	closed    bool
	onDown    func(err error)
}

// attempt is one dial that all who need it wait for.
type attempt struct {
	done   chan struct{}
	cancel context.CancelFunc
	link   *link
	err    error
}

// Dial makes a connection, which dials only when the first request needs it.
// address is asked at each dial and each request, since it may change; false means that
// it is not known.
func Dial(address func() (string, bool), o Options) *Conn {
	o = o.withDefaults()
	return &Conn{
		address: address, opt: o, pause: firstPause,
		formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(o.ClientID)),
		slots:     make(chan struct{}, o.MaxPending), closing: make(chan struct{}), hasten: make(chan struct{}),
	}
}

// OnDown has f called when the connection is closed by the other side or a dial is
// refused: signs that the process there died. It must be set before the first
// request. f must be quick and must not call Close.
func (c *Conn) OnDown(f func(err error)) { c.onDown = f }

// Do sends a request, in the highest version that both sides know, which it sets in
// req, and returns its answer, whose bytes belong to the caller. It is Send and the wait
// for the answer.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	l, waiting, err := c.send(ctx, req)
	if err != nil {
		return nil, err
	}
	return l.await(ctx, waiting)
}

// Send hands a request over to be sent, and returns what waits for its answer. What was
// handed over first arrives first: who has requests under way whose order counts begins
// none before Send of the last one has returned, whichever goroutines that are.
//
// It dials if there is no connection, and waits for the pause after a failed dial.
// A connection that breaks fails the request with *DownError. When ctx ends first,
// both return its error, and the request may still be handled. A deadline that
// passes while the connection is silent altogether ends the connection.
func (c *Conn) Send(ctx context.Context, req kmsg.Request) (
	await func(context.Context) (kmsg.Response, error), err error,
) {
	l, waiting, err := c.send(ctx, req)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (kmsg.Response, error) { return l.await(ctx, waiting) }, nil
}

func (c *Conn) send(ctx context.Context, req kmsg.Request) (*link, *call, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for a place on a connection: %w", ctx.Err())
	case <-c.closing:
		return nil, nil, &DownError{Cause: Ended}
	}
	for {
		l, err := c.connected(ctx)
		if err != nil {
			<-c.slots
			return nil, nil, err
		}
		waiting, err := l.enqueue(req)
		if err != nil {
			<-c.slots
			return nil, nil, err
		}
		if waiting != nil {
			return l, waiting, nil
		}
		// The link went before it was handed anything: this is not a second try.
	}
}

// Connect returns nil once there is a connection, which it dials if need be: a way
// to ask whether the other side is there.
func (c *Conn) Connect(ctx context.Context) error {
	_, err := c.connected(ctx)
	return err
}

// Refused reports whether the last dial was refused: the host is there and the
// process is not.
func (c *Conn) Refused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Hasten ends the pause after failed dials, because there is reason to believe that
// the next one succeeds.
func (c *Conn) Hasten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notBefore, c.pause = time.Time{}, firstPause
	close(c.hasten)
	c.hasten = make(chan struct{})
}

// Redial ends the connection, if there is one, so that the next request dials anew: who
// answers is not the one it is meant for, whose address may be another by now. It returns
// where the connection led to, "" if there was none.
func (c *Conn) Redial() (address string) {
	l := c.current()
	if l == nil {
		return ""
	}
	l.fail(&DownError{Address: l.address, Cause: Ended})
	return l.address
}

// current returns the link there is, or nil.
func (c *Conn) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// Close ends the connection; requests without an answer fail. It waits for the
// connection's goroutines and may be called again.
func (c *Conn) Close() error {
	c.mu.Lock()
	l := c.link
	if !c.closed {
		c.closed = true
		close(c.closing)
		if c.attempt != nil && c.attempt.cancel != nil {
			c.attempt.cancel()
		}
	}
	c.mu.Unlock()
	if l != nil {
		l.fail(&DownError{Address: l.address, Cause: Ended})
	}
	c.running.Wait()
	return nil
}

// leaveOldPlace ends a link to where the other side was before.
func (c *Conn) leaveOldPlace() {
	l := c.current()
	if l == nil {
		return
	}
	if address, known := c.address(); known && address != l.address {
		l.fail(&DownError{Address: l.address, Cause: Ended})
	}
}

// connected returns the link there is, or waits for a dial.
func (c *Conn) connected(ctx context.Context) (*link, error) {
	c.leaveOldPlace()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, &DownError{Cause: Ended}
	}
	if l := c.link; l != nil {
		c.mu.Unlock()
		return l, nil
	}
	a := c.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		c.attempt = a
		pause, hasten := time.Until(c.notBefore), c.hasten
		// The dial serves all who wait, so it outlives the first of them. It
		// ends with the attempt, and Close waits for it.
		dialing := context.WithoutCancel(ctx)
		c.running.Go(func() { c.try(dialing, a, pause, hasten) })
	}
	c.mu.Unlock()
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to a broker: %w", ctx.Err())
	}
}

// try is one attempt: it waits out the pause, dials, and tells those who wait.
func (c *Conn) try(ctx context.Context, a *attempt, pause time.Duration, hasten <-chan struct{}) {
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-hasten:
		case <-c.closing:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.DialTimeout)
	defer cancel()
	c.mu.Lock()
	a.cancel = cancel
	if c.closed {
		cancel()
	}
	c.mu.Unlock()

	l, err := c.dial(ctx)
	c.mu.Lock()
	if err == nil && c.closed {
		err = &DownError{Address: l.address, Cause: Ended}
	}
	c.attempt = nil
	refused := err != nil && isCause(err, Refused)
	c.refused = refused
	if err == nil {
		c.link, c.pause = l, firstPause
		if l.isDead() { // It broke before it was there for anybody.
			c.link = nil
		}
	} else {
		c.notBefore = time.Now().Add(c.pause)
		c.pause = min(2*c.pause, maxPause)
	}
	c.mu.Unlock()
	if err != nil && l != nil {
		l.fail(err)
		l = nil
	}
	c.tell(err)
	a.link, a.err = l, err
	close(a.done)
	if refused && c.onDown != nil {
		c.onDown(err)
	}
}

// tell logs what is wrong with the security of a connection, once: nothing of it mends
// itself, and all that needs the connection says no more than that it is down.
func (c *Conn) tell(err error) {
	what := ""
	switch {
	case errors.Is(err, errTLS), isCause(err, Rejected):
		what = "TLS: " + certs.Explain(err) // The error itself has ports in it that differ each time.
	case isCause(err, Garbled):
		what = Garbled.String()
	case err != nil:
		return // It is not there: no news.
	}
	c.mu.Lock()
	news := what != c.said
	c.said = what
	c.mu.Unlock()
	if news && what != "" {
		c.opt.Logger.Warn("no connection to another broker", "error", err)
	}
}

// errTLS is wrapped by what a handshake met with.
var errTLS = errors.New("TLS handshake")

func isCause(err error, cause Cause) bool {
	var down *DownError
	return errors.As(err, &down) && down.Cause == cause
}

// dial opens a connection and asks for the versions of requests.
func (c *Conn) dial(ctx context.Context) (*link, error) {
	nc, address, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(c, nc, address)
	c.running.Go(l.write)
	c.running.Go(l.read)
	if err := l.greet(ctx); err != nil {
		l.fail(err)
		return nil, err
	}
	return l, nil
}

// open opens a connection, which is encrypted if that is wanted, and returns where it
// leads to.
func (c *Conn) open(ctx context.Context) (net.Conn, string, error) {
	address, known := c.address()
	if !known {
		return nil, "", &DownError{Cause: Unknown}
	}
	nc, err := c.opt.Network.Dial(ctx, address)
	if err == nil && c.opt.TLS != nil {
		nc, err = c.encrypt(ctx, nc, address)
	}
	if err != nil {
		cause := Unreachable
		if errors.Is(err, syscall.ECONNREFUSED) {
			cause = Refused
		}
		return nil, "", &DownError{Address: address, Cause: cause, Err: err}
	}
	return nc, address, nil
}

// encrypt puts TLS over a connection.
func (c *Conn) encrypt(ctx context.Context, nc net.Conn, address string) (net.Conn, error) {
	config := c.opt.TLS()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	config.ServerName = host
	secured := tls.Client(nc, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		if what := certs.Explain(err); what != "" {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return nil, errors.Join(fmt.Errorf("%w: %w", errTLS, err), nc.Close())
	}
	return secured, nil
}

// forget is told by a link that it is dead.
func (c *Conn) forget(l *link, why error) {
	c.mu.Lock()
	if c.link == l {
		c.link = nil
		c.notBefore = time.Now().Add(firstPause)
	}
	closed := c.closed
	c.mu.Unlock()
	if !closed && c.onDown != nil && isCause(why, Closed) {
		c.onDown(why)
	}
}
