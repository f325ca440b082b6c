package peer

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
)

// Cause says why a connection is down.
type Cause uint8

// The causes.
const (
	// Refused: the host answers, and nobody listens there. The process is gone.
	Refused Cause = iota + 1
	// Closed: the other side closed the connection, as the kernel does for a
	// process that dies.
	Closed
	// Unreachable: the dial failed otherwise, or took too long.
	Unreachable
	// Silent: it took too long to answer.
	Silent
	// Unknown: there is no address to dial.
	Unknown
	// Garbled: what came is not the protocol.
	Garbled
	// Ended: this side closed the connection.
	Ended
	// Rejected: it does not take this side's certificate.
	Rejected
)

// String says it in words.
func (c Cause) String() string {
	switch c {
	case Refused:
		return "nobody listens there"
	case Closed:
		return "it closed the connection"
	case Unreachable:
		return "it can't be reached"
	case Silent:
		return "it does not answer"
	case Unknown:
		return "its address is not known"
	case Garbled:
		return "it does not speak the protocol"
	case Ended:
		return "the connection was ended here"
	case Rejected:
		return "it refuses this side's certificate"
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// DownError says that a request got no answer because the connection is down. The
// request may have been handled, or not.
type DownError struct {
	Address string
	Cause   Cause
	Err     error // What the network said; may be nil.
}

// Error implements error.
func (e *DownError) Error() string {
	s := fmt.Sprintf("broker at %s: %s", e.Address, e.Cause)
	if e.Address == "" {
		s = "broker: " + e.Cause.String()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns what the network said.
func (e *DownError) Unwrap() error { return e.Err }

// Unsent reports whether nothing of the request went out: it may be sent again, or
// elsewhere.
func (e *DownError) Unsent() bool {
	return e.Cause == Refused || e.Cause == Unreachable || e.Cause == Unknown
}

// Died reports whether the error says that the process at the other end is gone:
// a refused dial, or a connection that it closed.
func Died(err error) bool {
	var down *DownError
	return errors.As(err, &down) && (down.Cause == Refused || down.Cause == Closed)
}

// UnsupportedError says that a broker does not know a request, or no version of it
// that this build knows.
type UnsupportedError struct {
	Address string
	Key     int16
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("broker at %s does not know any version of request %d that this build knows: "+
		"run the same release on all brokers", e.Address, e.Key)
}

// RefusedError says that a message of Raft is not taken, and why: it comes from
// another cluster, is for another node or another data directory, or its node runs twice.
type RefusedError struct {
	Code   kafka.Code
	Reason string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Reason }

// needsHelp reports whether somebody must do something about it, other than for a
// node that starts or stops.
func (e *RefusedError) needsHelp() bool {
	return e.Code == kafka.ErrInconsistentClusterID || e.Code == kafka.ErrInvalidVoterKey ||
		e.Code == kafka.ErrDuplicateBrokerRegistration
}
