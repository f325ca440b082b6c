package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

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

func TestHealth(t *testing.T) {
	b := &broker{ready: make(chan struct{})}
	h := httpapi.New(b)
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
	httpapi.New(b).ServeHTTP(w, httptest.NewRequest("GET", "/v1/doctor", nil))
	want := `{"unreached_clients":[{"client":"172.18.0.1","client_id":"app","advertised":"kafka:9092",` +
		`"since":"1970-01-01T00:00:00Z","asked":3}],"corrupt":[` +
		strings.TrimSuffix(strings.Repeat(`{"topic":"orders","partition":2,"file":"topics/x-2/0.log","position":77,`+
			`"reason":"CRC does not match","since":"1970-01-01T00:00:00Z"},`, httpapi.MaxCorrupt), ",") +
		`],"corrupt_total":101}` + "\n"
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
