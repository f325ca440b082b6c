// goclients exercises franz-go and sarama against a broker: goclients BOOTSTRAP.
// Each check prints "ok NAME"; the first that fails ends the run.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, check := range []struct {
		name string
		run  func(context.Context, string) error
	}{
		{"franz-go", franz}, {"sarama", saramaCheck},
	} {
		if err := check.run(ctx, os.Args[1]); err != nil {
			log.Fatalf("%s: %v", check.name, err)
		}
		fmt.Println("ok", check.name)
	}
	fmt.Println("all ok")
}

// franz produces with every codec, consumes in a cooperative group, commits,
// replays, and checks that offsets are dense.
func franz(ctx context.Context, bootstrap string) error {
	const topic, perCodec = "go-franz", 2000
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer adm.Close()
	if _, err := adm.CreateTopic(ctx, 4, 1, nil, topic); err != nil {
		return err
	}
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
		kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for i, codec := range codecs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codec),
			kgo.DefaultProduceTopic(topic))
		if err != nil {
			return err
		}
		var rs []*kgo.Record
		for n := range perCodec {
			rs = append(rs, &kgo.Record{Key: fmt.Appendf(nil, "k%d", n%40), Value: fmt.Appendf(nil, "%d-%d", i, n)})
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			return fmt.Errorf("produce codec %d: %w", i, err)
		}
		cl.Close()
	}
	total := perCodec * len(codecs)
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup("go-franz"), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	if err != nil {
		return err
	}
	defer cl.Close()
	next := map[int32]int64{}
	for got := 0; got < total; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		for r := range fs.RecordsAll() {
			if r.Offset != next[r.Partition] {
				return fmt.Errorf("partition %d: offset %d, want %d", r.Partition, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
			got++
		}
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	offsets, err := adm.FetchOffsets(ctx, "go-franz")
	if err != nil {
		return err
	}
	sum := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	if sum != int64(total) {
		return fmt.Errorf("committed offsets add up to %d, want %d", sum, total)
	}
	lag, err := adm.Lag(ctx, "go-franz")
	if err != nil {
		return err
	}
	if l := lag["go-franz"].Lag.Total(); l != 0 {
		return fmt.Errorf("lag %d after consuming everything", l)
	}
	return nil
}

// saramaCheck produces and consumes with sarama, at its default version and
// settings.
func saramaCheck(ctx context.Context, bootstrap string) error {
	const topic, n = "go-sarama", 1000
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Compression = sarama.CompressionSnappy
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, cfg)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	p, err := sarama.NewSyncProducer([]string{bootstrap}, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	for i := range n {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(i))})
		if err != nil {
			return err
		}
	}
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, "go-sarama", cfg)
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &counter{want: n, done: cancel}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, h); err != nil {
			return err
		}
	}
	if h.got != n {
		return fmt.Errorf("consumed %d records, want %d", h.got, n)
	}
	return nil
}

// counter counts what a group's only member is given.
type counter struct {
	mu        sync.Mutex // A claim has a goroutine of its own.
	got, want int
	done      func()
}

func (c *counter) Setup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *counter) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			s.MarkMessage(m, "")
			c.mu.Lock()
			if c.got++; c.got == c.want {
				c.done()
			}
			c.mu.Unlock()
		case <-s.Context().Done():
			return nil
		}
	}
}
