package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// ratio is a column that divides one side's median by another's.
type ratio struct {
	head     string
	ours, to Side
}

func ratios() []ratio {
	return []ratio{
		{"synced/Kafka synced", OursSynced, KafkaSynced},
		{"synced/Kafka unsynced", OursSynced, KafkaUnsynced},
		{"relaxed/Kafka unsynced", OursRelaxed, KafkaUnsynced},
	}
}

// missing stands for what was not measured.
const missing = "-"

// formatValue writes three significant digits, and all digits of what is large.
func formatValue(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return missing
	case size >= 100:
		return groupThousands(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 1 || v == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
}

// groupThousands puts a comma before every third digit from the right.
func groupThousands(digits string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		sign, digits = "-", rest
	}
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return sign + out.String()
}

// formatRatio writes a quotient of medians.
func formatRatio(of, to float64) string {
	if math.IsNaN(of) || math.IsNaN(to) || to == 0 {
		return missing
	}
	return strconv.FormatFloat(of/to, 'f', 2, 64) + "x"
}

// String says what a goal asks.
func (g Goal) String() string {
	sign := "<="
	if g.AtLeast {
		sign = ">="
	}
	whole, fraction, fractional := strings.Cut(strconv.FormatFloat(g.Bound, 'f', -1, 64), ".")
	bound := groupThousands(whole)
	if fractional {
		bound += "." + fraction
	}
	if g.Relative {
		bound += "x " + g.Times.String()
	}
	return fmt.Sprintf("%v %s %s", g.Of, sign, bound)
}

// verdicts writes a row's goals with what came of each.
func verdicts(row *Row) string {
	words := [...]string{Unknown: "not measured", Reached: "reached", Missed: "MISSED"}
	var parts []string
	for _, g := range row.Goals {
		parts = append(parts, fmt.Sprintf("%v: %s", g, words[row.Check(g)]))
	}
	return strings.Join(parts, "; ")
}

// columns are the sides and ratios that a table has: those of which anything was measured.
type columns struct {
	sides  []Side
	ratios []ratio
}

func (r *Results) columns() columns {
	var measured [sideCount]bool
	for _, row := range r.Rows {
		for s, series := range row.Sides {
			measured[s] = measured[s] || len(series) > 0
		}
	}
	var c columns
	for s, is := range measured {
		if is {
			c.sides = append(c.sides, Side(s))
		}
	}
	for _, q := range ratios() {
		if measured[q.ours] && measured[q.to] {
			c.ratios = append(c.ratios, q)
		}
	}
	return c
}

// heads returns the table's column heads.
func (c columns) heads() []string {
	heads := []string{"work", "figure"}
	for _, s := range c.sides {
		heads = append(heads, s.String())
	}
	for _, r := range c.ratios {
		heads = append(heads, r.head)
	}
	return append(heads, "goal")
}

// cells returns a row's columns. A workload is named in its first row only.
func (c columns) cells(row *Row, previous string, value func(Series) string) []string {
	name := row.Workload
	if name == previous {
		name = ""
	}
	cells := []string{name, string(row.Figure)}
	for _, s := range c.sides {
		cells = append(cells, value(row.Sides[s]))
	}
	for _, r := range c.ratios {
		cells = append(cells, formatRatio(row.Sides[r.ours].Median(), row.Sides[r.to].Median()))
	}
	return append(cells, verdicts(row))
}

// WriteText writes the table of medians for a terminal.
func (r *Results) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	c := r.columns()
	fmt.Fprintln(table, strings.Join(c.heads(), "\t"))
	previous := ""
	for _, row := range r.Rows {
		cells := c.cells(row, previous, func(s Series) string { return formatValue(s.Median()) })
		fmt.Fprintln(table, strings.Join(cells, "\t"))
		previous = row.Workload
	}
	return table.Flush()
}

// formatSpread writes the median and, if it says more, the range in brackets.
func formatSpread(s Series) string {
	median := formatValue(s.Median())
	if len(s) < 2 {
		return median
	}
	low, high := s.Range()
	return fmt.Sprintf("%s (%s-%s)", median, formatValue(low), formatValue(high))
}

// WriteMarkdown writes the page for the documentation.
func (r *Results) WriteMarkdown(w io.Writer, m Machine, nodes, runs int) error {
	var page strings.Builder
	page.WriteString(pageHead(nodes))
	page.WriteString("\n## Machine\n\n")
	for _, line := range m.Lines() {
		page.WriteString("- " + line + "\n")
	}
	fmt.Fprintf(&page, "\n## Results\n\nMedians of %d runs, with the range in brackets.\n\n", runs)
	c := r.columns()
	heads := c.heads()
	page.WriteString("| " + strings.Join(heads, " | ") + " |\n")
	page.WriteString("|" + strings.Repeat(" --- |", len(heads)) + "\n")
	previous := ""
	for _, row := range r.Rows {
		page.WriteString("| " + strings.Join(c.cells(row, previous, formatSpread), " | ") + " |\n")
		previous = row.Workload
	}
	_, err := io.WriteString(w, page.String())
	return err
}

// pageHead says what was measured and how, of one node on each side or of several.
func pageHead(nodes int) string {
	title, what := "Benchmarks", "one node each, side by side in one run"
	target, page := "bench", "docs/benchmarks.md"
	if nodes > 1 {
		title = "Benchmarks of a cluster"
		what = fmt.Sprintf("%d nodes each, side by side in one run, every record with %d replicas and\n"+
			"`min.insync.replicas=%d`. All nodes of both share one machine and one disk", nodes, replicas(nodes), minInSync(nodes))
		target, page = "bench-cluster", "docs/benchmarks-cluster.md"
	}
	return "# " + title + `

Strandline and Apache Kafka 4.4, ` + what + ". `make " + target + "`" + ` repeats it on
your machine; ` + "`make " + target + " BENCHFLAGS='-o " + page + "'`" + ` writes this page.
` + pageMethod
}

const pageMethod = `
*ours synced* is Strandline as it comes: an acked record is on stable storage. *ours relaxed* is Strandline
with ` + "`flush.messages=9223372036854775807`" + `; *Kafka unsynced* is Kafka as it comes: an ack waits for no
sync. *Kafka synced* is Kafka with ` + "`flush.messages=1`" + `. Other settings are the defaults, but for what so many Kafka nodes need, its heap of 1 GiB,
and the files of a deleted Kafka topic going after half a second, not a minute, so as not to disturb another run.

The load (one franz-go client, acks=all, idempotent, uncompressed, 6 partitions) shares the machine's cores with
the brokers. Both sides stay up while the loads run; each is warmed up first, each workload has an
uncounted run before those that count (creating topics is measured once), and the order of the sides turns
round from run to run. Between runs
the disk's queue is emptied. CPU is user and kernel time of the brokers' processes. MB are 10^6 bytes, of record
values. Latencies are counted from sending a record, at a fixed rate that does not wait for the broker.
`
