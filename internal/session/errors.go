package session

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/refusal"
)

// errEnded is told to callers of a session that ended under them. They take the
// next one.
var errEnded = errors.New("session: ended")

// errFenced is errEnded for a session whose name somebody else goes on under.
var errFenced = fmt.Errorf("%w: fenced", errEnded)

// errMoved says that a partition has another owner than was thought.
var errMoved = errors.New("session: the partition has another owner")

// lostError refuses what only a partition's owner may do, which the session is
// not any more.
type lostError struct{ why *kafka.Error }

// Error implements error.
func (e *lostError) Error() string { return e.why.Error() }

// Unwrap lets the refusal be told to clients.
func (e *lostError) Unwrap() error { return e.why }

func refuse(code kafka.Code, format string, args ...any) error {
	return &kafka.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// stopping refuses a caller because the broker stops.
func stopping() error {
	return refuse(kafka.ErrCoordinatorNotAvailable, "the broker is stopping: ask another one, or try again")
}

// rebalancing refuses what must wait for the end of a rebalance.
func rebalancing(group string) error {
	return refuse(kafka.ErrRebalanceInProgress, "group %q is rebalancing: try again in a moment", group)
}

// refused makes an error of what a coordinator answered; nil for ErrNone.
func refused(group string, code int16) error {
	switch c := kafka.Code(code); c {
	case kafka.ErrNone:
		return nil
	case kafka.ErrInconsistentGroupProtocol:
		return refuse(c, "group %q has members that cannot share it with HTTP callers: they offer none of the assignment "+
			"strategies range, roundrobin, sticky and cooperative-sticky, or are no consumers", group)
	case kafka.ErrGroupMaxSizeReached:
		return refuse(c, "group %q has as many members as group.max.size allows", group)
	case kafka.ErrInvalidGroupID:
		return refuse(c, "%q cannot be the name of a group", group)
	case kafka.ErrInvalidSessionTimeout:
		return refuse(c, "the session timeout is not between group.min.session.timeout.ms and group.max.session.timeout.ms")
	case kafka.ErrUnstableOffsetCommit:
		return refuse(c, "offsets of group %q were committed in a transaction that has not ended yet: end it, or try again", group)
	default:
		return refuse(c, "the coordinator of group %q refuses for now (%v): try again", group, c)
	}
}

// outdated reports whether a refusal says that the session's generation is over.
func outdated(err error) bool {
	if lost := (*lostError)(nil); errors.As(err, &lost) {
		return false
	}
	switch refusal.CodeOf(err) {
	case kafka.ErrIllegalGeneration, kafka.ErrUnknownMemberID, kafka.ErrRebalanceInProgress:
		return true
	}
	return false
}

// transient reports whether asking again is all that a refusal needs.
func transient(err error) bool {
	var coded *kafka.Error
	return errors.As(err, &coded) && (outdated(err) || coded.Code.Retriable() &&
		coded.Code != kafka.ErrUnknownTopicOrPartition && coded.Code != kafka.ErrUnknownTopicID)
}
