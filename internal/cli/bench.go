package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const benchTopic = "strandline-bench"

const benchLong = `Measure a broker, ours or any other of the Kafka protocol. A topic that is not
there is made for it, and deleted afterwards unless --keep is given. A line on the terminal shows
how it goes; Ctrl-C ends it early and shows the results so far.

Plain lines have the columns measure and value, with latencies in milliseconds.
`

func newBench(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure throughput and latency", Long: benchLong +
		jsonHelp[benchResult]()}
	cmd.AddCommand(newBenchProduce(a), newBenchConsume(a), newBenchLatency(a))
	return cmd
}

// bench is what the benchmarks have in common.
type bench struct {
	*app
	topic       string
	partitions  int32
	replication int16
	configs     []string
	records     int64
	duration    time.Duration
	warmup      time.Duration
	size        int
	clients     int
	acks        string
	compression string
	linger      time.Duration
	batchBytes  int32
	keep        bool

	made  bool // The topic is ours to delete.
	meter meter
}

// benchResult is what --json shows.
type benchResult struct {
	Bench            string   `json:"bench"`
	Topic            string   `json:"topic"`
	Partitions       int      `json:"partitions"`
	Clients          int      `json:"clients"`
	RecordBytes      int      `json:"record_bytes"`
	Acks             string   `json:"acks,omitempty"`
	Compression      string   `json:"compression,omitempty"`
	LingerMs         float64  `json:"linger_ms"`
	Rate             float64  `json:"wanted_records_per_second,omitempty"`
	Seconds          float64  `json:"seconds"`
	Records          int64    `json:"records"`
	Bytes            int64    `json:"bytes"`
	Failed           int64    `json:"failed"`
	RecordsPerSecond float64  `json:"records_per_second"`
	MegabytesPerSec  float64  `json:"mb_per_second"` // Of 10^6 bytes.
	Ack              *latency `json:"ack,omitempty"`
	EndToEnd         *latency `json:"end_to_end,omitempty"`
}

func (b *bench) register(f *pflag.FlagSet) {
	f.StringVarP(&b.topic, "topic", "t", benchTopic, "`topic` to use")
	f.Int32VarP(&b.partitions, "partitions", "p", 6, "`number` of partitions of a topic that is made")
	f.Int16VarP(&b.replication, "replication-factor", "r", -1,
		"`number` of copies of a topic that is made (default the broker's)")
	f.StringArrayVarP(&b.configs, "config", "c", nil,
		"a setting of a topic that is made, `KEY=VALUE`; may be repeated")
	f.Int64VarP(&b.records, "records", "n", 0,
		"end after this `number` of records, without a warm-up (default by --duration)")
	f.DurationVar(&b.duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&b.warmup, "warmup", 2*time.Second, "how long to run before measuring")
	f.IntVarP(&b.size, "size", "s", 1024, "`bytes` of a record's value")
	f.IntVar(&b.clients, "clients", 1, "`number` of connections to share the work")
	f.BoolVar(&b.keep, "keep", false, "do not delete the topic that was made")
}

func (b *bench) registerProducer(f *pflag.FlagSet) {
	f.StringVarP(&b.acks, "acks", "a", "all", "who must have a record before it counts: `all`, 1 or 0")
	f.StringVarP(&b.compression, "compression", "z", "none", "`none`, gzip, snappy, lz4 or zstd")
	f.DurationVar(&b.linger, "linger", 0, "how long to wait for more records to send together")
	f.Int32Var(&b.batchBytes, "batch-bytes", 1<<20-1024, "most `bytes` of a batch")
}

// check reads the flags.
func (b *bench) check() error {
	switch {
	case b.size < 8:
		return usagef("--size %d: want at least 8 bytes", b.size)
	case b.clients < 1 || b.clients > 1000:
		return usagef("--clients %d: want 1 to 1000", b.clients)
	case b.records < 0:
		return usagef("--records %d: want a number of records", b.records)
	case b.duration <= 0 || b.warmup < 0:
		return usagef("--duration and --warmup want a time, such as 10s")
	}
	if b.records > 0 {
		b.duration, b.warmup = 0, 0
	}
	return nil
}

// prepare makes the topic if it is not there and returns its partitions.
func (b *bench) prepareTopic(ctx context.Context) (int, error) {
	configs, err := parseConfigs("config", b.configs)
	if err != nil {
		return 0, err
	}
	partitions := 0
	err = b.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		m, err := adm.Metadata(ctx, b.topic)
		if err != nil {
			return err
		}
		t := m.Topics[b.topic]
		if t.Err == nil {
			partitions = len(t.Partitions)
			return nil
		}
		if !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			return refusal("topic "+b.topic, t.Err, "")
		}
		r, err := adm.CreateTopic(ctx, b.partitions, b.replication, configs, b.topic)
		if err != nil {
			return refusal("create topic "+b.topic, err, r.ErrMessage)
		}
		b.made, partitions = true, int(b.partitions)
		return nil
	})
	return partitions, err
}

