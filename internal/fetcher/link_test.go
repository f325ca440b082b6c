package fetcher_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/netx"
)

// link is a connection to one broker that dials when it is needed, and fails what is
// under way when it breaks.
type link struct {
	network netx.Network
	addr    func() string
	before  func()              // Called before each request is sent; may be nil.
	edit    func(kmsg.Response) // Changes answers; nil for as they are.

	mu   sync.Mutex
	conn *linkConn
}

// linkConn is one connection. Answers come in the order of requests.
type linkConn struct {
	conn net.Conn
	next int32

	mu      sync.Mutex
	pending []*linkCall
	err     error
}

type linkCall struct {
	resp kmsg.Response
	err  error
	done chan struct{}
}

var errLinkDown = errors.New("the connection broke")

// Send implements fetcher.Requester.
func (l *link) Send(ctx context.Context, req kmsg.Request) (func(context.Context) (kmsg.Response, error), error) {
	if l.before != nil {
		l.before()
	}
	call := &linkCall{done: make(chan struct{})}
	if err := l.send(ctx, req, call); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (kmsg.Response, error) {
		select {
		case <-call.done:
			if call.err == nil && l.edit != nil {
				l.edit(call.resp)
			}
			return call.resp, call.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, nil
}

func (l *link) send(ctx context.Context, req kmsg.Request, call *linkCall) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.failed() != nil {
		conn, err := l.network.Dial(ctx, l.addr())
		if err != nil {
			return err
		}
		l.conn = &linkConn{conn: conn}
		go l.conn.read() // Ends with the connection.
	}
	c := l.conn
	req.SetVersion(req.MaxVersion())
	call.resp = req.ResponseKind()
	c.next++
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, req, c.next)
	c.mu.Lock()
	c.pending = append(c.pending, call)
	c.mu.Unlock()
	if _, err := c.conn.Write(frame); err != nil {
		c.fail(err)
	}
	return nil
}

func (c *linkConn) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *linkConn) fail(err error) {
	_ = c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(errLinkDown, err)
	for _, call := range c.pending {
		call.err = c.err
		close(call.done)
	}
	c.pending = nil
}

func (c *linkConn) read() {
	for {
		var head [4]byte
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			c.fail(err)
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(c.conn, body); err != nil {
			c.fail(err)
			return
		}
		c.mu.Lock()
		if len(c.pending) == 0 {
			c.mu.Unlock()
			return // It failed meanwhile.
		}
		call := c.pending[0]
		c.pending = c.pending[1:]
		call.err = call.resp.ReadFrom(body[5:]) // Behind the correlation id and the tags.
		close(call.done)
		c.mu.Unlock()
	}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.fail(net.ErrClosed)
		l.conn = nil
	}
}
