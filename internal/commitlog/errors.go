package commitlog

import (
	"errors"
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
)

// The refusals that need no detail.
var (
	// ErrOffline means that the log's disk failed: a sync or a repair after a
	// failed write did not succeed. It is final until a restart.
	ErrOffline = errors.New("log is offline after a disk failure")
	// ErrDeleted means that the log was deleted or closed.
	ErrDeleted = errors.New("log is closed")
	// ErrFrozen means that a part of the log that was durable is damaged or
	// missing: it takes no appends until somebody has looked at it.
	ErrFrozen = errors.New("log is frozen")
	// ErrTruncating means that a truncation is under way.
	ErrTruncating = errors.New("log is being truncated")
)

// OffsetOutOfRangeError refuses to read outside of the log.
type OffsetOutOfRangeError struct{ Offset, Start, End kafka.Offset }

// Error implements error.
func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is outside of the log, which has [%d, %d)", e.Offset, e.Start, e.End)
}

// CorruptionError says that stored bytes are not what was written.
type CorruptionError struct {
	Path     string // Of the file, relative to the data directory.
	Position int64  // Of the batch or entry in the file.
	Reason   string
}

// Error implements error.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("%s is corrupt at position %d: %s", e.Path, e.Position, e.Reason)
}

// BrokenError says that the disk under a data directory failed to make written
// bytes durable.
type BrokenError struct{ Err error }

// Error implements error.
func (e *BrokenError) Error() string {
	return "the disk failed a sync, so what is on it is not known, and the data directory is offline: look at the " +
		"disk, then start the broker again, which recovers all that it acknowledged: " + e.Err.Error()
}

// Unwrap returns the disk's error.
func (e *BrokenError) Unwrap() error { return e.Err }

// BatchTooLargeError refuses batches that do not fit into a segment.
type BatchTooLargeError struct{ SizeBytes, SegmentBytes int64 }

// Error implements error.
func (e *BatchTooLargeError) Error() string {
	return fmt.Sprintf("batches of %d bytes exceed segment.bytes of %d: send less at once or raise it",
		e.SizeBytes, e.SegmentBytes)
}

// UnexpectedOffsetError refuses a follower's append that does not continue the
// log.
type UnexpectedOffsetError struct{ BaseOffset, LogEndOffset kafka.Offset }

// Error implements error.
func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("batch at offset %d does not continue the log, which ends at %d",
		e.BaseOffset, e.LogEndOffset)
}

// NewerFormatError refuses a data directory of a later version.
type NewerFormatError struct {
	Path           string
	Version, Known int
}

// Error implements error.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("%s has format version %d and this broker knows up to %d: "+
		"start the newer broker again; nothing was changed", e.Path, e.Version, e.Known)
}

// failure holds an error in an atomic.
type failure struct{ err error }
