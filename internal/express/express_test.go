package express_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/express"
	"github.com/strandline/strandline/internal/netx"
)

const pattern = "POST /v1/topics/{topic}/produce"

// echo answers with all that it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("X-Topic", r.PathValue("topic"))
	w.WriteHeader(http.StatusAccepted)
	_, _ = fmt.Fprintf(w, "%s %s %s %s %s %d %v %q", r.Method, r.Host, r.URL, r.RequestURI, r.Pattern, r.ContentLength, r.Header, body)
}

// pass lets time pass, in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func routes(h http.HandlerFunc) []express.Route {
	return []express.Route{{
		Method: "POST", Prefix: "/v1/topics/", Suffix: "/produce", Param: "topic", Pattern: pattern, Handler: h,
	}}
}

// world is a lane, and net/http beside it.
type world struct {
	t     *testing.T
	dial  func() net.Conn
	taken *sync.Map // Paths of the requests that the lane answered itself.
	stop  context.CancelFunc
	ended chan error
}

// start runs a lane before net/http, with h as the handler of both; without routes
// all goes to net/http.
func start(t *testing.T, h http.HandlerFunc, quick bool) *world {
	t.Helper()
	network := netx.NewMemory()
	l, err := network.Host("10.0.0.1").Listen(t.Context(), "10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, taken: &sync.Map{}, ended: make(chan error, 1)}
	w.dial = func() net.Conn {
		c, err := network.Host("10.0.0.2").Dial(t.Context(), "10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	o := express.Options{
		Listener: l, IdleTimeout: time.Minute, RequestTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
	}
	if quick {
		o.Routes = routes(func(rw http.ResponseWriter, r *http.Request) {
			w.taken.Store(r.PathValue("topic"), true)
			h(rw, r)
		})
	}
	lane := express.New(o)
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, h)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 3 * time.Second, ReadTimeout: 20 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	var all sync.WaitGroup
	all.Go(func() { _ = server.Serve(lane.Rest()) }) // Ends with Run.
	go func() {                                      // Ends with ctx.
		err := lane.Run(ctx, 2*time.Second)
		_ = server.Close()
		all.Wait()
		w.ended <- err
	}()
	return w
}

func (w *world) end() {
	w.t.Helper()
	w.stop()
	if err := <-w.ended; err != nil {
		w.t.Error(err)
	}
}

// exchange sends bytes and returns the status lines and bodies of n answers.
func exchange(t *testing.T, c net.Conn, request string, n int) (answers []string) {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return append(answers, "no answer")
		}
		body, err := io.ReadAll(resp.Body)
		answers = append(answers, fmt.Sprint(resp.Status, " ", resp.Header.Get("X-Topic"), " ", string(body), err, " ",
			resp.Header.Get("Date") != "", resp.Close))
	}
	return answers
}

func post(topic, fields, body string) string {
	return fmt.Sprintf("POST /v1/topics/%s/produce HTTP/1.1\r\nHost: localhost:8080\r\n%sContent-Length: %d\r\n\r\n%s",
		topic, fields, len(body), body)
}

// Whatever is sent, the answers are those of net/http alone; only what is plain is
// answered by the lane.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	plain := post("a", "User-Agent: curl/8\r\nAccept: */*\r\nContent-Type: application/json\r\n", `{"value":"eA=="}`)
	for name, c := range map[string]struct {
		request string
		answers int
		taken   bool
	}{
		"plain":               {plain, 1, true},
		"no body":             {post("a", "", ""), 1, true},
		"keep-alive":          {post("a", "Connection: Keep-Alive\r\n", "x"), 1, true},
		"fields twice":        {post("a", "X-A: 1\r\nx-a: 2\r\n", "x"), 1, true},
		"empty and blank":     {post("a", "X-A:\r\nX-B: \t \r\nX-C:c  \r\n", "x"), 1, true},
		"two, one write":      {plain + post("b", "", "xyz"), 2, true},
		"three of one head":   {plain + plain + plain, 3, true},
		"then another path":   {plain + "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" + plain, 3, true},
		"dots":                {post("..", "", "x"), 1, false},
		"escape":              {post("a%62", "", "x"), 1, false},
		"slash":               {post("a/b", "", "x"), 1, false},
		"query":               {"POST /v1/topics/a/produce?key=k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 1, false},
		"absolute":            {"POST http://x/v1/topics/a/produce HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", 1, false},
		"get":                 {"GET /v1/topics/a/produce HTTP/1.1\r\nHost: x\r\n\r\n", 1, false},
		"1.0":                 {"POST /v1/topics/a/produce HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", 1, false},
		"close":               {post("a", "Connection: close\r\n", "x"), 1, false},
		"chunked":             {"POST /v1/topics/a/produce HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 1, false},
		"both lengths":        {post("a", "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n"), 1, false},
		"two lengths":         {post("a", "Content-Length: 1\r\n", "x"), 1, false},
		"signed length":       {"POST /v1/topics/a/produce HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx", 1, false},
		"no length":           {"POST /v1/topics/a/produce HTTP/1.1\r\nHost: x\r\n\r\n", 1, false},
		"no host":             {"POST /v1/topics/a/produce HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 1, false},
		"two hosts":           {post("a", "Host: y\r\n", "x"), 1, false},
		"folded":              {post("a", "X-A: 1\r\n 2\r\n", "x"), 1, false},
		"space before colon":  {post("a", "X-A : 1\r\n", "x"), 1, false},
		"no colon":            {post("a", "X-A\r\n", "x"), 1, false},
		"bare line feeds":     {"POST /v1/topics/a/produce HTTP/1.1\nHost: x\nContent-Length: 1\n\nx", 1, false},
		"control character":   {post("a", "X-A: \x01\r\n", "x"), 1, false},
		"expect":              {post("a", "Expect: nothing\r\n", "x"), 1, false},
		"long head":           {post("a", "X-A: "+strings.Repeat("a", 5000)+"\r\n", "x"), 1, false},
		"long body":           {post("a", "", strings.Repeat("x", 20_000)), 1, false},
		"not HTTP":            {"\x16\x03\x01\x02\x00", 1, false},
		"a page of elsewhere": {post("a", "Origin: https://example.com\r\n", "x"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, quick := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, echo, quick)
					defer w.end()
					conn := w.dial()
					defer conn.Close()
					got := exchange(t, conn, c.request, c.answers)
					if !quick {
						want = got
						return
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("the answers differ (-net/http +lane):\n%s", diff)
					}
					if _, taken := w.taken.Load("a"); taken != c.taken {
						t.Errorf("taken is %v", taken)
					}
				})
			}
		})
	}
}

