package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/certs"
)

// handshake completes TLS, if the listener wants it.
func (c *Conn) handshake(ctx context.Context) error {
	if c.turns == nil {
		return nil
	}
	err := c.turns.During(c.quit, func() error { return c.net.(*tls.Conn).HandshakeContext(ctx) })
	if err != nil && c.turns.IsSilent() {
		return err
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
