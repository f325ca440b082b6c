package txn_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// TestAnswersWait: what is told of a record that is not committed yet waits for that, also
// where nothing is appended for it: the record may be lost with its coordinator.
func TestAnswersWait(t *testing.T) {
	w := newWorld()
	w.ask(nil, initRequest(), kafka.ProducerID(100))
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.SetVersion(5)
	add.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
		TransactionalID: "x", ProducerID: 100,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{0}}},
	}}
	verify := kmsg.NewPtrAddPartitionsToTxnRequest()
	*verify = *add
	verify.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{add.Transactions[0]}
	verify.Transactions[0].VerifyOnly = true
	end := kmsg.NewPtrEndTxnRequest()
	end.SetVersion(5)
	end.TransactionalID, end.ProducerID, end.Commit = "x", 100, true
	waits := func(what string, step func(fx *shard.Effects)) {
		t.Helper()
		var fx shard.Effects
		step(&fx)
		if last := kafka.Offset(len(w.log)); len(fx.Records) > 0 || len(fx.Replies) != 1 || fx.MinHighWatermark != last {
			t.Errorf("%s: %d records, %d replies, that wait for a high watermark of %d, want %d",
				what, len(fx.Records), len(fx.Replies), fx.MinHighWatermark, last)
		}
	}
	asks := func(req kmsg.Request) func(fx *shard.Effects) {
		c := &txn.Context{NowMs: w.nowMs, Caller: &caller{w, "client", nil}, ProducerID: kafka.NoProducerID}
		return func(fx *shard.Effects) { w.shard.Handle(c, req, fx) }
	}
	w.ask(nil, add, kafka.NoProducerID)
	waits("add again", asks(add))
	waits("verify", asks(verify))
	w.ask(nil, end, kafka.NoProducerID)
	waits("end again", asks(end))
	waits("what became of it", func(fx *shard.Effects) {
		c := &txn.Context{NowMs: w.nowMs, Caller: &caller{w, "client", nil}}
		w.shard.Standing(c, txn.Producer{ID: "x", PID: 100}, fx)
	})
	waits("the markers", func(fx *shard.Effects) { w.shard.Tick(w.nowMs, fx) })
}

func initRequest() *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(5)
	id := "x"
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	return req
}
