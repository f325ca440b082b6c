package record

import (
	"errors"
	"fmt"
	"strconv"
)

// Reason is the kind of an InvalidError: what the edge maps to a Kafka code.
type Reason uint8

// The reasons, and the Kafka code that each stands for.
const (
	ReasonCorrupt          Reason = iota + 1 // CORRUPT_MESSAGE: changed on the way; retriable.
	ReasonInvalidRecord                      // INVALID_RECORD: not what a producer may send.
	ReasonInvalidTimestamp                   // INVALID_TIMESTAMP.
	ReasonTooLarge                           // MESSAGE_TOO_LARGE.
	ReasonUnsupportedCodec                   // UNSUPPORTED_COMPRESSION_TYPE.
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case ReasonCorrupt:
		return "corrupt batch"
	case ReasonInvalidRecord:
		return "invalid record"
	case ReasonInvalidTimestamp:
		return "invalid timestamp"
	case ReasonTooLarge:
		return "batch too large"
	case ReasonUnsupportedCodec:
		return "unsupported compression"
	}
	return "reason " + strconv.Itoa(int(r))
}

// WholeBatch is the RecordIndex of an error that no single record is to blame
// for.
const WholeBatch int32 = -1

// InvalidError says why a batch was refused.
type InvalidError struct {
	Reason      Reason
	RecordIndex int32  // Which record of the batch, from 0; WholeBatch if none.
	Message     string // What is wrong, what the limit is, what to do.

	cause error
}

// Error implements error.
func (e *InvalidError) Error() string {
	if e.RecordIndex >= 0 {
		return fmt.Sprintf("%s: record %d: %s", e.Reason, e.RecordIndex, e.Message)
	}
	return e.Reason.String() + ": " + e.Message
}

// Unwrap returns what a codec said, if it was a codec that failed.
func (e *InvalidError) Unwrap() error { return e.cause }

func invalid(reason Reason, format string, args ...any) *InvalidError {
	message := fmt.Sprintf(format, args...)
	return &InvalidError{Reason: reason, RecordIndex: WholeBatch, Message: message}
}

// invalidRecord blames record index.
func invalidRecord(index int32, err error) *InvalidError {
	return &InvalidError{
		Reason: ReasonInvalidRecord, RecordIndex: index, Message: err.Error(),
		cause: err,
	}
}

// invalidPayload is invalidRecord for an error that may come from a codec; one
// that ran into its bound of maxBytes is no record's fault.
func invalidPayload(index int32, err error, maxBytes int64) *InvalidError {
	if !errors.Is(err, ErrTooLarge) {
		return invalidRecord(index, err)
	}
	e := invalid(ReasonTooLarge, "%v of %d bytes: send smaller batches", err, maxBytes)
	e.cause = err
	return e
}
