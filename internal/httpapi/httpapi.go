// Package httpapi answers over HTTP what needs no Kafka client. So far that is
// health: /healthz says that the process lives, /readyz that it serves.
//
// It may assume that its handler is called from any number of goroutines. It
// reads no request body. Deliberately absent: a listener; package broker owns
// it, with its time-outs.
package httpapi

import (
	"net/http"
	"net/http/pprof"
)

// New returns the handler. Ready says whether the broker serves.
func New(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready: the broker is starting or stopping", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}

// Debug returns the handler of the debug listener: pprof.
func Debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
