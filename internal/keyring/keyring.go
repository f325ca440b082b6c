// Package keyring keeps the tables of idempotency keys (package idempotency) in
// step with the logs: one Ring per topic, whose table is read back from the window
// of the topic's partitions when this broker first needs it, and kept up to date
// by whoever appends while holding the ring.
//
// A Ring is held over a check of the table and the append that follows from it,
// so that of two tries at the same time the second finds the record of the first.
// It is not held while the record becomes durable: both wait for that.
//
// The table of a partition is that of one leader epoch: after a change of
// leadership it is read anew, and an append under another epoch fails.
//
// All rings together keep a bounded number of keys: beyond it the partition that
// has the most forgets its oldest, so that whoever writes much pays for it
// (room.go).
//
// Its methods may be called from any goroutine; what a held Ring offers is for
// the holder. Lock order: a ring's turn -> the lock of any ring's table, which is
// a leaf. Deliberately absent: asking other brokers for the keys of what they lead
// (reserve.go says what the caller does).
package keyring

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/topics"
)

// Rings are the rings of all topics.
type Rings struct {
	options Options
	rings   sync.Map // kafka.TopicID -> *Ring
	room    room
}

// Options make Rings.
type Options struct {
	// MaxKeys is how many keys all rings keep together; nil for any number.
	MaxKeys func() int
	// Exists reports whether there is a topic of that id: one that was deleted
	// gets no ring any more. Nil if none is ever deleted.
	Exists func(kafka.TopicID) bool
}

// New returns Rings, of which there are none yet.
func New(o Options) *Rings { return &Rings{options: o} }

// Ring is the keys of one topic.
type Ring struct {
	home *Rings
	name string        // Of the topic.
	turn chan struct{} // Holds a token while somebody holds the ring.

	// These belong to the holder.
	topic  *topics.View
	looked *topics.View // The last one of which every partition was looked at.
	reads  map[int32]*reading

	mu     sync.Mutex // Guards what follows, which anybody may look at.
	table  *idempotency.Table
	bounds idempotency.Bounds
	gone   bool // The topic was deleted: nothing is kept.
	// reserved are the keys whose records may be about to be appended (reserve.go).
	reserved map[idempotency.Digest]*Reservation
}

// reading is how far a partition was read.
type reading struct {
	log         *commitlog.Log
	leaderEpoch kafka.LeaderEpoch
	next        kafka.Offset // Where to read on; kafka.NoOffset before the first.
	done        bool
	err         error // Why it could not be read.
}

// Kept is what is kept of a partition.
type Kept struct {
	Topic     string
	Partition int32
	Keys      int
	Oldest    time.Time // The timestamp of the oldest key's record.
}

// Hold waits for the ring of a topic and takes it, with the keys of every
// partition that this broker leads. The caller releases it. After an error it
// holds nothing, and what was read so far stays read.
func (r *Rings) Hold(ctx context.Context, topic *topics.View, now time.Time) (*Ring, error) {
	ring, err := r.ring(topic)
	if err != nil {
		return nil, err
	}
	select {
	case ring.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the idempotency keys of %s: %w", topic.Name, ctx.Err())
	}
	if err := ring.refresh(ctx, topic, now); err != nil {
		ring.Release()
		return nil, err
	}
	return ring, nil
}

// ring returns the ring of a topic, which is made if there is none.
func (r *Rings) ring(topic *topics.View) (*Ring, error) {
	id := topic.Meta.ID
	if v, ok := r.rings.Load(id); ok {
		return v.(*Ring), nil
	}
	v, _ := r.rings.LoadOrStore(id, &Ring{
		home: r, name: topic.Name, turn: make(chan struct{}, 1), table: idempotency.NewTable(), reads: map[int32]*reading{},
		reserved: map[idempotency.Digest]*Reservation{},
	})
	// A topic is gone first, and then forgotten: either we see here that it is gone,
	// or Forget sees what we have just stored.
	if r.options.Exists != nil && !r.options.Exists(id) {
		r.Forget(id)
		return nil, &kafka.Error{Code: kafka.ErrUnknownTopicOrPartition, Message: topics.Unknown(topic.Name, id)}
	}
	return v.(*Ring), nil
}

// Forget drops what is kept of a deleted topic. Exists says before that it is
// gone.
func (r *Rings) Forget(id kafka.TopicID) {
	v, ok := r.rings.LoadAndDelete(id)
	if !ok {
		return
	}
	g := v.(*Ring)
	g.mu.Lock()
	defer g.mu.Unlock()
	r.room.add(-g.table.Keys())
	g.table, g.gone = idempotency.NewTable(), true // Somebody may hold it still.
}

// Kept returns what is kept of each partition.
func (r *Rings) Kept(now time.Time) []Kept {
	var all []Kept
	r.rings.Range(func(_, v any) bool {
		all = v.(*Ring).appendKept(all, now)
		return true
	})
	return all
}

func (g *Ring) appendKept(all []Kept, now time.Time) []Kept {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range g.table.Partitions() {
		g.changeLocked(func() int { return g.table.Expire(i, g.bounds, now.UnixMilli()) })
		if keys, oldestMs := g.table.Kept(i); keys > 0 {
			all = append(all, Kept{g.name, i, keys, time.UnixMilli(oldestMs)})
		}
	}
	return all
}

// changeLocked keeps account of a change of the table, of which it returns how
// many keys it dropped before their time.
func (g *Ring) changeLocked(change func() int) int {
	if g.gone {
		return 0
	}
	before := g.table.Keys()
	evicted := change()
	g.home.room.add(g.table.Keys() - before)
	return evicted
}

