package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// The first versions of Produce with a feature of transactions.
const (
	produceAbortable = 11 // Clients know TRANSACTION_ABORTABLE.
	produceJoins     = 12 // Clients leave it to brokers to add partitions.
)

// errNoTransactionalID refuses a batch as Kafka does: nobody may write for a transactional id
// that he does not name.
var errNoTransactionalID = &kafka.Error{
	Code:    kafka.ErrTransactionalIDAuthorizationFailed,
	Message: "a transactional batch needs the transactional id in its request",
}

// producedTransaction is what the coordinator said about the partitions of one
// request.
type producedTransaction struct {
	checks []partition.TxnCheck // By index of the result.
	codes  []kafka.Code
}

// producer is who sends a batch.
type producer struct {
	id    kafka.ProducerID
	epoch kafka.ProducerEpoch
}

// join asks the coordinator of the request's transaction about the partitions in
// which that transaction is not open yet: usually none, and all of them in one go.
// The connection's next request is read when the answer is here, so that batches of
// one producer are appended in the order in which it sent them.
func (r *produceReply) join(ctx context.Context) {
	r.txn = &producedTransaction{
		checks: make([]partition.TxnCheck, len(r.results)), codes: make([]kafka.Code, len(r.results)),
	}
	asked := map[producer][]int{}
	joining := map[producer]*transactions.Joining{}
	for _, t := range r.topics {
		topic, code := r.handler.s.resolve(t.name, t.id, r.version >= 13)
		if code != kafka.ErrNone {
			continue // It is refused when it is appended to.
		}
		for i := t.first; i < t.end; i++ {
			p := topic.Partition(r.results[i].index)
			who, needed := r.txn.begin(p, r.results[i].records, i)
			if !needed {
				continue
			}
			if joining[who] == nil {
				joining[who] = r.joining(who)
			}
			asked[who] = append(asked[who], i)
			joining[who].Add(p)
		}
	}
	for who, j := range joining {
		r.ask(ctx, j, asked[who])
	}
}

func (r *produceReply) joining(who producer) *transactions.Joining {
	return &transactions.Joining{
		ID: strings.Clone(r.transactionalID), ProducerID: who.id, ProducerEpoch: who.epoch,
		VerifyOnly: r.version < produceJoins,
	}
}

// ask asks the coordinator about partitions, which are those of some results.
func (r *produceReply) ask(ctx context.Context, j *transactions.Joining, results []int) {
	r.wire.SendEarlier()
	ctx, cancel := bounded(ctx, int32(r.timeout.Milliseconds()))
	defer cancel()
	for k, code := range r.handler.s.Transactions.Join(ctx, j) {
		r.txn.codes[results[k]] = r.joinCode(code)
	}
}

// begin looks whether the coordinator is to be asked about a partition, and who
// sends the batch.
func (t *producedTransaction) begin(p *partition.Partition, data []byte, i int) (who producer, needed bool) {
	b, _, err := record.Next(data)
	if err != nil || p == nil || !b.IsTransactional() {
		return producer{}, false // If anything is wrong with it the append says so.
	}
	who = producer{b.ProducerID(), b.ProducerEpoch()}
	if t.checks[i], needed, err = p.BeginVerification(who.id, who.epoch); err != nil {
		return producer{}, false
	}
	return who, needed
}

// appendTxn appends r.batches, if the coordinator has nothing against it. The marker
// of the transaction before may have been written while the coordinator was asked,
// which waits for it: then what it said may have been about that one, and it is asked
// again unless that would be wrong (transactions.Joining.IsFinal).
func (r *produceReply) appendTxn(
	ctx context.Context, p *partition.Partition, i int, now time.Time,
) (commitlog.AppendInfo, error) {
	for joins := 1; ; joins++ {
		if code := r.txn.codes[i]; code != kafka.ErrNone {
			return nothingAppended(), &kafka.Error{Code: code, Message: joinRefusal(code)}
		}
		info, err := p.AppendTxn(kafka.NoLeaderEpoch, r.batches, r.acks, r.txn.checks[i], now)
		_, stale := errors.AsType[*producerstate.TransactionStateError](err)
		if !stale || joins == transactions.MaxJoins || r.version < produceJoins {
			return info, err
		}
		who, needed := r.txn.begin(p, r.results[i].records, i)
		if !needed {
			continue
		}
		j := r.joining(who)
		j.Add(p)
		r.ask(ctx, j, []int{i})
	}
}

// joinCode is what a producer of the request's version is told of the coordinator's
// answer.
func (r *produceReply) joinCode(code kafka.Code) kafka.Code {
	switch code {
	case kafka.ErrNone, kafka.ErrUnknownTopicOrPartition, kafka.ErrInvalidTxnState,
		kafka.ErrInvalidProducerIDMapping, kafka.ErrInvalidProducerEpoch:
		return code
	case kafka.ErrProducerFenced:
		return kafka.ErrInvalidProducerEpoch
	case kafka.ErrTransactionAbortable:
		if r.version < produceAbortable {
			return kafka.ErrInvalidTxnState
		}
		return code
	case kafka.ErrConcurrentTransactions:
		if r.version >= produceJoins {
			return code
		}
	}
	return kafka.ErrNotEnoughReplicas // Which every producer tries again after.
}

// joinRefusal says in words why a batch is not appended.
func joinRefusal(code kafka.Code) string {
	switch code {
	case kafka.ErrInvalidProducerEpoch:
		return "another producer has taken over the transactional id, or the transaction took longer than its " +
			"timeout and was aborted: start a new producer"
	case kafka.ErrInvalidProducerIDMapping:
		return "the transactional id belongs to another producer id, or was not used for so long that it was " +
			"forgotten: start a new producer"
	case kafka.ErrInvalidTxnState, kafka.ErrTransactionAbortable:
		return "the partition is not part of the transaction: abort the transaction and begin another"
	case kafka.ErrConcurrentTransactions:
		return "the transaction before this one is still being ended: try again"
	}
	return "the transaction's coordinator could not be asked whether the partition is part of it: try again"
}
