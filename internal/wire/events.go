package wire

import (
	"net"
	"time"
)

// Events observe a server. Each function may be nil, and then costs nothing. They
// are called from the connections' goroutines, must be safe to call at the same
// time, and must return quickly.
type Events struct {
	// ConnOpened is called before the first byte of a connection is read.
	ConnOpened func(c *Conn)
	// ConnClosed is called when a connection is gone, with the reason.
	ConnClosed func(c *Conn, reason CloseReason, err error)
	// ConnRefused is called for a connection that was closed unread because a
	// limit of connections was reached.
	ConnRefused func(listener string, remote net.Addr, reason CloseReason)
	// RequestDone is called when a request was answered: its response was
	// encoded, or none was due. stats is valid during the call. Setting it costs
	// two more readings of the clock a request; Server.Times costs none.
	RequestDone func(stats *RequestStats)
}

// RequestStats describe one request that was answered.
type RequestStats struct {
	Conn         *Conn
	Key, Version int16
	// RequestBytes and ResponseBytes are sizes of frames with their length;
	// ResponseBytes is 0 if there was no response.
	RequestBytes, ResponseBytes int64
	// Queued is the time from the last byte's arrival to the handler's start,
	// Handled the handler's, and Total all of it up to the encoded response.
	Queued, Handled, Total time.Duration
	// Dropped says that the connection died before the response could be sent.
	Dropped bool
}

// CloseReason is why a connection was closed.
type CloseReason int

// The reasons to close a connection.
const (
	ClosedByPeer    CloseReason = iota // The client closed it, or the network failed.
	ClosedForStop                      // The server stops.
	ClosedIdle                         // Nothing was said for too long.
	ClosedSlow                         // No progress, or too little.
	ClosedInvalid                      // Bytes that are no request of this protocol.
	ClosedRequest                      // A request that cannot be answered otherwise.
	ClosedHandshake                    // The TLS handshake failed.
	ClosedTooMany                      // Too many connections.
	ClosedTooManyIP                    // Too many connections from one address.
	ClosedResponse                     // A response could not be read or encoded.
	ClosedDetached                     // It goes on with another protocol, elsewhere.
	closeReasonCount
)

// String returns a word for metrics and logs.
func (r CloseReason) String() string {
	switch r {
	case ClosedByPeer:
		return "peer"
	case ClosedForStop:
		return "stop"
	case ClosedIdle:
		return "idle"
	case ClosedSlow:
		return "slow"
	case ClosedInvalid:
		return "invalid"
	case ClosedRequest:
		return "request"
	case ClosedHandshake:
		return "handshake"
	case ClosedTooMany:
		return "connections"
	case ClosedTooManyIP:
		return "connections_per_ip"
	case ClosedResponse:
		return "response"
	case ClosedDetached:
		return "detached"
	default:
		return "unknown"
	}
}

// closeError ends a connection.
type closeError struct {
	reason CloseReason
	err    error
}

// Error implements error.
func (e *closeError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *closeError) Unwrap() error { return e.err }
