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

// heads returns the table's column heads.
func heads() []string {
	columns := []string{"work", "figure"}
	for s := range sideCount {
		columns = append(columns, s.String())
	}
	for _, r := range ratios() {
		columns = append(columns, r.head)
	}
	return append(columns, "goal")
}

// cells returns a row's columns. A workload is named in its first row only.
func cells(row *Row, previous string, value func(Series) string) []string {
	name := row.Workload
	if name == previous {
		name = ""
	}
	columns := []string{name, string(row.Figure)}
	for _, s := range row.Sides {
		columns = append(columns, value(s))
	}
	for _, r := range ratios() {
		columns = append(columns, formatRatio(row.Sides[r.ours].Median(), row.Sides[r.to].Median()))
	}
	return append(columns, verdicts(row))
}

// WriteText writes the table of medians for a terminal.
func (r *Results) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(heads(), "\t"))
	previous := ""
	for _, row := range r.Rows {
		columns := cells(row, previous, func(s Series) string { return formatValue(s.Median()) })
		fmt.Fprintln(table, strings.Join(columns, "\t"))
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
func (r *Results) WriteMarkdown(w io.Writer, m Machine, runs int) error {
	var page strings.Builder
	page.WriteString(pageHead)
	page.WriteString("\n## Machine\n\n")
	for _, line := range m.Lines() {
		page.WriteString("- " + line + "\n")
	}
	fmt.Fprintf(&page, "\n## Results\n\nMedians of %d runs, with the range in brackets.\n\n", runs)
	columns := heads()
	page.WriteString("| " + strings.Join(columns, " | ") + " |\n")
	page.WriteString("|" + strings.Repeat(" --- |", len(columns)) + "\n")
	previous := ""
	for _, row := range r.Rows {
		page.WriteString("| " + strings.Join(cells(row, previous, formatSpread), " | ") + " |\n")
		previous = row.Workload
	}
	_, err := io.WriteString(w, page.String())
	return err
}

const pageHead = `# Benchmarks

Strandline and Apache Kafka 4.4, one node each, side by side in one run. ` + "`make bench`" + ` repeats it on
your machine; ` + "`make bench BENCHFLAGS='-o docs/benchmarks.md'`" + ` writes this page.

*ours synced* is Strandline as it comes: an acked record is on stable storage. *ours relaxed* is Strandline
with ` + "`flush.messages=9223372036854775807`" + `; *Kafka unsynced* is Kafka as it comes: an ack waits for no
sync. *Kafka synced* is Kafka with ` + "`flush.messages=1`" + `. Other settings are the defaults, but for what one Kafka node needs, its heap of 1 GiB,
and the files of a deleted Kafka topic going after half a second, not a minute, so as not to disturb another run.

The load (one franz-go client, acks=all, idempotent, uncompressed, 6 partitions) shares the machine's cores with
the broker. Both brokers stay up while the loads run; each is warmed up first, each workload has an
uncounted run before those that count (creating topics is measured once), and the order of the sides turns
round from run to run. Between runs
the disk's queue is emptied. CPU is user and kernel time of the broker's process. MB are 10^6 bytes, of record
values. Latencies are counted from sending a record, at a fixed rate that does not wait for the broker.
`
