package httpapi

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/idempotency"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/keyring"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
)

// append appends the records of the call that are not refused yet, each partition's
// as one batch, and notes what becomes of them. It fails only as a whole, before
// anything was appended.
func (c *produceCall) append(ctx context.Context) error {
	now := c.server.Now()
	once := false
	for i := range c.records {
		r := &c.records[i]
		r.date(now)
		once = once || r.idempotencyKey != nil && r.err == nil && !r.done
	}
	if c.txn != nil {
		c.appendInside(ctx, now)
		return nil
	}
	if !once {
		c.appendGroups(now)
		return nil
	}
	return c.appendOnce(ctx, now)
}

// date gives a record without a timestamp that of its arrival.
func (r *produceRecord) date(now time.Time) {
	if r.timestampMs == record.NoTimestamp {
		r.timestampMs, r.dated = now.UnixMilli(), true
	}
}

// appendOnce is append for records some of which have idempotency keys. The ring
// of the topic's keys is held over the look at them and the appends, so that of
// several tries at the same time one appends and the others find its record; all
// of them then wait for it to be durable. Where other brokers lead partitions of the
// topic they are asked in between: see package keyring.
func (c *produceCall) appendOnce(ctx context.Context, now time.Time) error {
	for i := range c.records {
		if r := &c.records[i]; r.idempotencyKey != nil && r.err == nil && !r.done {
			r.keyDigest = idempotency.DigestKey(r.idempotencyKey)
			r.content = idempotency.DigestContent(r.key, r.value, r.plainHeaders())
			r.err = c.checkWindow(r, now)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.left)
	defer cancel()
	for {
		ring, err := c.server.Keys.Hold(ctx, c.topic, now)
		if err != nil {
			return err
		}
		c.lookUp(ctx, ring, now)
		others := c.server.otherLeaders(c.topic)
		if len(others) == 0 || !c.hasNewKeys() {
			c.appendHeld(ring, now)
			ring.Release()
			return nil
		}
		again, err := c.appendAfterAsking(ctx, ring, others, now)
		if err != nil || !again {
			return err
		}
	}
}

// plainHeaders are the headers as the client gave them.
func (r *produceRecord) plainHeaders() []record.Header {
	if r.marked {
		return r.headers[:len(r.headers)-idempotency.MarkHeaders]
	}
	return r.headers
}

// appendHeld appends while the ring is held, and has it remember the keys.
func (c *produceCall) appendHeld(ring *keyring.Ring, now time.Time) {
	for i := range c.records {
		if r := &c.records[i]; r.isNewKey() && !r.marked {
			r.headers, r.marked = idempotency.AppendMark(r.headers, r.idempotencyKey, r.content), true
		}
	}
	c.appendGroups(now)
	for i := range c.records {
		if r := &c.records[i]; r.idempotencyKey != nil && r.err == nil && r.sameAs < 0 && !r.placed && !r.done {
			ring.Observe(r.keyDigest, r.content, idempotency.Place{
				Partition: r.partition, Offset: r.offset, TimestampMs: r.timestampMs,
			})
		}
	}
}

// isNewKey reports whether the record has an idempotency key and is to be appended.
func (r *produceRecord) isNewKey() bool { return r.idempotencyKey != nil && r.isUnplaced() }

// isUnplaced reports whether the record is still to be appended.
func (r *produceRecord) isUnplaced() bool {
	return r.err == nil && r.part == nil && r.sameAs < 0 && !r.placed && !r.done
}

// checkWindow refuses a record whose key would be forgotten at once.
func (c *produceCall) checkWindow(r *produceRecord, now time.Time) error {
	window := c.topic.Config.IdempotencyWindowMs
	switch {
	case window == 0:
		return badRequest("topic %s keeps no idempotency keys: idempotency.window.ms is 0", c.topic.Name)
	case !c.topic.Config.LogAppendTime() && now.UnixMilli()-r.timestampMs >= window:
		return refuse(http.StatusBadRequest, kafka.ErrInvalidTimestamp, "timestamp_ms is %d, which is longer ago than "+
			"idempotency keys are kept (idempotency.window.ms is %d): a retry could not be told", r.timestampMs, window)
	}
	return nil
}

// lookUp finds the records that are there already, and those that others of the
// same call repeat. All others with a key may be appended under the leader epoch
// that they get.
func (c *produceCall) lookUp(ctx context.Context, ring *keyring.Ring, now time.Time) {
	unread := c.readHere(ctx, ring, now)
	var mine map[idempotency.Digest]int
	if len(c.records) > 1 {
		mine = make(map[idempotency.Digest]int, len(c.records))
	}
	for i := range c.records {
		r := &c.records[i]
		if r.idempotencyKey == nil || r.err != nil || r.done || r.placed {
			continue
		}
		r.sameAs, r.part = -1, nil
		if r.err = unread; r.err != nil {
			continue
		}
		place, outcome := ring.Check(r.keyDigest, r.content, now)
		switch outcome {
		case idempotency.Conflict:
			r.err = c.conflict(r, place)
			continue
		case idempotency.Repeated:
			r.partition, r.offset, r.timestampMs = place.Partition, place.Offset, place.TimestampMs
			if r.leaderEpoch, r.err = ring.Ready(ctx, r.partition, now); r.err == nil {
				r.part = c.topic.Partition(r.partition)
			}
			continue
		}
		if first, ok := mine[r.keyDigest]; ok {
			if r.sameAs = first; c.records[first].content != r.content {
				r.sameAs = -1
				r.err = refuse(http.StatusConflict, kafka.ErrDuplicateResource,
					"idempotency key %q stands at records[%d] with another key, value or headers",
					clip(string(r.idempotencyKey)), first)
			}
			continue
		}
		if r.leaderEpoch, r.err = ring.Ready(ctx, r.partition, now); r.err == nil && mine != nil {
			mine[r.keyDigest] = i
		}
	}
}

func (c *produceCall) conflict(r *produceRecord, at idempotency.Place) error {
	return refuse(http.StatusConflict, kafka.ErrDuplicateResource,
		"idempotency key %q has a record at %s-%d, offset %d, with another key, value or headers: a retry must "+
			"repeat them, and another record needs a key of its own",
		clip(string(r.idempotencyKey)), c.topic.Name, at.Partition, at.Offset)
}

// appendGroups appends every record that has no place yet.
func (c *produceCall) appendGroups(now time.Time) {
	for of := range c.groups() {
		c.appendGroup(of, now)
	}
}

// groups returns the records that have no place yet, by partition.
func (c *produceCall) groups() iter.Seq[[]int32] {
	c.arrange()
	return c.eachGroup
}

func (c *produceCall) eachGroup(yield func([]int32) bool) {
	for rest := c.order; len(rest) > 0; {
		n := 1
		for n < len(rest) && c.records[rest[n]].partition == c.records[rest[0]].partition {
			n++
		}
		if !yield(rest[:n]) {
			return
		}
		rest = rest[n:]
	}
}

// arrange puts the records that have no place yet into the order of their partitions.
func (c *produceCall) arrange() {
	c.order = c.order[:0]
	sorted := true
	for i := range c.records {
		r := &c.records[i]
		if !r.isUnplaced() {
			continue
		}
		if n := len(c.order); n > 0 && c.records[c.order[n-1]].partition > r.partition {
			sorted = false
		}
		c.order = append(c.order, int32(i))
	}
	if !sorted {
		slices.SortStableFunc(c.order, func(a, b int32) int {
			return cmp.Compare(c.records[a].partition, c.records[b].partition)
		})
	}
}

// destination is a partition that records of a call go to.
type destination struct {
	part        *partition.Partition
	leaderEpoch kafka.LeaderEpoch
	limits      record.ProduceLimits
	now         time.Time
}

// appendGroup appends records of one partition, as one batch unless that would be
// larger than the topic allows.
func (c *produceCall) appendGroup(of []int32, now time.Time) {
	first := &c.records[of[0]]
	g := destination{part: c.topic.Partition(first.partition), leaderEpoch: kafka.NoLeaderEpoch, now: now}
	if g.part == nil {
		code, message := c.topic.NoPartition(first.partition)
		c.refuseAll(of, &kafka.Error{Code: code, Message: message})
		return
	}
	for _, i := range of {
		if r := &c.records[i]; r.idempotencyKey != nil {
			g.leaderEpoch = r.leaderEpoch // Of all of them.
		}
	}
	if g.leaderEpoch == kafka.NoLeaderEpoch {
		g.leaderEpoch = g.part.LeaderEpoch()
	}
	g.limits = c.topic.ProduceLimits(record.CodecSet(0), now)
	start := 0
	c.builder.Reset()
	for k, i := range of {
		r := &c.records[i]
		if c.builder.Count() > 0 && c.builder.Size()+r.sizeBound() > g.limits.MaxBatchBytes {
			c.flush(&g, of[start:k])
			start = k
		}
		c.builder.Append(r.timestampMs, r.key, r.value, r.headers)
	}
	c.flush(&g, of[start:])
}

// sizeBound is more than a record takes in a batch.
func (r *produceRecord) sizeBound() int {
	const most = 10 // Of a varint.
	size := 7*most + len(r.key) + len(r.value)
	for _, h := range r.headers {
		size += 2*most + len(h.Key) + len(h.Value)
	}
	return size
}

// flush appends the batch in the builder, which has those records.
func (c *produceCall) flush(g *destination, of []int32) {
	err := c.build(g)
	if err != nil && len(of) > 1 {
		// Which ones? Each for itself, and then those that are good together.
		of = c.sift(g, of)
		if len(of) == 0 {
			return
		}
		for _, i := range of {
			r := &c.records[i]
			c.builder.Append(r.timestampMs, r.key, r.value, r.headers)
		}
		err = c.build(g)
	}
	if err != nil {
		c.refuseAll(of, err)
		return
	}
	info, err := g.part.AppendUnder(g.leaderEpoch, c.batch[:], c.acks, g.now)
	if err != nil {
		c.refuseAll(of, err)
		return
	}
	for k, i := range of {
		r := &c.records[i]
		r.part, r.leaderEpoch, r.offset = g.part, g.leaderEpoch, info.BaseOffset+kafka.Offset(k)
		if info.LogAppendTimeMs >= 0 {
			r.timestampMs = info.LogAppendTimeMs
		}
	}
}

// build makes the batch in the builder and checks it as any producer's.
func (c *produceCall) build(g *destination) error {
	b, _, err := record.Next(c.builder.Build())
	if err != nil {
		return err
	}
	c.batch[0] = b
	err = record.ValidateProduced(b, g.limits)
	var invalid *record.InvalidError
	if errors.As(err, &invalid) {
		return &kafka.Error{Code: refusal.CodeOf(err), Message: invalid.Reason.String() + ": " + invalid.Message}
	}
	return err
}

// sift refuses the records that cannot be appended and returns the others, in the
// memory of the argument.
func (c *produceCall) sift(g *destination, of []int32) []int32 {
	good := of[:0]
	for _, i := range of {
		r := &c.records[i]
		c.builder.Append(r.timestampMs, r.key, r.value, r.headers)
		if r.err = c.build(g); r.err == nil {
			good = append(good, i)
		}
	}
	return good
}

func (c *produceCall) refuseAll(of []int32, err error) {
	for _, i := range of {
		c.records[i].err = err
	}
}
