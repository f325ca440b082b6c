package cli

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fillBytes is about how much is written for a consumer to read if no number of
// records is given.
const fillBytes = 1 << 30

type benchConsume struct {
	bench
	fetchBytes int32
}

// startOffsets say where to begin to read, by topic and partition.
type startOffsets = map[string]map[int32]kgo.Offset

func newBenchConsume(a *app) *cobra.Command {
	b := &benchConsume{bench: bench{app: a}}
	cmd := &cobra.Command{
		Use:   "consume",
		Short: "Measure how fast records are given",
		Long: "Read a topic from its start as fast as the broker gives records, again and again until " +
			"the time\n" +
			"is over. A topic that was made for it is filled first.\n\n" + benchLong +
			jsonHelp[benchResult](),
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context()) },
	}
	b.register(cmd.Flags())
	b.registerProducer(cmd.Flags())
	cmd.Flags().Int32Var(&b.fetchBytes, "fetch-bytes", 1<<20,
		"most `bytes` of a partition in an answer")
	return cmd
}

func (b *benchConsume) run(ctx context.Context) error {
	if err := b.check(); err != nil {
		return err
	}
	partitions, err := b.prepareTopic(ctx)
	if err != nil {
		return err
	}
	defer b.cleanUp(ctx)
	if b.made {
		if err := b.fill(ctx); err != nil {
			return err
		}
	}
	assigned, records, err := b.assign(ctx)
	if err != nil {
		return err
	}
	if records == 0 {
		return failf("topic %s is empty",
			b.topic).hint("Fill it: strandline bench produce --topic %s --keep", b.topic)
	}
	if err := b.readAll(ctx, assigned); err != nil {
		return err
	}
	return b.finish(b.result("consume", partitions))
}

// fill writes what is to be read.
func (b *benchConsume) fill(ctx context.Context) error {
	n := b.records
	if n == 0 {
		n = max(1, fillBytes/int64(b.size))
	}
	b.out.note("Writing %s of %s to read.", plural(n, "record"), byteSize(int64(b.size)))
	filler := bench{
		app: b.app, topic: b.topic, size: b.size, acks: b.acks, compression: b.compression,
		linger: b.linger, batchBytes: b.batchBytes,
	}
	clients, err := filler.producers(ctx, b.clients)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	filler.pump(ctx, clients, n)
	if first := filler.meter.firstErr.Load(); first != nil {
		return refusal("fill topic "+b.topic, *first, "")
	}
	return ctx.Err()
}

// assign shares the partitions that hold something among the clients, from
// their start, and counts the records.
func (b *benchConsume) assign(ctx context.Context) ([]startOffsets, int64, error) {
	assigned := make([]startOffsets, b.clients)
	for i := range assigned {
		assigned[i] = startOffsets{}
	}
	records := int64(0)
	err := b.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		bounds, leaderless, err := b.boundsOf(ctx, adm, true, nil, b.topic)
		if err == nil && len(leaderless) > 0 {
			err = noLeader(leaderless)
		}
		if err != nil {
			return err
		}
		n := 0
		for _, start := range bounds.start.Offsets().Sorted() {
			end, _ := bounds.end.Lookup(start.Topic, start.Partition)
			if end.Offset > start.At {
				setOf(assigned[n%b.clients], start.Topic)[start.Partition] = kgo.NewOffset().At(start.At)
				records += end.Offset - start.At
				n++
			}
		}
		return nil
	})
	return assigned, records, err
}

// readAll reads with all clients until enough was read, the time is over or ctx
// ends.
func (b *benchConsume) readAll(ctx context.Context, assigned []startOffsets) error {
	var clients []*kgo.Client
	for _, part := range assigned {
		if len(part) == 0 {
			continue
		}
		c, err := b.connect(ctx, kgo.ConsumePartitions(part), kgo.FetchMaxPartitionBytes(b.fetchBytes),
			kgo.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			closeAll(clients)
			return err
		}
		clients = append(clients, c)
	}
	defer closeAll(clients)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(b.records)
	for i, client := range clients {
		all.Go(func() { b.readOne(ctx, client, assigned[i], &left, cancel) }) // Ends with ctx.
	}
	b.meter.watch(ctx, b.out, b.warmup, b.duration)
	cancel()
	all.Wait()
	return nil
}

// readOne reads one client's partitions, each again from its start when it is
// at its end.
func (b *benchConsume) readOne(
	ctx context.Context, client *kgo.Client, part startOffsets, left *atomic.Int64, cancel func(),
) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			if ctx.Err() == nil {
				b.meter.fail(e.Err)
				cancel()
			}
		}
		atEnd := map[string]map[int32]kgo.EpochOffset{}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				b.meter.count(len(r.Value))
			}
			if n := len(p.Records); n > 0 && p.Records[n-1].Offset+1 >= p.HighWatermark {
				setOf(atEnd, p.Topic)[p.Partition] = part[p.Topic][p.Partition].EpochOffset()
			}
			if b.records > 0 && left.Add(-int64(len(p.Records))) <= 0 {
				b.meter.end()
				cancel()
			}
		})
		if len(atEnd) > 0 {
			client.SetOffsets(atEnd)
		}
	}
}
