package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Stream produces at a fixed rate while a consumer reads: latency from the
// moment of sending to the ack and to the consumer's hand. The sender never
// waits for the broker (an open loop), so a slow broker cannot hide its
// slowness by being asked less.
type Stream struct {
	Rate        int // Records a second.
	RecordBytes int
	Duration    time.Duration // All of it; the first fifth is not counted.
	Linger      time.Duration
}

// minPace is the share of the wanted rate below which a run is void: then the
// load was the bottleneck.
const minPace = 0.97

// headerBytes is what a record starts with: when it was sent, 0 for warm-up.
const headerBytes = 8

// run streams through an empty topic.
func (s Stream) run(ctx context.Context, t Target, topic string) (Measurement, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Duration+time.Minute)
	defer cancel()
	producer, err := t.client(kgo.ProducerLinger(s.Linger))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	consumer, err := t.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()

	total := int(float64(s.Rate) * s.Duration.Seconds())
	received := make(chan receipt, 1)
	go func() { // Ends with the context at the latest, which ends with run.
		received <- receive(ctx, consumer, total)
	}()
	m, err := startMeter(t.Broker)
	if err != nil {
		return nil, err
	}
	acks, pace, err := s.send(ctx, producer, topic, total)
	if err != nil {
		cancel()
		<-received
		return nil, err
	}
	got := <-received
	if got.err != nil {
		return nil, got.err
	}
	measured, err := m.stop(total, s.RecordBytes)
	if err != nil {
		return nil, err
	}
	if pace < minPace {
		return nil, fmt.Errorf("only %.0f %% of the rate could be sent: the machine is too busy", 100*pace)
	}
	measured[AckP50], measured[AckP99] = milliseconds(acks.Quantile(0.5)), milliseconds(acks.Quantile(0.99))
	measured[EndToEndP50] = milliseconds(got.latencies.Quantile(0.5))
	measured[EndToEndP99] = milliseconds(got.latencies.Quantile(0.99))
	measured[EndToEndP999] = milliseconds(got.latencies.Quantile(0.999))
	return measured, nil
}

// send sends total records at the rate and waits for their acks. It returns the
// counted records' ack latencies and the share of the rate that it kept up.
func (s Stream) send(
	ctx context.Context, cl *kgo.Client, topic string, total int,
) (acks *Latencies, pace float64, err error) {
	var mu sync.Mutex // Guards acks and failure.
	var failure error
	acks = NewLatencies(total)
	start := time.Now()
	for i := range total {
		due := start.Add(time.Duration(float64(i) / float64(s.Rate) * float64(time.Second)))
		// Shorter sleeps than this cost more than they bring.
		if wait := time.Until(due); wait > 100*time.Microsecond {
			time.Sleep(wait)
		}
		value := make([]byte, s.RecordBytes)
		counted, sent := i >= total/5, time.Now()
		if counted {
			binary.BigEndian.PutUint64(value, uint64(sent.UnixNano()))
		}
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			took := time.Since(sent)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failure = err
			case counted:
				acks.Add(took)
			}
		})
	}
	pace = float64(total) / float64(s.Rate) / time.Since(start).Seconds()
	if err := cl.Flush(ctx); err != nil {
		return nil, 0, fmt.Errorf("wait for acks: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if failure != nil {
		return nil, 0, fmt.Errorf("produce: %w", failure)
	}
	return acks, pace, nil
}

// receipt is what the consumer saw.
type receipt struct {
	latencies *Latencies
	err       error
}

// receive reads total records.
func receive(ctx context.Context, cl *kgo.Client, total int) receipt {
	latencies := NewLatencies(total)
	for got := 0; got < total; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return receipt{err: fmt.Errorf("%d of %d records consumed: %w", got, total, err)}
		}
		now := time.Now().UnixNano()
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			if len(r.Value) < headerBytes {
				return
			}
			if sent := int64(binary.BigEndian.Uint64(r.Value)); sent > 0 {
				latencies.Add(time.Duration(now - sent))
			}
		})
	}
	return receipt{latencies: latencies}
}
