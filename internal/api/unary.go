package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/wire"
)

// message is a pointer to a kmsg request of type T.
type message[T any] interface {
	*T
	kmsg.Request
}

// unary makes a handler of a function that answers at once. Nothing of the request
// aliases the frame, which is released before the function runs.
func unary[T any, P message[T]](
	m *memory, answer func(context.Context, *wire.Request, P) kmsg.Response,
) func(context.Context, *wire.Request) wire.Response {
	return func(ctx context.Context, w *wire.Request) wire.Response {
		req := P(new(T))
		give, err := m.read(ctx, w, req)
		if err != nil {
			return badRequest(w, err)
		}
		defer give()
		w.Release()
		return m.encode(w, answer(ctx, w, req))
	}
}

// reply is an answer that is ready. It holds the bytes instead of the message,
// which takes several times as much: an answer may wait long behind others.
type reply struct {
	memory *memory
	body   []byte
}

// encode makes an answer ready and charges what it holds.
func (m *memory) encode(w *wire.Request, resp kmsg.Response) *reply {
	r, _ := m.replies.Get().(*reply)
	if r == nil {
		r = &reply{memory: m}
	}
	m.errors.noteAll(w.Key, resp)
	r.body = resp.AppendTo(r.body[:0])
	w.Charge(int64(cap(r.body)))
	return r
}

// keptBody is the largest buffer that is kept for the next answer.
const keptBody = 16 << 10

// Done implements wire.Response.
func (r *reply) Done() bool { return true }

// Deadline implements wire.Response.
func (r *reply) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (r *reply) Encode(w *wire.Writer) error {
	w.Bytes(r.body)
	if cap(r.body) <= keptBody {
		r.memory.replies.Put(r)
	}
	return nil
}

// laterReply is an answer that somebody else gives, now or later: the machine of a
// group, or the controller. Both have deadlines of their own for everything that they
// park.
type laterReply struct {
	wire   *wire.Request
	memory *memory

	mu     sync.Mutex
	answer *reply
	err    error
	over   bool // Encoded: what is completed now comes too late.
	done   atomic.Bool
}

// complete makes the answer ready; with an error there is none, and the connection
// ends.
func (r *laterReply) complete(resp kmsg.Response, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.err = err; err == nil {
		r.answer = r.memory.encode(r.wire, resp)
	}
	r.done.Store(true)
	r.wire.Wake()
}

// Done implements wire.Response.
func (r *laterReply) Done() bool { return r.done.Load() }

// Deadline implements wire.Response.
func (r *laterReply) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (r *laterReply) Encode(w *wire.Writer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.answer == nil {
		return r.err // Without one the connection died first: there is nobody to tell.
	}
	return r.answer.Encode(w)
}

// badRequest closes the connection: bytes that cannot be read cannot be
// answered, since nobody knows where they end.
func badRequest(w *wire.Request, err error) wire.Response {
	return wire.Close(fmt.Sprintf("cannot read %s request, version %d: %v", kmsg.NameForKey(w.Key), w.Version, err))
}

// flexibleFrom returns the first version of a request with tagged fields.
func flexibleFrom(key kmsg.Key) int16 {
	req := kmsg.RequestForKey(key.Int16())
	for v := range req.MaxVersion() + 1 {
		if req.SetVersion(v); req.IsFlexible() {
			return v
		}
	}
	return req.MaxVersion() + 1
}

func ptr(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
