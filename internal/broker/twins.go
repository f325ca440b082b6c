package broker

import (
	"context"
	"fmt"
	"time"
)

// twinPatience is for how long a broker is told that it runs elsewhere before it believes
// it. One that was started again at another address, right after a crash, is told so for
// as long as others still expect the old process.
const twinPatience = 3 * time.Second

// twins ends a broker whose data directory another process uses a copy of. It must not
// wait for the end of that one: it would take its place, without what that has written
// since the copy was made.
type twins struct {
	news chan error
	// joined says that the cluster has let this broker in: then it is the one.
	joined func() bool
	// check looks who is at the address that others were told.
	check func(context.Context) error
}

func newTwins(joined func() bool) *twins { return &twins{news: make(chan error, 1), joined: joined} }

// told takes what another broker says. It never blocks.
func (t *twins) told(err error) {
	select {
	case t.news <- err:
	default:
	}
}

// run returns an error when the broker was told for twinPatience, or when another answers in
// its place before it was let in; without one when ctx ends.
func (t *twins) run(ctx context.Context) error {
	var first, last time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			if t.joined() {
				continue
			}
			if err := t.check(ctx); err != nil {
				return fmt.Errorf("this broker must not run: %w", err)
			}
			timer.Reset(twinPatience)
		case err := <-t.news:
			now := time.Now()
			if now.Sub(last) > twinPatience {
				first = now // The first in a long time.
			}
			if last = now; now.Sub(first) >= twinPatience {
				return fmt.Errorf("this broker must not run: %w", err)
			}
		}
	}
}
