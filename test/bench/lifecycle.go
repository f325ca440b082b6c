package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The names of the workloads that start brokers of their own.
const (
	startWorkload  = "start on an empty directory"
	memoryWorkload = "memory after the loads"
)

// idleBefore is how long a broker has been idle when its memory is read.
const idleBefore = 3 * time.Second

// restartWorkload is the name of the restart test.
func restartWorkload(scale Scale) string {
	return fmt.Sprintf("restart after kill -9 with %d partitions", scale.Restarted)
}

// lifecycleRows names what this file measures, with figures and goals alone.
func lifecycleRows(scale Scale, nodes int) []Workload {
	if nodes > 1 {
		return []Workload{
			{
				Name: memoryWorkload, Figures: []Figure{LoadedMemory},
				Goals: []Goal{atMost(LoadedMemory, OursSynced, 450)},
			},
			{
				Name: startWorkload, Figures: []Figure{FirstAck, IdleMemory},
				Goals: []Goal{atMost(FirstAck, OursSynced, 1000), atMost(IdleMemory, OursSynced, 100)},
			},
		}
	}
	return []Workload{
		{
			Name: memoryWorkload, Figures: []Figure{LoadedMemory},
			Goals: []Goal{atMost(LoadedMemory, OursSynced, 150)},
		},
		{
			Name: startWorkload, Figures: []Figure{FirstAck, IdleMemory},
			Goals: []Goal{atMost(FirstAck, OursSynced, 100), atMost(IdleMemory, OursSynced, 25)},
		},
		{
			Name: restartWorkload(scale), Figures: []Figure{ServeTime, ServeMemory},
			Goals: []Goal{atMost(ServeTime, OursSynced, 1), atMost(ServeMemory, OursSynced, 150)},
		},
	}
}

// Lifecycle starts, kills and restarts brokers in directories under Dir.
type Lifecycle struct {
	Launcher Launcher
	Side     Side
	Dir      string
	Scale    Scale
	Nodes    int
}

// FirstAck starts a broker on an empty directory and measures until a record,
// sent with acks=all to a topic made for it, is acked; then its idle memory.
func (l Lifecycle) FirstAck(ctx context.Context) (Measurement, error) {
	dir := filepath.Join(l.Dir, "first-ack")
	defer os.RemoveAll(dir)
	b, err := NewBroker(ctx, l.Launcher, dir, l.Nodes)
	if err != nil {
		return nil, err
	}
	defer b.Kill()
	t := Target{Broker: b, Side: l.Side}
	start := time.Now()
	if err := b.Start(); err != nil {
		return nil, err
	}
	if err := b.Await(ctx); err != nil {
		return nil, err
	}
	if err := t.firstRecord(ctx); err != nil {
		return nil, err
	}
	m := Measurement{FirstAck: milliseconds(time.Since(start))}
	if err := pause(ctx, idleBefore); err != nil {
		return nil, err
	}
	m[IdleMemory], err = b.ResidentMB()
	return m, err
}

// firstRecord creates a topic and produces one record to it, trying again at
// once while the broker still starts behind its open port.
func (t Target) firstRecord(ctx context.Context) error {
	cl, err := t.client(kgo.ProducerLinger(0),
		kgo.MetadataMinAge(10*time.Millisecond), // The least that the client takes.
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	if err != nil {
		return err
	}
	defer cl.Close()
	topic := t.topic("first")
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, replicas(len(t.Broker.nodes)), nil, topic); err != nil {
		return fmt.Errorf("create the first topic: %w", err)
	}
	err = cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 100)}).FirstErr()
	if err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	return nil
}

// restartTopics is over how many topics the partitions of the restart test lie.
const restartTopics = 3

// Restart, `times` times, adds a few records to every partition, kills the
// broker while it is idle, starts it and measures until every partition answers
// with all records that were acked.
func (l Lifecycle) Restart(ctx context.Context, times int, each func(Measurement)) error {
	dir := filepath.Join(l.Dir, "restart")
	defer os.RemoveAll(dir)
	b, err := NewBroker(ctx, l.Launcher, dir, l.Nodes)
	if err != nil {
		return err
	}
	defer b.Kill()
	if err := b.Start(); err != nil {
		return err
	}
	if err := b.Await(ctx); err != nil {
		return err
	}
	t := Target{Broker: b, Side: l.Side}
	perTopic := l.Scale.Restarted / restartTopics
	topics := t.topics("restart", restartTopics)
	for _, topic := range topics { // One by one: Kafka needs half a minute for each.
		if err := t.create(ctx, perTopic, topic); err != nil {
			return err
		}
	}
	var acked int64
	for range times {
		// Before every kill, not only the first: a broker that has recovered and
		// then written nothing restarts far faster than one that was in use.
		n, err := t.scatter(ctx, perTopic, topics)
		if err != nil {
			return err
		}
		acked += n
		m, err := l.killAndServe(ctx, t, perTopic, topics, acked)
		if err != nil {
			return err
		}
		each(m)
	}
	return nil
}

// scatter produces ten records to every partition and returns how many in all.
func (t Target) scatter(ctx context.Context, perTopic int, topics []string) (int64, error) {
	cl, err := t.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	var batch []*kgo.Record
	for range 10 {
		for _, topic := range topics {
			for p := range perTopic {
				batch = append(batch, &kgo.Record{Topic: topic, Partition: int32(p), Value: make([]byte, 100)})
			}
		}
	}
	if err := cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return 0, fmt.Errorf("fill partitions: %w", err)
	}
	return int64(len(batch)), nil
}

// killAndServe is one kill -9 and restart.
func (l Lifecycle) killAndServe(
	ctx context.Context, t Target, perTopic int, topics []string, acked int64,
) (Measurement, error) {
	if err := pause(ctx, idleBefore); err != nil {
		return nil, err
	}
	t.Broker.Kill()
	start := time.Now()
	if err := t.Broker.Start(); err != nil {
		return nil, err
	}
	if err := t.Broker.Await(ctx); err != nil {
		return nil, err
	}
	if err := t.awaitAll(ctx, perTopic, topics, acked); err != nil {
		return nil, err
	}
	m := Measurement{ServeTime: time.Since(start).Seconds()}
	if err := pause(ctx, idleBefore); err != nil {
		return nil, err
	}
	var err error
	m[ServeMemory], err = t.Broker.ResidentMB()
	return m, err
}

// awaitAll polls the end offsets until all partitions answer.
func (t Target) awaitAll(ctx context.Context, perTopic int, topics []string, acked int64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return t.admin(func(adm *kadm.Client) error {
		for {
			there, err := records(ctx, adm, perTopic, topics)
			switch {
			case err == nil && there == acked:
				return nil
			case err == nil:
				return fmt.Errorf("%d records acked, %d there after the restart", acked, there)
			}
			if pause(ctx, 10*time.Millisecond) != nil {
				return fmt.Errorf("wait until all partitions serve: %w", err)
			}
		}
	})
}
