package transactions

import (
	"context"
	"fmt"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/txn"
)

// MaxJoins is how often the coordinator is asked about a partition before its word is
// taken as it is.
const MaxJoins = 3

// Enter has a partition that this broker leads be part of a transaction, and returns with
// what a batch of the transaction may be appended there. j names no partition yet. The
// code is the coordinator's; an error says that this broker does not lead the partition.
func (c *Coordinator) Enter(
	ctx context.Context, p *partition.Partition, j *Joining,
) (partition.TxnCheck, kafka.Code, error) {
	j.Add(p)
	for joins := 1; ; joins++ {
		check, needed, err := p.BeginVerification(j.ProducerID, j.ProducerEpoch)
		if err != nil || !needed {
			return check, kafka.ErrNone, err
		}
		code := c.Join(ctx, j)[0]
		if code != kafka.ErrNone || joins == MaxJoins || j.IsFinal() || !p.Overtaken(check, j.ProducerID) {
			return check, code, nil
		}
	}
}

// Standing asks the machine on this broker what has become of a producer's transaction,
// and waits for the answer, or until ctx ends.
func (c *Coordinator) Standing(ctx context.Context, p txn.Producer) (*txn.Standing, error) {
	in := coordinator.NewInbox()
	err := c.read(ctx, p.ID, func(m *txn.Shard, nowMs int64, fx *shard.Effects) {
		m.Standing(&txn.Context{NowMs: nowMs, Caller: in}, p, fx)
	})
	if err != nil {
		return nil, err
	}
	response, err := in.Reply(ctx)
	if err != nil {
		return nil, err
	}
	standing, ok := response.(*txn.Standing)
	if !ok {
		return nil, fmt.Errorf("the coordinator of %q answers with %T", p.ID, response)
	}
	return standing, nil
}
