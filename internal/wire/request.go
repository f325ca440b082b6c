package wire

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Request is one request. It belongs to its handler until the Response was
// encoded, and must not be used after that, except for Wake.
type Request struct {
	// Key and Version say how Body is to be read.
	Key, Version int16
	// CorrelationID is returned to the client with the answer.
	CorrelationID int32
	// ClientID is what the client calls itself; it may be empty or nonsense.
	ClientID string
	// Body is the request without its header. It aliases a buffer that is used
	// again: it is valid until Release or until the response was encoded.
	Body []byte
	// Conn is where the request came from.
	Conn *Conn
	// Received is when its last bytes were read.
	Received time.Time
	// UnsupportedVersion marks an ApiVersions request of a version outside of the
	// table; its body is not to be read. All other APIs never see one.
	UnsupportedVersion bool

	sizeBytes int // Of the frame, with its length prefix.
	block     *block
	flexible  bool // The response header ends in a tag section.
	longPoll  bool
	handled   time.Duration // What the handler took, if anybody asked.
	queued    time.Duration // From Received to the handler.
	held      int64         // What the answer holds; guarded by the flusher's mu.
}

// Wake makes the connection look again whether the first response of its queue
// is done. It is safe from any goroutine, never blocks, and may be called too
// often or too late.
func (r *Request) Wake() { r.Conn.wake() }

// Release gives the memory behind Body back before the response is encoded, and
// with it a share of the memory for requests. Body is nil from then on. Calling
// it again does nothing.
func (r *Request) Release() {
	if b := r.block; b != nil {
		r.Body, r.block = nil, nil
		b.release()
	}
}

// Response is an answer in the making. Its methods are called by one goroutine
// at a time, in turn; none of them may block for long, because the answers
// behind it wait.
type Response interface {
	// Done reports whether Encode can be called now. While it is false, the
	// response must see to it that Request.Wake is called once it is true. Done
	// is asked only when every earlier answer of the connection was encoded.
	Done() bool
	// Deadline is when to stop waiting for Done; the zero time means never. It
	// must not change once Done was called.
	Deadline() time.Time
	// Encode writes the response's body. It is called exactly once: when Done, at
	// the deadline, or when the connection died, so that what the response holds
	// can be released; what it then writes is dropped. An error closes the
	// connection.
	Encode(w *Writer) error
}

// API is one row of the protocol's table.
type API struct {
	// Name is what messages call it.
	Name string
	// Key is the request's number; Min and Max are the versions that work.
	Key, Min, Max int16
	// FlexibleFrom is the first version whose headers have tagged fields.
	FlexibleFrom int16
	// Handle starts a request and returns its answer, or nil if the client
	// expects none. It runs in the connection's read loop: the next request of
	// the connection is handled when it returns. ctx ends when the server stops.
	Handle func(ctx context.Context, r *Request) Response
	// Quick says that Handle never waits for anything but the file system. Then
	// answers to requests that were read before may be held back until Handle
	// returns, to leave in one write with its own.
	Quick bool
	// Small says that the answer is about as long as the request at most.
	Small bool
	// LongPoll says that the answer may wait for something that need not happen,
	// and that nothing is lost if it stops waiting before its deadline, as it
	// does when the server stops.
	LongPoll bool
}

// SendEarlier sends the answers to the requests before this one, which are held back
// while a Quick handler runs: one that has to wait for something calls it first.
func (r *Request) SendEarlier() { r.Conn.out.kick() }

// apiVersionsKey is the one API whose unknown versions are answered, and whose
// response header never has tags, since a client must be able to read it before
// it knows what the broker speaks (KIP-511).
const apiVersionsKey = 18

// Close returns the response of a request that ends its connection: earlier
// answers are sent, then the connection is closed and the reason logged.
func Close(reason string) Response { return closeResponse{reason} }

// closeResponse is what Close returns.
type closeResponse struct{ reason string }

// Done implements Response.
func (closeResponse) Done() bool { return true }

// Deadline implements Response.
func (closeResponse) Deadline() time.Time { return time.Time{} }

// Encode implements Response; it is never sent.
func (closeResponse) Encode(*Writer) error { return nil }

// PanicError says that decoding a stranger's bytes panicked.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("decoder panicked: %v", e.Value) }

// Decode runs a decoder over a stranger's bytes and turns a panic into a
// *PanicError. It is for functions that read input and change nothing else.
func Decode(decode func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v}
		}
	}()
	return decode()
}

// maxSpareRequests bounds the Requests that a connection keeps for its next
// ones.
const maxSpareRequests = 32

// spareRequests are Requests whose life is over. They are used again only within
// their connection: a Wake that comes too late then wakes nobody else's.
type spareRequests struct {
	mu   sync.Mutex
	list []*Request
}

func (s *spareRequests) take(c *Conn) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	if n == 0 {
		return &Request{Conn: c}
	}
	req := s.list[n-1]
	s.list = s.list[:n-1]
	return req
}

func (s *spareRequests) put(req *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < maxSpareRequests {
		s.list = append(s.list, req)
	}
}
