package httpapi

// Transactions for clients without a Kafka library: POST /v1/transactions begins one,
// and what it answers with names it in the requests after that.
//
//	POST /v1/transactions                          InitProducerId
//	POST /v1/transactions/{transaction}/produce    txnproduce.go
//	POST /v1/transactions/{transaction}/offsets    txnoffsets.go
//	POST /v1/transactions/{transaction}/commit     EndTxn
//	POST /v1/transactions/{transaction}/abort      EndTxn
//	GET  /v1/transactions/{transaction}            what has become of it
//
// They are transactions of version 2 (KIP-890), each with an epoch of its own: what the
// coordinator and the partitions know of that epoch says of every request whether it is
// the first, a retry, or too late. See docs/decisions/015-http-transactions.md.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
)

// transactionsPath is where transactions are.
const transactionsPath = "/v1/transactions"

// defaultTransactionTimeout is the timeout of a transaction that names none: Kafka's
// transaction.timeout.ms.
const defaultTransactionTimeout = time.Minute

// BeginRequest begins a transaction.
type BeginRequest struct {
	TransactionalID *string `json:"transactional_id"`
	TimeoutMs       *int64  `json:"timeout_ms"`
}

// BegunTransaction is a transaction that was begun.
type BegunTransaction struct {
	Transaction     string `json:"transaction"`
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int64  `json:"timeout_ms"`
}

// EndedTransaction is a transaction that was committed or aborted.
type EndedTransaction struct {
	Transaction     string `json:"transaction"`
	TransactionalID string `json:"transactional_id"`
	State           string `json:"state"`
}

// TransactionDescription says what has become of a transaction.
type TransactionDescription struct {
	EndedTransaction
	TimeoutMs  int64            `json:"timeout_ms,omitempty"`
	StartedMs  *int64           `json:"started_ms,omitempty"`
	Partitions []TopicPartition `json:"partitions"`
}

// States of a transaction, as this API tells them. A fenced one was taken over: whether it
// had been committed before is not known any more.
const (
	stateOpen      = "open"
	stateCommitted = "committed"
	stateAborted   = "aborted"
	stateFenced    = "fenced"
)

// Versions of requests that this API speaks to the coordinator: EndTxn of the first with
// an epoch for each transaction.
const (
	initVersion = 5
	endVersion  = 5
)

func (s *server) beginTransaction(w http.ResponseWriter, r *http.Request) error {
	var req BeginRequest
	if _, err := s.decode(w, r, &req); err != nil {
		return err
	}
	id, timeout, err := req.terms(inside(r))
	if err != nil {
		return err
	}
	// The id may be one that was made just now: it goes along.
	body := appendJSON(nil, BeginRequest{TransactionalID: &id, TimeoutMs: &timeout})
	return s.toTransaction(w, r, body, true, id, func() error {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.Version, init.TransactionalID, init.TransactionTimeoutMillis = initVersion, &id, int32(timeout)
		init.ProducerID, init.ProducerEpoch = int64(kafka.NoProducerID), -1
		resp, err := s.askTransaction(r.Context(), init, txn.Context{})
		if err != nil {
			return err
		}
		begun := resp.(*kmsg.InitProducerIDResponse)
		answer(w, http.StatusOK, BegunTransaction{
			Transaction: tokenOf(txn.Producer{
				ID: id, PID: kafka.ProducerID(begun.ProducerID), Epoch: kafka.ProducerEpoch(begun.ProducerEpoch),
			}),
			TransactionalID: id, TimeoutMs: timeout,
		})
		return nil
	})
}

