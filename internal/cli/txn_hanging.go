package cli

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/strandline/strandline/internal/metadata"
)

// hangingTransaction is a transaction that is open in a partition, and that no
// coordinator will end.
type hangingTransaction struct {
	Topic         string `json:"topic"`
	Partition     int32  `json:"partition"`
	StartOffset   int64  `json:"start_offset"`
	ProducerID    int64  `json:"producer_id"`
	ProducerEpoch int16  `json:"producer_epoch"`
	LastMs        int64  `json:"last_ms"` // Of its last record.

	coordinatorEpoch int32
}

// findHanging returns the transactions that are open in the partitions, or in all of
// them, and that their coordinator does not hold for open there. A transaction that ends
// meanwhile is none of them: the partitions are asked before the coordinators and after
// them, and only what was open all the time can hang.
//
// unasked says of which partitions nobody knows. That a coordinator cannot be asked is an
// error: what it coordinates would look as if nobody did.
func findHanging(
	ctx context.Context, adm *kadm.Client, in kadm.TopicsSet,
) (hanging []hangingTransaction, unasked []error, err error) {
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, nil, err
	}
	if in == nil {
		in = topics.TopicsSet()
	}
	first, unasked, err := openIn(ctx, adm, in)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range topics[metadata.TransactionsTopic].Partitions {
		if p.Leader < 0 {
			return nil, nil, failf("%s-%d has no leader, so nobody can tell which transactions hang",
				metadata.TransactionsTopic, p.Partition).
				hint("strandline doctor says which brokers are missing.")
		}
	}
	known, err := knownOpen(ctx, adm)
	if err != nil {
		return nil, nil, err
	}
	again := kadm.TopicsSet{}
	for h := range first {
		if !known[h.ProducerID].Lookup(h.Topic, h.Partition) {
			again.Add(h.Topic, h.Partition)
		}
	}
	hanging = []hangingTransaction{}
	if len(again) == 0 {
		return hanging, unasked, nil
	}
	described, err := adm.DescribeProducers(ctx, again)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range described.SortedProducers() {
		if first[openAt{p.Topic, p.Partition, p.ProducerID, p.CurrentTxnStartOffset}] &&
			!known[p.ProducerID].Lookup(p.Topic, p.Partition) {
			hanging = append(hanging, hangingTransaction{
				Topic: p.Topic, Partition: p.Partition, StartOffset: p.CurrentTxnStartOffset,
				ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, LastMs: p.LastTimestamp,
				coordinatorEpoch: p.CoordinatorEpoch,
			})
		}
	}
	return hanging, unasked, nil
}

// openAt is a transaction that is open in a partition.
type openAt struct {
	Topic       string
	Partition   int32
	ProducerID  int64
	StartOffset int64
}

// openIn returns what is open in partitions, and of which nobody knows.
func openIn(ctx context.Context, adm *kadm.Client, in kadm.TopicsSet) (map[openAt]bool, []error, error) {
	described, err := adm.DescribeProducers(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	open := map[openAt]bool{}
	var unasked []error
	for _, t := range described.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			if p.Err != nil {
				unasked = append(unasked, refusal(fmt.Sprintf("ask %s-%d for its transactions", p.Topic, p.Partition), p.Err, ""))
			}
			for _, x := range p.ActiveProducers.Sorted() {
				if x.CurrentTxnStartOffset >= 0 {
					open[openAt{x.Topic, x.Partition, x.ProducerID, x.CurrentTxnStartOffset}] = true
				}
			}
		}
	}
	return open, unasked, nil
}

// knownOpen returns the partitions of the open transaction of each producer id, as
// coordinators know them.
func knownOpen(ctx context.Context, adm *kadm.Client) (map[int64]kadm.TopicsSet, error) {
	listed, err := adm.ListTransactions(ctx, nil, []string{"Ongoing", "PrepareCommit", "PrepareAbort"})
	if err != nil {
		return nil, err
	}
	known := map[int64]kadm.TopicsSet{}
	if len(listed) == 0 {
		return known, nil
	}
	described, err := adm.DescribeTransactions(ctx, listed.TransactionalIDs()...)
	if err != nil {
		return nil, err
	}
	for _, x := range described {
		if x.Err != nil {
			return nil, refusal("describe transaction "+x.TxnID, x.Err, "")
		}
		known[x.ProducerID] = x.Topics
	}
	return known, nil
}