// cleanUp deletes the topic if it is ours. It works after an interruption too.
func (b *bench) cleanUp(ctx context.Context) {
	if !b.made || b.keep {
		return
	}
	err := b.admin(context.WithoutCancel(ctx), func(ctx context.Context, adm *kadm.Client) error {
		responses, err := adm.DeleteTopics(ctx, b.topic)
		return errors.Join(err, responses.Error())
	})
	if err != nil {
		b.out.warn("topic %s was made for this and could not be deleted: %v", b.topic, err)
	}
}

// producers returns clients that produce to the topic.
func (b *bench) producers(ctx context.Context, n int) ([]*kgo.Client, error) {
	opts, err := producerOptions(b.acks, b.compression)
	if err != nil {
		return nil, err
	}
	opts = append(opts, kgo.DefaultProduceTopic(b.topic), kgo.ProducerLinger(b.linger),
		kgo.ProducerBatchMaxBytes(b.batchBytes), kgo.RecordPartitioner(kgo.UniformBytesPartitioner(64<<10,
			false, false, nil)),
		kgo.RecordDeliveryTimeout(b.flags.timeout), kgo.AllowIdempotentProduceCancellation(),
		kgo.MaxBufferedRecords(1<<20), kgo.MaxBufferedBytes(32<<20))
	return b.clientsWith(ctx, n, opts...)
}

func (b *bench) clientsWith(ctx context.Context, n int, opts ...kgo.Opt) ([]*kgo.Client, error) {
	var clients []*kgo.Client
	for range n {
		c, err := b.connect(ctx, opts...)
		if err != nil {
			closeAll(clients)
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func closeAll(clients []*kgo.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// payloads cuts values out of random bytes, which no codec makes smaller.
type payloads struct {
	random []byte
	next   int
	size   int
}

func newPayloads(size int) *payloads {
	const spread = 1 << 20
	source := rand.NewChaCha8([32]byte{1})
	random := make([]byte, size+spread)
	_, _ = source.Read(random) // It never fails.
	return &payloads{random: random, size: size}
}

func (p *payloads) value() []byte {
	p.next = (p.next + 4099) % (len(p.random) - p.size)
	return p.random[p.next : p.next+p.size : p.next+p.size]
}

// result fills in what was measured.
func (b *bench) result(name string, partitions int) *benchResult {
	m := &b.meter
	m.end()
	r := &benchResult{
		Bench: name, Topic: b.topic, Partitions: partitions, Clients: b.clients, RecordBytes: b.size,
		Acks: b.acks, Compression: b.compression, LingerMs: float64(b.linger) / float64(time.Millisecond),
		Seconds: m.elapsed().Seconds(), Records: m.records.Load(), Bytes: m.bytes.Load(),
		Failed: m.failed.Load(),
		Ack:    m.ack.latency(), EndToEnd: m.endToEnd.latency(),
	}
	if r.Seconds > 0 {
		r.RecordsPerSecond = float64(r.Records) / r.Seconds
		r.MegabytesPerSec = float64(r.Bytes) / r.Seconds / 1e6
	}
	return r
}

// finish prints a result. Failures of records make the command fail.
func (b *bench) finish(r *benchResult) error {
	t := newTable("measure", ">value")
	measure := func(name string, value float64, decimals int, unit string) {
		plain := fmt.Sprintf("%.*f", decimals, value)
		shown := plain
		if decimals == 0 {
			shown = thousands(int64(value))
		}
		t.add(name, cell{text: plain, person: shown + unit})
	}
	measure("seconds", r.Seconds, 2, " s ")
	measure("records", float64(r.Records), 0, "   ")
	measure("records_per_second", r.RecordsPerSecond, 0, "   ")
	measure("mb_per_second", r.MegabytesPerSec, 2, "   ")
	measure("failed", float64(r.Failed), 0, "   ")
	for _, l := range []struct {
		name string
		*latency
	}{{"ack", r.Ack}, {"end_to_end", r.EndToEnd}} {
		if l.latency == nil {
			continue
		}
		measure(l.name+"_p50_ms", l.P50, 3, " ms")
		measure(l.name+"_p99_ms", l.P99, 3, " ms")
		measure(l.name+"_p99_9_ms", l.P999, 3, " ms")
		measure(l.name+"_max_ms", l.Max, 3, " ms")
	}
	if err := b.out.show(r, t); err != nil {
		return err
	}
	if first := b.meter.firstErr.Load(); first != nil {
		return refusal(fmt.Sprintf("%s failed", plural(r.Failed, "record")), *first, "")
	}
	return nil
}
