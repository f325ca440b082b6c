package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// settle is how long a broker gets to delete files and go quiet before the next
// run; afterwards the disk's queue is emptied, so that no side pays for what
// another left to be written back.
const settle = 1500 * time.Millisecond

// runLimit bounds one run; a broker that needs longer has failed it.
const runLimit = 4 * time.Minute

// Runner runs workloads on the sides in turn and collects what they measure.
type Runner struct {
	Targets  map[Side]Target // Sides that are not in it are not measured.
	Runs     int             // Counted runs.
	Uncount  int             // Runs before them that are not.
	Settle   time.Duration
	Progress io.Writer
	Results  *Results

	// Failed counts runs that ended with an error; their figures are not kept.
	Failed int
}

// Execute runs one workload: round by round, each round on every side once, in
// an order that turns round from one round to the next.
func (r *Runner) Execute(ctx context.Context, w Workload) error {
	sides := slices.DeleteFunc(slices.Clone(w.Sides), func(s Side) bool {
		_, ok := r.Targets[s]
		return !ok
	})
	for _, s := range sides {
		if w.Setup == nil {
			break
		}
		if err := w.Setup(ctx, r.Targets[s]); err != nil {
			return fmt.Errorf("%s, %v: set up: %w", w.Name, s, err)
		}
	}
	r.quieten(ctx)
	first, end := -r.Uncount, r.Runs
	if w.Once {
		first, end = 0, 1
	}
	for round := first; round < end; round++ {
		for _, s := range order(sides, round) {
			r.once(ctx, w, s, round)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	for _, s := range sides {
		if w.Teardown == nil {
			break
		}
		if err := w.Teardown(ctx, r.Targets[s]); err != nil {
			return fmt.Errorf("%s, %v: tear down: %w", w.Name, s, err)
		}
	}
	return nil
}

// order returns the sides forwards in even rounds, backwards in odd ones.
func order(sides []Side, round int) []Side {
	sides = slices.Clone(sides)
	if round%2 != 0 {
		slices.Reverse(sides)
	}
	return sides
}

// once is one run on one side. Rounds below 0 are not counted.
func (r *Runner) once(ctx context.Context, w Workload, s Side, round int) {
	runCtx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	m, err := w.Run(runCtx, r.Targets[s])
	label := fmt.Sprintf("run %d", round+1)
	if round < 0 {
		label = "warm-up"
	}
	switch {
	case err != nil && ctx.Err() == nil:
		r.Failed++
		fmt.Fprintf(r.Progress, "%s, %v, %s: FAILED: %v\n", w.Name, s, label, err)
	case err == nil:
		fmt.Fprintf(r.Progress, "%s, %v, %s:", w.Name, s, label)
		for _, f := range w.Figures {
			fmt.Fprintf(r.Progress, "  %s %s", formatValue(m[f]), f)
		}
		fmt.Fprintln(r.Progress)
		if round >= 0 {
			r.Results.Add(w.Name, s, m)
		}
	}
	r.quieten(ctx)
}

// quieten lets the brokers, the disk and our own garbage collector finish what
// the last run left behind.
func (r *Runner) quieten(ctx context.Context) {
	_ = pause(ctx, r.Settle)
	syscall.Sync()
	runtime.GC()
}

// WarmUp keeps a broker busy with what will be measured until the time is over.
// A Java broker is two to three times slower in its first minute.
func WarmUp(ctx context.Context, t Target, scale Scale, d time.Duration) error {
	f := Flood{Records: scale.Records / 4, RecordBytes: kib, Partitions: partitions, Linger: flushLinger}
	s := Stream{Rate: 10_000, RecordBytes: kib, Duration: 2 * time.Second, Linger: time.Millisecond}
	for end := time.Now().Add(d); time.Now().Before(end); {
		_, err := onFreshTopic(ctx, t, func(topic string) (Measurement, error) {
			if _, err := f.produce(ctx, t, topic); err != nil {
				return nil, err
			}
			return f.consume(ctx, t, topic)
		})
		if err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		// That the sender falls behind a cold broker is no failure.
		_, _ = onFreshTopic(ctx, t, func(topic string) (Measurement, error) {
			return s.run(ctx, t, topic)
		})
	}
	return nil
}
