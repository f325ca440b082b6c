package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Workload is one kind of work, run on every side in turn.
type Workload struct {
	Name    string
	Figures []Figure
	Goals   []Goal
	// Sides are those on which it makes sense: reading does not depend on how
	// writes are synced.
	Sides []Side
	// Once is for work that cannot be repeated cheaply: one counted run, no
	// uncounted one before it.
	Once bool

	// Setup and Teardown run once a side, before and after all runs; both may
	// be nil.
	Setup    func(context.Context, Target) error
	Run      func(context.Context, Target) (Measurement, error)
	Teardown func(context.Context, Target) error
}

// Scale is how much work the workloads do.
type Scale struct {
	Records   int // Of 1 KiB; small records are four times as many.
	Stream    time.Duration
	Topics    int
	Restarted int // Partitions in the restart test.
	// Transactions are of 100 records each.
	Transactions int
}

// fullScale is that of `make bench`.
func fullScale() Scale {
	return Scale{Records: 1_000_000, Stream: 12 * time.Second, Topics: 1000, Restarted: 3000, Transactions: 300}
}

// shortScale is that of `make bench-short`: figures to notice a regression by,
// not to publish.
func shortScale() Scale {
	return Scale{Records: 100_000, Stream: 2 * time.Second, Topics: 1000, Restarted: 3000, Transactions: 100}
}

const (
	partitions     = 6
	flushLinger    = 5 * time.Millisecond
	manyTopics     = "many"
	consumedTopic  = "consumed"
	kib            = 1024
	createWorkload = "create topics"
)

// allSides and eitherSync are the two usual sets of sides.
func allSides() []Side   { return []Side{OursSynced, KafkaSynced, OursRelaxed, KafkaUnsynced} }
func eitherSync() []Side { return []Side{OursSynced, KafkaUnsynced} }

// workloads returns the loads that run on the warm brokers, in order.
func workloads(scale Scale, nodes int) []Workload {
	if nodes > 1 {
		return clusterWorkloads(scale)
	}
	list := []Workload{
		produceWorkload(allSides(), "produce 1 KiB", Flood{Records: scale.Records, RecordBytes: kib}, []Goal{
			atLeast(Throughput, OursSynced, 1.3).times(KafkaSynced),
			atLeast(Throughput, OursRelaxed, 1.2).times(KafkaUnsynced),
			atMost(CPUPerRecord, OursSynced, 0.6).times(KafkaUnsynced),
		}),
		produceWorkload(allSides(), "produce 100 B", Flood{Records: 4 * scale.Records, RecordBytes: 100}, []Goal{
			atLeast(Throughput, OursSynced, 1).times(KafkaUnsynced),
			atMost(CPUPerRecord, OursSynced, 0.25),
		}),
		consumeWorkload(scale),
		streamWorkload(allSides(), "end to end, 5,000 records/s",
			Stream{Rate: 5000, RecordBytes: kib, Duration: scale.Stream}, 4, 90),
		streamWorkload(allSides(), "end to end, 20,000 records/s, linger 1 ms",
			Stream{Rate: 20_000, RecordBytes: kib, Duration: scale.Stream, Linger: time.Millisecond}, 6, 12),
	}
	list = append(list, manyTopicsWorkloads(allSides(), scale, []Goal{
		atLeast(RecordRate, OursSynced, 100_000), atMost(CPUPerRecord, OursSynced, 5),
	})...)
	return append(list, transactionsWorkload(scale, 4))
}

// clusterWorkloads are those of several nodes: every record has three copies, and an
// acked one is in two at least.
func clusterWorkloads(scale Scale) []Workload {
	sides := eitherSync()
	list := []Workload{
		produceWorkload(sides, "produce 1 KiB", Flood{Records: scale.Records, RecordBytes: kib}, []Goal{
			atLeast(Throughput, OursSynced, 0.7).times(KafkaUnsynced),
			atMost(CPUPerRecord, OursSynced, 8),
		}),
		produceWorkload(sides, "produce 100 B", Flood{Records: 4 * scale.Records, RecordBytes: 100}, []Goal{
			atLeast(Throughput, OursSynced, 1).times(KafkaUnsynced),
			atMost(CPUPerRecord, OursSynced, 1.2),
		}),
		streamWorkload(sides, "end to end, 2,000 records/s",
			Stream{Rate: 2000, RecordBytes: kib, Duration: scale.Stream}, 15, 250),
		streamWorkload(sides, "end to end, 20,000 records/s, linger 1 ms",
			Stream{Rate: 20_000, RecordBytes: kib, Duration: scale.Stream, Linger: time.Millisecond}, 30, 35),
	}
	list = append(list, manyTopicsWorkloads(sides, scale, []Goal{
		atLeast(RecordRate, OursSynced, 1).times(KafkaUnsynced), atMost(CPUPerRecord, OursSynced, 12),
	})...)
	return append(list, transactionsWorkload(scale, 8))
}

