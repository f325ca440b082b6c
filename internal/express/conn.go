package express

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// conn is a connection in the lane. It belongs to its goroutine, but for busy and
// for net, which may be closed by others.
type conn struct {
	lane *Lane
	net  net.Conn
	busy atomic.Bool // A request has begun and is not answered.

	buf []byte // What was read and not used yet.
	// last is the head of the request before, and what it says: a client sends the
	// same fields again and again.
	last    []byte
	head    head
	request *http.Request
	body    body
	answer  answer

	idleUntil, writeUntil time.Time // The deadlines that are set.
	served                bool      // A request was answered.
}

// firstBuffer is the memory of a connection that waits for a request.
const firstBuffer = 4 << 10

func newConn(l *Lane, c net.Conn) *conn {
	return &conn{lane: l, net: c, buf: make([]byte, 0, firstBuffer), answer: answer{header: http.Header{}}}
}

// serve answers requests until the connection ends or is left to net/http.
func (c *conn) serve(ctx context.Context) {
	defer c.lane.end(c)
	c.request = (&http.Request{
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: remoteAddr(c.net), URL: &url.URL{},
	}).WithContext(ctx)
	for {
		switch c.readRequest() {
		case takes:
			if !c.serveOne() {
				_ = c.net.Close()
				return
			}
		case leaves:
			_ = c.net.SetDeadline(time.Time{})
			c.lane.rest.hand(c.net, c.buf)
			return
		default:
			_ = c.net.Close()
			return
		}
	}
}

// readRequest reads until a whole request is in the buffer; needsMore says that
// none will be.
func (c *conn) readRequest() verdict {
	waiting := true // Nothing has been read yet that a deadline was set for.
	for {
		if len(c.buf) > 0 {
			c.busy.Store(true)
			v := c.readHead()
			if v == leaves || v == takes && len(c.buf) >= c.head.size+c.head.body {
				return v
			}
			if waiting { // The rest of it has to come soon.
				waiting, c.idleUntil = false, time.Time{}
				_ = c.net.SetReadDeadline(time.Now().Add(c.lane.o.RequestTimeout))
			}
			c.grow(v)
		} else {
			c.busy.Store(false)
			if c.lane.stopped.Load() {
				return needsMore
			}
			c.awaitIdle()
		}
		n, err := c.net.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		switch {
		case err != nil && n == 0 && len(c.buf) > 0 && (isTimeout(err) || errors.Is(err, io.EOF)):
			return leaves // net/http says what is wrong with slow requests, and with half ones.
		case err != nil && n == 0:
			return needsMore
		}
	}
}

// deadlineStep is how exact the deadlines of the idle and of writers are: they are
// not set anew for each request.
const deadlineStep = 5 * time.Second

// awaitIdle sees to the deadline of a connection that asks for nothing. A new one
// has to ask soon.
func (c *conn) awaitIdle() {
	timeout := c.lane.o.IdleTimeout
	if !c.served {
		timeout = c.lane.o.RequestTimeout
	}
	until := time.Now().Add(timeout)
	if until.Sub(c.idleUntil) > deadlineStep {
		c.idleUntil = until
		_ = c.net.SetReadDeadline(until)
	}
}

// readHead reads the head in the buffer, unless it is the same as the last.
func (c *conn) readHead() verdict {
	if len(c.last) > 0 && bytes.HasPrefix(c.buf, c.last) {
		return takes
	}
	c.last = c.last[:0]
	v := c.head.read(c.buf, c.lane.o.Routes)
	if v == takes {
		c.last = append(c.last, c.buf[:c.head.size]...)
	}
	return v
}

// grow makes room for what is to come.
func (c *conn) grow(v verdict) {
	size := maxHead + 1
	if v == takes {
		size = c.head.size + c.head.body
	}
	if cap(c.buf) < size {
		c.buf = append(make([]byte, 0, size), c.buf...)
	}
}

// body is a request's body, which is in memory.
type body struct{ bytes.Reader }

// Close implements io.Closer.
func (b *body) Close() error { return nil }

// serveOne answers the request in the buffer. It reports whether the connection
// goes on.
func (c *conn) serveOne() bool {
	h, r := &c.head, c.request
	end := h.size + h.body
	c.body.Reset(c.buf[h.size:end])
	r.Method, r.Host, r.Header, r.Pattern = h.route.Method, h.host, h.fields, h.route.Pattern
	*r.URL = url.URL{Path: h.path}
	r.RequestURI = h.path
	r.ContentLength, r.Body = int64(h.body), &c.body
	if h.body == 0 {
		r.Body = http.NoBody
	}
	r.SetPathValue(h.route.Param, h.param)
	c.answer.begin()
	if c.aborted(h.route.Handler) {
		return false
	}
	now := time.Now()
	out, last := c.answer.encode(now, c.lane.stopped.Load())
	if until := now.Add(c.lane.o.WriteTimeout); until.Sub(c.writeUntil) > deadlineStep {
		c.writeUntil = until
		_ = c.net.SetWriteDeadline(until)
	}
	if _, err := c.net.Write(out); err != nil || last {
		return false
	}
	c.use(end)
	c.served = true
	return true
}

// aborted calls a handler, and reports whether it wants the connection ended
// without an answer. Any other panic goes on.
func (c *conn) aborted(h http.Handler) (aborted bool) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(v)
		}
	}()
	h.ServeHTTP(&c.answer, c.request)
	return false
}

// use drops what was used of the buffer.
func (c *conn) use(n int) {
	rest := c.buf[n:]
	if cap(c.buf) > 2*firstBuffer && len(rest) <= firstBuffer {
		c.buf = append(make([]byte, 0, firstBuffer), rest...)
		return
	}
	c.buf = c.buf[:copy(c.buf, rest)]
}
