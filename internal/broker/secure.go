package broker

import (
	"crypto/tls"

	"github.com/strandline/strandline/internal/certs"
)

// The names of the listener for clients, which are Kafka's.
const (
	plaintextName = "PLAINTEXT"
	tlsName       = "SSL"
)

// listenerName is the name of the listener for clients.
func (c Config) listenerName() string {
	if c.TLS.Given() {
		return tlsName
	}
	return plaintextName
}

// loadTLS reads certificates; nil where none are named.
func (b *Broker) loadTLS(f certs.Files, peers bool) (*certs.Source, error) {
	if !f.Given() {
		return nil, nil
	}
	return certs.Load(f, certs.Options{Peers: peers, Logger: b.log, Now: b.now})
}

// server is what a listener takes; nil for plaintext.
func server(s *certs.Source) *tls.Config {
	if s == nil {
		return nil
	}
	return s.Server()
}

// client is what a dial asks; nil for plaintext.
func client(s *certs.Source) func() *tls.Config {
	if s == nil {
		return nil
	}
	return s.Client
}
