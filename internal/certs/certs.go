// Package certs keeps certificates that are read from files, and reads them again when
// the files have changed: the next handshake uses the new ones, and nothing has to be
// restarted.
//
//	Files --Load--> Source --Server--> the tls.Config of a listener
//	                       --Client--> the tls.Config of one dial
//
// There is no goroutine: a handshake looks at the files if nobody did for a second.
// Files that can't be used leave in force what was, and one line of the log says so
// until they can.
//
// With a CA, both sides of a connection must have a certificate of it. Whoever dials
// verifies that the other's is for the name that was dialed; whoever is dialed can't
// know a name, and takes any that the CA signed for clients.
//
// All methods are safe from any goroutine. Deliberately absent: passwords on keys,
// lists of revoked certificates, and formats other than PEM.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files names PEM files.
type Files struct {
	// Cert is a certificate, followed by those between it and the CA, and Key its
	// private key.
	Cert, Key string
	// CA are the certificates of those whose signatures count; "" asks nobody for a
	// certificate.
	CA string
}

// Given reports whether any of them is named.
func (f Files) Given() bool { return f != Files{} }

// lookInterval is the least time between two looks at the files.
const lookInterval = time.Second

// Options of a Source.
type Options struct {
	// Peers says that both ends are this program's: nothing older than TLS 1.3 is
	// spoken, and a CA is needed.
	Peers  bool
	Logger *slog.Logger
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Source has the certificates as the files said last.
type Source struct {
	files Files
	opt   Options

	mu     sync.Mutex
	looked time.Time
	seen   [3]os.FileInfo // Of Cert, Key and CA when they were read last.
	said   string         // What was last said to be wrong.
	now    *loaded
}

// loaded is what the files said. It is not changed.
type loaded struct {
	certificate tls.Certificate
	roots       *x509.CertPool // Nil without a CA.
	server      *tls.Config
}

// Load reads the files. An error names the file and what is wrong with it.
func Load(f Files, o Options) (*Source, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("a certificate and its key are both needed")
	case o.Peers && f.CA == "":
		return nil, errors.New("between brokers a CA is needed: without one, whoever reaches the listener " +
			"would be believed to be a broker")
	}
	s := &Source{files: f, opt: o}
	s.looked, s.seen = o.Now(), f.stat()
	var err error
	s.now, err = s.read()
	return s, err
}

// Server returns the configuration of a listener. It asks for the files as they are at
// each handshake.
func (s *Source) Server() *tls.Config {
	return &tls.Config{
		MinVersion:         s.minVersion(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current().server, nil },
	}
}

// Client returns the configuration of one dial, to which the caller adds the name of
// the server.
func (s *Source) Client() *tls.Config {
	now := s.current()
	return &tls.Config{
		MinVersion: s.minVersion(), RootCAs: now.roots,
		// Also when the other side does not know its CA: what it then says is clearer
		// than that there was no certificate.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &now.certificate, nil
		},
	}
}

// Expires returns when the certificate ends.
func (s *Source) Expires() time.Time { return s.current().certificate.Leaf.NotAfter }

func (s *Source) minVersion() uint16 {
	if s.opt.Peers {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// current returns what the files say, looking at them if nobody did for a while.
func (s *Source) current() *loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opt.Now()
	if now.Sub(s.looked) < lookInterval {
		return s.now
	}
	s.looked = now
	found := s.files.stat()
	if sameFiles(found, s.seen) && s.said == "" {
		return s.now
	}
	next, err := s.read()
	if err != nil {
		if s.said != err.Error() {
			s.said = err.Error()
			s.opt.Logger.Error("certificates have changed and can't be used: those from before stay in force",
				"file", s.files.Cert, "error", err)
		}
		return s.now
	}
	s.opt.Logger.Info("certificates read again", "file", s.files.Cert, "expires", next.certificate.Leaf.NotAfter)
	s.seen, s.said, s.now = found, "", next
	return next
}

// stat looks at the files; nil for one that is not there.
func (f Files) stat() (found [3]os.FileInfo) {
	for i, name := range [...]string{f.Cert, f.Key, f.CA} {
		if name != "" {
			if info, err := os.Stat(name); err == nil {
				found[i] = info
			}
		}
	}
	return found
}

func sameFiles(a, b [3]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
			continue
		}
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// read reads all files.
func (s *Source) read() (*loaded, error) {
	certificate, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.files.Cert, s.files.Key, err)
	}
	if leaf := certificate.Leaf; s.opt.Now().After(leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s expired on %s", s.files.Cert, leaf.NotAfter.Format(time.RFC3339))
	}
	l := &loaded{certificate: certificate}
	l.server = &tls.Config{MinVersion: s.minVersion(), Certificates: []tls.Certificate{certificate}}
	if s.files.CA == "" {
		return l, nil
	}
	if l.roots, err = readRoots(s.files.CA); err != nil {
		return nil, err
	}
	l.server.ClientAuth, l.server.ClientCAs = tls.RequireAndVerifyClientCert, l.roots
	// A ticket would let in a client again whose CA is not trusted any more.
	l.server.SessionTicketsDisabled = true
	return l, nil
}
