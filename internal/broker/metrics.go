package broker

import (
	"net/http"
	"os"

	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/metrics"
)

// counts are what the metrics room counts itself; the other rooms count on their
// own.
type counts struct {
	events metrics.Events
	http   metrics.HTTP
}

// observed is the HTTP listener: what next answers, counted, and /metrics.
func (b *Broker) observed(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { b.metrics.ServeHTTP(w, r) })
	return b.counts.http.Wrap(mux)
}

// openMetrics makes what /metrics shows of all the other parts, and hangs it
// in front of what the HTTP listener answers already.
func (b *Broker) openMetrics() error {
	if b.http == nil {
		return nil
	}
	b.http.server.Handler = b.observed(b.http.server.Handler)
	b.metrics = metrics.Handler(metrics.Sources{
		Self: b.api.NodeID, Rack: b.config.Rack, Ready: b.ready, Wire: b.wire, API: b.api,
		Partitions: b.partitions, Image: b.control.Image, Quorum: b.quorum.Status,
		Groups: func(fn func(*group.Shard)) error {
			return b.groups.View(func(_ int32, m *group.Shard) { fn(m) })
		},
		Disk: b.disk, Usage: b.config.FS.Usage, Settings: b.settings, Now: b.now,
		ProcessIO: func() ([]byte, error) { return os.ReadFile("/proc/self/io") },
		Events:    &b.counts.events, HTTP: &b.counts.http, Keys: b.keys.Kept,
	})
	return nil
}

// DebugAddr returns the address of the pprof listener, or "".
func (b *Broker) DebugAddr() string { return b.debug.addr() }
