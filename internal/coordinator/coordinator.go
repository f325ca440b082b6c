package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Options make a Coordinator.
type Options[M shard.Machine] struct {
	Topic string // The internal topic, for messages.
	// New makes the machine of a partition. It is called for one host of a partition after
	// the other, and for none that was dropped.
	New func(partition int32) M
	// CodeOf says what callers are told when an append failed.
	CodeOf func(error) kafka.Code
	Now    func() time.Time
	Logger *slog.Logger
	// Elapsed is how long ago some moment was, on a clock that nobody sets; nil for
	// the system's.
	Elapsed func() time.Duration
	// Leased says that no other broker can have taken over from this one without its
	// knowledge; nil for always. See BeginRead.
	Leased func() bool
	// OutOfTouch says that the active controller was not heard of for so long that it may
	// have another broker lead; nil for never. See InDoubt.
	OutOfTouch func() bool

	// WriteTimeout is how long a reply waits for the high watermark before it is
	// turned into a refusal; 0 means 5 s.
	WriteTimeout  time.Duration
	MaxParked     int // Replies that may wait per shard; 0 means 10,000.
	MaxBatchBytes int // max.message.bytes of the topic; 0 means 1 MiB.
	Loaders       int // Partitions that are loaded at a time; 0 means 2.
}

// The defaults of Options.
const (
	defaultWriteTimeout  = 5 * time.Second
	defaultMaxParked     = 10_000
	defaultMaxBatchBytes = 1 << 20
	defaultLoaders       = 2
)

// Coordinator hosts the shards of one internal topic. Its methods may be called
// from any goroutine.
type Coordinator[M shard.Machine] struct {
	o Options[M]

	// hosts is indexed by partition; nil where this broker is no coordinator. It
	// is replaced, never changed, under mu.
	hosts atomic.Pointer[[]*host[M]]
	mu    sync.Mutex
	loads []*host[M] // To be loaded, in order.

	loadWake chan struct{}
	wake     chan struct{}
	timerMs  atomic.Int64 // When Run looks at deadlines next.
}

// New returns a coordinator without shards.
func New[M shard.Machine](o Options[M]) *Coordinator[M] {
	if o.Elapsed == nil {
		begun := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(begun) }
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = defaultWriteTimeout
	}
	if o.MaxParked == 0 {
		o.MaxParked = defaultMaxParked
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultMaxBatchBytes
	}
	if o.Loaders == 0 {
		o.Loaders = defaultLoaders
	}
	c := &Coordinator[M]{
		o: o, wake: make(chan struct{}, 1), loadWake: make(chan struct{}, o.Loaders),
	}
	c.hosts.Store(new([]*host[M]))
	c.timerMs.Store(shard.NoDeadline)
	return c
}

// Lead makes this broker the coordinator of a partition, as soon as Run has
// loaded it. A shard that is there already is dropped first: Lead is called anew
// for each leader epoch.
func (c *Coordinator[M]) Lead(partition int32, p Partition) {
	c.Resign(partition)
	h := newHost(c, partition, p)
	if start, end := p.Ends(); start >= end {
		h.activateLocked(c.o.New(partition)) // Nothing to load, and nobody sees h yet.
		c.put(partition, h)
		return
	}
	c.put(partition, h)
	c.enqueueLoad(h)
}

// Resign drops the shard of a partition, if there is one. Everybody who waits
// for it is told NOT_COORDINATOR.
func (c *Coordinator[M]) Resign(partition int32) {
	if h := c.host(partition); h != nil {
		c.put(partition, nil)
		h.unload()
	}
}

func (c *Coordinator[M]) put(partition int32, h *host[M]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.hosts.Load()
	hosts := make([]*host[M], max(len(old), int(partition)+1))
	copy(hosts, old)
	hosts[partition] = h
	c.hosts.Store(&hosts)
}

func (c *Coordinator[M]) host(partition int32) *host[M] {
	hosts := *c.hosts.Load()
	if partition < 0 || int(partition) >= len(hosts) {
		return nil
	}
	return hosts[partition]
}

// Do runs one step of a partition's machine: step calls a method of the machine
// and leaves its outcome in fx. The replies go to their callers when they are
// committed, which may be before Do returns. On an error step did not run.
func (c *Coordinator[M]) Do(
	partition int32, step func(m M, nowMs int64, fx *shard.Effects),
) error {
	h := c.host(partition)
	if h == nil {
		return c.notCoordinator(partition)
	}
	return h.do(step)
}

