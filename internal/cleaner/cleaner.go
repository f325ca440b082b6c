package cleaner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// Target is a log that may need compaction.
type Target struct {
	Log           *commitlog.Log
	HighWatermark kafka.Offset
}

// Options are the settings of a Cleaner.
type Options struct {
	// Targets returns the logs to look at; those whose topic is not compacted
	// are passed over.
	Targets func() []Target
	// Backoff is the rest after a round with nothing to do; zero is 15 s.
	Backoff time.Duration
	// DedupeBytes bounds the memory of the map of keys; zero is 16 MiB. It is
	// taken during a round only.
	DedupeBytes int64
	// Logger gets one line a pass; nil is silence.
	Logger *slog.Logger
}

// Cleaner compacts logs, one at a time.
type Cleaner struct {
	options Options
	keys    *offsetMap
}

// New returns a Cleaner.
func New(o Options) *Cleaner {
	if o.Backoff <= 0 {
		o.Backoff = 15 * time.Second
	}
	if o.DedupeBytes <= 0 {
		o.DedupeBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Cleaner{options: o}
}

// Run compacts what needs it until ctx ends.
func (c *Cleaner) Run(ctx context.Context) error {
	timer := time.NewTimer(c.options.Backoff)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		c.round(ctx)
		timer.Reset(c.options.Backoff)
	}
}

// round compacts every log that needs it, the dirtiest first, once.
func (c *Cleaner) round(ctx context.Context) {
	for _, j := range c.pick(time.Now()) {
		if ctx.Err() != nil {
			break
		}
		stats, err := c.Clean(j.target.Log, j.target.HighWatermark, time.Now())
		switch {
		case errors.Is(err, commitlog.ErrBusy), errors.Is(err, commitlog.ErrDeleted):
		case err != nil:
			c.options.Logger.Error("compaction failed", "partition", j.target.Log.ID().String(), "error", err)
		case stats.BytesBefore > 0:
			c.options.Logger.Info("log compacted", "partition", j.target.Log.ID().String(),
				"offset", int64(stats.CleanedTo), "bytes_before", stats.BytesBefore, "bytes_after", stats.BytesAfter)
		}
	}
	c.keys = nil
}

// Stats says what a pass did.
type Stats struct {
	CleanedTo      kafka.Offset
	BytesBefore    int64
	BytesAfter     int64
	RecordsDropped int64
	SegmentsBefore int
	SegmentsAfter  int
}

// Clean does one pass over a log, whether it is dirty enough or not.
func (c *Cleaner) Clean(l *commitlog.Log, highWatermark kafka.Offset, now time.Time) (Stats, error) {
	cfg := l.Config()
	segments, err := l.Cleanable(highWatermark)
	if err != nil {
		return Stats{}, fmt.Errorf("compact %s: %w", l.ID(), err)
	}
	segments = oldEnough(segments, cfg.MinCompactionLagMs, now.UnixMilli())
	if dirtyBytes(segments) == 0 && !mayDropTombstones(segments) {
		return Stats{}, nil
	}
	if c.keys == nil {
		c.keys = newOffsetMap(c.options.DedupeBytes)
	}
	p := &pass{
		log: l, cfg: cfg, keys: c.keys, nowMs: now.UnixMilli(),
		lastOfProducer: map[kafka.ProducerID]kafka.Offset{},
		builders:       map[record.Codec]*record.Builder{},
	}
	if err := p.run(segments); err != nil {
		return p.stats, fmt.Errorf("compact %s: %w", l.ID(), err)
	}
	return p.stats, nil
}

// oldEnough cuts the segments off from the first that holds a record younger
// than min.compaction.lag.ms.
func oldEnough(segments []commitlog.CleanableSegment, lagMs, nowMs int64) []commitlog.CleanableSegment {
	for i, s := range segments {
		if lagMs > 0 && s.LargestTimestamp > nowMs-lagMs {
			return segments[:i]
		}
	}
	return segments
}

func dirtyBytes(segments []commitlog.CleanableSegment) int64 {
	var n int64
	for _, s := range segments {
		if !s.Cleaned {
			n += s.SizeBytes
		}
	}
	return n
}

// mayDropTombstones tells whether a pass over clean segments alone could make
// sense: tombstones wait there until their time is over.
func mayDropTombstones(segments []commitlog.CleanableSegment) bool {
	for _, s := range segments {
		if s.Cleaned && s.SizeBytes > 0 {
			return true
		}
	}
	return false
}

// totalBytes is the size of all segments.
func totalBytes(segments []commitlog.CleanableSegment) int64 {
	var n int64
	for _, s := range segments {
		n += s.SizeBytes
	}
	return n
}

// dirtyRatio returns how much of the log is dirty, and whether something in it
// waits for longer than max.compaction.lag.ms.
func dirtyRatio(segments []commitlog.CleanableSegment, cfg commitlog.Config, nowMs int64) (float64, bool) {
	total := totalBytes(segments)
	if total == 0 {
		return 0, false
	}
	overdue := false
	for _, s := range segments {
		if !s.Cleaned && cfg.MaxCompactionLagMs < math.MaxInt64 && s.LargestTimestamp < nowMs-cfg.MaxCompactionLagMs {
			overdue = true
		}
	}
	return float64(dirtyBytes(segments)) / float64(total), overdue
}
