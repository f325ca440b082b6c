package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// retryAfter is how many seconds a client is told to wait before it tries again.
const retryAfter = 1

// Problem is why a request was refused, as clients see it.
type Problem struct {
	Code      string `json:"code"` // Kafka's name of the error.
	Message   string `json:"message"`
	Retriable bool   `json:"retriable"`
}

// problemBody is the body of a refusal.
type problemBody struct {
	Error Problem `json:"error"`
}

// httpError is an error that says more about its answer than a protocol code
// does.
type httpError struct {
	status  int
	code    kafka.Code
	message string
	allow   string // The methods of the path, with status 405.
}

// Error implements error.
func (e *httpError) Error() string { return e.code.String() + ": " + e.message }

// refuse returns an error with a status of its own.
func refuse(status int, code kafka.Code, format string, args ...any) error {
	return &httpError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// badRequest returns the error of a request that is not well formed.
func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, kafka.ErrInvalidRequest, format, args...)
}

// errorOf returns the error of a code and message of the protocol, nil for none.
func errorOf(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &kafka.Error{Code: kafka.Code(code)}
	if message != nil {
		e.Message = *message
	}
	if e.Message == "" {
		e.Message = e.Code.String()
	}
	return e
}

// problemOf says what an error is to a client, with its status.
func problemOf(err error) (int, Problem) {
	var own *httpError
	if errors.As(err, &own) {
		return own.status, Problem{own.code.String(), own.message, retriable(own.status, own.code)}
	}
	var on *passedOn
	if errors.As(err, &on) {
		return on.status, on.problem
	}
	code := refusal.CodeOf(err)
	status := statusOf(code)
	return status, Problem{code.String(), refusal.MessageOf(err), retriable(status, code)}
}

// retriable says whether the same request may succeed later. A topic that is not
// there, which Kafka's clients ask for again since their metadata may be old, is
// not there.
func retriable(status int, code kafka.Code) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout:
		return true
	case http.StatusNotFound:
		return false
	}
	return code.Retriable()
}

// statusOf returns the status that a code comes with.
func statusOf(code kafka.Code) int {
	switch code {
	case kafka.ErrNone:
		return http.StatusOK
	case kafka.ErrUnknownTopicOrPartition, kafka.ErrUnknownTopicID, kafka.ErrGroupIDNotFound,
		kafka.ErrTransactionalIDNotFound, kafka.ErrResourceNotFound, kafka.ErrUnknownMemberID:
		return http.StatusNotFound
	case kafka.ErrTopicAlreadyExists, kafka.ErrNonEmptyGroup, kafka.ErrIllegalGeneration,
		kafka.ErrDuplicateResource, kafka.ErrFencedInstanceID,
		kafka.ErrInconsistentGroupProtocol, kafka.ErrGroupSubscribedToTopic,
		kafka.ErrTopicDeletionDisabled, kafka.ErrGroupMaxSizeReached, kafka.ErrProducerFenced,
		kafka.ErrInvalidProducerEpoch, kafka.ErrInvalidProducerIDMapping, kafka.ErrInvalidTxnState,
		kafka.ErrTransactionAbortable, kafka.ErrOutOfOrderSequenceNumber, kafka.ErrUnknownProducerID:
		return http.StatusConflict
	case kafka.ErrMessageTooLarge, kafka.ErrRecordListTooLarge:
		return http.StatusRequestEntityTooLarge
	case kafka.ErrThrottlingQuotaExceeded:
		return http.StatusTooManyRequests
	case kafka.ErrInvalidRequest, kafka.ErrInvalidTopicException, kafka.ErrInvalidConfig,
		kafka.ErrInvalidPartitions, kafka.ErrInvalidReplicationFactor,
		kafka.ErrInvalidReplicaAssignment, kafka.ErrInvalidRequiredAcks, kafka.ErrInvalidRecord,
		kafka.ErrInvalidTimestamp, kafka.ErrInvalidGroupID, kafka.ErrInvalidSessionTimeout,
		kafka.ErrInvalidTransactionTimeout,
		kafka.ErrOffsetMetadataTooLarge, kafka.ErrInvalidCommitOffsetSize, kafka.ErrInvalidFetchSize,
		kafka.ErrUnsupportedCompressionType, kafka.ErrPolicyViolation, kafka.ErrOffsetOutOfRange:
		return http.StatusBadRequest
	}
	if code.Retriable() || code == kafka.ErrBrokerNotAvailable || code == kafka.ErrRebalanceInProgress {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// statusOfName is statusOf for the name of a code, as another broker tells it.
func statusOfName(name string) int {
	for code := kafka.ErrUnknownServerError; code <= kafka.ErrRebootstrapRequired; code++ {
		if code.String() == name {
			return statusOf(code)
		}
	}
	return http.StatusInternalServerError
}

// lacksTopic reports whether a request was refused because this broker has not heard
// of its topic yet: the one that has passed it on has.
func (s *server) lacksTopic(r *http.Request, err error) bool {
	if refusal.CodeOf(err) != kafka.ErrUnknownTopicOrPartition || r.PathValue("topic") == "" {
		return false
	}
	_, code := s.Topics.ByName(r.PathValue("topic"))
	return code != kafka.ErrNone
}

// fail answers with an error.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if inside(r) && (undone(err) || s.lacksTopic(r, err)) {
		w.Header().Set(undoneField, "1")
	}
	if errors.Is(err, context.Canceled) {
		// The client is gone, or the broker stops; who is still there is told.
		err = refuse(http.StatusServiceUnavailable, kafka.ErrBrokerNotAvailable, "the broker is stopping: try again")
	}
	status, problem := problemOf(err)
	var own *httpError
	if errors.As(err, &own) && own.allow != "" {
		w.Header().Set("Allow", own.allow)
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if status == http.StatusInternalServerError {
		s.log.write(s.Now(), "request failed", r, err)
	}
	answer(w, status, problemBody{problem})
}