// ErrInDoubt says that another broker may coordinate by now, for all that this one knows: see
// InDoubt.
var ErrInDoubt = &kafka.Error{
	Code: kafka.ErrCoordinatorNotAvailable,
	Message: "this broker is cut off from the cluster, and does not know who coordinates by now: ask another " +
		"broker",
}

// InDoubt reports whether another broker may be the coordinator of a partition, for all that
// this one knows: it is out of touch with the active controller, and the replicas do not
// confirm that it leads. It appends nothing then for those who ask it to, has nobody wait for
// what is not committed, and tells them NOT_COORDINATOR: who waits for that does not look for
// the other. What waits for nothing it answers still, such as heartbeats: there may be no other.
func (c *Coordinator[M]) InDoubt(partition int32) bool {
	h := c.host(partition)
	return h != nil && h.inDoubt()
}

// DoSure is Do for a step that is of use to nobody while the coordinator is InDoubt, though it
// may take no record: it waits for one that was appended before, or others that follow from
// it take one. It is refused then (NOT_COORDINATOR), and changes nothing.
func (c *Coordinator[M]) DoSure(partition int32, step func(m M, nowMs int64, fx *shard.Effects)) error {
	if c.InDoubt(partition) {
		return &kafka.Error{Code: kafka.ErrNotCoordinator, Message: ErrInDoubt.Message}
	}
	return c.Do(partition, step)
}

// View calls fn with the machine of each partition that is led here, one after
// the other. Fn must not change it. If some partition is still being loaded the
// others are shown and the error says so.
func (c *Coordinator[M]) View(fn func(partition int32, m M)) error {
	var loading error
	for partition, h := range *c.hosts.Load() {
		if h == nil {
			continue
		}
		if err := h.view(func(m M) { fn(int32(partition), m) }); err != nil {
			loading = err
		}
	}
	return loading
}

// Notify calls fn with the machine of each partition that is led here, to tell
// it news such as other settings; one that is being loaded hears it afterwards.
// Fn appends nothing: what the machine wants to do about the news it does in
// Tick.
func (c *Coordinator[M]) Notify(fn func(m M)) {
	for _, h := range *c.hosts.Load() {
		if h != nil {
			h.notify(fn)
		}
	}
}

// Run loads partitions, ticks their machines and sends replies, until ctx ends.
// Then all shards are dropped.
func (c *Coordinator[M]) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.serve(ctx) }) // Ends with ctx; Run waits for it.
	for range c.o.Loaders {
		g.Go(func() error { return c.loadAll(ctx) }) // Ends with ctx; Run waits for it.
	}
	err := g.Wait()
	for partition := range *c.hosts.Load() {
		c.Resign(int32(partition))
	}
	return err
}

// serve wakes shards whose high watermark has moved or whose deadline has come.
func (c *Coordinator[M]) serve(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	clock := wallClock{elapsed: c.o.Elapsed}
	clock.start(c.o.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-timer.C:
		}
		// From here on a deadline that moves forward pokes again, whatever is
		// found below.
		c.timerMs.Store(shard.NoDeadline)
		next := shard.NoDeadline
		now := c.o.Now()
		by := clock.set(now)
		if by != 0 {
			c.o.Logger.Warn("the clock was set: sessions and time-outs go on as they were", "topic", c.o.Topic,
				"by", time.Duration(by)*time.Millisecond)
		}
		for _, h := range *c.hosts.Load() {
			if h != nil {
				next = min(next, h.serve(now.UnixMilli(), by != 0))
			}
		}
		if next == shard.NoDeadline {
			timer.Stop()
			continue
		}
		c.timerMs.Store(min(c.timerMs.Load(), next))
		timer.Reset(max(time.Duration(next-c.o.Now().UnixMilli())*time.Millisecond, 0))
	}
}

// poke makes serve look at all shards; it does not block.
func (c *Coordinator[M]) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deadlineMoved makes sure that serve wakes in time for a deadline.
func (c *Coordinator[M]) deadlineMoved(atMs int64) {
	if atMs < c.timerMs.Load() {
		c.poke()
	}
}

func (c *Coordinator[M]) notCoordinator(partition int32) error {
	return &kafka.Error{
		Code: kafka.ErrNotCoordinator,
		Message: fmt.Sprintf("this broker does not lead %s-%d: ask FindCoordinator again",
			c.o.Topic, partition),
	}
}
