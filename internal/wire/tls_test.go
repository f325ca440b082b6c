package wire_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/wire"
)

// newCertificate returns a certificate for 127.0.0.1 and the pool that trusts
// it.
func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	certificate, pool := newCertificate(t)
	s := newSegment(t, 4<<20, true)
	b := newBroker(t, netx.TCP{})
	b.options.Listeners = []wire.Listener{
		{Name: "SSL", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
	}
	b.write = func(w *wire.Writer) error {
		s.mixture(w)
		return nil
	}
	b.start()
	plain := b.dial()
	c := &client{t, tls.Client(plain, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})}
	for i := range int32(10) {
		c.send(keyEcho, i, "hello")
		c.expect(i, "hello")
	}
	body := strings.Repeat("x", 3<<20)
	go c.send(keyEcho, 11, body)
	c.expect(11, body)
	c.send(keyPark, 12, "")
	b.next().finish()
	c.expect(12, s.wantMixture())
	b.stop()
	c.expectClosed()
}

func TestPlaintextOnTLSListener(t *testing.T) {
	certificate, _ := newCertificate(t)
	b := newBroker(t, netx.TCP{})
	b.options.Listeners = []wire.Listener{
		{Name: "SSL", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
	}
	closed := make(chan wire.CloseReason, 1)
	b.options.Events.ConnClosed = func(_ *wire.Conn, reason wire.CloseReason, _ error) {
		closed <- reason
	}
	b.start()
	c := b.dial()
	c.send(keyEcho, 1, "hello")
	if got := <-closed; got != wire.ClosedHandshake {
		t.Errorf("closed because of %s", got)
	}
}
