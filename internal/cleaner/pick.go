package cleaner

import (
	"errors"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
)

// job is a log to compact.
type job struct {
	target Target
	ratio  float64
}

// pick returns the logs that are dirty enough (min.cleanable.dirty.ratio) or
// overdue (max.compaction.lag.ms), the dirtiest first.
func (c *Cleaner) pick(now time.Time) []job {
	var jobs []job
	for _, t := range c.options.Targets() {
		cfg := t.Log.Config()
		if !cfg.Compact || len(t.Log.Segments()) < 2 {
			continue
		}
		segments, err := t.Log.Cleanable(t.HighWatermark)
		if err != nil {
			if !errors.Is(err, commitlog.ErrDeleted) {
				c.options.Logger.Error("compaction not possible", "partition", t.Log.ID().String(), "error", err)
			}
			continue
		}
		segments = oldEnough(segments, cfg.MinCompactionLagMs, now.UnixMilli())
		ratio, overdue := dirtyRatio(segments, cfg, now.UnixMilli())
		if ratio > 0 && (overdue || ratio >= cfg.MinCleanableDirtyRatio) {
			jobs = append(jobs, job{t, ratio})
		}
	}
	slices.SortStableFunc(jobs, func(a, b job) int {
		switch {
		case a.ratio > b.ratio:
			return -1
		case a.ratio < b.ratio:
			return 1
		}
		return 0
	})
	return jobs
}
