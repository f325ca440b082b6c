package broker

import (
	"net/http"
	"os"

	"github.com/strandline/strandline/internal/express"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/metrics"
)

// counts are what the metrics room counts itself; the other rooms count on their
// own.
type counts struct {
	events metrics.Events
	http   metrics.HTTP
}

// serveHTTP puts together what the HTTP listener answers: the API, counted, and
// /metrics. What appends records goes by the express lane where it can.
func (b *Broker) serveHTTP() {
	mux := http.NewServeMux()
	mux.Handle("/", b.httpAPI)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { b.metrics.ServeHTTP(w, r) })
	b.http.handle(b.counts.http.Wrap(mux), express.Route{
		Method: http.MethodPost, Prefix: "/v1/topics/", Param: "topic", Suffix: "/produce",
		Pattern: httpapi.ProduceRoute, Handler: b.counts.http.Wrap(b.httpAPI.Produce()),
	})
}

// openMetrics makes what /metrics shows of all the other parts, and opens it to the
// HTTP listener.
func (b *Broker) openMetrics() error {
	if b.http == nil {
		return nil
	}
	b.serveHTTP()
	b.metrics = metrics.Handler(metrics.Sources{
		Self: b.api.NodeID, Rack: b.config.Rack, Ready: b.ready, Wire: b.wire, API: b.api,
		Partitions: b.partitions, Image: b.control.Image, Quorum: b.quorum.Status,
		Groups: func(fn func(*group.Shard)) error {
			return b.groups.View(func(_ int32, m *group.Shard) { fn(m) })
		},
		Disk: b.disk, Usage: b.config.FS.Usage, Settings: b.settings, Now: b.now,
		ProcessIO: func() ([]byte, error) { return os.ReadFile("/proc/self/io") },
		Events:    &b.counts.events, HTTP: &b.counts.http, HTTPConnections: b.http.listener.Stats,
		Keys: b.keys, Sessions: b.sessions,
	})
	return nil
}

// DebugAddr returns the address of the pprof listener, or "".
func (b *Broker) DebugAddr() string { return b.debug.addr() }
