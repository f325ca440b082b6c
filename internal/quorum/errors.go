package quorum

import (
	"errors"
	"fmt"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
)

// ErrStopped is wrapped by what Do and Receive return when the loop has ended,
// together with the reason it ended for.
var ErrStopped = errors.New("quorum stopped")

// ErrEntryTooLarge is wrapped when a decision's entry exceeds
// Options.MaxEntryBytes.
var ErrEntryTooLarge = errors.New("entry too large")

// NotLeaderError says that only the leader decides.
type NotLeaderError struct {
	// Leader is who leads, kafka.NoBroker if that is not known.
	Leader kafka.BrokerID
	// Proposed says that the entry was on its way when the leadership was
	// lost: it may still be applied, or never.
	Proposed bool
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	s := "not the quorum's leader; no leader is known"
	if e.Leader != kafka.NoBroker {
		s = fmt.Sprintf("not the quorum's leader; node %d leads", e.Leader)
	}
	if e.Proposed {
		s += "; the change was on its way and may still happen"
	}
	return s
}

// CorruptionError says that a file holds what no crash explains.
type CorruptionError struct {
	Path     string
	Position int64
	Reason   string
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("corrupt quorum log: %s at byte %d: %s", e.Path, e.Position, e.Reason)
}

// VersionError says that a file's format is not the one this build knows. The
// file was not touched.
type VersionError struct {
	Path    string
	Version uint32
	Known   uint32
}

// Error implements error.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this build knows version %d: "+
		"start the build that wrote it, or a newer one", e.Path, e.Version, e.Known)
}

// StrangerError says that a node has a member's id and not its data directory: its
// data was replaced, so it lacks what the member has promised to hold. Its votes and
// answers do not count.
type StrangerError struct {
	ID               kafka.BrokerID
	Known, Directory [16]byte
}

// Error implements error.
func (e *StrangerError) Error() string {
	return fmt.Sprintf("node %d comes with data directory %s, and the quorum knows it with %s: its data was "+
		"replaced, and it counts for nothing until it is removed from the quorum and has joined again; if that was meant, "+
		"run: strandline cluster remove-voter %d && strandline cluster add %d",
		e.ID, kafka.TopicID(e.Directory), kafka.TopicID(e.Known), e.ID, e.ID)
}

// MemberProblem is why a change of members can't be made.
type MemberProblem uint8

// The problems.
const (
	// AlreadyVoter: the node has a vote.
	AlreadyVoter MemberProblem = iota + 1
	// OtherDirectory: the node is known with another data directory.
	OtherDirectory
	// NotMember: the node is not one of those that the change is about.
	NotMember
	// LastVoter: without the node nobody could vote.
	LastVoter
	// TooFewLeft: without the node those voters that are there would be no majority.
	TooFewLeft
	// Unreachable: this node has no way to others.
	Unreachable
	// Nameless: no node can have that id.
	Nameless
	// LongAddress: no node can have such an address.
	LongAddress
)

// MemberError says why a change of members can't be made.
type MemberError struct {
	ID      kafka.BrokerID
	Problem MemberProblem
	// Silent are the voters that are missed, with TooFewLeft.
	Silent []kafka.BrokerID
}

// Error implements error.
func (e *MemberError) Error() string {
	switch e.Problem {
	case AlreadyVoter:
		return fmt.Sprintf("node %d is a voter of the quorum already", e.ID)
	case OtherDirectory:
		return fmt.Sprintf("node %d is known to the quorum with another data directory: remove it first", e.ID)
	case NotMember:
		return fmt.Sprintf("node %d is not one of those", e.ID)
	case LastVoter:
		return fmt.Sprintf("node %d is the only voter of the quorum", e.ID)
	case TooFewLeft:
		return fmt.Sprintf("without node %d the voters that are there could not decide anything, not even to take it back: "+
			"not heard of: node %s; start that first, or remove it instead", e.ID, listed(e.Silent))
	case Unreachable:
		return fmt.Sprintf("node %d can't be reached from this one, which is alone: start it with --cluster-listen first", e.ID)
	case Nameless:
		return fmt.Sprintf("%d is not the id of a node", e.ID)
	case LongAddress:
		return fmt.Sprintf("the address of node %d is longer than %d bytes", e.ID, maxAddressBytes)
	}
	return fmt.Sprintf("node %d: problem %d", e.ID, e.Problem)
}

// listed are ids as text.
func listed(ids []kafka.BrokerID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = fmt.Sprint(id)
	}
	return strings.Join(texts, ", ")
}
