package api

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/wire"
)

// message is a pointer to a kmsg request of type T.
type message[T any] interface {
	*T
	kmsg.Request
}

// unary makes a handler of a function that answers at once. The request's
// strings are copies, so the frame is released before the function runs.
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
