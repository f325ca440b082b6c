package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

const (
	loadBytes       = 1 << 20  // Read at a time while loading.
	loadMaxInflated = 64 << 20 // A compressed batch of another broker may grow to this.
	loadRetry       = time.Second
)

// errGone ends a load whose host was dropped meanwhile.
var errGone = errors.New("leadership ended while loading")

func (c *Coordinator[M]) enqueueLoad(h *host[M]) {
	c.mu.Lock()
	c.loads = append(c.loads, h)
	c.mu.Unlock()
	c.pokeLoader()
}

func (c *Coordinator[M]) pokeLoader() {
	select {
	case c.loadWake <- struct{}{}:
	default:
	}
}

func (c *Coordinator[M]) nextLoad() *host[M] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.loads) == 0 {
		c.loads = nil
		return nil
	}
	h := c.loads[0]
	c.loads[0] = nil
	c.loads = c.loads[1:]
	if len(c.loads) > 0 {
		c.pokeLoader()
	}
	return h
}

// loadAll loads partitions one after the other.
func (c *Coordinator[M]) loadAll(ctx context.Context) error {
	for {
		h := c.nextLoad()
		if h == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-c.loadWake:
			}
			continue
		}
		if err := h.load(ctx); err != nil && !errors.Is(err, errGone) {
			if _, moved := h.partition.HighWatermark(); moved == nil { // Else Lead or Resign follows.
				c.o.Logger.Error("loading failed, it will be tried again",
					"topic", c.o.Topic, "partition", h.number, "error", err)
			}
			if h.pause(ctx, loadRetry) {
				c.enqueueLoad(h)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// pause waits, and returns false if there is nothing to wait for any more.
func (h *host[M]) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-h.gone:
		return false
	case <-t.C:
		return true
	}
}

// load replays the partition into a machine and makes the host active. The log
// may be ahead of the high watermark when leadership begins; all of it is the
// new leader's, so the load waits for it, and goes on then (serve). Meanwhile others are
// loaded: where too few replicas are left it may wait for long.
func (h *host[M]) load(ctx context.Context) error {
	l := h.loader
	if l == nil {
		machine, err := h.newMachine()
		if err != nil {
			return err
		}
		l = &loader[M]{host: h, machine: machine, started: h.c.o.Now()}
		l.next, l.end = h.partition.Ends()
		h.loader = l
	}
	waits, err := l.run(ctx)
	if err != nil {
		h.loader = nil // It begins anew.
	}
	if waits || err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != loading {
		return errGone
	}
	h.loader = nil
	h.activateLocked(l.machine)
	h.c.o.Logger.Debug("shard loaded", "topic", h.c.o.Topic, "partition", h.number,
		"records", l.records, "skipped", l.skipped, "took", h.c.o.Now().Sub(l.started))
	return nil
}

// awaitMore has the load go on when the high watermark has risen above what it was. It
// returns false if it has, and else the host may be another loader's already.
func (h *host[M]) awaitMore(highWatermark kafka.Offset) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loadWaits = h.partition.Wait(highWatermark+1, h)
	return h.loadWaits
}

// newMachine makes the machine, unless the host was dropped while it waited to be loaded:
// what Options.New does beside that must not come after it was done for the next host.
func (h *host[M]) newMachine() (machine M, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != loading {
		return machine, errGone
	}
	return h.c.o.New(h.number), nil
}

// activateLocked opens the host for requests.
func (h *host[M]) activateLocked(machine M) {
	now := h.c.o.Now()
	h.clock.start(now)
	h.machine = machine
	h.machine.Loaded(now.UnixMilli())
	h.phase = active
	for _, fn := range h.news {
		fn(h.machine)
	}
	h.news = nil
	h.publishDeadlineLocked()
}

// loader is one load under way.
type loader[M shard.Machine] struct {
	host    *host[M]
	machine M
	started time.Time
	// What is to be replayed still.
	next, end kafka.Offset

	buf     []byte
	records int
	skipped int
}

// run replays what there is. It reports whether it waits for more: see awaitMore.
func (l *loader[M]) run(ctx context.Context) (waits bool, err error) {
	p := l.host.partition
	for l.next < l.end {
		buf, err := p.Read(l.buf[:0], l.next, loadBytes)
		if err != nil {
			return false, fmt.Errorf("read %s-%d at %d: %w", l.host.c.o.Topic, l.host.number, l.next, err)
		}
		l.buf = buf
		if len(buf) > 0 {
			if l.next, err = l.replay(buf, l.next); err != nil {
				return false, err
			}
		} else {
			highWatermark, err := p.HighWatermark()
			if err != nil {
				return false, fmt.Errorf("read %s-%d at %d: %w", l.host.c.o.Topic, l.host.number, l.next, err)
			}
			if highWatermark >= l.end {
				break // The end of the log was compacted away.
			}
			if l.host.awaitMore(highWatermark) {
				return true, nil
			}
		}
		select {
		case <-ctx.Done():
			return false, errGone
		case <-l.host.gone:
			return false, errGone
		default:
		}
	}
	return false, nil
}

// replay replays batches and returns the offset after them.
func (l *loader[M]) replay(buf []byte, from kafka.Offset) (kafka.Offset, error) {
	next := from
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			return next, fmt.Errorf("read %s-%d at %d: %w", l.host.c.o.Topic, l.host.number, next, err)
		}
		buf, next = rest, b.LastOffset()+1
		if b.IsControl() {
			l.endTransaction(b)
			continue
		}
		for r, err := range b.Records(loadMaxInflated) {
			if err != nil {
				return next, fmt.Errorf("read %s-%d at %d: %w",
					l.host.c.o.Topic, l.host.number, b.BaseOffset(), err)
			}
			offset := b.BaseOffset() + kafka.Offset(r.OffsetDelta)
			if offset < from {
				continue
			}
			l.one(shard.Record{Key: r.Key, Value: r.Value, Offset: offset, TimestampMs: r.Timestamp}, b)
		}
	}
	return next, nil
}

// one replays a record. One that the machine cannot read is left out: its
// checksum is good, so somebody else wrote it, and the rest of the partition
// must not be unreachable for it.
//
// The record of a transaction is pending, under the producer's id.
func (l *loader[M]) one(r shard.Record, of record.Batch) {
	l.records++
	var err error
	machine, transactional := any(l.machine).(shard.Transactional)
	switch {
	case !of.IsTransactional():
		err = l.machine.Replay(r)
	case transactional:
		err = machine.ReplayPending(r, of.ProducerID())
	default:
		err = errors.New("the batch is part of a transaction")
	}
	if err != nil {
		l.skip(r.Offset, err)
	}
}

// endTransaction replays a marker.
func (l *loader[M]) endTransaction(b record.Batch) {
	machine, ok := any(l.machine).(shard.Transactional)
	if !ok {
		return
	}
	switch m, ends, err := b.EndMarker(); {
	case err != nil:
		l.skip(b.BaseOffset(), err)
	case ends:
		machine.EndTransaction(b.ProducerID(), m.Commit, b.BaseOffset())
	}
}

func (l *loader[M]) skip(offset kafka.Offset, err error) {
	const maxLogged = 5
	if l.skipped++; l.skipped <= maxLogged {
		l.host.c.o.Logger.Warn("record skipped while loading", "topic", l.host.c.o.Topic,
			"partition", l.host.number, "offset", int64(offset), "error", err)
	}
}
