package main

import "math"

// Side is a broker with one setting of flush.messages.
type Side int

// The sides, in the order of the tables' columns.
const (
	OursSynced    Side = iota // Our default: a sync before every ack.
	OursRelaxed               // No ack waits for a sync.
	KafkaSynced               // flush.messages=1.
	KafkaUnsynced             // Kafka's default: no ack waits for a sync.
	sideCount
)

// String returns the column's head.
func (s Side) String() string {
	return [...]string{"ours synced", "ours relaxed", "Kafka synced", "Kafka unsynced"}[s]
}

// slug is the side's name in topic names.
func (s Side) slug() string {
	return [...]string{"ours-synced", "ours-relaxed", "kafka-synced", "kafka-unsynced"}[s]
}

// Ours reports whether the side is Strandline's.
func (s Side) Ours() bool { return s == OursSynced || s == OursRelaxed }

// flushMessages is the side's topic setting; empty means the broker's default.
func (s Side) flushMessages() string {
	switch s {
	case OursRelaxed:
		return "9223372036854775807"
	case KafkaSynced:
		return "1"
	default:
		return ""
	}
}

// Figure names one number that a workload measures, with its unit.
type Figure string

// The figures.
const (
	Throughput      Figure = "MB/s"
	RecordRate      Figure = "records/s"
	CPUPerRecord    Figure = "broker CPU us/record"
	AckP50          Figure = "ack p50 ms"
	AckP99          Figure = "ack p99 ms"
	EndToEndP50     Figure = "end to end p50 ms"
	EndToEndP99     Figure = "end to end p99 ms"
	EndToEndP999    Figure = "end to end p99.9 ms"
	CreateTime      Figure = "seconds"
	TransactionRate Figure = "transactions/s"
	CommitP50       Figure = "commit p50 ms"
	CommitP99       Figure = "commit p99 ms"
	CPUPerTopic     Figure = "broker CPU ms/topic"
	FirstAck        Figure = "first ack ms"
	IdleMemory      Figure = "resident MB idle"
	LoadedMemory    Figure = "resident MB after all"
	ServeTime       Figure = "seconds until all serve"
	ServeMemory     Figure = "resident MB"
)

// Measurement is what one run measured.
type Measurement map[Figure]float64

// Goal is a bound on the median of one side, absolute or as a multiple of
// another side's median.
type Goal struct {
	Figure  Figure
	Of      Side
	AtLeast bool // Otherwise at most.
	Bound   float64
	Times   Side // The side that Bound multiplies, if Relative.

	Relative bool
}

// atLeast is an absolute lower bound.
func atLeast(f Figure, of Side, bound float64) Goal {
	return Goal{Figure: f, Of: of, AtLeast: true, Bound: bound}
}

// atMost is an absolute upper bound.
func atMost(f Figure, of Side, bound float64) Goal {
	return Goal{Figure: f, Of: of, Bound: bound}
}

// times makes the bound a multiple of another side's median.
func (g Goal) times(side Side) Goal {
	g.Times, g.Relative = side, true
	return g
}

// Verdict says whether a goal was reached.
type Verdict int

// The verdicts.
const (
	Unknown Verdict = iota // A side that the goal speaks of was not measured.
	Reached
	Missed
)

// Row is one figure of one workload on all sides.
type Row struct {
	Workload string
	Figure   Figure
	Sides    [sideCount]Series
	Goals    []Goal
}

// Check judges one of the row's goals by the medians.
func (r *Row) Check(g Goal) Verdict {
	value, bound := r.Sides[g.Of].Median(), g.Bound
	if g.Relative {
		bound *= r.Sides[g.Times].Median()
	}
	switch {
	case math.IsNaN(value) || math.IsNaN(bound):
		return Unknown
	case g.AtLeast && value >= bound, !g.AtLeast && value <= bound:
		return Reached
	default:
		return Missed
	}
}

// Results is everything that was measured, one row a figure, in the order in
// which the workloads were declared.
type Results struct{ Rows []*Row }

// Declare adds the rows of a workload, empty.
func (r *Results) Declare(workload string, figures []Figure, goals []Goal) {
	for _, f := range figures {
		row := &Row{Workload: workload, Figure: f}
		for _, g := range goals {
			if g.Figure == f {
				row.Goals = append(row.Goals, g)
			}
		}
		r.Rows = append(r.Rows, row)
	}
}

// Add records what one counted run measured.
func (r *Results) Add(workload string, side Side, m Measurement) {
	for _, row := range r.Rows {
		if v, ok := m[row.Figure]; ok && row.Workload == workload {
			row.Sides[side] = append(row.Sides[side], v)
		}
	}
}

// Missed counts the goals that were measured and not reached.
func (r *Results) Missed() int {
	missed := 0
	for _, row := range r.Rows {
		for _, g := range row.Goals {
			if row.Check(g) == Missed {
				missed++
			}
		}
	}
	return missed
}
