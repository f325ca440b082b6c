package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/netx"
)

// FieldPrefix begins the names of the fields that brokers tell one another.
const FieldPrefix = "Strandline-Relay-"

// ClientField names the client that the request comes from.
const ClientField = FieldPrefix + "Client"

// Bounds of what is kept for later.
const (
	maxIdle = 64 // Connections to a broker that nobody uses.
	// idleTime is less than the other side waits for a request.
	idleTime = 60 * time.Second
	// failedPause is how long a broker that could not be dialed is taken for gone:
	// many requests may wait for it.
	failedPause = 50 * time.Millisecond
)

// Error says that a request was not answered.
type Error struct {
	Broker kafka.BrokerID
	// Sent says that the other side may have got the request: whether it was carried
	// out is not known.
	Sent bool
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Sent {
		return fmt.Sprintf("broker %d did not answer: %v", e.Broker, e.Err)
	}
	return fmt.Sprintf("broker %d cannot be reached: %v", e.Broker, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Unsent reports whether nothing of the request has left.
func (e *Error) Unsent() bool { return !e.Sent }

// Dial opens a connection to a broker on which HTTP is spoken.
type Dial func(ctx context.Context, to kafka.BrokerID) (net.Conn, error)

// Relay sends requests.
type Relay struct {
	dial Dial

	answered, unsent, lost atomic.Uint64

	mu     sync.Mutex
	idle   map[lane][]*conn // The one that was used last is at the end.
	failed map[kafka.BrokerID]failure
	used   map[*conn]struct{}
	sweep  *time.Timer // Closes what was idle for long; nil while there is nothing.
	closed bool
}

// Stats are the requests since the start by what became of them.
type Stats struct {
	Answered uint64 // With a refusal too.
	Unsent   uint64 // Nothing of them has left.
	Lost     uint64 // They may have been carried out.
}

// Stats returns the counts. It may be called at any time.
func (x *Relay) Stats() Stats { return Stats{x.answered.Load(), x.unsent.Load(), x.lost.Load()} }

// lane is the connections to a broker for one kind of requests. Short requests to
// produce keep to connections of their own, which the other side answers faster.
type lane struct {
	to    kafka.BrokerID
	short bool
}

// shortBody is up to where a body is short.
const shortBody = 8 << 10

func laneOf(to kafka.BrokerID, r *http.Request, body []byte) lane {
	return lane{to, r.Method == http.MethodPost && len(body) <= shortBody && strings.HasSuffix(r.RequestURI, "/produce")}
}

// failure is a dial that failed.
type failure struct {
	until time.Time
	err   error
}

// New returns a Relay without connections.
func New(dial Dial) *Relay {
	return &Relay{
		dial: dial, idle: map[lane][]*conn{}, failed: map[kafka.BrokerID]failure{}, used: map[*conn]struct{}{},
	}
}

var errClosed = errors.New("the broker is stopping")

// Send sends a request to a broker, with body in the place of its own, and returns
// the answer, whose body the caller reads to its end or closes. Of r its method,
// target, host, fields and the client's address are used; own are fields that brokers
// tell one another, names and values in turn. When ctx ends, so does the exchange, at
// whatever point it is. The error is an *Error.
func (x *Relay) Send(
	ctx context.Context, to kafka.BrokerID, r *http.Request, body []byte, own ...string,
) (*http.Response, error) {
	c, err := x.take(ctx, laneOf(to, r, body))
	if err != nil {
		x.unsent.Add(1)
		return nil, &Error{Broker: to, Err: err}
	}
	stop := context.AfterFunc(ctx, c.interrupt)
	resp, sent, err := c.exchange(r, body, own)
	if err != nil {
		stop()
		x.drop(c)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if sent {
			x.lost.Add(1)
		} else {
			x.unsent.Add(1)
		}
		return nil, &Error{Broker: to, Sent: sent, Err: err}
	}
	x.answered.Add(1)
	end := func(whole bool) {
		if stop() && whole && !resp.Close {
			x.put(c)
			return
		}
		x.drop(c)
	}
	if resp.Body == http.NoBody {
		end(true)
		return resp, nil
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, end: end}
	return resp, nil
}

// take returns a connection that nobody uses.
func (x *Relay) take(ctx context.Context, in lane) (*conn, error) {
	for {
		c, err := x.takeIdle(in)
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if netx.Alive(c.nc) && c.in.Buffered() == 0 {
			return c, nil
		}
		x.drop(c) // It is of no use, and neither are those from before it.
	}
	nc, err := x.dial(ctx, in.to)
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case err != nil:
		if ctx.Err() == nil {
			x.failed[in.to] = failure{time.Now().Add(failedPause), err}
		}
		return nil, err
	case x.closed:
		return nil, errors.Join(errClosed, nc.Close())
	}
	delete(x.failed, in.to)
	c := newConn(in, nc)
	x.used[c] = struct{}{}
	return c, nil
}

// takeIdle returns the connection to a broker that was used last, nil for none.
func (x *Relay) takeIdle(in lane) (*conn, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errClosed
	}
	if f, ok := x.failed[in.to]; ok && time.Now().Before(f.until) {
		return nil, f.err
	}
	all := x.idle[in]
	if len(all) == 0 {
		return nil, nil
	}
	c := all[len(all)-1]
	all[len(all)-1] = nil
	x.idle[in] = all[:len(all)-1]
	x.used[c] = struct{}{}
	return c, nil
}

// put keeps a connection for the next request.
func (x *Relay) put(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.used, c)
	if x.closed || len(x.idle[c.lane]) >= maxIdle {
		_ = c.nc.Close()
		return
	}
	c.idleSince = time.Now()
	x.idle[c.lane] = append(x.idle[c.lane], c)
	if x.sweep == nil {
		x.sweep = time.AfterFunc(idleTime, x.closeIdle)
	}
}

// drop ends a connection.
func (x *Relay) drop(c *conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.used, c)
	_ = c.nc.Close()
}

// closeIdle closes what was idle for long, and comes back for the rest.
func (x *Relay) closeIdle() {
	x.mu.Lock()
	defer x.mu.Unlock()
	left := 0
	oldest := time.Now().Add(-idleTime / 2)
	for in, all := range x.idle {
		kept := all[:0]
		for _, c := range all {
			if c.idleSince.Before(oldest) {
				_ = c.nc.Close()
			} else {
				kept = append(kept, c)
			}
		}
		clear(all[len(kept):])
		x.idle[in] = kept
		left += len(kept)
	}
	if x.sweep = nil; left > 0 && !x.closed {
		x.sweep = time.AfterFunc(idleTime, x.closeIdle)
	}
}

// Close ends all connections; requests under way fail, and so do later ones.
func (x *Relay) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.sweep != nil {
		x.sweep.Stop()
		x.sweep = nil
	}
	for c := range x.used {
		c.interrupt()
	}
	for _, all := range x.idle {
		for _, c := range all {
			_ = c.nc.Close()
		}
	}
	clear(x.idle)
	return nil
}