// produceWorkload floods a fresh topic in each run.
func produceWorkload(sides []Side, name string, f Flood, goals []Goal) Workload {
	f.Partitions, f.Linger = partitions, flushLinger
	return Workload{
		Name: name, Figures: []Figure{Throughput, CPUPerRecord}, Goals: goals, Sides: sides,
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			return onFreshTopic(ctx, t, func(topic string) (Measurement, error) {
				return f.produce(ctx, t, topic)
			})
		},
	}
}

// consumeWorkload reads, again and again, a topic that was written just before
// and so lies in the page cache.
func consumeWorkload(scale Scale) Workload {
	f := Flood{Records: scale.Records, RecordBytes: kib, Partitions: partitions, Linger: flushLinger}
	return Workload{
		Name:    "consume 1 KiB from the page cache",
		Figures: []Figure{Throughput, CPUPerRecord},
		Goals:   []Goal{atMost(CPUPerRecord, OursSynced, 0.8).times(KafkaUnsynced)},
		Sides:   eitherSync(),
		Setup: func(ctx context.Context, t Target) error {
			if err := t.create(ctx, partitions, t.topic(consumedTopic)); err != nil {
				return err
			}
			_, err := f.produce(ctx, t, t.topic(consumedTopic))
			return err
		},
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			return f.consume(ctx, t, t.topic(consumedTopic))
		},
		Teardown: func(ctx context.Context, t Target) error {
			return t.remove(ctx, t.topic(consumedTopic))
		},
	}
}

// streamWorkload measures latency at a rate; its goals are ours, synced.
func streamWorkload(sides []Side, name string, s Stream, p99, cpu float64) Workload {
	return Workload{
		Name:    name,
		Figures: []Figure{EndToEndP50, EndToEndP99, EndToEndP999, AckP50, AckP99, CPUPerRecord},
		Goals:   []Goal{atMost(EndToEndP99, OursSynced, p99), atMost(CPUPerRecord, OursSynced, cpu)},
		Sides:   sides,
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			return onFreshTopic(ctx, t, func(topic string) (Measurement, error) {
				return s.run(ctx, t, topic)
			})
		},
	}
}

// manyTopicsWorkloads creates topics of one partition, a thousand unless
// scaled, then produces to them in turn, which has the goals.
func manyTopicsWorkloads(sides []Side, scale Scale, goals []Goal) []Workload {
	f := Flood{
		Records: scale.Records * 3 / 10, RecordBytes: kib,
		Partitions: 1, Linger: flushLinger,
	}
	create := Workload{
		Name:    fmt.Sprintf("%s: %d", createWorkload, scale.Topics),
		Figures: []Figure{CreateTime, CPUPerTopic},
		Goals:   []Goal{atMost(CreateTime, OursSynced, 2)},
		Sides:   sides, Once: true,
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			m, err := startMeter(t.Broker)
			if err != nil {
				return nil, err
			}
			if err := t.create(ctx, 1, t.topics(manyTopics, scale.Topics)...); err != nil {
				return nil, err
			}
			elapsed := time.Since(m.start)
			measured, err := m.stop(scale.Topics, 0)
			if err != nil {
				return nil, err
			}
			return Measurement{
				CreateTime: elapsed.Seconds(), CPUPerTopic: measured[CPUPerRecord] / 1000,
			}, nil
		},
	}
	produce := Workload{
		Name:    fmt.Sprintf("round robin over %d topics", scale.Topics),
		Figures: []Figure{RecordRate, CPUPerRecord},
		Goals:   goals,
		Sides:   sides,
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			return f.produce(ctx, t, t.topics(manyTopics, scale.Topics)...)
		},
		Teardown: func(ctx context.Context, t Target) error {
			return t.remove(ctx, t.topics(manyTopics, scale.Topics)...)
		},
	}
	return []Workload{create, produce}
}

// onFreshTopic runs f on a topic of a name that was never used, and deletes it.
func onFreshTopic(
	ctx context.Context, t Target, f func(topic string) (Measurement, error),
) (Measurement, error) {
	topic := t.topic(fmt.Sprintf("fresh-%d", time.Now().UnixNano()))
	if err := t.create(ctx, partitions, topic); err != nil {
		return nil, err
	}
	m, err := f(topic)
	return m, errors.Join(err, t.remove(ctx, topic))
}
