package metrics

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/strandline/strandline/internal/api"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/relay"
	"github.com/strandline/strandline/internal/session"
	"github.com/strandline/strandline/internal/tally"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/internal/wire"
)

// Sources are the rooms that a scrape reads.
type Sources struct {
	Self       kafka.BrokerID
	Rack       string
	Ready      <-chan struct{} // Closed when the broker serves.
	Wire       *wire.Server
	API        *api.Services
	Partitions *partition.Table
	Image      func() *metadata.Image
	Quorum     func() quorum.Status
	// Groups calls fn with each shard of groups that is led here.
	Groups func(fn func(*group.Shard)) error
	// Transactions calls fn with each shard of transactions that is led here.
	Transactions func(fn func(*txn.Shard)) error
	Disk         *commitlog.Dir
	// Usage returns free and total bytes of the file system.
	Usage    func() (free, total uint64, err error)
	Settings func() *config.Broker
	Now      func() time.Time
	// ProcessIO returns what Linux shows as /proc/self/io.
	ProcessIO func() ([]byte, error)
	// Keys are the idempotency keys that are kept.
	Keys *keyring.Rings
	// Sessions are the members of groups that read over HTTP.
	Sessions *session.Sessions
	// HTTPConnections tells of the HTTP listener.
	HTTPConnections func() netx.LimitStats
	// PassedOn tells of the HTTP requests that other brokers were sent.
	PassedOn func() relay.Stats
	// Events and HTTP are what this room's own types have counted.
	Events *Events
	HTTP   *HTTP

	detail Detail
}

// Detail says how much a scrape tells.
type Detail bool

// The values of Detail.
const (
	Sums       Detail = false // No series of single partitions.
	Partitions Detail = true  // Those too, up to metrics.partition.series.max.
)

// New returns all of the table's metrics, and those of the Go runtime and the
// process by the names that Prometheus' own library gives them. Nothing is
// registered anywhere else.
func New(s Sources, detail Detail) *Gatherer {
	g := &Gatherer{registry: prometheus.NewRegistry()}
	g.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	for _, c := range s.collectors(detail) {
		g.registry.MustRegister(c)
		g.many = append(g.many, c)
	}
	return g
}

// collectors returns the sections of the table. One of them collects at a time.
func (s Sources) collectors(detail Detail) []*collector {
	d := newDescs()
	s.detail = detail
	lag := &lags{sources: s}
	return []*collector{
		{descs: d, metrics: clusterMetrics(), read: s.collectCluster},
		{descs: d, metrics: append(topicMetrics(), partitionMetrics()...), read: s.collectPartitions},
		{descs: d, metrics: groupMetrics(), read: lag.collect},
		{descs: d, metrics: transactionMetrics(), read: s.collectTransactions},
		{descs: d, metrics: append(requestMetrics(), connectionMetrics()...), read: s.collectRequests},
		{descs: d, metrics: append(httpMetrics(), sessionMetrics()...), read: s.collectHTTP},
		{descs: d, metrics: storageMetrics(), read: s.collectStorage},
	}
}

// maxScrapes bounds the scrapes that run or wait at a time, so that a client that
// asks again and again cannot keep the broker busy.
const maxScrapes = 3

// scrapeTimeout is how long a client may take to take a scrape.
const scrapeTimeout = 10 * time.Second

// textFormat is the type of what a scrape answers with.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// Handler answers GET /metrics, with partitions=no in the query without the
// series of single partitions. The text format is the only one, and nothing is
// compressed, because a scrape of thousands of partitions would cost more in that
// than in all else.
func Handler(s Sources) http.Handler {
	all, sums := New(s, Partitions), New(s, Sums)
	running := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			http.Error(w, "so many scrapes are running already: "+strconv.Itoa(maxScrapes), http.StatusServiceUnavailable)
			return
		}
		g := all
		if r.URL.Query().Get("partitions") == "no" {
			g = sums
		}
		text, err := g.AppendText(nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", textFormat)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout))
		_, _ = w.Write(text) // A client that went away needs no answer.
	})
}

func (s *scrape) gauge(name string, value float64, namesAndValues ...string) {
	s.put(name, value, pairs(namesAndValues...))
}

func (s *scrape) put(name string, value float64, labels []*dto.LabelPair) {
	s.to <- &sample{desc: s.descs[name], labels: labels, value: value}
}

func (s *scrape) counter(name string, value float64, namesAndValues ...string) {
	s.to <- &sample{desc: s.descs[name], labels: pairs(namesAndValues...), value: value, counter: true}
}

func (s *scrape) histogram(name string, h tally.Histogram, values ...string) {
	buckets := make(map[float64]uint64, len(h.Buckets))
	for _, b := range h.Buckets {
		buckets[b.UpperBound] = b.Count
	}
	s.to <- prometheus.MustNewConstHistogram(s.descs[name], h.Count, h.Sum, buckets, values...)
}

func (s *Sources) collectCluster(to *scrape) {
	version, revision := build()
	to.gauge("strandline_build_info", 1, "version", version, "revision", revision, "go_version", runtime.Version())
	image := s.Image()
	to.gauge("strandline_broker_info", 1, "cluster_id", image.ClusterID(), "node_id", number(s.Self), "rack", s.Rack)
	ready := 0.0
	select {
	case <-s.Ready:
		ready = 1
	default:
	}
	to.gauge("strandline_broker_ready", ready)
	q := s.Quorum()
	active := 0.0
	if q.Leader == s.Self {
		active = 1
	}
	to.gauge("strandline_controller_active", active)
	to.gauge("strandline_quorum_leader", float64(q.Leader))
	to.gauge("strandline_quorum_term", float64(q.Term))
	to.gauge("strandline_quorum_committed_index", float64(q.CommitIndex))
	to.gauge("strandline_quorum_applied_index", float64(q.AppliedIndex))
	fenced := 0
	for _, b := range image.Brokers() {
		if b.Fenced {
			fenced++
		}
	}
	to.gauge("strandline_cluster_brokers", float64(len(image.Brokers())-fenced))
	to.gauge("strandline_cluster_brokers_fenced", float64(fenced))
	to.gauge("strandline_cluster_topics", float64(image.TopicCount()))
	to.gauge("strandline_cluster_partitions", float64(image.PartitionCount()))
	to.gauge("strandline_cluster_partitions_leaderless", float64(leaderless(image)))
	to.counter("strandline_isr_changes_total", float64(s.Events.isrShrinks.Load()), "change", "shrink")
	to.counter("strandline_isr_changes_total", float64(s.Events.isrExpansions.Load()), "change", "expand")
}

func leaderless(image *metadata.Image) int {
	n := 0
	for t := range image.AllTopics() {
		for i := range t.Partitions {
			if t.Partitions[i].Leader == kafka.NoBroker {
				n++
			}
		}
	}
	return n
}

// build returns what the Go toolchain has written into the binary.
func build() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel", ""
	}
	version = info.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}
