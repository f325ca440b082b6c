package broker_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/vfs/errorfs"
)

// stalled is a disk whose syncs wait for the function it returns.
func stalled(t *testing.T, disk *errorfs.FS) (resume func()) {
	t.Helper()
	gate := make(chan struct{})
	disk.SetInjector(func(o errorfs.Op) error {
		if o.Kind == errorfs.Sync {
			<-gate
		}
		return nil
	})
	return func() { close(gate) }
}

// A request that waits for the disk when the broker stops is answered before the
// broker has stopped, and does not outlive it.
func TestStopWhileTheDiskHangs(t *testing.T) {
	disk := errorfs.Wrap(fill(t, 5, true), nil)
	r := run(t, disk)
	resume := stalled(t, disk)
	answered := make(chan string, 1)
	go func() { // Ends with the answer.
		resp, err := http.Post("http://"+r.broker.HTTPAddr()+"/v1/topics/lines/produce", "application/json",
			strings.NewReader(`{"value_text":"x","partition":0}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answered <- fmt.Sprint(resp.StatusCode, " ", string(text))
	}()
	// The record is written when the log ends behind it; it cannot be durable.
	for r.broker.HTTPAddr() != "" && !written(t, r, 6) {
		if t.Context().Err() != nil {
			t.Fatal("the record was not written")
		}
	}
	r.client.Close()
	begun := time.Now()
	r.stop()
	got := <-answered
	if !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "REQUEST_TIMED_OUT") || !strings.Contains(got, "before the broker stopped") {
		t.Errorf("the answer is %q after %v", got, time.Since(begun))
	}
	select {
	case err := <-r.ended:
		t.Errorf("the broker ended before its disk answered: %v", err)
	default:
	}
	resume()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// written reports whether partition 0 ends at an offset.
func written(t *testing.T, r *running, end int) bool {
	t.Helper()
	resp, err := http.Get("http://" + r.broker.HTTPAddr() + "/v1/topics/lines")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(text), fmt.Sprintf(`"log_end_offset":%d,`, end))
}

// An address may have so many connections to the HTTP listener and no more; the
// log and the metrics say so.
func TestConnectionsOfOneAddress(t *testing.T) {
	r := runWith(t, fill(t, 1, true), map[string]string{"max.connections.per.ip": "2"})
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", r.broker.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(c net.Conn, path string) (string, error) {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			return "", err
		}
		answer := make([]byte, 1<<20)
		n := 0
		for !strings.Contains(string(answer[:n]), "# HELP strandline_http_request") { // Behind what is looked for.
			more, err := c.Read(answer[n:])
			n += more
			if err != nil {
				return "", err
			}
			if path == "/healthz" {
				break
			}
		}
		return string(answer[:n]), nil
	}
	first, second := dial(), dial()
	for _, c := range []net.Conn{first, second} {
		if got, err := ask(c, "/healthz"); err != nil || !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if got, err := ask(dial(), "/healthz"); err != nil || !strings.HasPrefix(got, "HTTP/1.1 429 ") ||
		!strings.Contains(got, "\r\nRetry-After: 1\r\n") || !strings.Contains(got, `"code":"THROTTLING_QUOTA_EXCEEDED"`) {
		t.Errorf("a third connection is answered: %q, %v", got, err)
	}
	for end := time.Now().Add(10 * time.Second); len(r.log.With("HTTP connection refused")) == 0; {
		if time.Now().After(end) {
			t.Fatal("no line in the log") // It comes a moment after the connection is closed.
		}
		<-time.After(time.Millisecond)
	}
	if lines := r.log.With("HTTP connection refused"); len(lines) != 1 || !strings.Contains(lines[0], "limit=max.connections.per.ip") {
		t.Errorf("log: %q", lines)
	}
	got, err := ask(first, "/metrics")
	if want := `strandline_http_connections_refused_total{limit="max.connections.per.ip"} 1`; err != nil || !strings.Contains(got, want) {
		t.Errorf("no %s in the metrics: %v", want, err)
	}
	_ = second.Close()
	for { // The broker sees a moment later that it is closed.
		if got, err := ask(dial(), "/healthz"); err == nil && strings.HasPrefix(got, "HTTP/1.1 200") {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the place of a closed connection is not free")
		}
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
