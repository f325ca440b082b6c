package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/strandline/strandline/internal/certs"
)

// turns is a socket during a TLS handshake, which costs a stranger less than us. What
// takes time of the processor has one of a few slots, so that requests that are being
// answered keep the rest; who waits for the other side has none, so that clients that
// are slow, or say nothing more, keep nobody waiting.
type turns struct {
	net.Conn
	slots chan struct{}
	over  bool // The handshake is over: set before anybody else has the connection.
	heard bool // The other side has said something.
}

// Read implements net.Conn.
func (t *turns) Read(p []byte) (int, error) {
	n, err := t.without(t.Conn.Read, p)
	if !t.over && n > 0 {
		t.heard = true
	}
	return n, err
}

// Write implements net.Conn.
func (t *turns) Write(p []byte) (int, error) { return t.without(t.Conn.Write, p) }

// without does something without the slot.
func (t *turns) without(do func([]byte) (int, error), p []byte) (int, error) {
	if t.over {
		return do(p)
	}
	<-t.slots
	defer func() { t.slots <- struct{}{} }()
	return do(p)
}

// handshake completes TLS, if the listener wants it.
func (c *Conn) handshake(ctx context.Context) error {
	if c.turns == nil {
		return nil
	}
	select {
	case c.turns.slots <- struct{}{}:
	case <-c.quit:
		return io.EOF
	}
	err := c.net.(*tls.Conn).HandshakeContext(ctx)
	<-c.turns.slots
	c.turns.over = true
	if err != nil && !c.turns.heard {
		return err // It came to see whether somebody listens, as load balancers do.
	}
	if err != nil {
		var header tls.RecordHeaderError
		if errors.As(err, &header) {
			// The library says nothing to who does not speak TLS; clients know this alert.
			_, _ = c.socket.Write(unexpectedMessage())
		}
		return &closeError{ClosedHandshake, explainHandshake(err)}
	}
	return nil
}

// unexpectedMessage is the alert of that name.
func unexpectedMessage() []byte { return []byte{21, 3, 1, 0, 2, 2, 10} }

// explainHandshake says what to change.
func explainHandshake(err error) error {
	what := certs.Explain(err)
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		what = foreignProtocol(header.RecordHeader[:])
		if what == "" {
			what = "a client without TLS on a TLS listener: set security.protocol=SSL in the client " +
				"(between brokers: give all of them --cluster-tls-cert, or none)"
		}
	}
	if what == "" {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	return fmt.Errorf("TLS handshake: %s: %w", what, err)
}
