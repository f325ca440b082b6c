package broker

import (
	"net/http"
	"os"

	"github.com/strandline/strandline/internal/express"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/httpapi"
	"github.com/strandline/strandline/internal/metrics"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/relay"
	"github.com/strandline/strandline/internal/txn"
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
	b.http.handle(b.counts.http.Wrap(mux), b.produceRoute(b.counts.http.Wrap(b.httpAPI.Produce())))
}

// produceRoute is what goes by the express lane.
func (b *Broker) produceRoute(h http.Handler) express.Route {
	return express.Route{
		Method: http.MethodPost, Prefix: "/v1/topics/", Param: "topic", Suffix: "/produce",
		Pattern: httpapi.ProduceRoute, Handler: h,
	}
}

// openMetrics makes what /metrics shows of all the other parts, and opens it to the
// HTTP listener and to the embedder's registry.
func (b *Broker) openMetrics() (err error) {
	if b.http != nil {
		b.serveHTTP()
		b.metrics = metrics.Handler(b.metricsSources())
	}
	if b.config.Metrics != nil {
		b.releaseMetrics, err = metrics.Register(b.config.Metrics, b.metricsSources())
	}
	return err
}

func (b *Broker) metricsSources() metrics.Sources {
	connections := func() netx.LimitStats { return netx.LimitStats{} }
	if b.http != nil {
		connections = b.http.listener.Stats
	}
	passedOn := func() relay.Stats { return relay.Stats{} }
	if b.cluster != nil {
		passedOn = b.cluster.relay.Stats
	}
	return metrics.Sources{
		Self: b.api.NodeID, Rack: b.config.Rack, Ready: b.ready, Wire: b.wire, API: b.api,
		Partitions: b.partitions, Image: b.control.Image, Quorum: b.quorum.Status,
		Groups: func(fn func(*group.Shard)) error {
			return b.groups.View(func(_ int32, m *group.Shard) { fn(m) })
		},
		Transactions: func(fn func(*txn.Shard)) error {
			return b.txns.View(func(_ int32, m *txn.Shard) { fn(m) })
		},
		Disk: b.disk, Usage: b.config.FS.Usage, Settings: b.settings, Now: b.now,
		ProcessIO: func() ([]byte, error) { return os.ReadFile("/proc/self/io") },
		Events:    &b.counts.events, HTTP: &b.counts.http, HTTPConnections: connections,
		PassedOn: passedOn,
		Keys:     b.keys, Sessions: b.sessions,
	}
}

// DebugAddr returns the address of the pprof listener, or "".
func (b *Broker) DebugAddr() string { return b.debug.addr() }
