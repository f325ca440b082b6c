package api

import (
	"context"
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
		give, err := m.take(ctx, w)
		if err != nil {
			return badRequest(w, err)
		}
		defer give()
		req := P(new(T))
		if err := decode(w, req); err != nil {
			return badRequest(w, err)
		}
		w.Release()
		return &reply{answer(ctx, w, req)}
	}
}

// reply is an answer that is ready.
type reply struct{ kmsg.Response }

// Done implements wire.Response.
func (r *reply) Done() bool { return true }

// Deadline implements wire.Response.
func (r *reply) Deadline() time.Time { return time.Time{} }

// Encode implements wire.Response.
func (r *reply) Encode(w *wire.Writer) error {
	w.Append(r.AppendTo)
	return nil
}

// badRequest closes the connection: bytes that cannot be read cannot be
// answered, since nobody knows where they end.
func badRequest(w *wire.Request, err error) wire.Response {
	return wire.Close("cannot read " + kmsg.NameForKey(w.Key) + " request: " + err.Error())
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
