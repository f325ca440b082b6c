package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franzSteps is franz-go as a stepper. The client gives up where two brokers in a row
// refuse the connection when it asks who the coordinator is, or where it is told of a
// broker before it has that broker's address. So this does what the client tells
// applications to do: abort, find out whether that was too late, and do all again. Where
// the client gave up before a partition was part of the transaction, it keeps the error
// for good, and another one takes its place.
type franzSteps struct {
	*kgo.Client
	dial    func() *kgo.Client
	t       *testing.T
	of      stepsOf
	old     bool       // Transactions of version 1.
	taken   [][]string // The steps of the transaction that is open.
	answers chan string
}

func newFranzSteps(t *testing.T, addrs []string, of stepsOf, old bool, opts ...kgo.Opt) *franzSteps {
	t.Helper()
	f := &franzSteps{t: t, of: of, old: old, answers: make(chan string, 1)}
	f.dial = func() *kgo.Client {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.TransactionalID(of.id),
			kgo.TransactionTimeout(of.timeout), kgo.DefaultProduceTopic(of.topic),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond),
			kgo.DialTimeout(time.Second))...)
		if err != nil {
			t.Error(err)
			return nil
		}
		return cl
	}
	if f.Client = f.dial(); f.Client == nil {
		t.FailNow()
	}
	t.Cleanup(func() { f.Client.Close() })
	return f
}

// Tell takes a step, which goes on by itself.
func (f *franzSteps) Tell(words ...string) {
	go func() { // Ends with the step's time.
		ctx, cancel := context.WithTimeout(f.t.Context(), stepTimeout)
		defer cancel()
		if err := f.step(ctx, strings.Fields(strings.Join(words, " "))); err != nil {
			f.answers <- err.Error()
			return
		}
		f.answers <- "ok"
	}()
}

// Next returns what became of the step.
func (f *franzSteps) Next(limit time.Duration) string {
	f.t.Helper()
	select {
	case answer := <-f.answers:
		return answer
	case <-time.After(limit):
		f.t.Fatalf("%s says nothing for %v", f.of.id, limit)
	}
	return ""
}

// unheard reports whether a request failed that no broker has answered.
func unheard(ctx context.Context, err error) bool {
	answered := (*kerr.Error)(nil)
	return err != nil && !errors.As(err, &answered) && ctx.Err() == nil
}

// reach calls fn until a broker has answered.
func reach(ctx context.Context, fn func() error) error {
	for ; ; <-time.After(50 * time.Millisecond) {
		if err := fn(); !unheard(ctx, err) {
			return err
		}
	}
}

func (f *franzSteps) step(ctx context.Context, words []string) error {
	switch words[0] {
	case "init":
		return f.init(ctx)
	case "begin":
		f.taken = nil
		return f.BeginTransaction()
	case "send", "offsets":
		f.taken = append(f.taken, words)
		return f.orAgain(ctx, f.write(ctx, words), func() error { return nil })
	case "commit":
		commit := func() error { return f.EndTransaction(ctx, kgo.TryCommit) }
		return f.orAgain(ctx, commit(), commit)
	case "abort":
		return f.abort(ctx)
	}
	return fmt.Errorf("no such step: %v", words)
}

// initPatience is how long a client may be without a producer id until another takes its
// place: a coordinator is there again sooner.
const initPatience = 5 * time.Second

// init has the client ask for its producer id and epoch, if it has none that is good.
func (f *franzSteps) init(ctx context.Context) error {
	ask := func(ctx context.Context) error {
		_, _, err := f.ProducerID(ctx)
		return err
	}
	patient, cancel := context.WithTimeout(ctx, initPatience)
	defer cancel()
	err := reach(patient, func() error { return ask(patient) })
	if patient.Err() == nil || ctx.Err() != nil {
		return err
	}
	f.t.Logf("%s: another client, after %v", f.of.id, err)
	next := f.dial()
	if next == nil {
		return err
	}
	f.Client.Close()
	f.Client = next
	return reach(ctx, func() error { return ask(ctx) })
}

// write takes a step that makes part of a transaction.
func (f *franzSteps) write(ctx context.Context, words []string) error {
	var partition int32
	var offset int64
	if words[0] == "send" {
		if _, err := fmt.Sscan(words[1], &partition); err != nil {
			return err
		}
		return f.ProduceSync(ctx, &kgo.Record{Partition: partition, Value: []byte(words[2])}).FirstErr()
	}
	if _, err := fmt.Sscan(words[1]+" "+words[2], &partition, &offset); err != nil {
		return err
	}
	return reach(ctx, func() error { return f.offsets(ctx, words[3], partition, offset) })
}

func (f *franzSteps) abort(ctx context.Context) error {
	return reach(ctx, func() error { return f.EndTransaction(ctx, kgo.TryAbort) })
}

// orAgain does the whole transaction again, and last, for as long as no broker answers.
func (f *franzSteps) orAgain(ctx context.Context, err error, last func() error) error {
	for ; unheard(ctx, err); <-time.After(50 * time.Millisecond) {
		f.t.Logf("%s: all again after %v", f.of.id, err)
		if err = f.abort(ctx); err != nil {
			return fmt.Errorf("abort: %w", err)
		}
		// The client may leave it to its next request to abort what it could not. Till
		// then the offsets of the transaction cannot be read.
		if err = f.init(ctx); err != nil {
			return fmt.Errorf("a new epoch: %w", err)
		}
		if done, err := f.committed(ctx); done || err != nil {
			return err
		}
		if err = f.again(ctx); err == nil {
			err = last()
		}
	}
	return err
}

// again begins a transaction, and takes all steps of the last one.
func (f *franzSteps) again(ctx context.Context) error {
	if err := f.BeginTransaction(); err != nil {
		return err
	}
	for _, words := range f.taken {
		if err := f.write(ctx, words); err != nil {
			return err
		}
	}
	return nil
}

// committed reports whether the transaction was committed: whether its offsets were.
func (f *franzSteps) committed(ctx context.Context) (bool, error) {
	for _, words := range f.taken {
		if words[0] != "offsets" {
			continue
		}
		var offsets kadm.OffsetResponses
		err := reach(ctx, func() (err error) {
			offsets, err = kadm.NewClient(f.Client).FetchOffsets(ctx, words[3])
			return err
		})
		if err != nil {
			return false, err
		}
		at, ok := offsets.Lookup(f.of.topic, 0)
		return ok && fmt.Sprint(at.At) == words[2], at.Err
	}
	return false, nil
}

// offsets adds the offset of a partition to the transaction. The client does that for
// its sessions alone, and at once with the end of the transaction: here it is a step.
func (f *franzSteps) offsets(ctx context.Context, group string, partition int32, offset int64) error {
	id, epoch, err := f.ProducerID(ctx)
	if err != nil {
		return err
	}
	if f.old {
		add := kmsg.NewAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = f.of.id, id, epoch, group
		resp, err := add.RequestWith(ctx, f.Client)
		if err != nil {
			return err
		}
		if err = kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return fmt.Errorf("add offsets to the transaction: %w", err)
		}
	}
	req := kmsg.NewTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = f.of.id, id, epoch, group
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = f.of.topic, f.of.topicID // Whichever the version has.
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, f.Client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
