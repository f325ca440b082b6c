package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// Remote carries requests to the cluster listeners of other brokers. It may set
// another version in a request. An error with a method Unsent that returns true says
// that the request never left.
type Remote interface {
	Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error)
}

// decision is how a kind of request is decided.
type decision[Q kmsg.Request, R kmsg.Response] struct {
	what   string // As in "create topics".
	decide func(*controller.State, Q) (R, []metadata.Record)
	// routine answers a request that changes nothing, without a decision; may be nil.
	routine func(Q) (R, bool)
	// decided is called where the decision was made, once it is in effect; may be
	// nil.
	decided func(Q, R)
	// shown says whether an image shows what an answer says; nil where nobody waits
	// for that.
	shown func(*metadata.Image, R) bool
	// repeatable says that to decide a second time does no harm.
	repeatable bool
}

// decide runs f on the quorum's loop, has its records replicated, and returns its
// answer once they are applied here. After an error with made, nobody knows whether
// the records will be, so there is no answer. The request must not be used again
// after such an error: the decision may still be made from it.
func decide[Q, R any](
	ctx context.Context, c *ControlPlane, what string, req Q,
	f func(*controller.State, Q) (R, []metadata.Record),
) (answer R, made bool, err error) {
	var decided R // Written by the loop: not to be read after an error.
	err = c.proposer.Do(ctx, func() ([]byte, error) {
		made = true
		c.takeOver()
		a, records := f(c.state, req)
		decided = a
		if len(records) == 0 {
			return nil, nil
		}
		return metadata.AppendRecords(nil, records...), nil
	})
	if err != nil {
		return answer, made, fmt.Errorf("%s: %w", what, err)
	}
	return decided, true, nil
}

// here decides a request on this node.
func here[Q kmsg.Request, R kmsg.Response](
	ctx context.Context, c *ControlPlane, d decision[Q, R], req Q,
) (resp R, made bool, err error) {
	if d.routine != nil {
		if resp, ok := d.routine(req); ok {
			return resp, true, nil
		}
	}
	resp, made, err = decide(ctx, c, d.what, req, d.decide)
	if err == nil && d.decided != nil {
		d.decided(req, resp)
	}
	return resp, made, err
}

// The pauses between tries to reach the active controller, where it is not known
// that there is another.
const (
	firstPause = 10 * time.Millisecond
	maxPause   = 200 * time.Millisecond
)

// visibleTimeout bounds the wait for this node's image to show what the active
// controller has decided.
const visibleTimeout = 5 * time.Second

// ask has a request decided by the active controller, here or elsewhere, and waits
// for one while there is none. It goes from one controller to the next as long as
// it is sure that none has decided.
func ask[Q kmsg.Request, R kmsg.Response](
	ctx context.Context, c *ControlPlane, d decision[Q, R], req Q,
) (R, error) {
	var none R
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		elected, changed := c.leader()
		var why error
		switch {
		case c.remote == nil || elected.leader == c.controller.Self:
			resp, made, err := here(ctx, c, d, req)
			if err == nil || made || c.remote == nil {
				return resp, err
			}
			why = err
		case elected.leader != kafka.NoBroker:
			resp, sent, err := there(ctx, c, d, elected.leader, changed, req)
			if err == nil {
				return resp, nil
			}
			if sent && !d.repeatable {
				return none, err
			}
			why = err
		default:
			why = &kafka.Error{
				Code:    kafka.ErrNotController,
				Message: d.what + ": no active controller is known: a majority of the voters is needed",
			}
		}
		if err := c.pause(ctx, changed, pause); err != nil {
			return none, errors.Join(why, err)
		}
	}
}

// pause waits for a change of the leader, or a while where one is known. It
// returns why it ended early.
func (c *ControlPlane) pause(ctx context.Context, changed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// lastWord is for how long a node that leads no more is waited for that may have
// decided a request: it may hang, and whoever asks had better ask again.
const lastWord = 500 * time.Millisecond

// there has a request decided by another node. Its error says whether the request
// may have been decided. A request does not wait for a node that leads no more, and
// hardly if it is not repeatable.
func there[Q kmsg.Request, R kmsg.Response](
	ctx context.Context, c *ControlPlane, d decision[Q, R],
	to kafka.BrokerID, changed <-chan struct{}, req Q,
) (resp R, sent bool, err error) {
	patience := lastWord
	if d.repeatable {
		patience = 0
	}
	asking, stop := until(ctx, changed, patience)
	defer stop()
	version := req.GetVersion()
	answer, err := c.remote.Do(asking, to, req)
	req.SetVersion(version)
	if err != nil {
		var unsent interface{ Unsent() bool }
		sent = !errors.As(err, &unsent) || !unsent.Unsent()
		return resp, sent, &controllerError{what: d.what, at: to, sent: sent, cause: err}
	}
	resp, ok := answer.(R)
	if !ok {
		return resp, true, fmt.Errorf("%s: broker %d answers with a %T", d.what, to, answer)
	}
	resp.SetVersion(version)
	if refusedBy(resp) == kafka.ErrNotController {
		return resp, false, &kafka.Error{
			Code: kafka.ErrNotController, Message: fmt.Sprintf("%s: broker %d is not the active controller", d.what, to),
		}
	}
	if d.shown != nil {
		waiting, cancel := context.WithTimeout(ctx, visibleTimeout)
		defer cancel()
		// That it is decided is what counts.
		_ = c.await(waiting, func(image *metadata.Image) bool { return d.shown(image, resp) })
	}
	return resp, true, nil
}

// until returns a context that also ends a while after a channel is closed. stop must
// be called, and waits for what it takes.
func until(ctx context.Context, closed <-chan struct{}, while time.Duration) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-closed:
		case <-ctx.Done():
			return
		}
		if while > 0 {
			timer := time.NewTimer(while)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}

// controllerError says that the active controller gave no answer.
type controllerError struct {
	what  string
	at    kafka.BrokerID
	sent  bool
	cause error
}

// Error implements error.
func (e *controllerError) Error() string {
	s := fmt.Sprintf("%s: the active controller, broker %d, gave no answer: %v", e.what, e.at, e.cause)
	if e.sent {
		s += "; the change may still happen"
	}
	return s
}

// Unwrap returns the protocol's error, so that a client is told one, and the
// cause.
func (e *controllerError) Unwrap() []error {
	code := kafka.ErrNotController
	if e.sent {
		code = kafka.ErrRequestTimedOut
	}
	return []error{&kafka.Error{Code: code, Message: e.Error()}, e.cause}
}

// await waits until those who watch the image know one of which f is true. The image
// itself is there before they do.
func (c *ControlPlane) await(ctx context.Context, f func(*metadata.Image) bool) error {
	for {
		next := c.published.wait()
		if f(c.told.Load()) {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
