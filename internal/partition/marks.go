package partition

import (
	"context"
	"log/slog"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// Marks keep high watermarks over a restart; *commitlog.Watermarks is one.
type Marks interface {
	// Recall returns the high watermark that was kept of a partition, 0 for none.
	Recall(kafka.TopicIDPartition) kafka.Offset
	// Lower sees to it that not more than offset is kept, durably.
	Lower(id kafka.TopicIDPartition, offset kafka.Offset) error
}

// recallHighWatermark begins with the high watermark that was kept. What lies below it
// was acknowledged, and every leader that may be elected has it; a log that ends before
// it has lost what it had not synced.
func (p *Partition) recallHighWatermark() {
	kept := kafka.Offset(0)
	if p.marks != nil {
		kept = p.marks.Recall(p.id)
	}
	p.highWatermark.Store(int64(max(min(kept, p.log.LogEndOffset()), p.log.LogStartOffset())))
}

// lowerHighWatermarkTo lowers the high watermark before the log is cut to below it, so that
// what is kept of it never vouches for what comes in the place of what was cut. role is
// held.
func (p *Partition) lowerHighWatermarkTo(to kafka.Offset) error {
	p.progress.mu.Lock()
	if p.highWatermark.Load() > int64(to) {
		p.highWatermark.Store(int64(to))
	}
	p.progress.mu.Unlock()
	if p.marks == nil {
		return nil
	}
	return p.marks.Lower(p.id, to)
}

// keepInterval is how often high watermarks that have moved are kept.
const keepInterval = 5 * time.Second

// KeepWatermarks keeps the high watermarks of the table's replicas that others have too,
// every few seconds if one has moved, and when ctx ends.
func KeepWatermarks(ctx context.Context, t *Table, w Saver, logger *slog.Logger) error {
	ticker := time.NewTicker(keepInterval)
	defer ticker.Stop()
	failing := false
	for done := false; !done; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			done = true
		}
		err := w.Save(t.watermarks)
		if err != nil && !failing {
			logger.Warn("after a restart high watermarks may begin lower", "error", err)
		}
		failing = err != nil
	}
	return nil
}

// Saver writes what collect returns, if it is news; *commitlog.Watermarks is one. Nobody
// may be kept waiting for a partition's role in collect.
type Saver interface {
	Save(collect func() map[kafka.TopicIDPartition]kafka.Offset) error
}

// watermarks returns the high watermarks to keep.
func (t *Table) watermarks() map[kafka.TopicIDPartition]kafka.Offset {
	marks := map[kafka.TopicIDPartition]kafka.Offset{}
	t.All(func(p *Partition) bool {
		if highWatermark := p.HighWatermark(); highWatermark > 0 && p.shared.Load() {
			marks[p.id] = highWatermark
		}
		return true
	})
	return marks
}
