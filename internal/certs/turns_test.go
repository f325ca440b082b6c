package certs_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/certs/certstest"
)

// Clients that stop in the middle of their handshakes keep nobody else waiting, however
// many they are: some before a byte, some before their last word.
func TestStalledHandshakes(t *testing.T) {
	ca := certstest.New(t)
	files := ca.Issue([]string{"127.0.0.1"})
	files.CA = ""
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := certs.Listen(below, load(t, files, certs.Options{}).Server(), func(net.Addr, error) {})
	defer l.Close()
	go func() { // Ends with the listener.
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // Ends with the connection, which the test closes.
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", below.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	config := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
	for i := range 80 {
		c := dial()
		if i%2 == 0 {
			continue
		}
		half := &firstWrite{Conn: c}
		go func() { _ = tls.Client(half, config).Handshake() }() // Ends with the connection.
	}
	c := tls.Client(dial(), config)
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// firstWrite is a connection that sends the first record and nothing more.
type firstWrite struct {
	net.Conn
	written bool
}

// Write implements net.Conn.
func (c *firstWrite) Write(p []byte) (int, error) {
	if c.written {
		return len(p), nil
	}
	c.written = true
	return c.Conn.Write(p)
}
