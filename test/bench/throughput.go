package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// meter measures the wall-clock and the broker's CPU time between its start
// and its stop.
type meter struct {
	broker *Broker
	start  time.Time
	cpu    time.Duration
}

func startMeter(b *Broker) (meter, error) {
	cpu, err := b.CPU()
	return meter{broker: b, start: time.Now(), cpu: cpu}, err
}

// stop returns the figures that every load has.
func (m meter) stop(records, recordBytes int) (Measurement, error) {
	elapsed := time.Since(m.start).Seconds()
	cpu, err := m.broker.CPU()
	if err != nil {
		return nil, err
	}
	rate := float64(records) / elapsed
	return Measurement{
		RecordRate:   rate,
		Throughput:   rate * float64(recordBytes) / 1e6,
		CPUPerRecord: float64((cpu - m.cpu).Microseconds()) / float64(records),
	}, nil
}

// Flood produces records as fast as the broker takes them, from one client.
type Flood struct {
	Records     int
	RecordBytes int
	Partitions  int
	Linger      time.Duration
}

// produce floods topics that exist and are empty or not, in turn, and measures
// from the first record to the last ack. One record goes ahead of the clock: it
// pays for connecting, metadata and the producer's id.
func (f Flood) produce(ctx context.Context, t Target, topics ...string) (Measurement, error) {
	cl, err := t.client(kgo.ProducerLinger(f.Linger))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	value := make([]byte, f.RecordBytes)
	if _, err := rand.Read(value); err != nil {
		return nil, err
	}
	adm := kadm.NewClient(cl)
	before, err := records(ctx, adm, f.Partitions, topics)
	if err != nil {
		return nil, err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topics[0], Value: value}).FirstErr(); err != nil {
		return nil, fmt.Errorf("first record: %w", err)
	}
	m, err := startMeter(t.Broker)
	if err != nil {
		return nil, err
	}
	if err := f.send(ctx, cl, value, topics); err != nil {
		return nil, err
	}
	measured, err := m.stop(f.Records, f.RecordBytes)
	if err != nil {
		return nil, err
	}
	// What was acked must be there, or the speed is worth nothing.
	after, err := records(ctx, adm, f.Partitions, topics)
	if err != nil {
		return nil, err
	}
	if after-before != int64(f.Records)+1 {
		return nil, fmt.Errorf("%d records acked, %d there", f.Records+1, after-before)
	}
	return measured, nil
}

// send produces the records and returns when all are acked or one has failed.
func (f Flood) send(ctx context.Context, cl *kgo.Client, value []byte, topics []string) error {
	var failure atomic.Pointer[error]
	acked := func(_ *kgo.Record, err error) {
		if err != nil {
			failure.CompareAndSwap(nil, &err)
		}
	}
	for i := range f.Records {
		cl.Produce(ctx, &kgo.Record{Topic: topics[i%len(topics)], Value: value}, acked)
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("wait for acks: %w", err)
	}
	if err := failure.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
}

// consume reads a topic of at least f.Records records from its start.
func (f Flood) consume(ctx context.Context, t Target, topic string) (Measurement, error) {
	cl, err := t.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	m, err := startMeter(t.Broker)
	if err != nil {
		return nil, err
	}
	got := 0
	for got < f.Records {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("consume: %w", err)
		}
		wrong := false
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			wrong = wrong || len(r.Value) != f.RecordBytes
		})
		if wrong {
			return nil, errors.New("consume: a record of another size than was produced")
		}
	}
	return m.stop(got, f.RecordBytes)
}
