package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type txnAbort struct {
	*app
	topic     string
	partition int32
	offset    int64
	yes       bool
}

// abortedTransaction is what txn abort has done.
type abortedTransaction struct {
	Aborted string `json:"aborted"`
}

func newTxnAbort(a *app) *cobra.Command {
	b := &txnAbort{app: a}
	cmd := &cobra.Command{
		Use:   "abort [TRANSACTIONAL-ID]",
		Short: "Abort the open transaction of an id, or one that hangs in a partition",
		Long: "Abort the open transaction of a transactional id. Its producer is fenced: it can do nothing " +
			"more and must be started anew.\n\nA transaction that hangs (txn list --hanging) has no " +
			"coordinator that could abort it: name its place with --topic, --partition and " +
			"--start-offset.\n\nOn a terminal it asks first.\n\n" + resultHelp[abortedTransaction]("what was aborted"),
		Args:              wantArgs(0, 1, "a transactional id, or --topic, --partition and --start-offset"),
		ValidArgsFunction: a.completeTransactions(),
		RunE:              func(cmd *cobra.Command, args []string) error { return b.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVar(&b.topic, "topic", "", "the `topic` in which a transaction hangs")
	f.Int32Var(&b.partition, "partition", 0, "its `partition`")
	f.Int64Var(&b.offset, "start-offset", -1, "the `offset` at which the transaction begins")
	f.BoolVarP(&b.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (b *txnAbort) run(ctx context.Context, args []string) error {
	byPlace := b.topic != "" && b.offset >= 0
	switch {
	case len(args) == 1 && b.topic == "" && b.offset < 0:
		return b.fence(ctx, args[0])
	case len(args) == 0 && byPlace:
		return b.end(ctx)
	}
	return usagef("name a transactional id, or a hanging transaction by --topic, --partition and --start-offset")
}

// place names the partition of the flags.
func (b *txnAbort) place() string { return fmt.Sprintf("%s-%d", b.topic, b.partition) }

// fence takes the transactional id over, which aborts what is open of it.
func (b *txnAbort) fence(ctx context.Context, id string) error {
	if err := b.confirm(b.yes, "Abort the transaction of %s and fence its producer?", id); err != nil {
		return err
	}
	return b.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		all, err := adm.DescribeTransactions(ctx, id)
		if err != nil {
			return err
		}
		x, ok := all[id]
		switch {
		case !ok || errors.Is(x.Err, kerr.TransactionalIDNotFound):
			return noTransaction(ctx, adm, id)
		case x.Err != nil:
			return refusal("describe transaction "+id, x.Err, "")
		case !isOpen(x.State):
			return failf("there is no open transaction of %s: its state is %s", id, x.State)
		case x.State == "PrepareCommit":
			return failf("the transaction of %s can't be aborted any more: it is committed, and not all of its partitions "+
				"were told yet", id).hint(toldHint, id)
		}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, max(x.TimeoutMillis, 1)
		resp, err := b.initProducer(ctx, req, x.State == "PrepareAbort")
		if errors.Is(err, errStillEnding) {
			return failf("the transaction of %s is aborted, but not all of its partitions were told yet", id).hint(toldHint, id)
		}
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return refusal("abort transaction "+id, err, "")
		}
		return b.showAborted(id)
	})
}

// toldHint is about a transaction whose end takes long.
const toldHint = "They are told when their leaders are there. strandline txn describe %s lists those that are left."

// errStillEnding says that the time was up before the transaction had ended.
var errStillEnding = errors.New("the transaction is being ended")

// initProducer asks again while the transaction is being ended, which it may be already.
func (b *txnAbort) initProducer(
	ctx context.Context, req *kmsg.InitProducerIDRequest, ending bool,
) (*kmsg.InitProducerIDResponse, error) {
	client, err := b.connect(ctx, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for ; ; ending = true {
		resp, err := req.RequestWith(ctx, client)
		switch {
		case err != nil && ending && errors.Is(err, context.DeadlineExceeded):
			return nil, errStillEnding
		case err != nil || resp.ErrorCode != kerr.ConcurrentTransactions.Code:
			return resp, err
		}
	}
}

// end writes the abort marker of a transaction that hangs.
func (b *txnAbort) end(ctx context.Context) error {
	if err := b.confirm(b.yes, "Abort the transaction that begins at %d in %s-%d?",
		b.offset, b.topic, b.partition); err != nil {
		return err
	}
	return b.admin(ctx, func(ctx context.Context, adm *kadm.Client) error {
		in := kadm.TopicsSet{}
		in.Add(b.topic, b.partition)
		all, unasked, err := findHanging(ctx, adm, in)
		if err != nil {
			return err
		}
		if len(unasked) > 0 {
			return b.joined(unasked)
		}
		for _, h := range all {
			if h.StartOffset != b.offset {
				continue
			}
			responses, err := adm.WriteTxnMarkers(ctx, kadm.TxnMarkers{
				ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch,
				CoordinatorEpoch: max(h.coordinatorEpoch, 0), Topics: in,
			})
			if err != nil {
				return err
			}
			for _, p := range responses.SortedPartitions() {
				if p.Err != nil {
					return refusal("abort the transaction of "+b.place(), p.Err, "")
				}
			}
			return b.showAborted(b.place())
		}
		return failf("no transaction that begins at %d hangs in %s", b.offset, b.place()).
			hint("strandline txn list --hanging shows those that do. One that a coordinator knows is aborted by its " +
				"transactional id.")
	})
}

func (b *txnAbort) showAborted(what string) error {
	t := newTable("aborted transaction")
	t.add(what)
	return b.out.show(abortedTransaction{what}, t)
}