// terms returns the transactional id and the timeout, in milliseconds. An id of the
// broker's making is taken from other brokers alone.
func (q *BeginRequest) terms(inside bool) (id string, timeoutMs int64, err error) {
	timeoutMs = defaultTransactionTimeout.Milliseconds()
	if q.TimeoutMs != nil {
		timeoutMs = *q.TimeoutMs
	}
	switch {
	case timeoutMs <= 0 || timeoutMs > 1<<31-1:
		return "", 0, badRequest("timeout_ms is %d: a whole number from 1 to transaction.max.timeout.ms", timeoutMs)
	case q.TransactionalID == nil:
		var b [12]byte
		_, _ = rand.Read(b[:]) // Never fails.
		return txn.OncePrefix + hex.EncodeToString(b[:]), timeoutMs, nil
	}
	id = *q.TransactionalID
	switch {
	case id == "":
		return "", 0, badRequest("transactional_id is empty: leave it out to have one made, for this transaction alone")
	case len(id) > maxTransactionalID:
		return "", 0, badRequest("transactional_id has %d bytes: use at most %d", len(id), maxTransactionalID)
	case strings.HasPrefix(id, txn.OncePrefix) && !inside:
		return "", 0, badRequest("transactional ids that begin with %s are the broker's own: choose another, or leave it out",
			txn.OncePrefix)
	}
	return id, timeoutMs, nil
}

func (s *server) commitTransaction(w http.ResponseWriter, r *http.Request) error {
	return s.endTransaction(w, r, true)
}

func (s *server) abortTransaction(w http.ResponseWriter, r *http.Request) error {
	return s.endTransaction(w, r, false)
}

// endTransaction commits or aborts a transaction. It may be asked for again until somebody
// begins another under the same transactional id.
func (s *server) endTransaction(w http.ResponseWriter, r *http.Request, commit bool) error {
	p, err := s.aboutTransaction(r)
	if err != nil {
		return err
	}
	return s.toTransaction(w, r, nil, false, p.ID, func() error {
		end := kmsg.NewPtrEndTxnRequest()
		end.Version, end.TransactionalID, end.Commit = endVersion, p.ID, commit
		end.ProducerID, end.ProducerEpoch = int64(p.PID), int16(p.Epoch)
		if _, err := s.askTransaction(r.Context(), end, txn.Context{NoLibrary: true}); err != nil {
			return err
		}
		out := EndedTransaction{tokenOf(p), p.ID, stateAborted}
		if commit {
			out.State = stateCommitted
		}
		answer(w, http.StatusOK, out)
		return nil
	})
}

func (s *server) describeTransaction(w http.ResponseWriter, r *http.Request) error {
	p, err := s.aboutTransaction(r)
	if err != nil {
		return err
	}
	return s.toTransaction(w, r, nil, false, p.ID, func() error {
		ctx, cancel := context.WithTimeout(r.Context(), failoverPatience)
		defer cancel()
		standing, err := s.Transactions.Standing(ctx, p)
		if err != nil {
			return unanswered(err)
		}
		out := TransactionDescription{
			EndedTransaction: EndedTransaction{tokenOf(p), p.ID, stateOf(standing)},
			TimeoutMs:        int64(standing.TimeoutMs), Partitions: []TopicPartition{},
		}
		switch standing.Code {
		case kafka.ErrNone, kafka.ErrProducerFenced:
		case kafka.ErrTransactionalIDNotFound:
			return refuse(http.StatusNotFound, standing.Code, "the transactional id %q is not known: it was not used for longer "+
				"than it is kept (transactional.id.expiration.ms, or an hour if the broker made it)", clip(p.ID))
		default:
			return txnRefusal(standing.Code)
		}
		if standing.StartMs > 0 {
			out.StartedMs = &standing.StartMs
		}
		for _, tp := range standing.Partitions {
			out.Partitions = append(out.Partitions, TopicPartition{tp.Topic, tp.Partition})
		}
		answer(w, http.StatusOK, out)
		return nil
	})
}

// stateOf is the state that clients are told.
func stateOf(t *txn.Standing) string {
	switch {
	case t.Code != kafka.ErrNone:
		return stateFenced
	case t.State == txn.PrepareCommit, t.State == txn.CompleteCommit:
		return stateCommitted
	case t.State == txn.PrepareAbort, t.State == txn.CompleteAbort:
		return stateAborted
	}
	return stateOpen
}

