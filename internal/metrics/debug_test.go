package metrics_test

import (
	"net/http"
	"testing"

	"github.com/strandline/strandline"
)

// Health is on the HTTP listener; pprof is there only where --debug-listen says.
func TestHealthAndDebug(t *testing.T) {
	srv, err := strandline.Start(t.Context(), strandline.Config{HTTPListen: "127.0.0.1:0", DebugListen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	plain := newWorld(t, nil).server
	if plain.DebugAddr() != "" {
		t.Errorf("without --debug-listen pprof is at %s", plain.DebugAddr())
	}
	check := func(address, path string, want int) {
		t.Helper()
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("GET %s%s: %s, want %d", address, path, resp.Status, want)
		}
	}
	for _, s := range []*strandline.Server{plain, srv} {
		check(s.HTTPAddr(), "/healthz", http.StatusOK)
		check(s.HTTPAddr(), "/readyz", http.StatusOK)
		check(s.HTTPAddr(), "/metrics", http.StatusOK)
		check(s.HTTPAddr(), "/debug/pprof/", http.StatusNotFound)
	}
	check(srv.DebugAddr(), "/debug/pprof/", http.StatusOK)
	check(srv.DebugAddr(), "/debug/pprof/heap", http.StatusOK)
	check(srv.DebugAddr(), "/metrics", http.StatusNotFound)
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}