// A request that comes in pieces is answered as one in one piece.
func TestPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, echo, true)
		defer w.end()
		c := w.dial()
		defer c.Close()
		request := post("a", "X-A: "+strings.Repeat("a", 3000)+"\r\n", strings.Repeat("b", 9000)) + post("b", "", "x")
		go func() { // Ends with the request.
			for len(request) > 0 {
				pass(time.Millisecond)
				n := min(len(request), 100)
				_, _ = io.WriteString(c, request[:n])
				request = request[n:]
			}
		}()
		got := exchange(t, c, "", 2)
		if !strings.Contains(got[0], `bbbb"`) || !strings.HasSuffix(got[1], `"x"<nil> true false`) {
			t.Errorf("%q", got)
		}
		for _, topic := range []string{"a", "b"} {
			if _, taken := w.taken.Load(topic); !taken {
				t.Errorf("%s was not taken", topic)
			}
		}
	})
}

// A request that does not come to its end is net/http's to refuse, a connection
// that asks for nothing is closed, and one that goes on asking is not.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, echo, true)
		defer w.end()
		ends := func(request string) time.Duration {
			c := w.dial()
			defer c.Close()
			begun := time.Now()
			_, _ = io.WriteString(c, request)
			_, _ = io.ReadAll(c)
			return time.Since(begun)
		}
		for request, want := range map[string]time.Duration{
			"":                              5 * time.Second,
			"POST /v1/topics/a/pro":         8 * time.Second, // net/http's time for the head, on top.
			post("a", "", "xyz")[:80]:       25 * time.Second,
			post("a", "", "x"):              time.Minute,
			"GET / HTTP/1.1\r\nHost: x\r\n": 3 * time.Second,
		} {
			if got := ends(request); got != want {
				t.Errorf("%.30q: ended after %v, want %v", request, got, want)
			}
		}
		c := w.dial()
		defer c.Close()
		for range 10 {
			if got := exchange(t, c, post("a", "", "x"), 1); !strings.HasPrefix(got[0], "202") {
				t.Fatalf("%q", got)
			}
			pass(50 * time.Second)
		}
	})
}

// A handler may end its connection without an answer, as net/http lets it.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.PathValue("topic") == "bad" {
				_, _ = io.WriteString(rw, "half an ans")
				panic(http.ErrAbortHandler)
			}
			echo(rw, r)
		}, true)
		defer w.end()
		c := w.dial()
		defer c.Close()
		got := exchange(t, c, post("a", "", "x")+post("bad", "", "x")+post("a", "", "x"), 2)
		if !strings.HasPrefix(got[0], "202") || got[1] != "no answer" {
			t.Errorf("%q", got)
		}
	})
}

// Stopping closes who asks for nothing at once, answers what has begun, and waits
// no longer than the grace.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(rw http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			if r.PathValue("topic") == "slow" {
				pass(time.Second)
			}
			echo(rw, r)
		}, true)
		idle, asking, partial := w.dial(), w.dial(), w.dial()
		_, _ = io.WriteString(asking, post("slow", "", "x"))
		_, _ = io.WriteString(partial, "POST /v1/topics/a/")
		synctest.Wait()
		begun := time.Now()
		w.stop()
		if _, err := idle.Read(make([]byte, 1)); err == nil || time.Since(begun) != 0 {
			t.Errorf("an idle connection: %v after %v", err, time.Since(begun))
		}
		got := exchange(t, asking, "", 1)
		if !strings.HasPrefix(got[0], "202") || !strings.HasSuffix(got[0], "true") || time.Since(begun) != time.Second {
			t.Errorf("%q after %v", got, time.Since(begun))
		}
		if err := <-w.ended; err != nil || time.Since(begun) != 2*time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(begun))
		}
		if _, err := partial.Read(make([]byte, 1)); err == nil {
			t.Error("half a request was answered")
		}
	})
}
