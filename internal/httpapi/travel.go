package httpapi

// How a request gets to the broker that can answer it. A broker that a request was
// passed on to answers it or refuses it, and says with a refusal if it did nothing of
// it; then, as after a connection that was never made, the request is tried again
// where its leader is by then. What may have been carried out is tried again only if
// that does no harm.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/relay"
)

// undoneField says in a refusal between brokers that nothing of the request was done,
// and that the same request may succeed elsewhere.
const undoneField = relay.FieldPrefix + "Undone"

// The pauses between tries. Where nobody leads just now somebody does soon.
const (
	firstPause = 5 * time.Millisecond
	maxPause   = 100 * time.Millisecond
)

// failoverPatience is how long a request that names no time-out waits for a leader.
const failoverPatience = 10 * time.Second

// leadership is who leads a partition, and since when.
type leadership struct {
	leader kafka.BrokerID
	epoch  kafka.LeaderEpoch
}

// journey is a request on its way to whoever leads what it is about.
type journey struct {
	find func(ctx context.Context) (leadership, error)
	// here answers on this broker. If it fails it has written nothing.
	here     func() error
	body     []byte
	patience time.Duration
	form     form
	// fickle requests may not be sent again once they may have been carried out,
	// unless somebody else leads since.
	fickle bool
}

// lostError says that nobody knows what became of a request.
type lostError struct{ cause error }

// Error implements error.
func (e *lostError) Error() string { return "the request was passed on and lost: " + e.cause.Error() }

// Unwrap makes it a refusal to the client.
func (e *lostError) Unwrap() error {
	return &kafka.Error{
		Code: kafka.ErrNetworkException,
		Message: "the broker that the request was passed on to did not answer, and it is not known whether it was " +
			"carried out",
	}
}

// noLeaderError says that nobody leads a partition, by the metadata.
type noLeaderError struct{}

// Error implements error.
func (noLeaderError) Error() string { return "the partition has no leader: try again" }

// Unwrap makes it a refusal to the client.
func (e noLeaderError) Unwrap() error {
	return &kafka.Error{Code: kafka.ErrLeaderNotAvailable, Message: e.Error()}
}

// moved reports whether a refusal only says that somebody else is to be asked, or
// will be soon.
func moved(err error) bool {
	var on *passedOn
	if errors.As(err, &on) {
		return on.undone
	}
	if lost := (*lostError)(nil); errors.As(err, &lost) {
		return false
	}
	return movedCode(refusal.CodeOf(err)) || errors.Is(err, context.Canceled)
}

func movedCode(code kafka.Code) bool {
	switch code {
	case kafka.ErrNotLeaderOrFollower, kafka.ErrLeaderNotAvailable, kafka.ErrFencedLeaderEpoch,
		kafka.ErrUnknownLeaderEpoch, kafka.ErrOffsetNotAvailable, kafka.ErrNotCoordinator,
		kafka.ErrCoordinatorNotAvailable, kafka.ErrCoordinatorLoadInProgress, kafka.ErrBrokerNotAvailable:
		return true
	}
	return false
}

// doubtError wraps a refusal of what may have been done nevertheless.
type doubtError struct{ error }

// Unwrap returns the refusal.
func (e *doubtError) Unwrap() error { return e.error }

// undone reports whether nothing was done of what was refused, and somebody else may
// do it.
func undone(err error) bool {
	doubt := (*doubtError)(nil)
	return moved(err) && !errors.As(err, &doubt)
}

// unsent reports whether a request that failed has not left.
func unsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent()
}

// travel answers a request here or where its leader is, through changes of who that
// is, for as long as its patience lasts.
func (s *server) travel(w http.ResponseWriter, r *http.Request, j journey) error {
	ctx := r.Context()
	until := time.Now().Add(j.patience)
	pause := firstPause
	for {
		at, err := j.find(ctx)
		switch {
		case err != nil:
		case at.leader == s.NodeID:
			err = j.here()
		case !s.travels(r):
			err = &kafka.Error{
				Code: kafka.ErrNotLeaderOrFollower, Message: "another broker leads the partition: try again",
			}
		default:
			err = s.pass(w, r, &j, at.leader)
		}
		if err == nil {
			return nil
		}
		if lost := (*lostError)(nil); errors.As(err, &lost) && (!j.fickle || s.changed(ctx, &j, at, until)) {
			pause, err = firstPause, &kafka.Error{Code: kafka.ErrNotLeaderOrFollower, Message: err.Error()}
		}
		if !s.travels(r) || ctx.Err() != nil || !moved(err) || !time.Now().Before(until) {
			return err
		}
		sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// changed waits until somebody else leads than did, or the same one anew.
func (s *server) changed(ctx context.Context, j *journey, was leadership, until time.Time) bool {
	for ctx.Err() == nil && time.Now().Before(until) {
		if at, err := j.find(ctx); err == nil && at != was {
			return true
		}
		sleep(ctx, maxPause/4)
	}
	return false
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// pass passes a request on and its answer back. On an error nothing was written.
func (s *server) pass(w http.ResponseWriter, r *http.Request, j *journey, to kafka.BrokerID, own ...string) error {
	resp, err := s.Forward.Send(r.Context(), to, r, j.body, own...)
	if err != nil {
		return sendFailed(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get(undoneField) != "" {
		return readProblem(resp)
	}
	relay.CopyFields(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	s.copyBody(w, r, resp.Body, j.form)
	return nil
}

// sendFailed says what it means that a request was not answered.
func sendFailed(err error) error {
	if unsent(err) {
		return &kafka.Error{
			Code: kafka.ErrBrokerNotAvailable, Message: "the broker that leads the partition cannot be reached: try again",
		}
	}
	return &lostError{err}
}

// copyBuffer is how much of an answer is copied at a time.
const copyBuffer = 32 << 10

// copyBody copies the body of an answer, as it comes. One that ends too soon ends the
// client's too, with an error where the form has a place for one.
func (s *server) copyBody(w http.ResponseWriter, r *http.Request, from io.Reader, f form) {
	b := make([]byte, copyBuffer)
	last := byte('\n')
	rc := http.NewResponseController(w)
	for {
		n, err := from.Read(b)
		if n > 0 {
			last = b[n-1]
			extendWrite(w)
			if _, err := w.Write(b[:n]); err != nil {
				return // Nobody is there to be told.
			}
			if f != inArray && rc.Flush() != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err == nil:
		case f == inArray || last != '\n' || r.Context().Err() != nil:
			panic(http.ErrAbortHandler) // Half an answer must not look whole.
		default:
			_, _ = w.Write((&reading{server: s}).appendFailure(nil, f, &kafka.Error{
				Code: kafka.ErrNetworkException, Message: "the broker that the records came from is gone: ask for the next ones",
			}))
			return
		}
	}
}
