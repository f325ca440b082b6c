package commitlog

import (
	"context"
	"log/slog"

	"github.com/strandline/strandline/internal/kafka"
)

// Events is told what storage does in the background; logs, metrics and tests
// listen. Methods must not block and may be called from any goroutine.
type Events interface {
	// Recovered: a log was opened and something newer than the checkpoint was
	// found, or a torn tail was cut off.
	Recovered(RecoveredLog)
	// Corrupt: stored bytes are not what was written.
	Corrupt(kafka.TopicIDPartition, *CorruptionError)
	// Mended: damage is gone, another replica had what was there.
	Mended(kafka.TopicIDPartition, MendedHole)
	// Deleted: segments were deleted by retention or by request.
	Deleted(id kafka.TopicIDPartition, segments int, logStart kafka.Offset)
	// Failed: a log went offline.
	Failed(kafka.TopicIDPartition, error)
	// Alarm: something went wrong that a person should look at.
	Alarm(what string, err error)
	// DiskFull: an append was refused because there is no space.
	DiskFull(kafka.TopicIDPartition, error)
	// ReadFailed: the disk did not give stored bytes back.
	ReadFailed(kafka.TopicIDPartition, error)
	// Problem: something went wrong that heals itself or can wait.
	Problem(what string, err error)
}

// RecoveredLog says what the recovery of one log found.
type RecoveredLog struct {
	ID           kafka.TopicIDPartition
	From         kafka.Offset // The checkpoint.
	LogEndOffset kafka.Offset
	BytesRead    int64
	BytesCut     int64  // Of a torn tail.
	CutReason    string // Why, if any.
	CutPath      string // Which file was cut,
	CutPosition  int64  // and where.
	// PutAside are the files in which whole batches that were cut off are kept.
	PutAside []string
	// Rotten says that no crash leaves what was cut: it changed on the disk.
	Rotten bool
	// HealedTo is above zero if some of what was cut off had been durable: the
	// journal has it up to there.
	HealedTo kafka.Offset
}

// MendedHole says what was damaged in a log and is whole again.
type MendedHole struct {
	From, To  kafka.Offset // [From, To).
	SizeBytes int64
	Source    kafka.BrokerID // Whose replica had it.
	Path      string
	Reason    string // What the damage was.
}

// LogEvents is Events as log lines.
type LogEvents struct{ Logger *slog.Logger }

// Recovered implements Events.
func (e LogEvents) Recovered(r RecoveredLog) {
	level := slog.LevelDebug
	args := []any{
		"partition", r.ID.String(), "from", int64(r.From), "offset", int64(r.LogEndOffset), "bytes_read", r.BytesRead,
	}
	if r.CutReason != "" {
		level = slog.LevelInfo
		args = append(args, "bytes_cut", r.BytesCut, "reason", r.CutReason, "path", r.CutPath, "position", r.CutPosition)
	}
	if len(r.PutAside) > 0 {
		level = slog.LevelWarn
		args = append(args, "put_aside", r.PutAside)
	}
	if r.Rotten {
		level = slog.LevelWarn
	}
	if r.HealedTo > 0 {
		args = append(args, "healed_from_journal_to", int64(r.HealedTo))
	}
	e.Logger.Log(context.Background(), level, "log recovered", args...)
}

// Corrupt implements Events.
func (e LogEvents) Corrupt(id kafka.TopicIDPartition, err *CorruptionError) {
	e.Logger.Error("stored data is corrupt and is not served: restore the file from a copy, or let consumers "+
		"seek past the offsets it lost", "partition", id.String(), "file", err.Path, "position", err.Position,
		"reason", err.Reason)
}

// Mended implements Events.
func (e LogEvents) Mended(id kafka.TopicIDPartition, m MendedHole) {
	e.Logger.Warn("damaged records were mended from another replica: look at the disk", "partition", id.String(),
		"from", int64(m.From), "to", int64(m.To), "bytes", m.SizeBytes, "broker", m.Source, "file", m.Path,
		"reason", m.Reason)
}

// DiskFull implements Events.
func (e LogEvents) DiskFull(id kafka.TopicIDPartition, err error) {
	e.Logger.Error("the disk is full and records are refused, producers try again: free space or lower retention; "+
		"no restart is needed", "partition", id.String(), "error", err)
}

// ReadFailed implements Events.
func (e LogEvents) ReadFailed(id kafka.TopicIDPartition, err error) {
	e.Logger.Error("stored records could not be read, consumers try again: if it is the disk (input/output error), "+
		"copy the data directory while it can be read", "partition", id.String(), "error", err)
}

// Deleted implements Events.
func (e LogEvents) Deleted(id kafka.TopicIDPartition, segments int, logStart kafka.Offset) {
	e.Logger.Debug("segments deleted", "partition", id.String(), "segments", segments, "offset", int64(logStart))
}

// Failed implements Events.
func (e LogEvents) Failed(id kafka.TopicIDPartition, err error) {
	e.Logger.Error("log is offline", "partition", id.String(), "error", err)
}

// Alarm implements Events.
func (e LogEvents) Alarm(what string, err error) {
	e.Logger.Error("storage needs attention", "what", what, "error", err)
}

// Problem implements Events.
func (e LogEvents) Problem(what string, err error) {
	e.Logger.Warn("storage problem", "what", what, "error", err)
}

// noEvents hears nothing.
type noEvents struct{}

func (noEvents) Recovered(RecoveredLog)                            {}
func (noEvents) Corrupt(kafka.TopicIDPartition, *CorruptionError)  {}
func (noEvents) Mended(kafka.TopicIDPartition, MendedHole)         {}
func (noEvents) Deleted(kafka.TopicIDPartition, int, kafka.Offset) {}
func (noEvents) Failed(kafka.TopicIDPartition, error)              {}
func (noEvents) Alarm(string, error)                               {}
func (noEvents) DiskFull(kafka.TopicIDPartition, error)            {}
func (noEvents) ReadFailed(kafka.TopicIDPartition, error)          {}
func (noEvents) Problem(string, error)                             {}
