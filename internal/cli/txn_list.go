package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

type txnList struct {
	*app
	states  []string
	hanging bool
}

// listedTransaction is a transactional id as txn list shows it.
type listedTransaction struct {
	ID          string `json:"transactional_id"`
	State       string `json:"state"`
	ProducerID  int64  `json:"producer_id"`
	Coordinator int32  `json:"coordinator"`
}

func newTxnList(a *app) *cobra.Command {
	l := &txnList{app: a}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List transactional ids, or transactions that hang",
		Long: "List transactional ids.\n\n" + resultHelp[[]listedTransaction]("transactional id", "state",
			"producer id", "coordinator") +
			"\n\nWith --hanging, list transactions that are open in a partition and that no coordinator " +
			"knows, so that nobody will end them: what comes after them is not read by those who read " +
			"what is committed.\n\n" + resultHelp[[]hangingTransaction]("topic", "partition", "start offset",
			"producer id", "producer epoch", "age of the last record"),
		Args: wantArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkStates(l.states, transactionStates()); err != nil {
				return err
			}
			return l.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&l.states, "state", nil,
		"only transactions in these `states`, such as Ongoing or CompleteCommit")
	cmd.Flags().BoolVar(&l.hanging, "hanging", false, "list transactions that nobody will end")
	return cmd
}

func (l *txnList) run(ctx context.Context) error {
	return l.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		if l.hanging {
			return l.showHanging(ctx, adm)
		}
		all, err := adm.ListTransactions(ctx, nil, l.states)
		if err != nil {
			return err
		}
		listed := []listedTransaction{}
		t := newTable("transactional id", "state", ">producer", ">coordinator")
		t.empty = "There are no transactional ids."
		for _, x := range all.Sorted() {
			listed = append(listed, listedTransaction{x.TxnID, x.State, x.ProducerID, x.Coordinator})
			t.add(cell{text: x.TxnID, style: styleCyan}, transactionCell(x.State), x.ProducerID, x.Coordinator)
		}
		return l.out.show(listed, t)
	})
}

func (l *txnList) showHanging(ctx context.Context, adm *kadm.Client) error {
	all, unasked, err := findHanging(ctx, adm, nil)
	if err != nil {
		return err
	}
	t := newTable("topic", ">partition", ">start offset", ">producer", ">epoch", ">age")
	t.empty = "No transaction hangs."
	for _, h := range all {
		t.add(cell{text: h.Topic, style: styleCyan}, h.Partition, h.StartOffset, h.ProducerID, h.ProducerEpoch,
			age(h.LastMs, time.Now()))
	}
	if err := l.out.show(all, t); err != nil {
		return err
	}
	return l.joined(unasked)
}