// aboutTransaction reads a request that says nothing but which transaction it is about.
func (s *server) aboutTransaction(r *http.Request) (txn.Producer, error) {
	if _, err := query(r); err != nil {
		return txn.Producer{}, err
	}
	return transactionOf(r)
}

// toTransaction answers a request on the broker that coordinates a transactional id.
func (s *server) toTransaction(
	w http.ResponseWriter, r *http.Request, body []byte, fickle bool, id string, here func() error,
) error {
	return s.travel(w, r, journey{
		find: func(ctx context.Context) (leadership, error) { return s.transactionsLeader(ctx, id) },
		here: here, body: body, patience: failoverPatience, fickle: fickle,
	})
}

// transactionsLeader finds the broker that coordinates a transactional id.
func (s *server) transactionsLeader(ctx context.Context, id string) (leadership, error) {
	if _, err := s.Transactions.BrokerOf(ctx, id); err != nil {
		return leadership{}, err
	}
	i, leader, err := s.Transactions.PartitionOf(id)
	return s.leadershipIn(metadata.TransactionsTopic, i, leader), err
}

// askTransaction has the machine of a transactional id answer, on this broker. While the
// markers of the transaction before are written it asks again, for as long as a request
// waits for anything.
func (s *server) askTransaction(ctx context.Context, req kmsg.Request, from txn.Context) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverPatience)
	defer cancel()
	for {
		resp, err := s.Transactions.Ask(ctx, req, from)
		if err != nil {
			return nil, unanswered(err)
		}
		code := kafka.ErrNone
		switch r := resp.(type) {
		case *kmsg.InitProducerIDResponse:
			code = kafka.Code(r.ErrorCode)
		case *kmsg.EndTxnResponse:
			code = kafka.Code(r.ErrorCode)
		}
		if code != kafka.ErrConcurrentTransactions || ctx.Err() != nil {
			return resp, txnRefusal(code)
		}
		sleep(ctx, firstPause)
	}
}

// unanswered says it in words if the coordinator did not answer in time.
func unanswered(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &kafka.Error{Code: kafka.ErrRequestTimedOut, Message: "the transaction's coordinator did not answer in time, and what came " +
			"of the request is not known: send it again"}
	}
	return err
}

// txnRefusal is a refusal of the transaction's coordinator, or of a partition; nil for
// ErrNone. In a transaction there is one way to be fenced, whoever notices.
func txnRefusal(code kafka.Code) error {
	if code == kafka.ErrNone {
		return nil
	}
	message := txnWords(code)
	if message == "" {
		message = "the transaction's coordinator refuses for now (" + code.String() + "): try again"
	}
	if code == kafka.ErrInvalidProducerEpoch {
		code = kafka.ErrProducerFenced
	}
	return &kafka.Error{Code: code, Message: message}
}

// txnWords says what a refusal means for a transaction; "" if nothing.
func txnWords(code kafka.Code) string {
	switch code {
	case kafka.ErrProducerFenced, kafka.ErrInvalidProducerEpoch:
		return "the transaction is over: it was committed or aborted, its time was up (timeout_ms), or another was begun under " +
			"its transactional id. Begin another; GET /v1/transactions/{transaction} says what became of this one"
	case kafka.ErrInvalidProducerIDMapping:
		return "the transactional id is not known, or has another producer id since: it was not used for longer than it is kept. " +
			"Begin another transaction"
	case kafka.ErrInvalidTxnState:
		return "the transaction has ended already, and otherwise: GET /v1/transactions/{transaction} says how. If its time was up " +
			"(timeout_ms) it was aborted: begin another"
	case kafka.ErrTransactionAbortable:
		return "the transaction cannot go on: abort it and begin another"
	case kafka.ErrInvalidTransactionTimeout:
		return "timeout_ms is longer than transaction.max.timeout.ms"
	case kafka.ErrThrottlingQuotaExceeded:
		return "too many transactions without a transactional id are open: end those that were begun, or wait until their time " +
			"is up (timeout_ms)"
	case kafka.ErrConcurrentTransactions:
		return "the transaction before this one is still being ended: try again"
	}
	return ""
}
