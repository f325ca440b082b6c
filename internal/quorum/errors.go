package quorum

import (
	"errors"
	"fmt"

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
