package api_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// TestNoProducerID: where the controller gives this broker no producer ids, clients are told
// what all of them try again after, with a transactional id and without, and not what the
// controller said to the broker.
func TestNoProducerID(t *testing.T) {
	w := startWorld(t)
	w.createTopic(metadata.TransactionsTopic, 2, "cleanup.policy=compact")
	c := w.connect()
	ask := func(transactionalID *string) kafka.Code {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, transactionalID, 60_000
		return kafka.Code(c.ask(req).(*kmsg.InitProducerIDResponse).ErrorCode)
	}
	id := "payments"
	for _, refusal := range []kafka.Code{kafka.ErrStaleBrokerEpoch, kafka.ErrRequestTimedOut, kafka.ErrNotController} {
		w.controlFails(&kafka.Error{Code: refusal})
		for _, transactionalID := range []*string{nil, &id} {
			if got := ask(transactionalID); got != kafka.ErrCoordinatorLoadInProgress {
				t.Errorf("after %s, with a transactional id %v: %s", refusal, transactionalID != nil, got)
			}
		}
	}
	w.controlFails(nil)
	if a, b := ask(nil), ask(&id); a != kafka.ErrNone || b != kafka.ErrNone {
		t.Errorf("when there are ids again: %s and %s", a, b)
	}
}
