package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/certs/certstest"
)

var here = []string{"127.0.0.1", "localhost"}

// shake has a client and a server shake hands and say a word, and returns what each
// met with.
func shake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	near, far := connected(t)
	defer near.Close()
	defer far.Close()
	deadline := time.Now().Add(10 * time.Second)
	if err := errors.Join(near.SetDeadline(deadline), far.SetDeadline(deadline)); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		s := tls.Server(far, server)
		if serverErr = s.Handshake(); serverErr != nil {
			_ = far.Close()
			return
		}
		_, serverErr = s.Write([]byte("x"))
	})
	both.Go(func() {
		client = client.Clone()
		client.ServerName = "localhost"
		c := tls.Client(near, client)
		var word [1]byte
		_, clientErr = io.ReadFull(c, word[:]) // With TLS 1.3 a refusal comes now.
		_ = near.Close()
	})
	both.Wait()
	return clientErr, serverErr
}

// connected returns both ends of a connection.
func connected(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

func load(t *testing.T, f certs.Files, o certs.Options) *certs.Source {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := certs.Load(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Between peers both sides need a certificate of the CA, the one that is dialed for
// its name, and both can say what is wrong.
func TestPeers(t *testing.T) {
	ca, other := certstest.New(t), certstest.New(t)
	good := ca.Issue(here)
	foreign := other.Issue(here)
	foreign.CA = ca.File()
	peers := certs.Options{Peers: true}
	for _, test := range []struct {
		name           string
		client, server certs.Files
		wantClient     string // Parts of what they say; "" for success.
		wantServer     string
	}{
		{"good", good, ca.Issue(here), "", ""},
		{"client of another CA", foreign, good, "refuses this side's certificate", "of a CA that is not trusted here"},
		{"server of another CA", good, foreign, "of a CA that is not trusted here", "refuses this side's certificate"},
		{"server of another name", good, ca.Issue([]string{"elsewhere"}), "for another name", "refuses this side's certificate"},
		{
			"client that may only serve", ca.Issue(here, func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			}), good, "refuses this side's certificate", "not meant for this side",
		},
	} {
		clientErr, serverErr := shake(t, load(t, test.client, peers).Client(), load(t, test.server, peers).Server())
		for _, side := range []struct {
			want string
			err  error
		}{{test.wantClient, clientErr}, {test.wantServer, serverErr}} {
			if (side.want == "") != (side.err == nil) || side.err != nil && !strings.Contains(certs.Explain(side.err), side.want) {
				t.Errorf("%s: %v, want %q", test.name, side.err, side.want)
			}
		}
	}
	server := load(t, good, peers).Server()
	if _, err := shake(t, &tls.Config{RootCAs: ca.Pool()}, server); err == nil ||
		!strings.Contains(certs.Explain(err), "has no certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	old := load(t, good, peers).Client()
	old.MaxVersion, old.MinVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, err := shake(t, old, server); err == nil {
		t.Error("peers speak TLS 1.2")
	}
}

// A listener for clients asks for a certificate only if it has a CA, and speaks what
// old clients do.
func TestClients(t *testing.T) {
	ca := certstest.New(t)
	files := ca.Issue(here)
	open := files
	open.CA = ""
	plain := &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}
	if c, s := shake(t, plain, load(t, open, certs.Options{}).Server()); c != nil || s != nil {
		t.Errorf("without a CA: %v, %v", c, s)
	}
	if _, err := shake(t, plain, load(t, files, certs.Options{}).Server()); err == nil {
		t.Error("a client without a certificate was let in")
	}
	for name, f := range map[string]certs.Files{"with a certificate": files, "with the CA alone": {CA: ca.File()}} {
		client, err := certs.Dial(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = shake(t, client, load(t, files, certs.Options{}).Server())
		if (err == nil) != (f.Cert != "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What can't be right is refused with the file's name.
func TestLoadRefuses(t *testing.T) {
	ca := certstest.New(t)
	good, other := ca.Issue(here), ca.Issue(here)
	expired := ca.Issue(here, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	for want, f := range map[string]certs.Files{
		"both needed":             {Cert: good.Cert, CA: ca.File()},
		"a CA is needed":          {Cert: good.Cert, Key: good.Key},
		"private key does not":    {Cert: good.Cert, Key: other.Key, CA: ca.File()},
		"holds no certificate":    {Cert: good.Cert, Key: good.Key, CA: good.Key},
		"no such file":            {Cert: good.Cert + "x", Key: good.Key, CA: ca.File()},
		expired.Cert + " expired": expired,
	} {
		if _, err := certs.Load(f, certs.Options{Peers: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	if _, err := certs.Dial(certs.Files{Cert: good.Cert}); err == nil {
		t.Error("a client with half a certificate")
	}
	if _, err := certs.Dial(certs.Files{CA: good.Key}); err == nil {
		t.Error("a client with a CA that is none")
	}
}

// replace puts another certificate in the place of one.
func replace(t *testing.T, at, by certs.Files) {
	t.Helper()
	for _, names := range [][2]string{{by.Key, at.Key}, {by.Cert, at.Cert}} {
		if err := os.Rename(names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
}

// Files that changed are read by the next handshake; those that can't be used are
// reported once and change nothing.
func TestRenewal(t *testing.T) {
	ca := certstest.New(t)
	files := ca.Issue(here)
	var log bytes.Buffer
	now := time.Now()
	s := load(t, files, certs.Options{
		Peers: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now },
	})
	serial := func() string {
		t.Helper()
		var seen string
		client := s.Client()
		client.VerifyConnection = func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].SerialNumber.String()
			return nil
		}
		if c, s := shake(t, client, s.Server()); c != nil || s != nil {
			t.Fatal(c, s)
		}
		return seen
	}
	first := serial()
	replace(t, files, ca.Issue(here))
	if serial() != first {
		t.Error("the files were looked at twice in a moment")
	}
	now = now.Add(2 * time.Second)
	second := serial()
	if second == first {
		t.Error("the new certificate is not used")
	}
	if err := os.WriteFile(files.Cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(2 * time.Second)
		if serial() != second {
			t.Error("a file that can't be used changed something")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), files.Cert) {
		t.Errorf("%d lines about it:\n%s", n, &log)
	}
	replace(t, files, ca.Issue(here))
	now = now.Add(2 * time.Second)
	if third := serial(); third == second || !strings.Contains(log.String(), "certificates read again") {
		t.Errorf("not mended:\n%s", &log)
	}
	if s.Expires().Before(now) {
		t.Error("expired")
	}
}

// A listener serves those who shake hands, and tells of those who don't; who speaks
// HTTP to it is told so.
func TestListen(t *testing.T) {
	ca := certstest.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	failed := make(chan string, 10)
	secured := certs.Listen(l, load(t, ca.Issue(here), certs.Options{Peers: true}).Server(),
		func(from net.Addr, err error) { failed <- certs.Explain(err) })
	served := make(chan string, 10)
	go func() { // Ends with the listener.
		for {
			c, err := secured.Accept()
			if err != nil {
				return
			}
			go func() { // Ends with the connection.
				defer c.Close()
				var word [4]byte
				_, err := io.ReadFull(c, word[:])
				served <- string(word[:])
				if err == nil {
					_, _ = c.Write(word[:])
				}
			}()
		}
	}()
	client := load(t, ca.Issue(here), certs.Options{Peers: true}).Client()
	client.ServerName = "localhost"
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	var word [4]byte
	if _, err := io.ReadFull(c, word[:]); err != nil || string(word[:]) != "word" || <-served != "word" {
		t.Errorf("%q, %v", word, err)
	}
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := io.WriteString(plain, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(plain)
	if err != nil || !strings.Contains(string(answer), "use https://") {
		t.Errorf("%q, %v", answer, err)
	}
	if got := <-failed; !strings.Contains(got, "does not speak TLS") {
		t.Errorf("told of %q", got)
	}
}
