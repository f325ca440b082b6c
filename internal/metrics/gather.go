package metrics

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Gatherer gathers what a scrape shows: what a registry has collected, and the
// series of single partitions, which come in tens of thousands. Those go past the
// registry, and are written in the text format at once: to make a value of each
// and have it checked, sorted and written by Prometheus' library costs ten times
// as much. That their names and labels are right is this room's own business.
type Gatherer struct {
	mu       sync.Mutex // One at a time: collectors keep what they found until then.
	registry *prometheus.Registry
	many     []*collector
}

// AppendText appends what a scrape shows in Prometheus' text format.
func (g *Gatherer) AppendText(dst []byte) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	few, err := g.registry.Gather()
	if err != nil && len(few) == 0 { // Some is better than none.
		return dst, fmt.Errorf("gather metrics: %w", err)
	}
	many := map[string]*family{}
	for _, c := range g.many {
		maps.Copy(many, c.many)
		c.many = nil
	}
	byName := func(a, b *family) int { return cmp.Compare(a.name, b.name) }
	sorted := slices.SortedFunc(maps.Values(many), byName)
	out := bytes.NewBuffer(dst)
	for _, f := range few {
		for len(sorted) > 0 && sorted[0].name < f.GetName() {
			sorted[0].writeTo(out)
			sorted = sorted[1:]
		}
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return dst, fmt.Errorf("write metric %s: %w", f.GetName(), err)
		}
	}
	for _, f := range sorted {
		f.writeTo(out)
	}
	return out.Bytes(), nil
}

// collector is one section of the table and what reads it.
type collector struct {
	descs   descs
	metrics []Metric
	read    func(*scrape)
	// many are the series that go past the registry, until a Gatherer has taken
	// them.
	many map[string]*family
}

// family is a gauge's series as lines of text.
type family struct {
	name, help string
	lines      []byte
}

func (f *family) writeTo(out *bytes.Buffer) {
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n", f.name, escapeHelp(f.help), f.name)
	out.Write(f.lines)
}

// escapeHelp escapes a text as # HELP has it.
func escapeHelp(s string) string { return strings.NewReplacer("\\", `\\`, "\n", `\n`).Replace(s) }

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- c.descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.many = map[string]*family{}
	c.read(&scrape{collector: c, to: ch})
}

// scrape takes the values of one collection.
type scrape struct {
	*collector
	to chan<- prometheus.Metric
}

// labelText is labels as they stand between the braces of a line.
type labelText []byte

// labelled writes labels, whose names and values come in turn, in the order of
// their names.
func labelled(namesAndValues ...string) labelText {
	var out labelText
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, namesAndValues[i]...), `="`...)
		out = append(appendEscaped(out, namesAndValues[i+1]), '"')
	}
	return out
}

// validText makes a value of a label of what somebody else made up: the format
// knows UTF-8 alone.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// appendEscaped appends the value of a label.
func appendEscaped(dst []byte, value string) []byte {
	for _, c := range []byte(validText(value)) {
		switch c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// series adds a gauge that goes past the registry.
func (s *scrape) series(name string, value float64, labels labelText) {
	f := s.many[name]
	if f == nil {
		i := slices.IndexFunc(s.metrics, func(m Metric) bool { return m.Name == name })
		f = &family{name: name, help: s.metrics[i].help()}
		s.many[name] = f
	}
	out := append(append(f.lines, name...), '{')
	out = append(append(out, labels...), "} "...)
	if whole := int64(value); float64(whole) == value && math.Abs(value) < 1<<53 {
		out = strconv.AppendInt(out, whole, 10)
	} else {
		out = strconv.AppendFloat(out, value, 'g', -1, 64)
	}
	f.lines = append(out, '\n')
}

// pairs makes labels of names and values in turn, in the order that the
// exposition wants.
func pairs(namesAndValues ...string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, 0, len(namesAndValues)/2)
	for i := 0; i+1 < len(namesAndValues); i += 2 {
		namesAndValues[i+1] = validText(namesAndValues[i+1])
		out = append(out, &dto.LabelPair{Name: &namesAndValues[i], Value: &namesAndValues[i+1]})
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}
