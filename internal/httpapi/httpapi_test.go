package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/strandline/strandline/internal/httpapi"
)

func TestHealth(t *testing.T) {
	ready := false
	h := httpapi.New(func() bool { return ready })
	status := func(method, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code
	}
	for _, c := range []struct {
		ready  bool
		method string
		path   string
		want   int
	}{
		{false, "GET", "/healthz", http.StatusOK},
		{false, "GET", "/readyz", http.StatusServiceUnavailable},
		{true, "GET", "/readyz", http.StatusOK},
		{true, "POST", "/readyz", http.StatusMethodNotAllowed},
		{true, "GET", "/debug/pprof/", http.StatusNotFound},
	} {
		ready = c.ready
		if got := status(c.method, c.path); got != c.want {
			t.Errorf("%s %s with ready=%v: %d, want %d", c.method, c.path, c.ready, got, c.want)
		}
	}
}

func TestDebug(t *testing.T) {
	w := httptest.NewRecorder()
	httpapi.Debug().ServeHTTP(w, httptest.NewRequest("GET", "/debug/pprof/", nil))
	if w.Code != http.StatusOK {
		t.Errorf("pprof index: %d", w.Code)
	}
}
