package metrics

import (
	"fmt"
	"strings"
)

// Page returns docs/metrics.md: every metric there is.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	for title, metrics := range All() {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | what it tells |\n| --- | --- | --- | --- |\n", title)
		for _, m := range metrics {
			help := m.Help
			if m.Kafka != "" {
				help += " Kafka: `" + m.Kafka + "`"
			}
			names := strings.Join(m.Labels, ", ")
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, names, help)
		}
	}
	return b.String()
}

const pageHead = `# Metrics

<!-- Made from internal/metrics by a test: go test ./internal/archtest -rewrite -->

A broker shows these at ` + "`/metrics`" + ` of its HTTP listener (` + "`--http-listen`" + `, 127.0.0.1:8080 unless told
otherwise) in Prometheus' text format, beside Prometheus' own ` + "`go_*`" + ` and ` + "`process_*`" + `:

    curl http://127.0.0.1:8080/metrics

Counters count from the broker's start. A topic's or a partition's series are gone when it is deleted, and those
of a request, a route or an error code are there from its first use. Histograms have the same buckets in
every broker, so that they can be added up: ` + "`histogram_quantile(0.99, sum by (le) (rate(...)))`" + `.

Series of single partitions, and of groups by partition, are left out where there would be more than
` + "`metrics.partition.series.max`" + ` of them (see [configuration](configuration.md)); sums by topic are always there.
`
