package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Target is where a workload puts its load: a running broker and, on it, a side.
type Target struct {
	Broker *Broker
	Side   Side
}

// topic returns the side's own name for a topic.
func (t Target) topic(name string) string { return t.Side.slug() + "-" + name }

// topics returns the side's own names for n topics.
func (t Target) topics(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", t.topic(name), i)
	}
	return names
}

// client returns a client with what all loads have in common. Uncompressed,
// because the load must not spend the shared cores on compression; acks=all and
// idempotent, as franz-go's defaults are.
func (t Target) client(extra ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(t.Broker.Addrs()...),
		kgo.ProducerBatchMaxBytes(1<<20 - 1024),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(200_000),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.FetchMaxBytes(64 << 20),
		kgo.FetchMaxPartitionBytes(8 << 20),
		kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	}, extra...)...)
}

// admin runs f with an admin client that is patient enough for 1,000 topics.
func (t Target) admin(f func(*kadm.Client) error) error {
	cl, err := t.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(180_000)
	return f(adm)
}

// replicas is how many copies of a partition so many nodes keep, and minInSync how many
// of them an acked record is in at least.
func replicas(nodes int) int16  { return int16(min(nodes, 3)) }
func minInSync(nodes int) int16 { return max(1, replicas(nodes)-1) }

// create creates topics with the side's setting and returns when all of their
// partitions have a leader.
func (t Target) create(ctx context.Context, partitions int, names ...string) error {
	minISR := fmt.Sprint(minInSync(len(t.Broker.nodes)))
	config := map[string]*string{"min.insync.replicas": &minISR}
	if v := t.Side.flushMessages(); v != "" {
		config["flush.messages"] = &v
	}
	return t.admin(func(adm *kadm.Client) error {
		created, err := adm.CreateTopics(ctx, int32(partitions), replicas(len(t.Broker.nodes)), config, names...)
		if err != nil {
			return fmt.Errorf("create topics: %w", err)
		}
		for _, topic := range created {
			if topic.Err != nil {
				return fmt.Errorf("create topic %s: %w %s", topic.Topic, topic.Err, topic.ErrMessage)
			}
		}
		return awaitLeaders(ctx, adm, partitions, names)
	})
}

// awaitLeaders polls until every partition has a leader in the metadata, and the leader
// knows of it: nodes learn of a topic one after the other.
func awaitLeaders(ctx context.Context, adm *kadm.Client, partitions int, names []string) error {
	for {
		md, err := adm.Metadata(ctx, names...)
		if err != nil {
			return fmt.Errorf("wait for leaders: %w", err)
		}
		led := 0
		md.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Err == nil && p.Leader >= 0 {
				led++
			}
		})
		if led == partitions*len(names) {
			if _, err := records(ctx, adm, partitions, names); err == nil {
				return nil
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d partitions have a leader: %w", led, partitions*len(names), err)
		}
	}
}

// remove deletes topics; those that are not there count as deleted.
func (t Target) remove(ctx context.Context, names ...string) error {
	return t.admin(func(adm *kadm.Client) error {
		deleted, err := adm.DeleteTopics(ctx, names...)
		if err != nil {
			return fmt.Errorf("delete topics: %w", err)
		}
		for _, topic := range deleted {
			if topic.Err != nil && !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("delete topic %s: %w", topic.Topic, topic.Err)
			}
		}
		return nil
	})
}

// records counts the records of topics by their end offsets; it fails while any
// partition does not answer. Topics must never have lost their start.
func records(ctx context.Context, adm *kadm.Client, partitions int, names []string) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err != nil {
		return 0, err
	}
	var sum int64
	answers := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			err = o.Err
			return
		}
		sum += o.Offset
		answers++
	})
	if err == nil && answers != partitions*len(names) {
		err = fmt.Errorf("%d of %d partitions answered", answers, partitions*len(names))
	}
	return sum, err
}

// pause waits, or returns the context's error at its end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
