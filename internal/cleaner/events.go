package cleaner

import (
	"log/slog"

	"github.com/strandline/strandline/internal/kafka"
)

// Events is told what the cleaner does; logs, metrics and tests listen. Methods
// must not block and may be called from any goroutine.
type Events interface {
	// Cleaned: a pass over a log is done.
	Cleaned(kafka.TopicIDPartition, Stats)
	// Uncleanable: a log can't be compacted and is left alone until a restart.
	// It is told once.
	Uncleanable(kafka.TopicIDPartition, error)
	// Failed: a pass failed and will be tried again.
	Failed(kafka.TopicIDPartition, error)
}

// LogEvents is Events as log lines.
type LogEvents struct{ Logger *slog.Logger }

// Cleaned implements Events.
func (e LogEvents) Cleaned(id kafka.TopicIDPartition, s Stats) {
	e.Logger.Info("log compacted", "partition", id.String(), "offset", int64(s.CleanedTo),
		"bytes_before", s.BytesBefore, "bytes_after", s.BytesAfter, "records_dropped", s.RecordsDropped,
		"segments_before", s.SegmentsBefore, "segments_after", s.SegmentsAfter)
}

// Uncleanable implements Events.
func (e LogEvents) Uncleanable(id kafka.TopicIDPartition, err error) {
	e.Logger.Error("log can't be compacted and will grow until the broker is restarted and it can",
		"partition", id.String(), "error", err)
}

// Failed implements Events.
func (e LogEvents) Failed(id kafka.TopicIDPartition, err error) {
	e.Logger.Error("compaction failed, it will be tried again",
		"partition", id.String(), "error", err)
}

// noEvents hears nothing.
type noEvents struct{}

func (noEvents) Cleaned(kafka.TopicIDPartition, Stats)     {}
func (noEvents) Uncleanable(kafka.TopicIDPartition, error) {}
func (noEvents) Failed(kafka.TopicIDPartition, error)      {}
