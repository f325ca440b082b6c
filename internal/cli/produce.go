package cli

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/internal/nearest"
)

const produceLong = `Send each line of the standard input, or of files, as a record.

  seq 1000 | strandline produce numbers
  strandline produce users --key-separator : <<< 'alice:{"age":30}'
  strandline produce images --whole cat.jpg dog.jpg
  strandline consume old --until end --format json | strandline produce new --format json

With --key-separator, what stands before the first separator of a line is the key; a line
without one has no key. Records with the same key go to the same partition, as with every
Kafka client.

When all is sent it says on a terminal how many records were acknowledged. Ctrl-C ends the
reading: what was read is still sent, and the exit code is 130. Records that were not acknowledged are
reported with the input and the line they come from, written to --failed-to if that is
given, and the exit code is 1. A record that its topic refuses does not stop the others; a
broker that is lost does. With --json, the report is one JSON document on the standard output.

` + recordJSONHelp + "\n\n"

type produce struct {
	*app
	topic         string
	keySeparator  string
	key           string
	headers       []string
	format        string
	whole         bool
	delimiter     string
	emptyAsNull   bool
	partition     int32
	keepPartition bool
	acks          string
	compression   string
	linger        time.Duration
	failedTo      string

	parse   lineParser
	lineEnd byte
	report  *produceReport
}

func newProduce(a *app) *cobra.Command {
	p := &produce{app: a}
	cmd := &cobra.Command{
		Use:               "produce TOPIC [FILE…]",
		Short:             "Send lines, files or JSON as records",
		Long:              produceLong + jsonHelp[produceSummary](),
		Args:              wantArgs(1, -1, "a topic, then files"),
		ValidArgsFunction: a.completeTopics(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.topic = args[0]
			if !cmd.Flags().Changed("linger") && !isTerminal(a.env.Stdin) {
				p.linger = 5 * time.Millisecond
			}
			return p.run(cmd, args[1:])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&p.keySeparator, "key-separator", "k", "", "`text` between key and value in a line")
	f.StringVar(&p.key, "key", "", "one `key` for all records")
	f.StringArrayVarP(&p.headers, "header", "H", nil,
		"a header of all records, `KEY=VALUE`; may be repeated")
	f.StringVarP(&p.format, "format", "f", "lines",
		"what is read: `lines`, or json for an object a line")
	f.BoolVar(&p.whole, "whole", false, "send each file as one record, or all of the standard input")
	f.StringVar(&p.delimiter, "delimiter", `\n`, "the `character` that ends a line")
	f.BoolVar(&p.emptyAsNull, "empty-as-null", false,
		"send empty keys and values as null: a null value deletes its key in a compacted topic")
	f.Int32VarP(&p.partition, "partition", "p", -1, "send everything to this partition `number`")
	f.BoolVar(&p.keepPartition, "keep-partition", false,
		"with --format json, send each record to the partition that it names")
	f.StringVarP(&p.acks, "acks", "a", "all",
		"who must have a record before it counts: `all` replicas in sync, 1 for the leader, 0 for nobody")
	f.StringVarP(&p.compression, "compression", "z", "none", "`none`, gzip, snappy, lz4 or zstd")
	f.DurationVar(&p.linger, "linger", 0,
		"how long to wait for more records to send together (default 5ms, and 0 on a terminal)")
	f.StringVar(&p.failedTo, "failed-to", "",
		"`file` to write the lines to that were not acknowledged")
	cmd.MarkFlagsMutuallyExclusive("key", "key-separator")
	cmd.MarkFlagsMutuallyExclusive("partition", "keep-partition")
	return cmd
}

func (p *produce) run(cmd *cobra.Command, files []string) error {
	ctx := cmd.Context()
	opts, err := p.options(cmd.Flags().Changed("key"))
	if err != nil {
		return err
	}
	inputs, closeInputs, err := p.open(files)
	if err != nil {
		return err
	}
	defer closeInputs()
	if p.report, err = newProduceReport(p.app, p.topic, p.failedTo, p.lineEnd); err != nil {
		return err
	}
	existed, batchBytes, err := p.lookAtTopic(ctx)
	if err != nil {
		return err
	}
	p.report.words = newLastWords(p.clientLogger())
	client, err := p.connect(ctx, append(opts, kgo.ProducerBatchMaxBytes(batchBytes), kgo.WithLogger(p.report.words))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if len(files) == 0 && isTerminal(p.env.Stdin) {
		p.out.note("Each line is a record; Ctrl-D ends.")
	}
	cut := p.send(ctx, client, inputs)
	if !existed && p.report.acked() > 0 {
		p.out.remark("Topic %s did not exist: the broker created it.", p.topic)
	}
	if err := p.report.finish(p.dials); err != nil {
		return err
	}
	if cut && (len(files) > 0 || !isTerminal(p.env.Stdin)) { // At a terminal it is a way to end.
		return newFailure(exitInterrupted, "interrupted: what had been read was sent, the rest of the input was not")
	}
	return nil
}

// options checks the flags and makes of them what the client takes.
func (p *produce) options(hasKey bool) ([]kgo.Opt, error) {
	var err error
	if p.parse, err = p.lineParser(hasKey); err != nil {
		return nil, err
	}
	delimiter, err := parseDelimiter(p.delimiter)
	if err != nil || len(delimiter) != 1 {
		return nil, usagef("--delimiter %q: want one character", p.delimiter)
	}
	p.lineEnd = delimiter[0]
	opts, err := producerOptions(p.acks, p.compression)
	if err != nil {
		return nil, err
	}
	opts = append(
		opts, kgo.DefaultProduceTopic(p.topic), kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(p.linger),
		// A record's fate must be known in the end, even if the broker is lost while it
		// is on its way: then it is reported as not acknowledged. See deadlines.
		kgo.AllowIdempotentProduceCancellation(),
	)
	if p.partition < -1 {
		return nil, usagef("--partition %d: partitions count from 0", p.partition)
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if p.keepPartition {
		if p.format != "json" {
			return nil, usagef("--keep-partition goes with --format json only")
		}
		opts = append(opts, kgo.RecordPartitioner(namedPartitioner{kgo.StickyKeyPartitioner(nil)}))
	}
	return opts, nil
}

// producerOptions are the options that produce and bench have in common.
func producerOptions(acks, compression string) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	switch acks {
	case "all", "-1":
	case "1", "leader":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0", "none":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks %q: want all, 1 or 0", acks)
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[compression]
	if !ok {
		return nil, usagef("--compression %q: want none, gzip, snappy, lz4 or zstd", compression)
	}
	return append(opts, kgo.ProducerBatchCompression(codec)), nil
}

// defaultBatchBytes is the most that a batch holds unless its topic takes less:
// what every broker takes by default. The client takes no limit below the least.
const (
	defaultBatchBytes = 1_000_000
	leastBatchBytes   = 512
)

// lookAtTopic says whether the topic is there and how large a batch it takes,
// before a line is read. The client would retry a partition or a topic that will
// never be, and would send small records along with one that is too large.
func (p *produce) lookAtTopic(ctx context.Context) (existed bool, batchBytes int32, err error) {
	batchBytes = defaultBatchBytes
	err = p.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		m, err := adm.Metadata(ctx, p.topic)
		if err != nil {
			return err
		}
		t := m.Topics[p.topic]
		switch {
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			p.warnMistyped(ctx, adm)
			return nil
		case t.Err != nil:
			return refusal("topic "+p.topic, t.Err, "")
		case p.partition >= int32(len(t.Partitions)):
			return failf("topic %s has %s: there is no partition %d", p.topic,
				plural(len(t.Partitions), "partition"), p.partition).
				hint("Partitions count from 0.")
		}
		existed = true
		batchBytes = max(leastBatchBytes, min(batchBytes, maxMessageBytes(ctx, adm, p.topic)))
		return nil
	})
	return existed, batchBytes, err
}

