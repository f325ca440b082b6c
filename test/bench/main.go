// Command bench measures Strandline beside Apache Kafka: throughput, the
// broker's CPU time a record, latency, memory, start and restart.
//
// It starts both brokers itself, on free loopback ports and in directories that
// it removes again, and puts the same load on both in turn (see Runner). The
// files in the order of reading: workload.go says what is measured, runner.go
// in which order, throughput.go, latency.go and lifecycle.go how, report.go how
// it is shown.
//
// It runs on Linux, whose /proc it reads. It is a measurement, not a test: a
// missed goal is printed and, unless -check is given, is no failure; a run in
// which a broker loses a record or does not answer is one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// options are the command line's.
type options struct {
	strandline string
	kafka      bool
	kafkaHome  string
	short      bool
	check      bool
	runs       int
	nodes      int
	warmUp     time.Duration
	only       string
	dir        string
	output     string
}

func parseOptions() options {
	var o options
	flag.StringVar(&o.strandline, "strandline", "bin/strandline", "our binary; make build builds it")
	flag.BoolVar(&o.kafka, "kafka", true, "measure Apache Kafka too (needs Java 17 and Maven)")
	flag.StringVar(&o.kafkaHome, "kafka-home", "bin/kafka", "where Kafka's jars are kept")
	flag.BoolVar(&o.short, "short", false, "small loads, one run, no Kafka: under a minute")
	flag.BoolVar(&o.check, "check", false, "exit with status 1 if a goal is missed")
	flag.IntVar(&o.runs, "runs", 3, "counted runs of each workload on each side")
	flag.IntVar(&o.nodes, "nodes", 1, "nodes on each side: 1, or 3 as one cluster with three replicas")
	flag.DurationVar(&o.warmUp, "warm-up", 45*time.Second, "load on each broker before the first run")
	flag.StringVar(&o.only, "only", "", "only workloads whose name contains one of these, comma separated")
	flag.StringVar(&o.dir, "dir", "", "where the brokers' data goes (default: the system's temporary directory)")
	flag.StringVar(&o.output, "o", "", "also write the results as a Markdown page")
	flag.Parse()
	if o.short {
		// Only what was not asked for by name.
		given := map[string]bool{}
		flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
		o.kafka = o.kafka && given["kafka"]
		if !given["runs"] {
			o.runs = 1
		}
		if !given["warm-up"] {
			o.warmUp = 0
		}
	}
	return o
}

func main() {
	o := parseOptions()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures everything, prints the table, and returns an error when a run
// failed.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	if o.nodes != 1 && o.nodes != 3 {
		return fmt.Errorf("-nodes is 1 or 3, not %d", o.nodes)
	}
	if o.short && o.output != "" {
		return errors.New("-short measures cold brokers once, which is nothing to publish: leave out -o or -short")
	}
	binary, err := filepath.Abs(o.strandline)
	if err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("no binary to measure (make build builds it): %w", err)
	}
	launchers := map[Side]Launcher{OursSynced: strandlineLauncher{binary: binary}}
	if o.kafka {
		home, err := filepath.Abs(o.kafkaHome)
		if err != nil {
			return err
		}
		kafka, err := fetchKafka(ctx, home)
		if err != nil {
			return err
		}
		launchers[KafkaUnsynced] = kafka
	}
	dir, err := os.MkdirTemp(o.dir, "strandline-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	machine, err := describeMachine(dir, o.kafka)
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, strings.Join(machine.Lines(), "\n"))

	s := session{options: o, launchers: launchers, dir: dir, progress: progress, scale: fullScale()}
	if o.short {
		s.scale = shortScale()
	}
	measured := s.measure(ctx)
	// What was measured before a failure or Ctrl-C is still worth showing.
	fmt.Fprintln(out)
	if err := s.results.WriteText(out); err != nil {
		return err
	}
	if measured == nil && o.output != "" {
		measured = writePage(o, &s.results, machine)
	}
	switch missed := s.results.Missed(); {
	case measured != nil:
		return measured
	case s.failed > 0:
		return fmt.Errorf("%d runs failed", s.failed)
	case missed > 0:
		fmt.Fprintf(out, "\n%d goals missed\n", missed)
		if o.check {
			return errors.New("not every goal was reached")
		}
	}
	return nil
}

