package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// descs are the table in the form that collectors use.
type descs map[string]*prometheus.Desc

func newDescs() descs {
	d := descs{}
	for _, metrics := range All() {
		for _, m := range metrics {
			d[m.Name] = prometheus.NewDesc(m.Name, m.help(), m.Labels, nil)
		}
	}
	return d
}

// help is what # HELP says.
func (m Metric) help() string {
	if m.Kafka == "" {
		return m.Help
	}
	return m.Help + " Kafka: " + m.Kafka + "."
}

// sample is one value on its way to a scrape: what
// prometheus.MustNewConstMetric makes, without its checks and copies.
type sample struct {
	desc    *prometheus.Desc
	labels  []*dto.LabelPair // In the order of their names.
	value   float64
	counter bool
}

// Desc implements prometheus.Metric.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write implements prometheus.Metric.
func (s *sample) Write(m *dto.Metric) error {
	m.Label = s.labels
	if s.counter {
		m.Counter = &dto.Counter{Value: &s.value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}
