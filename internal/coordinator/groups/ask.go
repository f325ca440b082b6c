package groups

import (
	"context"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
)

// Runner runs one step of the machine that a group belongs to; a *Coordinator is
// one.
type Runner interface {
	Do(group string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error
	// Read is for a step that appends nothing, and whose reply must be of now.
	Read(ctx context.Context, group string, step func(m *group.Shard, nowMs int64, fx *shard.Effects)) error
}

// Ask runs a step of the machine of a group and waits for its reply, or until ctx
// ends: what came of the step is not known then. The reply is one of kmsg's. The
// caller says in from who asks; the time and the receiver of the reply are set
// here.
func Ask(
	ctx context.Context, r Runner, id string, from group.Context,
	step func(m *group.Shard, c *group.Context, fx *shard.Effects),
) (any, error) {
	return ask(ctx, from, step, func(run func(*group.Shard, int64, *shard.Effects)) error { return r.Do(id, run) })
}

// AskNow is Ask for a step that appends nothing, and whose reply must be of now: see
// Runner.Read.
func AskNow(
	ctx context.Context, r Runner, id string, from group.Context,
	step func(m *group.Shard, c *group.Context, fx *shard.Effects),
) (any, error) {
	return ask(ctx, from, step, func(run func(*group.Shard, int64, *shard.Effects)) error { return r.Read(ctx, id, run) })
}

func ask(
	ctx context.Context, from group.Context, step func(m *group.Shard, c *group.Context, fx *shard.Effects),
	do func(func(*group.Shard, int64, *shard.Effects)) error,
) (any, error) {
	in := coordinator.NewInbox()
	err := do(func(m *group.Shard, nowMs int64, fx *shard.Effects) {
		from.NowMs, from.Caller = nowMs, in
		step(m, &from, fx)
	})
	if err != nil {
		return nil, err
	}
	return in.Reply(ctx)
}
