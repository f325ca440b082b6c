package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newBenchProduce(a *app) *cobra.Command {
	b := &bench{app: a}
	cmd := &cobra.Command{
		Use:   "produce",
		Short: "Measure how fast records are taken",
		Long: "Produce as fast as the broker takes records. The latency of an ack counts from when a " +
			"record\n" +
			"was handed to the client, so it includes the wait in the client's queue.\n\n" + benchLong +
			jsonHelp[benchResult](),
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.runProduce(cmd.Context()) },
	}
	b.register(cmd.Flags())
	b.registerProducer(cmd.Flags())
	return cmd
}

func (b *bench) runProduce(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	partitions, err := b.prepareTopic(ctx)
	if err != nil {
		return err
	}
	defer b.cleanUp(ctx)
	clients, err := b.producers(ctx, b.clients)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	b.pump(ctx, clients, b.records)
	return b.finish(b.result("produce", partitions))
}

// pump produces with all clients at once until records are acknowledged, the
// time is over, a record fails or ctx ends.
func (b *bench) pump(ctx context.Context, clients []*kgo.Client, records int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left atomic.Int64
	left.Store(records)
	var all sync.WaitGroup
	for _, client := range clients {
		all.Go(func() { // Ends with the records or ctx.
			b.pumpOne(ctx, client, records > 0, &left, cancel)
			_ = client.Flush(ctx)
		})
	}
	watched := make(chan struct{})
	go func() { // Ends with ctx or the time.
		defer close(watched)
		b.meter.watch(ctx, b.out, b.warmup, b.duration)
		cancel()
	}()
	all.Wait()
	cancel()
	<-watched
}

func (b *bench) pumpOne(
	ctx context.Context, client *kgo.Client, limited bool, left *atomic.Int64, cancel func(),
) {
	values := newPayloads(b.size)
	for ctx.Err() == nil {
		if limited && left.Add(-1) < 0 {
			return
		}
		handed := time.Now()
		client.Produce(ctx, &kgo.Record{Value: values.value()}, func(r *kgo.Record, err error) {
			switch {
			case err == nil:
				if b.meter.measuring.Load() {
					b.meter.ack.add(time.Since(handed))
				}
				b.meter.count(len(r.Value))
			case ctx.Err() == nil:
				b.meter.fail(err)
				cancel()
			}
		})
	}
}
