package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLineBytes bounds a line: one that never ends must not fill the memory.
const maxLineBytes = 256 << 20

// lineParser makes a record of a line, which the record may keep.
type lineParser func(line []byte) (*kgo.Record, error)

// lineParser returns the parser that the flags ask for.
func (p *produce) lineParser(hasKey bool) (lineParser, error) {
	headers, err := parseHeaders(p.headers)
	if err != nil {
		return nil, err
	}
	switch p.format {
	case "json":
		if p.keySeparator != "" || p.whole || hasKey {
			return nil, usagef("--format json goes without --key, --key-separator and --whole: each " +
				"object says it all")
		}
		return func(line []byte) (*kgo.Record, error) {
			r, err := parseRecordJSON(line, p.keepPartition)
			if err == nil {
				p.finishRecord(r, headers)
			}
			return r, err
		}, nil
	case "lines":
	default:
		return nil, usagef("--format %q: want lines or json", p.format)
	}
	separator := []byte(p.keySeparator)
	if p.keySeparator == `\t` {
		separator = []byte("\t")
	}
	return func(line []byte) (*kgo.Record, error) {
		r := &kgo.Record{Value: line, Partition: -1}
		if len(separator) > 0 {
			if key, value, ok := bytes.Cut(line, separator); ok {
				r.Key, r.Value = key, value
			}
		} else if hasKey {
			r.Key = []byte(p.key)
		}
		p.finishRecord(r, headers)
		return r, nil
	}, nil
}

func (p *produce) finishRecord(r *kgo.Record, headers []kgo.RecordHeader) {
	if p.emptyAsNull {
		if len(r.Key) == 0 {
			r.Key = nil
		}
		if len(r.Value) == 0 {
			r.Value = nil
		}
	}
	if p.partition >= 0 {
		r.Partition = p.partition
	}
	if len(headers) > 0 {
		r.Headers = append(r.Headers, headers...)
	}
}

func parseHeaders(items []string) ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, item := range items {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, usagef("--header %q: want KEY=VALUE", item)
		}
		headers = append(headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	return headers, nil
}

// send reads the inputs and hands every record to the client. It returns when
// the fate of each is known. An interruption ends the reading; what was read is
// still sent, and send says whether the reading was cut short by it.
func (p *produce) send(ctx context.Context, client *kgo.Client, inputs []input) (cut bool) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() { // Ends with the inputs; an interrupted read of a terminal ends with the process.
		defer close(done)
		for _, in := range inputs {
			if stop.Load() || p.report.fatal() {
				return
			}
			if err := p.sendInput(ctx, client, in, &stop); err != nil {
				p.report.stop(fmt.Errorf("%s: %w", in.name, err))
				return
			}
		}
	}()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-tick.C:
			if !isTerminal(p.env.Stdin) {
				p.report.progress()
			}
		case <-ctx.Done():
			stop.Store(true)
			running, cut = false, true
		}
	}
	p.out.progress("")
	// The delivery timeout of the client ends this.
	_ = client.Flush(context.WithoutCancel(ctx))
	return cut
}

func (p *produce) sendInput(ctx context.Context, client *kgo.Client, in input, stop *atomic.Bool) error {
	deadline := deadlines(ctx, p.flags.timeout)
	if p.whole {
		value, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return p.sendLine(deadline(p.now()), client, in.name, 0, value)
	}
	lines := newLineReader(in, p.lineEnd)
	for n := int64(1); !stop.Load() && !p.report.fatal(); n++ {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if stop.Load() {
			return nil
		}
		if p.format == "json" && len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := p.sendLine(deadline(p.now()), client, in.name, n, line); err != nil {
			return err
		}
	}
	return nil
}

func (p *produce) sendLine(
	ctx context.Context, client *kgo.Client, name string, n int64, line []byte,
) error {
	r, err := p.parse(line)
	if err != nil {
		return fmt.Errorf("line %d: %w", n, err)
	}
	p.report.sent()
	client.Produce(ctx, r, func(r *kgo.Record, err error) {
		p.report.outcome(r, place{name, n, line}, err)
	})
	return nil
}

// deadlines returns what gives each record a time by which it must be
// acknowledged. The client's own limit counts from a record's timestamp, which
// may be years old when records are copied. Records of a second share a context:
// one for each would cost more than the record. An interrupt ends none of them:
// what was sent is waited for.
func deadlines(ctx context.Context, timeout time.Duration) func(now time.Time) context.Context {
	ctx = context.WithoutCancel(ctx)
	var current context.Context
	var until time.Time
	return func(now time.Time) context.Context {
		if current == nil || now.After(until) {
			until = now.Add(time.Second)
			c, cancel := context.WithTimeout(ctx, timeout+time.Second)
			context.AfterFunc(c, cancel) // It ends by itself.
			current = c
		}
		return current
	}
}

// lineReader cuts a stream into lines that own their bytes.
type lineReader struct {
	r         *bufio.Reader
	delimiter byte
	slab      []byte // Room for the lines to come.
}

func newLineReader(r io.Reader, delimiter byte) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 256<<10), delimiter: delimiter}
}

// slabBytes is allocated at once for many lines.
const slabBytes = 64 << 10

// next returns the next line without its delimiter. The last line needs none.
func (l *lineReader) next() ([]byte, error) {
	part, err := l.r.ReadSlice(l.delimiter)
	if err == nil {
		return l.keep(part[:len(part)-1]), nil
	}
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		if long = append(long, part...); len(long) > maxLineBytes {
			return nil, fmt.Errorf("a line of more than %s", byteSize(maxLineBytes))
		}
		part, err = l.r.ReadSlice(l.delimiter)
	}
	long = append(long, part...)
	if err == nil {
		return long[:len(long)-1], nil
	}
	if errors.Is(err, io.EOF) && len(long) > 0 {
		return long, nil
	}
	return nil, err
}

func (l *lineReader) keep(line []byte) []byte {
	if len(line) > slabBytes/8 {
		return bytes.Clone(line)
	}
	if len(line) > cap(l.slab)-len(l.slab) {
		l.slab = make([]byte, 0, slabBytes)
	}
	from := len(l.slab)
	l.slab = append(l.slab, line...)
	return l.slab[from:len(l.slab):len(l.slab)]
}

// namedPartitioner takes the partition that a record names, and where it names
// none that of another partitioner.
type namedPartitioner struct{ kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (n namedPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return namedTopicPartitioner{n.Partitioner.ForTopic(topic)}
}

type namedTopicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency implements kgo.TopicPartitioner.
func (n namedTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || n.TopicPartitioner.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner.
func (n namedTopicPartitioner) Partition(r *kgo.Record, count int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return n.TopicPartitioner.Partition(r, count)
}