// Release lets the next one hold the ring.
func (g *Ring) Release() { <-g.turn }

// Check says whether a record with a key is there already, and where.
func (g *Ring) Check(key, content idempotency.Digest, now time.Time) (idempotency.Place, idempotency.Outcome) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.table.Check(key, content, g.bounds, now.UnixMilli())
}

// Observe takes in a record that was appended to a partition while the ring was
// held.
func (g *Ring) Observe(key, content idempotency.Digest, p idempotency.Place) {
	g.home.room.evictedByPartition.Add(uint64(g.observe(key, content, p)))
}

// observe returns how many keys the partition has no room for any more.
func (g *Ring) observe(key, content idempotency.Digest, p idempotency.Place) int {
	g.mu.Lock()
	evicted := g.changeLocked(func() int { return g.table.Observe(key, content, p, g.bounds) })
	g.mu.Unlock()
	g.home.makeRoom()
	return evicted
}

// Ready returns the leader epoch under which records with keys may be appended to
// a partition, or why none may be.
func (g *Ring) Ready(ctx context.Context, i int32, now time.Time) (kafka.LeaderEpoch, error) {
	g.look(i)
	r := g.reads[i]
	if r == nil {
		return kafka.NoLeaderEpoch, partition.ErrNotLeader
	}
	if !r.done {
		r.err = nil
		if err := g.read(ctx, i, r, now); err != nil {
			return kafka.NoLeaderEpoch, err
		}
	}
	return r.leaderEpoch, r.err
}

// Read has the ring know the keys in partitions that this broker leads, or fails because it does
// not, or not yet: Check is about what was read.
func (g *Ring) Read(ctx context.Context, partitions iter.Seq[int32], now time.Time) error {
	for i := range partitions {
		if _, err := g.Ready(ctx, i, now); err != nil {
			return err
		}
	}
	return nil
}

// refresh brings the table in step with the metadata and the topic's settings.
func (g *Ring) refresh(ctx context.Context, topic *topics.View, now time.Time) error {
	if g.looked == topic {
		return nil
	}
	bounds := idempotency.Bounds{
		WindowMs: topic.Config.IdempotencyWindowMs, MaxKeys: int(topic.Config.IdempotencyMaxKeys),
	}
	if bounds.WindowMs > g.bounds.WindowMs || bounds.MaxKeys > g.bounds.MaxKeys {
		for i := range g.reads { // More is to be kept than was.
			g.forget(i)
		}
	}
	g.mu.Lock()
	g.bounds = bounds
	g.mu.Unlock()
	g.topic, g.looked = topic, nil
	for i := range topic.Meta.Partitions {
		g.look(int32(i))
	}
	for i, r := range g.reads {
		if r.done || r.err != nil {
			continue
		}
		if err := g.read(ctx, i, r, now); err != nil && ctx.Err() != nil {
			return err
		}
	}
	g.looked = topic
	return nil
}

func (g *Ring) forget(i int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(func() int { g.table.Forget(i); return 0 })
	delete(g.reads, i)
}

// look drops what was read of a partition if its leadership has changed since,
// and begins anew if this broker leads it.
func (g *Ring) look(i int32) {
	p := g.topic.Partition(i)
	if p == nil || p.Leads(kafka.NoLeaderEpoch) != nil {
		g.forget(i)
		return
	}
	leaderEpoch := p.LeaderEpoch()
	if r := g.reads[i]; r != nil && r.leaderEpoch == leaderEpoch && r.log == p.Log() {
		return
	}
	g.forget(i)
	g.reads[i] = &reading{log: p.Log(), leaderEpoch: leaderEpoch, next: kafka.NoOffset}
}

// maxTries bounds how often a log may change under a reader.
const maxTries = 10

// read reads what the window has of a partition, from where the last try ended.
func (g *Ring) read(ctx context.Context, i int32, r *reading, now time.Time) error {
	var err error
	for range maxTries {
		if err = g.readOn(ctx, i, r, now); err == nil {
			r.done = true
			return nil
		}
		var outOf *commitlog.OffsetOutOfRangeError
		switch {
		case errors.As(err, &outOf):
			r.next = max(r.next, outOf.Start) // Retention was faster.
		case !errors.Is(err, commitlog.ErrBusy):
			err = fmt.Errorf("read the idempotency keys of %s-%d: %w", g.topic.Name, i, err)
			if ctx.Err() == nil {
				r.err = err
			}
			return err
		}
	}
	return err
}

func (g *Ring) readOn(ctx context.Context, i int32, r *reading, now time.Time) error {
	end := r.log.LogEndOffset()
	if r.next == kafka.NoOffset {
		// Every record within the window is at or above the first one of them.
		first, found, err := r.log.OffsetForTimestamp(now.UnixMilli()-g.bounds.WindowMs, end)
		if err != nil || !found {
			return err
		}
		r.next = first.Offset
	}
	return r.log.Batches(r.next, end, func(b record.Batch) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		for x, err := range b.Records(int64(g.topic.Config.MaxDecompressedMessageBytes)) {
			if err != nil {
				return err
			}
			if key, content, ok := idempotency.ReadMark(&x); ok {
				g.observe(key, content, idempotency.Place{Partition: i, Offset: x.Offset, TimestampMs: x.Timestamp})
			}
		}
		r.next = b.LastOffset() + 1
		return nil
	})
}
