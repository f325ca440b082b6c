package coordinator

import "context"

// Inbox takes the one reply of a step, for a goroutine that waits for it.
type Inbox chan any

// NewInbox makes one.
func NewInbox() Inbox { return make(Inbox, 1) }

// Complete implements shard.Caller.
func (i Inbox) Complete(response any) { i <- response }

// Reply waits for the reply, or until ctx ends: the step may have run then.
func (i Inbox) Reply(ctx context.Context) (any, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case response := <-i:
		return response, nil
	}
}
