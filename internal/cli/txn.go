package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/strandline/strandline/internal/nearest"
)

func newTxn(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "txn", Aliases: []string{"txns", "transaction", "transactions"},
		Short: "List, describe and abort transactions",
	}
	cmd.AddCommand(newTxnList(a), newTxnDescribe(a), newTxnAbort(a))
	return cmd
}

// noTransaction is the failure of a transactional id that does not exist.
func noTransaction(ctx context.Context, adm *kadm.Client, id string) error {
	f := failf("there is no transactional id %s", id)
	f.cause = kerr.TransactionalIDNotFound
	if all, err := adm.ListTransactions(ctx, nil, nil); err == nil {
		if near := nearest.To(id, slices.Values(all.TransactionalIDs())); near != "" {
			return f.hint("Did you mean %s?", near)
		}
	}
	return f.hint("strandline txn list shows what is there.")
}

// transactionStates are all states that Kafka's transactions have.
func transactionStates() []string {
	return []string{
		"CompleteAbort", "CompleteCommit", "Dead", "Empty", "Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence",
	}
}

// isOpen reports whether a transaction is open in some partition.
func isOpen(state string) bool {
	return state == "Ongoing" || state == "PrepareCommit" || state == "PrepareAbort"
}

// transactionCell colours the state of a transaction.
func transactionCell(state string) cell {
	c := cell{text: orDash(state)}
	switch {
	case state == "Ongoing":
		c.style = styleGreen
	case isOpen(state):
		c.style = styleYellow
	default:
		c.style = styleDim
	}
	return c
}

// age says for how long something has lasted, or "-".
func age(sinceMs int64, now time.Time) string {
	if sinceMs <= 0 {
		return "-"
	}
	return now.Sub(time.UnixMilli(sinceMs)).Round(time.Second).String()
}

// completeTransactions offers transactional ids.
func (a *app) completeTransactions() completer {
	return a.complete(-1, func(ctx context.Context, adm *kadm.Client) ([]string, error) {
		all, err := adm.ListTransactions(ctx, nil, nil)
		return all.TransactionalIDs(), err
	})
}

type txnDescribe struct{ *app }

// describedTransaction is a transactional id as txn describe shows it.
type describedTransaction struct {
	ID            string             `json:"transactional_id"`
	State         string             `json:"state"`
	ProducerID    int64              `json:"producer_id"`
	ProducerEpoch int16              `json:"producer_epoch"`
	TimeoutMs     int32              `json:"timeout_ms"`
	StartMs       int64              `json:"start_ms"` // -1 if there was no transaction yet.
	Coordinator   int32              `json:"coordinator"`
	Partitions    map[string][]int32 `json:"partitions"`
}

func newTxnDescribe(a *app) *cobra.Command {
	d := &txnDescribe{app: a}
	return &cobra.Command{
		Use:   "describe TRANSACTIONAL-ID…",
		Short: "Show a transaction's state, producer and partitions",
		Long: "Show a transaction's state, producer and partitions. While a transaction ends, its " +
			"partitions are those that were not told the outcome yet.\n\n" +
			columnsHelp("transactional id", "state", "producer id", "producer epoch", "coordinator",
				"timeout", "age", "topics with partitions") + "\n" + jsonHelp[[]describedTransaction](),
		Args:              wantArgs(1, -1, "one or more transactional ids"),
		ValidArgsFunction: a.completeTransactions(),
		RunE:              func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), args) },
	}
}

func (d *txnDescribe) run(ctx context.Context, ids []string) error {
	return d.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		all, err := adm.DescribeTransactions(ctx, ids...)
		if err != nil {
			return err
		}
		described := []describedTransaction{}
		t := newTable("transactional id", "state", ">producer", ">epoch", ">coordinator", ">timeout", ">age",
			"partitions")
		var failed []error
		for _, id := range ids {
			x, ok := all[id]
			switch {
			case !ok || errors.Is(x.Err, kerr.TransactionalIDNotFound):
				failed = append(failed, noTransaction(ctx, adm, id))
				continue
			case x.Err != nil:
				failed = append(failed, refusal("describe transaction "+id, x.Err, ""))
				continue
			}
			partitions := map[string][]int32{}
			for topic, set := range x.Topics {
				for p := range set {
					partitions[topic] = append(partitions[topic], p)
				}
				slices.Sort(partitions[topic])
			}
			described = append(described, describedTransaction{
				id, x.State, x.ProducerID, x.ProducerEpoch, x.TimeoutMillis, x.StartTimestamp, x.Coordinator, partitions,
			})
			since := x.StartTimestamp
			if !isOpen(x.State) {
				since = 0
			}
			t.add(cell{text: id, style: styleCyan}, transactionCell(x.State), x.ProducerID, x.ProducerEpoch,
				x.Coordinator, time.Duration(x.TimeoutMillis)*time.Millisecond, age(since, time.Now()),
				orDash(assignedText(partitions)))
		}
		if err := d.out.show(described, t); err != nil {
			return err
		}
		return d.joined(failed)
	})
}
