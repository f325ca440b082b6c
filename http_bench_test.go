package strandline_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline"
)

// rawHTTP is a connection on which requests go out as they are, so that the
// client beside costs little.
type rawHTTP struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialHTTP(t testing.TB, addr string) *rawHTTP {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &rawHTTP{conn, bufio.NewReaderSize(conn, 16<<10)}
}

// post sends a request and reads the answer, which must be of status 200.
func (c *rawHTTP) post(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	length, ok := 0, false
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first:
			ok = bytes.HasPrefix(line, []byte("HTTP/1.1 200"))
		case len(line) == 2 && ok:
			_, err := c.in.Discard(length)
			return err
		case len(line) == 2:
			body := make([]byte, length)
			_, err := io.ReadFull(c.in, body)
			return fmt.Errorf("refused: %s, %w", body, err)
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
}

// exchange is post for an answer that comes in one piece, as short ones do.
func (c *rawHTTP) exchange(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	var answer [1 << 10]byte
	n, err := c.conn.Read(answer[:])
	if err == nil && (!bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 200")) || !bytes.HasSuffix(answer[:n], []byte("}\n"))) {
		err = fmt.Errorf("the answer is %q", answer[:n])
	}
	return err
}

func requestOf(body string) []byte { return requestWith("", body) }

func requestWith(field, body string) []byte {
	return fmt.Appendf(nil, "POST /v1/topics/bench/produce HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"%sContent-Length: %d\r\n\r\n%s", field, len(body), body)
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func startBench(b *testing.B) string {
	b.Helper()
	srv, err := strandline.Start(b.Context(), strandline.Config{
		DataDir: b.TempDir(), HTTPListen: "127.0.0.1:0", Settings: map[string]string{"num.partitions": "6"},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	return srv.HTTPAddr()
}

// BenchmarkProduceHTTP is the way of records over HTTP, synced to disk, the
// client's CPU included.
func BenchmarkProduceHTTP(b *testing.B) {
	value := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("0123456789abcdef"), 64))
	record := `{"key":"user-8841","value":"` + value + `"}`
	b.Run("records=100", func(b *testing.B) {
		c := dialHTTP(b, startBench(b))
		request := requestOf(`{"records":[` + strings.Repeat(record+",", 99) + record + `]}`)
		before := cpuTime(b)
		for b.Loop() {
			if err := c.post(request); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N*100), "cpu-us/record")
	})
	single := func(name string, request func(i int64) []byte) {
		b.Run(name, func(b *testing.B) {
			addr := startBench(b)
			const connections = 256 // Enough to have work while others wait for the disk.
			var next atomic.Int64
			before, start := cpuTime(b), time.Now()
			b.SetParallelism(connections / 2)
			b.RunParallel(func(p *testing.PB) {
				c := dialHTTP(b, addr)
				for p.Next() {
					if err := c.exchange(request(next.Add(1))); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-us/record")
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "records/s")
		})
	}
	one := requestOf(record)
	single("records=1", func(int64) []byte { return one })
	// A field that the express lane leaves to net/http.
	left := requestWith("Cache-Control: no-cache\r\n", record)
	single("records=1/by=net-http", func(int64) []byte { return left })
	single("idempotent", func(i int64) []byte {
		return requestOf(fmt.Sprintf(`{"value":"%s","idempotency_key":"k-%d"}`, value, i))
	})
}