func writePage(o options, r *Results, m Machine) error {
	f, err := os.Create(o.output)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteMarkdown(f, m, o.nodes, o.runs), f.Close())
}

// session is one execution of the whole program.
type session struct {
	options   options
	launchers map[Side]Launcher // By the side with the broker's default setting.
	dir       string
	scale     Scale
	progress  io.Writer
	results   Results
	failed    int
}

// wanted says whether -only lets a workload through.
func (s *session) wanted(name string) bool {
	for _, part := range strings.Split(s.options.only, ",") {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// measure runs everything that is wanted, in two parts: loads on brokers that
// stay up, then brokers that are started and killed.
func (s *session) measure(ctx context.Context) error {
	var list []Workload
	for _, w := range workloads(s.scale, s.options.nodes) {
		// Round robin needs the topics that the workload before it creates.
		if s.wanted(w.Name) || (strings.HasPrefix(w.Name, createWorkload) && s.wanted("round robin")) {
			list = append(list, w)
			s.results.Declare(w.Name, w.Figures, w.Goals)
		}
	}
	for _, w := range lifecycleRows(s.scale, s.options.nodes) {
		if s.wanted(w.Name) {
			s.results.Declare(w.Name, w.Figures, w.Goals)
		}
	}
	if len(list) > 0 {
		if err := s.loads(ctx, list); err != nil {
			return err
		}
	}
	return s.lifecycles(ctx)
}

// loads starts both brokers, warms them up and runs the workloads on them.
func (s *session) loads(ctx context.Context, list []Workload) error {
	runner := Runner{
		Targets: map[Side]Target{}, Runs: s.options.runs, Uncount: 1,
		Settle: settle, Progress: s.progress, Results: &s.results,
	}
	if s.options.short {
		runner.Uncount, runner.Settle = 0, settle/10
	}
	defer func() { s.failed += runner.Failed }()
	for side, launcher := range s.launchers {
		b, err := NewBroker(ctx, launcher, filepath.Join(s.dir, side.slug()), s.options.nodes)
		if err != nil {
			return err
		}
		defer b.Kill()
		if err := errors.Join(b.Start(), b.Await(ctx)); err != nil {
			return err
		}
		for other := range sideCount {
			if other.Ours() == side.Ours() {
				runner.Targets[other] = Target{Broker: b, Side: other}
			}
		}
		fmt.Fprintf(s.progress, "warming up: %v\n", side)
		if err := WarmUp(ctx, runner.Targets[side], s.scale, s.options.warmUp); err != nil {
			return err
		}
	}
	for _, w := range list {
		if err := runner.Execute(ctx, w); err != nil {
			return err
		}
	}
	for side := range s.launchers {
		mb, err := runner.Targets[side].Broker.ResidentMB()
		if err != nil {
			return err
		}
		s.results.Add(memoryWorkload, side, Measurement{LoadedMemory: mb})
	}
	return nil
}

// lifecycles measures starts and restarts, one broker at a time.
func (s *session) lifecycles(ctx context.Context) error {
	for _, side := range eitherSync() {
		launcher, ok := s.launchers[side]
		if !ok {
			continue
		}
		l := Lifecycle{Launcher: launcher, Side: side, Dir: s.dir, Scale: s.scale, Nodes: s.options.nodes}
		for run := range s.options.runs {
			if !s.wanted(startWorkload) {
				break
			}
			m, err := l.FirstAck(ctx)
			if err != nil {
				return fmt.Errorf("%s, %v: %w", startWorkload, side, err)
			}
			fmt.Fprintf(s.progress, "%s, %v, run %d: first ack after %s ms, %s MB idle\n",
				startWorkload, side, run+1, formatValue(m[FirstAck]), formatValue(m[IdleMemory]))
			s.results.Add(startWorkload, side, m)
		}
		name := restartWorkload(s.scale)
		if !s.wanted(name) || s.options.nodes > 1 {
			continue
		}
		err := l.Restart(ctx, s.options.runs, func(m Measurement) {
			fmt.Fprintf(s.progress, "%s, %v: all serve after %s s, %s MB\n",
				name, side, formatValue(m[ServeTime]), formatValue(m[ServeMemory]))
			s.results.Add(name, side, m)
		})
		if err != nil {
			return fmt.Errorf("%s, %v: %w", name, side, err)
		}
	}
	return nil
}
