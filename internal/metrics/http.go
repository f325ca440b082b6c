package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/tally"
)

// HTTP counts requests over HTTP. The zero value is ready for use.
type HTTP struct {
	routes   sync.Map // Of route to *tally.Durations.
	statuses sync.Map // Of routeStatus to *atomic.Uint64.
}

// routeStatus is a route and how it was answered.
type routeStatus struct {
	route  string
	status int
}

// noRoute stands for requests that no route takes: what strangers ask for must
// not become labels.
const noRoute = "none"

// Wrap counts what next answers. The route is the pattern that an
// http.ServeMux below found.
func (h *HTTP) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		s := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { h.note(r.Pattern, s.status, time.Since(began)) }() // Also if the handler panics.
		next.ServeHTTP(s, r)
	})
}

func (h *HTTP) note(route string, status int, took time.Duration) {
	if route == "" || route == "/" {
		route = noRoute
	}
	d, ok := h.routes.Load(route)
	if !ok {
		d, _ = h.routes.LoadOrStore(route, &tally.Durations{})
	}
	d.(*tally.Durations).Add(took)
	key := routeStatus{route, status}
	n, ok := h.statuses.Load(key)
	if !ok {
		n, _ = h.statuses.LoadOrStore(key, &atomic.Uint64{})
	}
	n.(*atomic.Uint64).Add(1)
}

// collectHTTP tells of the requests and the connections that they come on, of the
// keys that make them safe to repeat, and of the sessions that they read by.
func (s *Sources) collectHTTP(to *scrape) {
	s.HTTP.collect(to)
	c := s.HTTPConnections()
	to.gauge("strandline_http_connections", float64(c.Open))
	to.counter("strandline_http_connections_accepted_total", float64(c.Accepted))
	to.counter("strandline_http_connections_refused_total", float64(c.RefusedInAll), "limit", "max.connections")
	to.counter("strandline_http_connections_refused_total", float64(c.RefusedByAddress), "limit", "max.connections.per.ip")
	on := s.PassedOn()
	to.counter("strandline_http_passed_on_requests_total", float64(on.Answered), "outcome", "answered")
	to.counter("strandline_http_passed_on_requests_total", float64(on.Unsent), "outcome", "unsent")
	to.counter("strandline_http_passed_on_requests_total", float64(on.Lost), "outcome", "lost")
	s.collectKeys(to)
	s.collectSessions(to)
}

// collectKeys tells of the idempotency keys: by topic, the sum of all partitions
// and the oldest of any.
func (s *Sources) collectKeys(to *scrape) {
	now := s.Now()
	keys, oldest := map[string]int{}, map[string]time.Duration{}
	for _, k := range s.Keys.Kept(now) {
		keys[k.Topic] += k.Keys
		oldest[k.Topic] = max(oldest[k.Topic], now.Sub(k.Oldest))
	}
	for topic, n := range keys {
		to.gauge("strandline_idempotency_kept_keys", float64(n), "topic", topic)
		to.gauge("strandline_idempotency_oldest_key_age_seconds", oldest[topic].Seconds(), "topic", topic)
	}
	room := s.Keys.Room()
	to.gauge("strandline_idempotency_keys", float64(room.Keys))
	to.gauge("strandline_idempotency_keys_limit", float64(room.Limit))
	to.counter("strandline_idempotency_evicted_keys_total", float64(room.EvictedByPartition), "limit", "partition")
	to.counter("strandline_idempotency_evicted_keys_total", float64(room.EvictedByBroker), "limit", "broker")
}

func (s *Sources) collectSessions(to *scrape) {
	st := s.Sessions.Stats()
	to.gauge("strandline_http_sessions", float64(st.Open))
	to.gauge("strandline_http_sessions_limit", float64(st.Limit))
	to.counter("strandline_http_sessions_begun_total", float64(st.Begun))
	to.counter("strandline_http_sessions_refused_total", float64(st.Refused))
	to.counter("strandline_http_session_joins_total", float64(st.FirstJoins), "kind", "first")
	to.counter("strandline_http_session_joins_total", float64(st.Rejoins), "kind", "rejoin")
	to.counter("strandline_http_sessions_ended_total", float64(st.Expired), "reason", "expired")
	to.counter("strandline_http_sessions_ended_total", float64(st.Fenced), "reason", "fenced")
	to.counter("strandline_http_sessions_ended_total", float64(st.Failed), "reason", "failed")
}

func (h *HTTP) collect(to *scrape) {
	h.statuses.Range(func(key, n any) bool {
		k := key.(routeStatus)
		to.counter("strandline_http_requests_total", float64(n.(*atomic.Uint64).Load()),
			"route", k.route, "status", strconv.Itoa(k.status))
		return true
	})
	h.routes.Range(func(route, d any) bool {
		to.histogram("strandline_http_request_duration_seconds", d.(*tally.Durations).Read(), route.(string))
		return true
	})
}

// statusWriter notes the status of an answer. What else a ResponseWriter can do
// is reached through Unwrap.
type statusWriter struct {
	http.ResponseWriter
	status  int
	written bool
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if !w.written && status >= http.StatusOK {
		w.status, w.written = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher for streams.
func (w *statusWriter) Flush() {
	w.written = true
	_ = http.NewResponseController(w.ResponseWriter).Flush() // A writer that cannot flush holds nothing back.
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
