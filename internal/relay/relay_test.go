package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/relay"
)

// world is a broker that answers HTTP, and a Relay that knows the way to it.
type world struct {
	*relay.Relay
	t     *testing.T
	dials atomic.Int64
}

func newWorld(t *testing.T, h http.Handler) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }() // Ends with the test.
	t.Cleanup(func() { _ = srv.Close() })
	return dialing(t, l.Addr().String())
}

func dialing(t *testing.T, address string) *world {
	t.Helper()
	w := &world{t: t}
	w.Relay = relay.New(func(ctx context.Context, to kafka.BrokerID) (net.Conn, error) {
		w.dials.Add(1)
		if to != 2 {
			return nil, errors.New("nobody is there")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func request(method, target string, fields ...string) *http.Request {
	r := &http.Request{Method: method, RequestURI: target, Host: "queue.example.com", Header: http.Header{}, RemoteAddr: "10.0.0.9:77"}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// say sends a request and returns the answer's body.
func (w *world) say(ctx context.Context, r *http.Request, body string, own ...string) (int, string, error) {
	resp, err := w.Send(ctx, 2, r, []byte(body), own...)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), errors.Join(err, resp.Body.Close())
}

// wantError wants an error that says whether anything was sent.
func wantError(t *testing.T, err error, sent bool) {
	t.Helper()
	var e *relay.Error
	if !errors.As(err, &e) || e.Sent != sent || e.Unsent() == sent {
		t.Errorf("%v, want an error with sent %t", err, sent)
	}
}

// A request arrives as it came, but for what is about its connection and what only
// brokers say.
func TestCarriesRequests(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var fields []string
		for name, values := range r.Header {
			fields = append(fields, name+"="+strings.Join(values, "+"))
		}
		slices.Sort(fields)
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s %d %s %s", r.Method, r.RequestURI, r.Host, r.ContentLength, body, fields)
	}))
	status, text, err := w.say(t.Context(), request("POST", "/v1/x?a=%20b", "Content-Type", "text/plain", "X-A", "1", "X-A", "2",
		"Connection", "X-Mine, close", "X-Mine", "secret", "Expect", "100-continue", "Transfer-Encoding", "chunked",
		"Strandline-Relay-Client", "forged", "Strandline-Relay-Stale", "forged", "Strandline-Header-A", "kept"),
		"a body", "Strandline-Relay-Own", "yes")
	want := "POST /v1/x?a=%20b queue.example.com 6 a body [Content-Length=6 Content-Type=text/plain Strandline-Header-A=kept " +
		"Strandline-Relay-Client=10.0.0.9:77 Strandline-Relay-Own=yes X-A=1+2]"
	if err != nil || status != http.StatusTeapot || text != want {
		t.Errorf("%d %v\n%s\n%s", status, err, text, want)
	}
	for range 10 {
		if _, _, err := w.say(t.Context(), request("GET", "/"), ""); err != nil {
			t.Error(err)
		}
	}
	if n := w.dials.Load(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
	long := strings.Repeat("x", 1<<20)
	if _, text, err := w.say(t.Context(), request("POST", "/"), long); err != nil || !strings.Contains(text, long) {
		t.Errorf("a long body: %d bytes back, %v", len(text), err)
	}
}

// Nothing is sent twice, and an error says whether anything was sent.
func TestSaysWhatWasSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan net.Conn, 10)
	go func() { // Ends with the listener.
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				seen <- c
			}
		}
	}()
	w := dialing(t, l.Addr().String())
	_, err = w.Send(t.Context(), 3, request("GET", "/"), nil)
	wantError(t, err, false)
	_, err = w.Send(t.Context(), 3, request("GET", "/"), nil)
	wantError(t, err, false)
	if n := w.dials.Load(); n != 1 {
		t.Errorf("who could not be dialed just now was dialed %d times", n)
	}
	failed := make(chan error)
	go func() {
		_, err := w.Send(t.Context(), 2, request("GET", "/"), nil)
		failed <- err
	}()
	c := <-seen
	_ = c.Close()
	wantError(t, <-failed, true)
	if n := w.dials.Load(); n != 2 {
		t.Errorf("%d dials: a request that may be repeated was", n)
	}
	// A context ends it while the answer is waited for.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := w.Send(ctx, 2, request("GET", "/"), nil)
		failed <- err
	}()
	defer (<-seen).Close()
	cancel()
	err = <-failed
	wantError(t, err, true)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A connection that the other side has closed since is not used again: the request
// would be lost for no reason.
func TestNoticesClosedConnections(t *testing.T) {
	var conns []net.Conn
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 10)
	go func() { // Ends with the listener.
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
			go func() { // Ends with the connection.
				in := bufio.NewReader(c)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	w := dialing(t, l.Addr().String())
	for range 5 {
		status, text, err := w.say(t.Context(), request("POST", "/"), "x")
		if err != nil || status != 200 || text != "ok" {
			t.Fatalf("%d %q %v", status, text, err)
		}
		c := <-accepted
		conns = append(conns, c)
		_ = c.Close()
		// Until this side has heard of it: the loopback interface needs no more.
		<-time.After(5 * time.Millisecond)
	}
	if n := w.dials.Load(); int(n) != len(conns) {
		t.Errorf("%d dials for %d connections", n, len(conns))
	}
}

// The body of an answer comes as it is written, and its end before its time is an
// error.
func TestStreams(t *testing.T) {
	next := make(chan string)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for text := range next {
			if text == "abort" {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	go func() { next <- "first" }()
	resp, err := w.Send(t.Context(), 2, request("GET", "/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	for _, word := range []string{"first", "other"} {
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != word {
			t.Fatalf("%q %v", b, err)
		}
		if word == "first" {
			next <- "other"
		}
	}
	next <- "abort"
	if n, err := resp.Body.Read(b); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, %v", n, err)
	}
	close(next)
}

// Close ends what is under way and refuses what comes.
func TestClose(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-end
	}))
	defer close(end)
	failed := make(chan error)
	go func() {
		_, err := w.Send(t.Context(), 2, request("GET", "/"), nil)
		failed <- err
	}()
	<-begun
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	wantError(t, <-failed, true)
	_, err := w.Send(t.Context(), 2, request("GET", "/"), nil)
	wantError(t, err, false)
}
