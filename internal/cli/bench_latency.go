package cli

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

type benchLatency struct {
	bench
	rate  float64
	began time.Time
}

func newBenchLatency(a *app) *cobra.Command {
	b := &benchLatency{bench: bench{app: a}}
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure how long a record takes from end to end",
		Long: "Produce at a steady rate and consume at the same time. A latency counts from when a " +
			"record was\n" +
			"due, not from when it could be sent: a broker that stalls is not forgiven the records that " +
			"waited.\n\n" + benchLong + jsonHelp[benchResult](),
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	b.register(cmd.Flags())
	b.registerProducer(cmd.Flags())
	cmd.Flags().Float64Var(&b.rate, "rate", 5000, "`records` per second")
	return cmd
}

func (b *benchLatency) run(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	if b.rate <= 0 || b.rate > 1e7 {
		return usagef("--rate %v: want a number of records per second", b.rate)
	}
	partitions, err := b.prepareTopic(ctx)
	if err != nil {
		return err
	}
	defer b.cleanUp(ctx)
	producers, err := b.producers(ctx, b.clients)
	if err != nil {
		return err
	}
	defer closeAll(producers)
	consumer, err := b.consumer(ctx)
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := b.measure(ctx, producers, consumer); err != nil {
		return err
	}
	r := b.result("latency", partitions)
	r.Rate = b.rate
	return b.finish(r)
}

// consumer returns a client that stands at the end of the topic.
func (b *benchLatency) consumer(ctx context.Context) (*kgo.Client, error) {
	client, err := b.connect(ctx, kgo.ConsumeTopics(b.topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		kgo.FetchMaxWait(movedWait), kgo.FetchMinBytes(1))
	if err != nil {
		return nil, err
	}
	// The first poll that comes back empty shows that offsets are known.
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := client.PollFetches(wait).Err0(); err != nil &&
		!errors.Is(err, context.DeadlineExceeded) {
		client.Close()
		return nil, err
	}
	return client, nil
}

func (b *benchLatency) measure(
	ctx context.Context, producers []*kgo.Client, consumer *kgo.Client,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.began = time.Now()
	var senders, all sync.WaitGroup
	for i, client := range producers {
		senders.Go(func() { b.sendSteadily(ctx, client, i, cancel) }) // Ends with ctx or the records.
	}
	all.Go(func() { b.receive(ctx, consumer, cancel) }) // Ends with ctx or the records.
	if b.records > 0 {
		all.Go(func() { // Ends with the senders; what they sent is received or given up.
			senders.Wait()
			time.AfterFunc(5*time.Second, cancel)
		})
	}
	b.meter.watch(ctx, b.out, b.warmup, b.duration)
	cancel()
	senders.Wait()
	all.Wait()
	return nil
}

// sendSteadily sends this client's share of the records, each when it is due.
func (b *benchLatency) sendSteadily(
	ctx context.Context, client *kgo.Client, self int, cancel func(),
) {
	values := newPayloads(b.size - 8)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := int64(self); b.records == 0 || n < b.records; n += int64(b.clients) {
		due := time.Duration(float64(n) / b.rate * float64(time.Second))
		if wait := due - time.Since(b.began); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
		} else if ctx.Err() != nil {
			return
		}
		value := binary.BigEndian.AppendUint64(make([]byte, 0, b.size), uint64(due))
		value = append(value, values.value()...)
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			switch {
			case err == nil && b.meter.measuring.Load():
				b.meter.ack.add(time.Since(b.began) - due)
			case err != nil && ctx.Err() == nil:
				b.meter.fail(err)
				cancel()
			}
		})
	}
	_ = client.Flush(ctx)
}

func (b *benchLatency) receive(ctx context.Context, client *kgo.Client, cancel func()) {
	received := int64(0)
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		now := time.Since(b.began)
		fetches.EachRecord(func(r *kgo.Record) {
			received++
			if len(r.Value) == b.size && b.meter.measuring.Load() {
				b.meter.endToEnd.add(now - time.Duration(binary.BigEndian.Uint64(r.Value)))
			}
			b.meter.count(len(r.Value))
		})
		if b.records > 0 && received >= b.records {
			b.meter.end()
			cancel()
		}
	}
}
