package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxMetricsBytes bounds what one broker may answer.
const maxMetricsBytes = 64 << 20

// topSample is what the brokers' metrics say at one moment, added up over the
// brokers.
type topSample struct {
	at     time.Time
	values map[string]float64      // By name and labels, see seriesKey.
	times  map[string]topHistogram // Likewise.
	labels map[string][]string     // Of a name and a label: the values seen, sorted.
}

// topHistogram is a histogram: counts of what was at most a bound.
type topHistogram struct {
	bounds []float64
	counts []float64 // One more than bounds: all of it.
}

// seriesKey names a series; labels come as names and values in turn, by name.
func seriesKey(name string, labels ...string) string {
	return name + "\x00" + strings.Join(labels, "\x00")
}

// sample asks all brokers.
func (t *top) sample(ctx context.Context) (topSample, error) {
	s := newTopSample(t.now())
	for _, address := range t.addresses {
		families, err := t.fetchMetrics(ctx, address)
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		if err != nil {
			return s, newFailure(exitUnreachable, "no metrics from %s: %w", address, err).
				hint("Is it the address of --http-listen? Say another with --http HOST:PORT.")
		}
		s.add(families)
	}
	s.tidy()
	return s, nil
}

func newTopSample(at time.Time) topSample {
	return topSample{
		at: at, values: map[string]float64{}, times: map[string]topHistogram{}, labels: map[string][]string{},
	}
}

// tidy sorts the labels once everything was added.
func (s *topSample) tidy() {
	for key := range s.labels {
		slices.Sort(s.labels[key])
		s.labels[key] = slices.Compact(s.labels[key])
	}
}

func (a *app) fetchMetrics(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := a.get(ctx, address, "/metrics?partitions=no")
	if err != nil {
		return nil, unwrapURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxMetricsBytes))
	if err != nil {
		return nil, fmt.Errorf("not Prometheus' text format: %w", err)
	}
	if families["strandline_connections"] == nil {
		return nil, errors.New("these are not a Strandline broker's metrics")
	}
	return families, nil
}

// unwrapURL takes the URL off an error of a client: it says nothing new.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (s *topSample) add(families map[string]*dto.MetricFamily) {
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := make([]string, 0, 2*len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName(), l.GetValue())
				of := seriesKey(name, l.GetName())
				s.labels[of] = append(s.labels[of], l.GetValue())
			}
			key := seriesKey(name, labels...)
			if h := m.GetHistogram(); h != nil {
				s.times[key] = s.times[key].plus(h)
				continue
			}
			s.values[key] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
}

// plus adds a histogram of the same buckets.
func (h topHistogram) plus(add *dto.Histogram) topHistogram {
	var bounds, counts []float64
	for _, b := range add.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			bounds, counts = append(bounds, b.GetUpperBound()), append(counts, float64(b.GetCumulativeCount()))
		}
	}
	counts = append(counts, float64(add.GetSampleCount()))
	if slices.Equal(bounds, h.bounds) {
		for i := range counts {
			counts[i] += h.counts[i]
		}
	}
	return topHistogram{bounds, counts}
}

// since returns what was added since an older state.
func (h topHistogram) since(old topHistogram) topHistogram {
	if len(old.counts) != len(h.counts) || len(h.counts) == 0 || old.counts[len(old.counts)-1] > h.counts[len(h.counts)-1] {
		return h // New, or the broker was started again.
	}
	d := topHistogram{bounds: h.bounds, counts: make([]float64, len(h.counts))}
	for i := range h.counts {
		d.counts[i] = h.counts[i] - old.counts[i]
	}
	return d
}

// count returns how many were counted.
func (h topHistogram) count() float64 {
	if len(h.counts) == 0 {
		return 0
	}
	return h.counts[len(h.counts)-1]
}

// quantile returns a quantile as Prometheus' histogram_quantile does, in
// seconds; -1 if nothing was counted.
func (h topHistogram) quantile(q float64) float64 {
	total := h.count()
	if total <= 0 {
		return -1
	}
	want := q * total
	below, from := 0.0, 0.0
	for i, bound := range h.bounds {
		if n := h.counts[i]; n >= want {
			if n == below {
				return bound
			}
			return from + (bound-from)*(want-below)/(n-below)
		}
		below, from = h.counts[i], bound
	}
	return from // More than the last bound.
}

// value returns a series' value, 0 if it is not there.
func (s *topSample) value(name string, labels ...string) float64 {
	return s.values[seriesKey(name, labels...)]
}

// sum adds up all series of a name that have the label with the value.
func (s *topSample) sum(name, label, value string) float64 {
	total := 0.0
	for key := range maps.Keys(s.values) {
		rest, ok := strings.CutPrefix(key, name+"\x00")
		if ok && strings.Contains("\x00"+rest+"\x00", "\x00"+label+"\x00"+value+"\x00") {
			total += s.values[key]
		}
	}
	return total
}

// of returns the values that a label of a metric has.
func (s *topSample) of(name, label string) []string { return s.labels[seriesKey(name, label)] }
