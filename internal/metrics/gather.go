package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Gatherer gathers what a scrape shows: what a registry has collected, and the
// series of single partitions, which come in thousands. Those go past the
// registry, whose checks and sorting of each series cost more than all else:
// that their names and labels are right is this room's own business.
type Gatherer struct {
	mu       sync.Mutex // One at a time: collectors keep what they found until then.
	registry *prometheus.Registry
	many     []*collector
}

// Gather implements prometheus.Gatherer.
func (g *Gatherer) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	families, err := g.registry.Gather()
	for _, c := range g.many {
		for _, f := range c.many {
			families = append(families, f)
		}
		c.many = nil
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// collector is one section of the table and what reads it.
type collector struct {
	descs   descs
	metrics []Metric
	read    func(*scrape)
	// many are the series that go past the registry, until a Gatherer has taken
	// them.
	many map[string]*dto.MetricFamily
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- c.descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.many = map[string]*dto.MetricFamily{}
	c.read(&scrape{collector: c, to: ch})
}

// scrape takes the values of one collection.
type scrape struct {
	*collector
	to chan<- prometheus.Metric
}

// series adds a gauge that goes past the registry. Labels are in the order of
// their names.
func (s *scrape) series(name string, value float64, labels []*dto.LabelPair) {
	f := s.many[name]
	if f == nil {
		i := slices.IndexFunc(s.metrics, func(m Metric) bool { return m.Name == name })
		help, kind := s.metrics[i].help(), dto.MetricType_GAUGE
		f = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		s.many[name] = f
	}
	f.Metric = append(f.Metric, &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &value}})
}
