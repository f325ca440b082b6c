package wire_test

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// clientHello returns the first record of a handshake.
func clientHello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake() }() // Ends with the pipe.
	record := make([]byte, 5)
	if _, err := io.ReadFull(far, record); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, int(record[3])<<8|int(record[4]))
	if _, err := io.ReadFull(far, rest); err != nil {
		t.Fatal(err)
	}
	return append(record, rest...)
}

// Clients that stop in the middle of their handshakes keep nobody else waiting, however
// many they are: some before a byte, some before their last word.
func TestStalledHandshakes(t *testing.T) {
	certificate, pool := newCertificate(t)
	config := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
	hello := clientHello(t, config)
	b := newBroker(t, netx.TCP{})
	b.options.Listeners = []wire.Listener{
		{Name: "SSL", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
	}
	b.start()
	for i := range 80 {
		c := b.dial()
		if i%2 == 0 {
			continue
		}
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil { // It is answered.
			t.Fatal(err)
		}
	}
	plain := b.dial()
	if err := plain.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c := &client{t, tls.Client(plain, config)}
	c.send(keyEcho, 1, "hello")
	c.expect(1, "hello")
}

// A client that speaks something else is told of in words that say what to change.
func TestHandshakeFailuresAreExplained(t *testing.T) {
	certificate, _ := newCertificate(t)
	for said, want := range map[string]string{
		"\x00\x00\x00\x10\x00\x12\x00\x00": "security.protocol=SSL",
		"GET / HTTP/1.1\r\n\r\n":           "an HTTP request on a Kafka listener",
	} {
		b := newBroker(t, netx.TCP{})
		b.options.Listeners = []wire.Listener{
			{Name: "SSL", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
		}
		closed := make(chan error, 1)
		b.options.Events.ConnClosed = func(_ *wire.Conn, _ wire.CloseReason, err error) { closed <- err }
		b.start()
		if _, err := io.WriteString(b.dial(), said); err != nil {
			t.Fatal(err)
		}
		if err := <-closed; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", said, err)
		}
		b.stop()
	}
}

// Who only looks whether somebody listens is no failure that anybody has to know of.
func TestProbesOfATLSListener(t *testing.T) {
	certificate, _ := newCertificate(t)
	b := newBroker(t, netx.TCP{})
	b.options.Listeners = []wire.Listener{
		{Name: "SSL", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
	}
	closed := make(chan wire.CloseReason, 1)
	b.options.Events.ConnClosed = func(_ *wire.Conn, reason wire.CloseReason, _ error) { closed <- reason }
	b.start()
	if err := b.dial().Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-closed; got != wire.ClosedByPeer {
		t.Errorf("closed because of %s", got)
	}
}
