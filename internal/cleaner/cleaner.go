package cleaner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
)

// Target is a log that may need compaction.
type Target struct {
	Log *commitlog.Log
	// LastStableOffset is the first offset that may still change, or be part of a
	// transaction of which it is not known whether it will be committed.
	LastStableOffset kafka.Offset
}

// Options are the settings of a Cleaner.
type Options struct {
	// Targets returns the logs to look at; those whose topic is not compacted
	// are passed over.
	Targets func() []Target
	// Threads is how many logs are compacted at once; zero is 1.
	Threads int
	// Backoff is the rest after a look that found nothing to do; zero is 15 s.
	Backoff time.Duration
	// DedupeBytes bounds the memory of all maps of keys together; zero is
	// 128 MiB. It is taken as it is needed, and during a pass only.
	DedupeBytes int64
	// Events hears what the cleaner does; nil for nobody.
	Events Events
}

func (o *Options) setDefaults() {
	if o.Threads <= 0 {
		o.Threads = 1
	}
	if o.Backoff <= 0 {
		o.Backoff = 15 * time.Second
	}
	if o.DedupeBytes <= 0 {
		o.DedupeBytes = 128 << 20
	}
	if o.Events == nil {
		o.Events = noEvents{}
	}
}

// Cleaner compacts logs.
type Cleaner struct {
	options Options

	mu       sync.Mutex // Guards what follows.
	underWay map[kafka.TopicIDPartition]bool
	troubles map[kafka.TopicIDPartition]trouble
}

// trouble is why a log is passed over.
type trouble struct {
	failures    int
	retryAt     time.Time
	uncleanable bool // Until a restart.
}

// New returns a Cleaner.
func New(o Options) *Cleaner {
	o.setDefaults()
	return &Cleaner{
		options:  o,
		underWay: map[kafka.TopicIDPartition]bool{},
		troubles: map[kafka.TopicIDPartition]trouble{},
	}
}

// Run compacts what needs it until ctx ends.
func (c *Cleaner) Run(ctx context.Context) error {
	var g errgroup.Group
	for range c.options.Threads {
		g.Go(func() error {
			c.work(ctx)
			return nil
		})
	}
	return g.Wait()
}

// work compacts one log after another, the dirtiest first, and rests when none
// is dirty enough.
func (c *Cleaner) work(ctx context.Context) {
	for rest(ctx, c.options.Backoff) {
		for ctx.Err() == nil && c.cleanNext(ctx) {
		}
	}
}

// rest waits, and returns false once ctx has ended.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// cleanNext does one pass over the dirtiest log. It reports whether there may
// be more to do.
func (c *Cleaner) cleanNext(ctx context.Context) bool {
	t, ok := c.claim(time.Now())
	if !ok {
		return false
	}
	id, before := t.Log.ID(), t.Log.CleanedTo()
	stats, err := c.Clean(ctx, t, time.Now())
	c.settle(id, err)
	if err == nil && stats.SegmentsBefore > 0 {
		c.options.Events.Cleaned(id, stats)
	}
	return err != nil || t.Log.CleanedTo() > before
}

// settle notes how a pass ended.
func (c *Cleaner) settle(id kafka.TopicIDPartition, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.underWay, id)
	if err == nil {
		delete(c.troubles, id)
		return
	}
	c.failedLocked(id, err, time.Now())
}

// maxRetry is the longest wait before a log that failed is tried again.
const maxRetry = 10 * time.Minute

// failedLocked reports a failure and has the log passed over for a while, or for
// good.
func (c *Cleaner) failedLocked(id kafka.TopicIDPartition, err error, now time.Time) {
	t := c.troubles[id]
	t.failures++
	t.retryAt = now.Add(min(c.options.Backoff<<min(t.failures-1, 16), maxRetry))
	t.uncleanable = isUncleanable(err)
	c.troubles[id] = t
	switch {
	case isPassing(err):
	case t.uncleanable:
		c.options.Events.Uncleanable(id, err)
	default:
		c.options.Events.Failed(id, err)
	}
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

// Clean does one pass over a log, whether it is dirty enough or not. It ends
// early with ctx; what was done by then counts.
func (c *Cleaner) Clean(ctx context.Context, t Target, now time.Time) (Stats, error) {
	l := t.Log
	stats, err := c.clean(ctx, t, now)
	if err != nil {
		return stats, fmt.Errorf("compact %s: %w", l.ID(), err)
	}
	return stats, nil
}

func (c *Cleaner) clean(ctx context.Context, t Target, now time.Time) (Stats, error) {
	l, cfg := t.Log, t.Log.Config()
	segments, err := l.Cleanable(t.LastStableOffset)
	if err != nil {
		return Stats{}, err
	}
	segments = oldEnough(segments, cfg.MinCompactionLagMs, now.UnixMilli())
	if len(segments) == 0 {
		return Stats{}, nil
	}
	producers, err := lastSequences(l)
	if err != nil {
		return Stats{}, err
	}
	p := &pass{
		log: l, cfg: cfg, nowMs: now.UnixMilli(), producers: producers,
		keys: newOffsetMap(c.options.DedupeBytes / int64(c.options.Threads)),
	}
	err = p.run(ctx, segments)
	return p.stats, err
}

// isPassing tells whether an error is only that the log changes, closes or is
// known to be offline, or that the cleaner stops.
func isPassing(err error) bool {
	var gone *commitlog.OffsetOutOfRangeError // Retention was faster.
	return errors.As(err, &gone) || errors.Is(err, context.Canceled) ||
		errors.Is(err, commitlog.ErrBusy) || errors.Is(err, commitlog.ErrDeleted) ||
		errors.Is(err, commitlog.ErrOffline) || errors.Is(err, commitlog.ErrTruncating)
}
