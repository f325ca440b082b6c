package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions produces in transactions of so many records each, one after the other,
// from one client.
type Transactions struct {
	Count       int
	Records     int // Of each.
	RecordBytes int
}

// transactionsWorkload measures transactions of 100 records; ours are to be so many
// times as many as Kafka's in the same time.
func transactionsWorkload(scale Scale, times float64) Workload {
	x := Transactions{Count: scale.Transactions, Records: 100, RecordBytes: kib}
	return Workload{
		Name:    fmt.Sprintf("transactions of %d records", x.Records),
		Figures: []Figure{TransactionRate, CommitP50, CommitP99, CPUPerRecord},
		Goals:   []Goal{atLeast(TransactionRate, OursSynced, times).times(KafkaUnsynced)},
		Sides:   eitherSync(),
		Run: func(ctx context.Context, t Target) (Measurement, error) {
			return onFreshTopic(ctx, t, func(topic string) (Measurement, error) {
				return x.run(ctx, t, topic)
			})
		},
	}
}

// run fills an empty topic. One transaction goes ahead of the clock: it pays for
// connecting, metadata and the producer's id.
func (x Transactions) run(ctx context.Context, t Target, topic string) (Measurement, error) {
	cl, err := t.client(kgo.ProducerLinger(0), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(topic))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if _, err := x.commit(ctx, cl); err != nil {
		return nil, fmt.Errorf("first transaction: %w", err)
	}
	m, err := startMeter(t.Broker)
	if err != nil {
		return nil, err
	}
	commits := NewLatencies(x.Count)
	for range x.Count {
		took, err := x.commit(ctx, cl)
		if err != nil {
			return nil, err
		}
		commits.Add(took)
	}
	elapsed := time.Since(m.start)
	measured, err := m.stop(x.Count*x.Records, x.RecordBytes)
	if err != nil {
		return nil, err
	}
	if err := x.check(ctx, t, topic); err != nil {
		return nil, err
	}
	measured[TransactionRate] = float64(x.Count) / elapsed.Seconds()
	measured[CommitP50] = milliseconds(commits.Quantile(0.5))
	measured[CommitP99] = milliseconds(commits.Quantile(0.99))
	return measured, nil
}

// commit produces one transaction and returns how long its commit took.
func (x Transactions) commit(ctx context.Context, cl *kgo.Client) (time.Duration, error) {
	if err := cl.BeginTransaction(); err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	var failure atomic.Pointer[error]
	for range x.Records {
		cl.Produce(ctx, &kgo.Record{Value: make([]byte, x.RecordBytes)}, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, fmt.Errorf("wait for acks: %w", err)
	}
	if err := failure.Load(); err != nil {
		return 0, fmt.Errorf("produce: %w", *err)
	}
	start := time.Now()
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return time.Since(start), nil
}

// checkLimit bounds how long the markers of the last transaction may be under way; the
// answer to a commit does not wait for them.
const checkLimit = 10 * time.Second

// check counts what was committed: the records of all transactions come to lie below the
// last stable offset, and so do the markers, at least one of each.
func (x Transactions) check(ctx context.Context, t Target, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	least := int64((x.Count + 1) * (x.Records + 1))
	return t.admin(func(adm *kadm.Client) error {
		for {
			there, err := committed(ctx, adm, topic)
			if err != nil || there >= least {
				return err
			}
			if pause(ctx, 10*time.Millisecond) != nil {
				return fmt.Errorf("transactions of %d records and markers committed, %d are below the last stable offsets",
					least, there)
			}
		}
	})
}

// committed sums a topic's last stable offsets.
func committed(ctx context.Context, adm *kadm.Client, topic string) (int64, error) {
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			err = o.Err
		}
		sum += o.Offset
	})
	return sum, err
}
