package express_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/express"
)

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRoundTrip is a request of 1 KiB in base64 and its answer over the
// loopback interface, the client's part included: of the lane, and of net/http as
// it is.
func BenchmarkRoundTrip(b *testing.B) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		_, _ = io.WriteString(w, `{"partition":17,"offset":884213,"timestamp":1730600000,"timestamp_ms":1730600000123}`)
	})
	request := []byte(post("orders", "Content-Type: application/json\r\n", `{"value":"`+strings.Repeat("a", 1368)+`"}`))
	for _, quick := range []bool{true, false} {
		name := map[bool]string{true: "lane", false: "net-http"}[quick]
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			o := express.Options{Listener: l, IdleTimeout: time.Minute, RequestTimeout: time.Minute, WriteTimeout: time.Minute}
			if quick {
				o.Routes = routes(h)
			}
			lane := express.New(o)
			go func() { _ = (&http.Server{Handler: h}).Serve(lane.Rest()) }() // Ends with Run.
			go func() { _ = lane.Run(b.Context(), time.Second) }()            // Ends with the benchmark.
			before := cpuTime(b)
			b.SetParallelism(64)
			b.RunParallel(func(p *testing.PB) {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Error(err)
					return
				}
				defer c.Close()
				in := make([]byte, 4<<10)
				for p.Next() {
					if _, err := c.Write(request); err != nil {
						b.Error(err)
						return
					}
					if _, err := c.Read(in); err != nil { // Small answers come in one piece.
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
		})
	}
}
