package wire

import (
	"errors"
	"net"
	"slices"
	"time"
)

// Detach returns the response of a request after which the connection speaks
// something else: earlier answers and resp are sent, then the connection goes to
// take, with what was read of it beyond the request. From then on no limit counts
// it and no time-out ends it here: whoever took it closes it. take must not block.
func Detach(resp Response, take func(net.Conn)) Response { return detachResponse{resp, take} }

// detachResponse is what Detach returns.
type detachResponse struct {
	Response
	take func(net.Conn)
}

// detachError ends the read loop of a connection that is to be detached.
type detachError struct{ take func(net.Conn) }

// Error implements error.
func (*detachError) Error() string { return "the connection goes on with another protocol" }

// maybeDetach gives the connection away if that is why its loop has ended. It
// reports false if it is not, or if the connection was killed over it.
func (c *Conn) maybeDetach(why error) bool {
	var d *detachError
	if !errors.As(why, &d) {
		return false
	}
	late := time.AfterFunc(c.server.limits.Load().StallTimeout, func() { c.kill(ClosedSlow, why) })
	c.out.drain()
	late.Stop()
	// Nobody kills it any more: neither the sweeper, nor a server that stops.
	ours := false
	c.killOnce.Do(func() {
		ours = true
		c.killed = &closeError{ClosedDetached, why}
		close(c.quit)
	})
	if !ours {
		return false
	}
	c.out.close()
	nc := c.net
	if rest := c.in.buffered(); len(rest) > 0 {
		nc = &resumed{Conn: nc, read: slices.Clone(rest)}
	}
	c.in.close()
	_ = c.net.SetDeadline(time.Time{})
	c.server.connClosed(c, ClosedDetached, why)
	d.take(nc)
	return true
}

// buffered returns what was read and not used.
func (r *reader) buffered() []byte {
	if r.block == nil {
		return nil
	}
	return r.block.data[r.first:r.last]
}

// resumed is a connection of which something was read already.
type resumed struct {
	net.Conn
	read []byte // Read by one goroutine at a time.
}

// Read implements net.Conn.
func (c *resumed) Read(p []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.read)
	if c.read = c.read[n:]; len(c.read) == 0 {
		c.read = nil
	}
	return n, nil
}
