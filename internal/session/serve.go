package session

import (
	"context"
	"fmt"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
)

// Serve answers what the Sessions of another broker ask about partitions that this
// broker leads. The answer belongs to the caller.
func (x *Sessions) Serve(ctx context.Context, request []byte) ([]byte, error) {
	q, err := readQuery(request)
	if err != nil {
		return nil, err
	}
	parts := make([]*partition.Partition, len(q.parts))
	all := make([]told, len(q.parts))
	for i, p := range q.parts {
		parts[i] = x.o.Topics.Partitions.GetByID(q.topic, p.Partition)
	}
	if q.kind == kindLocate {
		for i := range all {
			all[i] = x.tellPlace(parts[i], q.at)
		}
		return appendTold(nil, all), nil
	}
	x.serveFetch(ctx, q, parts, all)
	return appendTold(nil, all), nil
}

// leads returns why this broker does not lead a partition that it has a replica of,
// or not even that.
func leads(p *partition.Partition) *kafka.Error {
	err := error(partition.ErrNotLeader)
	if p != nil {
		err = p.Leads(kafka.NoLeaderEpoch)
	}
	if err == nil {
		return nil
	}
	return asRefusal(err)
}

// asRefusal makes of any error what can be told to others.
func asRefusal(err error) *kafka.Error {
	return &kafka.Error{Code: refusal.CodeOf(err), Message: refusal.MessageOf(err)}
}

// tell says what there is of a partition for a reader.
func tell(p *partition.Partition, i partition.Isolation) told {
	if err := leads(p); err != nil {
		return told{err: err}
	}
	return told{start: p.Log().LogStartOffset(), highWatermark: p.ReadableEnd(i)}
}

func (x *Sessions) tellPlace(p *partition.Partition, at Place) told {
	t := tell(p, partition.ReadUncommitted)
	if t.err != nil {
		return t
	}
	if at.Kind != AtEarliest {
		// What would be told may be less than the leader before told (KIP-207).
		if err := p.Settled(); err != nil {
			return told{err: asRefusal(err)}
		}
	}
	offset, err := locate(p, at)
	if err != nil {
		t.err = asRefusal(err)
	}
	t.at = offset
	return t
}

// serveFetch reads what there is, and waits for it if there is nothing.
func (x *Sessions) serveFetch(ctx context.Context, q *query, parts []*partition.Partition, all []told) {
	deadline := time.NewTimer(min(q.wait, maxAwayWait))
	defer deadline.Stop()
	c := &call{make(chan struct{}, 1)}
	waiters := make([]partition.Waiter, len(parts))
	for {
		if x.tellRecords(q, parts, all) || q.wait <= 0 {
			return
		}
		parked := true
		for i, p := range parts {
			// A partition that had resigned before it was waited on wakes nobody.
			parked = parked && p.WaitReadable(q.isolation, &waiters[i], c, q.parts[i].Offset+1) && leads(p) == nil
		}
		over := false
		if parked {
			select {
			case <-c.wake:
			case <-deadline.C:
				over = true
			case <-ctx.Done():
				over = true
			case <-x.stopped:
				over = true
			}
		}
		for i, p := range parts {
			p.StopWaiting(&waiters[i])
		}
		if over {
			x.tellRecords(q, parts, all)
			return
		}
	}
}

// tellRecords reads each partition, and reports whether there is something to tell.
func (x *Sessions) tellRecords(q *query, parts []*partition.Partition, all []told) (found bool) {
	budget := q.maxBytes
	for i, p := range parts {
		all[i] = tell(p, q.isolation)
		from := q.parts[i].Offset
		switch {
		case all[i].err != nil:
			found = true
			continue
		case from < all[i].start || from > p.Log().LogEndOffset():
			found = true
			all[i].err = &kafka.Error{Code: kafka.ErrOffsetOutOfRange, Message: fmt.Sprintf("there is no offset %d", from)}
			continue
		case from >= all[i].highWatermark:
			continue
		}
		found = true
		if budget <= 0 {
			continue
		}
		batches, err := x.readBatches(p, q, from, budget)
		if err != nil {
			all[i].err = asRefusal(err)
		}
		all[i].batches = batches
		budget -= len(batches)
	}
	return found
}

func (x *Sessions) readBatches(p *partition.Partition, q *query, from kafka.Offset, maxBytes int) ([]byte, error) {
	r, err := p.Read(partition.ReadOptions{
		From: from, MaxBytes: min(maxBytes, maxChunk), MinOneBatch: maxBytes == q.maxBytes,
		CurrentEpoch: kafka.NoLeaderEpoch, Isolation: q.isolation,
	})
	if err != nil {
		return nil, err
	}
	defer r.Chunk.Release()
	if r.Chunk.Size() == 0 {
		return nil, nil
	}
	p.NoteSent(r.Chunk.Size(), from, r.Chunk.NextOffset())
	raw, err := r.Chunk.AppendTo(nil)
	if err != nil || len(r.Aborted) == 0 {
		return raw, err
	}
	return withoutAborted(raw, commitlog.NewAbortedFilter(r.Aborted))
}

// withoutAborted puts batches without records in the place of those of aborted
// transactions: the reader passes them by.
func withoutAborted(raw []byte, aborted *commitlog.AbortedFilter) ([]byte, error) {
	out := make([]byte, 0, len(raw))
	builder := record.NewBuilder(record.CodecNone, 0)
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil {
			return nil, err
		}
		raw = rest
		if aborted.Aborted(b) {
			builder.SetBase(b.BaseOffset(), b.LeaderEpoch())
			builder.SetHole(b.LastOffsetDelta(), b.MaxTimestamp())
			out = append(out, builder.Build()...)
			continue
		}
		out = append(out, b.Bytes()...)
	}
	return out, nil
}
