package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/reach"
)

// broker is a broker whose state a test sets.
type broker struct {
	ready   chan struct{}
	missing []reach.Finding
	corrupt []httpapi.Corrupt
}

func (b *broker) Ready() <-chan struct{}     { return b.ready }
func (b *broker) Unreached() []reach.Finding { return b.missing }
func (b *broker) Corrupt() []httpapi.Corrupt { return b.corrupt }
func (b *broker) Health() httpapi.Health {
	return httpapi.Health{Brokers: 1, BrokersDown: []int32{}, Partitions: 2}
}

func TestHealth(t *testing.T) {
	b := &broker{ready: make(chan struct{})}
	h := httpapi.New(b, noServices())
	check := func(method, path string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want {
			t.Errorf("%s %s: %d, want %d", method, path, w.Code, want)
		}
	}
	check("GET", "/healthz", http.StatusOK)
	check("GET", "/readyz", http.StatusServiceUnavailable)
	close(b.ready)
	check("GET", "/readyz", http.StatusOK)
	check("POST", "/readyz", http.StatusMethodNotAllowed)
	check("GET", "/debug/pprof/", http.StatusNotFound)
}

func TestDoctor(t *testing.T) {
	b := &broker{
		missing: []reach.Finding{{
			Client:     reach.Client{Host: "172.18.0.1", ID: "app"},
			Advertised: "kafka:9092", Since: time.Unix(0, 0).UTC(), Asked: 3,
		}},
		corrupt: slices.Repeat([]httpapi.Corrupt{{
			Topic: "orders", Partition: 2, File: "topics/x-2/0.log", Position: 77,
			Reason: "CRC does not match", Since: time.Unix(0, 0).UTC(),
		}}, httpapi.MaxCorrupt+1),
	}
	w := httptest.NewRecorder()
	httpapi.New(b, noServices()).ServeHTTP(w, httptest.NewRequest("GET", "/v1/doctor", nil))
	want := `{"unreached_clients":[{"client":"172.18.0.1","client_id":"app","advertised":"kafka:9092",` +
		`"since":"1970-01-01T00:00:00Z","asked":3}],"corrupt":[` +
		strings.TrimSuffix(strings.Repeat(`{"topic":"orders","partition":2,"file":"topics/x-2/0.log","position":77,`+
			`"reason":"CRC does not match","since":"1970-01-01T00:00:00Z"},`, httpapi.MaxCorrupt), ",") +
		`],"corrupt_total":101,"cluster":{"brokers":1,"brokers_down":[],"partitions":2,"partitions_without_leader":0,` +
		`"partitions_under_min_in_sync":0,"partitions_not_in_sync":0,"partitions_with_one_replica":0,` +
		`"partitions_without_spare":0,"partitions_with_unclean_elections":0,"partitions_moving":0}}` + "\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestDebug(t *testing.T) {
	w := httptest.NewRecorder()
	httpapi.Debug().ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/", nil))
	if w.Code != http.StatusOK {
		t.Errorf("pprof index: %d", w.Code)
	}
}

// noServices are services that no test asks anything.
func noServices() httpapi.Services {
	return httpapi.Services{Broker: config.Default, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
}

// What nothing is served for is said in JSON, with the methods there are.
func TestNothingHere(t *testing.T) {
	h := httpapi.New(&broker{}, noServices())
	for _, c := range []struct {
		method, path string
		status       int
		allow, want  string
	}{
		{"GET", "/v2/x", http.StatusNotFound, "", `{"error":{"code":"RESOURCE_NOT_FOUND","message":"there is nothing at ` +
			`/v2/x: the API is described at /v1/openapi.json","retriable":false}}`},
		{"POST", "/v1/doctor", http.StatusMethodNotAllowed, "GET, HEAD", `{"error":{"code":"INVALID_REQUEST","message":` +
			`"POST is not a method of /v1/doctor: use GET, HEAD","retriable":false}}`},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || w.Body.String() != c.want+"\n" {
			t.Errorf("%s %s: %d, Allow %q, %s", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

// A body that becomes values in memory has a bound of its own, however it comes.
func TestCommandsAreBounded(t *testing.T) {
	h := httpapi.New(&broker{}, noServices())
	for _, announced := range []bool{true, false} {
		r := httptest.NewRequest("POST", "/v1/topics", strings.NewReader(`{"configs":{"`+strings.Repeat("x", 1<<20)+`":""}}`))
		if !announced {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("announced %t: %d %.200s", announced, w.Code, w.Body)
		}
	}
}

// A panic in a handler ends the process, with its stack as the last words: nobody
// knows what a broken invariant has left behind.
func TestPanicsEndTheProcess(t *testing.T) {
	const inside = "STRANDLINE_TEST_PANIC"
	if os.Getenv(inside) != "" {
		srv := httptest.NewServer(httpapi.EndOnPanic(http.HandlerFunc(breakInvariant)))
		_, err := http.Get(srv.URL)
		fmt.Println("the process went on:", err)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanicsEndTheProcess$")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	for _, words := range []string{"GET /: a lock is held twice", "breakInvariant"} {
		if !strings.Contains(string(out), words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	if strings.Contains(string(out), "went on") {
		t.Errorf("%s", out)
	}
}

func breakInvariant(http.ResponseWriter, *http.Request) { panic("a lock is held twice") }

// A handler may end its connection: half an answer must not look whole.
func TestAbort(t *testing.T) {
	srv := httptest.NewServer(httpapi.EndOnPanic(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half an ans"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("half an answer looks whole: %s", body)
	}
}

// A stranger's bytes that make a reader panic are an error of their request, and
// the log has it.
func TestReadersAreGuarded(t *testing.T) {
	var log bytes.Buffer
	services := noServices()
	services.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h := httpapi.Serve(services, func(http.ResponseWriter, *http.Request) error {
		return httpapi.Guarded(func() error { panic("index out of range") })
	})
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != http.StatusInternalServerError || !strings.HasPrefix(w.Body.String(), `{"error":{"code":"UNKNOWN_SERVER_ERROR"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if n := strings.Count(log.String(), "request failed"); n != 1 || !strings.Contains(log.String(), "index out of range") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}
