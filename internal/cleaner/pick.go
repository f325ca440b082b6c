package cleaner

import (
	"maps"
	"math"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
)

// dirt is how much a log needs compaction.
type dirt struct {
	ratio   float64 // Of dirty bytes to all that may be compacted.
	overdue bool    // Something waits for longer than max.compaction.lag.ms.
}

// more tells whether d goes before o.
func (d dirt) more(o dirt) bool {
	if d.overdue != o.overdue {
		return d.overdue
	}
	return d.ratio > o.ratio
}

// claim picks the log that needs compaction most, if there is one that is dirty
// enough (min.cleanable.dirty.ratio) or overdue (max.compaction.lag.ms), and
// keeps it from other goroutines until settle.
func (c *Cleaner) claim(now time.Time) (best Target, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	targets := c.options.Targets()
	c.forgetGoneLocked(targets)
	var most dirt
	for _, t := range targets {
		if !t.Log.Config().Compact || t.Log.Err() != nil || !t.Log.HasDirt() || c.restsLocked(t, now) {
			continue
		}
		d, err := measure(t, now)
		if err != nil {
			c.failedLocked(t.Log.ID(), err, now)
			continue
		}
		if d.ratio > 0 && (!ok || d.more(most)) {
			best, most, ok = t, d, true
		}
	}
	if ok {
		c.underWay[best.Log.ID()] = true
	}
	return best, ok
}

// restsLocked tells whether a log is being cleaned, or failed lately.
func (c *Cleaner) restsLocked(t Target, now time.Time) bool {
	trouble := c.troubles[t.Log.ID()]
	return c.underWay[t.Log.ID()] || trouble.uncleanable || now.Before(trouble.retryAt)
}

// forgetGoneLocked drops the troubles of logs that are no more.
func (c *Cleaner) forgetGoneLocked(targets []Target) {
	if len(c.troubles) == 0 {
		return
	}
	there := make(map[kafka.TopicIDPartition]bool, len(targets))
	for _, t := range targets {
		there[t.Log.ID()] = true
	}
	maps.DeleteFunc(c.troubles, func(id kafka.TopicIDPartition, _ trouble) bool { return !there[id] })
}

// measure returns how dirty a log is; ratio is zero if that is not enough.
func measure(t Target, now time.Time) (dirt, error) {
	cfg := t.Log.Config()
	segments, err := t.Log.Cleanable(t.LastStableOffset)
	if err != nil {
		return dirt{}, err
	}
	segments = oldEnough(segments, cfg.MinCompactionLagMs, now.UnixMilli())
	d := measureSegments(segments, cfg.MaxCompactionLagMs, now.UnixMilli())
	if !d.overdue && d.ratio < cfg.MinCleanableDirtyRatio {
		d.ratio = 0
	}
	return d, nil
}

func measureSegments(segments []commitlog.CleanableSegment, maxLagMs, nowMs int64) dirt {
	var d dirt
	var total, dirty int64
	for _, s := range segments {
		total += s.SizeBytes
		if s.Cleaned {
			continue
		}
		dirty += s.SizeBytes
		if maxLagMs < math.MaxInt64 && s.FirstTimestamp >= 0 && s.FirstTimestamp < nowMs-maxLagMs {
			d.overdue = true
		}
	}
	if dirty > 0 {
		d.ratio = float64(dirty) / float64(total)
	}
	return d
}

// oldEnough cuts the segments off from the first dirty one that holds a record
// younger than min.compaction.lag.ms.
func oldEnough(segments []commitlog.CleanableSegment, lagMs, nowMs int64) []commitlog.CleanableSegment {
	for i, s := range segments {
		if lagMs > 0 && !s.Cleaned && s.LargestTimestamp > nowMs-lagMs {
			return segments[:i]
		}
	}
	return segments
}
