package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// franzSteps is franz-go as a stepper. The client asks some broker who the coordinator
// is, and gives up where two refuse the connection in a row. So this does what it tells
// applications to do: abort, find out whether that was too late, and do all again.
type franzSteps struct {
	*kgo.Client
	t       *testing.T
	of      stepsOf
	old     bool       // Transactions of version 1.
	taken   [][]string // The steps of the transaction that is open.
	answers chan string
}

func newFranzSteps(t *testing.T, addrs []string, of stepsOf, old bool, opts ...kgo.Opt) *franzSteps {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.TransactionalID(of.id),
		kgo.TransactionTimeout(of.timeout), kgo.DefaultProduceTopic(of.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.DialTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &franzSteps{Client: cl, t: t, of: of, old: old, answers: make(chan string, 1)}
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

// reach calls fn until it has reached a broker.
func reach(ctx context.Context, fn func() error) error {
	for ; ; <-time.After(50 * time.Millisecond) {
		err := fn()
		if unreached := (*net.OpError)(nil); !errors.As(err, &unreached) || ctx.Err() != nil {
			return err
		}
	}
}

func (f *franzSteps) step(ctx context.Context, words []string) error {
	switch words[0] {
	case "init":
		return reach(ctx, func() error {
			_, _, err := f.ProducerID(ctx)
			return err
		})
	case "begin":
		f.taken = nil
		return f.BeginTransaction()
	case "send", "offsets":
		f.taken = append(f.taken, words)
		return f.write(ctx, words)
	case "commit":
		return f.commit(ctx)
	case "abort":
		return f.abort(ctx)
	}
	return fmt.Errorf("no such step: %v", words)
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

// commit commits the transaction, or does it again and commits that.
func (f *franzSteps) commit(ctx context.Context) error {
	return reach(ctx, func() error {
		err := f.EndTransaction(ctx, kgo.TryCommit)
		if unreached := (*net.OpError)(nil); !errors.As(err, &unreached) {
			return err
		}
		f.t.Logf("%s: all again after %v", f.of.id, err)
		if err := f.abort(ctx); err != nil {
			return err
		}
		if done, err := f.committed(ctx); done || err != nil {
			return err
		}
		if err := f.BeginTransaction(); err != nil {
			return err
		}
		for _, words := range f.taken {
			if err := f.write(ctx, words); err != nil {
				return err
			}
		}
		return err // Not reached: to be tried again.
	})
}

// committed reports whether the transaction was committed: whether its offsets were.
func (f *franzSteps) committed(ctx context.Context) (bool, error) {
	for _, words := range f.taken {
		if words[0] != "offsets" {
			continue
		}
		offsets, err := kadm.NewClient(f.Client).FetchOffsets(ctx, words[3])
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
