package peer

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// Pool has a Conn to each broker that is asked for, all for one purpose.
type Pool struct {
	address func(id kafka.BrokerID) (string, bool)
	opt     Options
	onDown  func(id kafka.BrokerID, err error)

	mu     sync.Mutex
	conns  map[kafka.BrokerID]*Conn
	closed bool
}

// NewPool returns an empty pool. address is asked for a broker's cluster listener at
// each dial.
func NewPool(address func(id kafka.BrokerID) (string, bool), o Options) *Pool {
	return &Pool{address: address, opt: o, conns: map[kafka.BrokerID]*Conn{}}
}

// OnDown is Conn.OnDown for all of the pool. It must be set before the first To.
func (p *Pool) OnDown(f func(id kafka.BrokerID, err error)) { p.onDown = f }

// To returns the connection to a broker; it need not be there, nor be known.
func (p *Pool) To(id kafka.BrokerID) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[id]
	if c == nil {
		c = Dial(func() (string, bool) { return p.address(id) }, p.opt)
		if p.onDown != nil {
			c.OnDown(func(err error) { p.onDown(id, err) })
		}
		if p.closed {
			_ = c.Close() // Requests on it fail.
			return c
		}
		p.conns[id] = c
	}
	return c
}

// Do sends a request to a broker; see Conn.Do.
func (p *Pool) Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	return p.To(to).Do(ctx, req)
}

// Reach returns when there is a connection to a broker, or says why there is none: a DownError,
// unless ctx ended before that was known.
func (p *Pool) Reach(ctx context.Context, id kafka.BrokerID) error {
	_, err := p.To(id).connected(ctx)
	return err
}

// Forget closes the connection to a broker that left.
func (p *Pool) Forget(id kafka.BrokerID) error {
	p.mu.Lock()
	c := p.conns[id]
	delete(p.conns, id)
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	return c.Close()
}

// Close closes all connections; those asked for later are closed too.
func (p *Pool) Close() error {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.closed = map[kafka.BrokerID]*Conn{}, true
	p.mu.Unlock()
	var err error
	for _, c := range conns {
		err = errors.Join(err, c.Close())
	}
	return err
}