func (p *produce) warnMistyped(ctx context.Context, adm *kadm.Client) {
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return // The sending will tell.
	}
	if near := nearest.To(p.topic, slices.Values(all.Names())); near != "" {
		p.out.warn("there is no topic %s, and the broker may create it now; did you mean %s?", p.topic,
			near)
	}
}

// maxMessageBytes is a topic's max.message.bytes, or the greatest number where
// the broker does not tell.
func maxMessageBytes(ctx context.Context, adm *kadm.Client, topic string) int32 {
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return math.MaxInt32
	}
	r, err := configs.On(topic, nil)
	if err != nil || r.Err != nil {
		return math.MaxInt32
	}
	for _, c := range r.Configs {
		if c.Key == "max.message.bytes" {
			if n, err := strconv.ParseInt(c.MaybeValue(), 10, 32); err == nil && n > 0 {
				return int32(n)
			}
		}
	}
	return math.MaxInt32
}

// input is a stream of records with a name for reports.
type input struct {
	name string
	io.Reader
}

// open opens all files before anything is sent.
func (p *produce) open(files []string) ([]input, func(), error) {
	if len(files) == 0 {
		return []input{{"standard input", p.env.Stdin}}, func() {}, nil
	}
	var inputs []input
	var opened []*os.File
	closeAll := func() {
		for _, f := range opened {
			_ = f.Close() // It was only read.
		}
	}
	for _, name := range files {
		if name == "-" {
			inputs = append(inputs, input{"standard input", p.env.Stdin})
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			closeAll()
			return nil, nil, usagef("%w", err)
		}
		opened = append(opened, f)
		inputs = append(inputs, input{name, f})
	}
	return inputs, closeAll, nil
}
