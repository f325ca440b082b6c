package session

import (
	"context"
	"iter"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
)

// Sink takes records as they are found. What a caller must not have after all is
// taken back from it.
type Sink interface {
	// Add takes a record, which is good during the call. It reports false if there
	// should be no more.
	Add(partition int32, r *record.Record) bool
	// Mark returns a place to go back to.
	Mark() int
	// Rewind takes back what was added since the mark.
	Rewind(mark int)
}

// Next is where to read on in a partition.
type Next struct {
	Partition int32
	Offset    kafka.Offset
}

// maxChunk is how much is read of a partition at a time, but for a batch that is
// larger.
const maxChunk = 1 << 20

// scratch is memory for one read.
type scratch struct {
	raw          []byte
	decompressor record.Decompressor
}

// maxKept is the most that a scratch keeps between reads.
const maxKept = 4 << 20

// found is the outcome of scanning a partition.
type found struct {
	next    kafka.Offset
	records int
	bytes   int
	full    bool // The sink takes no more.
}

// view is what of a partition is read.
type view struct {
	source    partition.Source
	isolation partition.Isolation
}

// scan adds to sink the records of a partition from an offset on, until there
// are no more or they have budget bytes. Budget is for what size counts; one
// record is added however large it is. Records below from, which share a batch
// with those that are wanted, control records, and for committed readers those of
// aborted transactions are left out, so next may move on without a record. With
// records there is no error: it comes up again when the next are asked for.
func (x *Sessions) scan(
	p *partition.Partition, of view, from kafka.Offset, budget int, sink Sink,
) (found, error) {
	all := found{next: from}
	for {
		f, err := x.scanChunk(p, of, all.next, budget-all.bytes, sink)
		moved := f.next > all.next
		all.next, all.full = f.next, f.full
		all.records += f.records
		all.bytes += f.bytes
		switch {
		case err != nil && all.records > 0:
			return all, nil
		case err != nil || !moved || all.full || all.bytes >= budget || all.next >= p.ReadableEnd(of.isolation):
			return all, err
		}
	}
}

// scanChunk is scan within what is read of the log at a time.
func (x *Sessions) scanChunk(
	p *partition.Partition, of view, from kafka.Offset, budget int, sink Sink,
) (f found, err error) {
	f.next = from
	res, err := p.Read(partition.ReadOptions{
		From: from, MaxBytes: min(budget, maxChunk), MinOneBatch: true, CurrentEpoch: kafka.NoLeaderEpoch,
		Source: of.source, Isolation: of.isolation,
	})
	if err != nil {
		return f, err
	}
	defer res.Chunk.Release()
	if res.Chunk.Size() == 0 {
		f.next = max(from, res.Chunk.NextOffset())
		return f, nil
	}
	defer func() { p.NoteSent(res.Chunk.Size(), from, f.next) }()
	s := x.scratch.Get().(*scratch)
	defer x.put(s)
	if s.raw, err = res.Chunk.AppendTo(s.raw[:0]); err != nil {
		return f, err
	}
	whole, err := s.scanBatches(&f, s.raw, batchesOf{
		partition: p.ID().Partition, maxDecompressed: x.maxDecompressed(p.ID().ID),
		aborted: commitlog.NewAbortedFilter(res.Aborted),
	}, budget, sink)
	if err == nil && whole {
		f.next = max(f.next, res.Chunk.NextOffset())
	}
	return f, err
}

// batchesOf says whose batches are scanned, and what each may take in memory.
type batchesOf struct {
	partition       int32
	maxDecompressed int64
	aborted         *commitlog.AbortedFilter // Which to leave out.
}

// scanBatches adds to sink the records of stored batches from f.next on. It reports
// false if the budget or the sink ended before they did.
func (s *scratch) scanBatches(f *found, raw []byte, of batchesOf, budget int, sink Sink) (whole bool, err error) {
	from := f.next
	for rest := raw; len(rest) > 0; {
		var b record.Batch
		if b, rest, err = record.Next(rest); err != nil {
			return false, err
		}
		if b.IsControl() || of.aborted.Aborted(b) {
			f.next = max(f.next, b.LastOffset()+1)
			continue
		}
		records := s.decompressor.Records(b, of.maxDecompressed)
		full, err := f.take(records, from, budget, func(r *record.Record) bool { return sink.Add(of.partition, r) })
		if err != nil || full {
			return false, err
		}
		f.next = max(f.next, b.LastOffset()+1)
	}
	return true, nil
}

// take adds the records of one batch and reports whether the budget ended within
// it.
func (f *found) take(
	records iter.Seq2[record.Record, error], from kafka.Offset, budget int, add func(*record.Record) bool,
) (full bool, err error) {
	for r, err := range records {
		if err != nil {
			return false, err
		}
		if r.Offset < from {
			continue
		}
		if f.full || f.records > 0 && f.bytes >= budget {
			return true, nil
		}
		f.full = !add(&r)
		f.records++
		f.bytes += size(&r)
		f.next = r.Offset + 1
	}
	return false, nil
}

// maxDecompressed bounds what one batch may take.
func (x *Sessions) maxDecompressed(topic kafka.TopicID) int64 {
	v, code := x.o.Topics.ByID(topic)
	if code != kafka.ErrNone {
		return maxKept
	}
	return int64(v.Config.MaxDecompressedMessageBytes)
}

// recordOverhead is what a record counts beside its key, value and headers, so
// that many small ones have a bound as well.
const recordOverhead = 64

// size is what a record counts against a budget.
func size(r *record.Record) int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// put gives a scratch back.
func (x *Sessions) put(s *scratch) {
	if cap(s.raw) <= maxKept {
		x.scratch.Put(s)
	}
}

// Place is a place in a partition: an offset, or what stands for one.
type Place struct {
	Kind        PlaceKind
	Offset      kafka.Offset // Of AtOffset.
	TimestampMs int64        // Of AtTimestamp.
	// Isolation says for whom: to a committed reader the last record is the last one
	// before the first open transaction.
	Isolation partition.Isolation
}

// PlaceKind says what a Place means.
type PlaceKind int8

// The kinds of Place.
const (
	AtOffset    PlaceKind = iota
	AtEarliest            // The first record there is.
	AtLatest              // Behind the last record there is.
	AtTimestamp           // The first record as young, or behind the last one.
)

// locate finds the offset of a place. An offset is taken as it is, but beyond
// the last record there is nothing to be at.
func locate(p *partition.Partition, at Place) (kafka.Offset, error) {
	highWatermark, end := p.HighWatermark(), p.ReadableEnd(at.Isolation)
	switch at.Kind {
	case AtEarliest:
		return p.Log().LogStartOffset(), nil
	case AtLatest:
		return end, nil
	case AtTimestamp:
		hit, ok, err := p.Log().OffsetForTimestamp(at.TimestampMs, end)
		if err != nil || !ok {
			return end, err
		}
		return hit.Offset, nil
	}
	if start := p.Log().LogStartOffset(); at.Offset < start || at.Offset > highWatermark {
		return 0, refuse(kafka.ErrOffsetOutOfRange, "partition %d holds offsets from %d, and its next record will have offset %d: "+
			"there is no offset %d", p.ID().Partition, start, highWatermark, at.Offset)
	}
	return at.Offset, nil
}

func resetTo(p *partition.Partition, r Reset, i partition.Isolation) kafka.Offset {
	if r == Latest {
		return p.ReadableEnd(i)
	}
	return p.Log().LogStartOffset()
}

// Read is a request to read one partition, as nobody's member.
type Read struct {
	Topic     string
	Partition int32
	At        Place
	MaxBytes  int
	Wait      time.Duration
	// Stale reads what this broker's replica has, up to the last high watermark
	// that it knew, whoever leads the partition, if anybody does.
	Stale bool
	// Isolation leaves out, if it is read_committed, what is not committed.
	Isolation partition.Isolation
}

// Replica reports whether this broker has a replica of a partition, whoever leads
// it.
func (x *Sessions) Replica(topic string, number int32) bool {
	v, err := x.resolve(topic)
	return err == nil && v.Partition(number) != nil
}

// toRead returns the partition to read, the offset to begin at, and whose copy it
// is.
func (x *Sessions) toRead(r Read) (*partition.Partition, kafka.Offset, partition.Source, error) {
	if !r.Stale {
		p, err := x.leading(r.Topic, r.Partition)
		if err != nil {
			return nil, 0, partition.LeaderOnly, err
		}
		at, err := locate(p, r.At)
		return p, at, partition.LeaderOnly, err
	}
	v, err := x.resolve(r.Topic)
	if err != nil {
		return nil, 0, partition.Anything, err
	}
	p := v.Partition(r.Partition)
	if p == nil {
		code, message := v.NoPartition(r.Partition)
		return nil, 0, partition.Anything, &kafka.Error{Code: code, Message: message}
	}
	if r.At.Kind == AtOffset && r.At.Offset > p.HighWatermark() {
		return p, r.At.Offset, partition.Anything, nil // It was there, and this replica has not heard of it.
	}
	at, err := locate(p, r.At)
	return p, at, partition.Anything, err
}

// Read reads records of one partition from a place on. With nothing there it
// waits for r.Wait. It returns where to read on.
func (x *Sessions) Read(ctx context.Context, r Read, sink Sink) (Next, int, error) {
	p, at, source, err := x.toRead(r)
	if err != nil {
		return Next{}, 0, err
	}
	deadline := time.NewTimer(r.Wait)
	defer deadline.Stop()
	c := &call{make(chan struct{}, 1)}
	var w partition.Waiter
	for {
		before, end := at, p.ReadableEnd(r.Isolation)
		f, err := found{next: at}, error(nil)
		if !r.Stale || at <= end {
			f, err = x.scan(p, view{source, r.Isolation}, at, r.MaxBytes, sink)
		}
		at = f.next
		if f.records > 0 || err != nil {
			return Next{r.Partition, at}, f.records, err
		}
		if r.Wait <= 0 {
			return Next{r.Partition, at}, 0, nil
		}
		if at != before || !p.WaitReadable(r.Isolation, &w, c, max(end, at)+1) {
			continue
		}
		if err := p.Leads(kafka.NoLeaderEpoch); err != nil && !r.Stale {
			p.StopWaiting(&w)
			return Next{}, 0, err
		}
		select {
		case <-c.wake:
			p.StopWaiting(&w)
			continue
		case <-deadline.C:
		case <-x.stopped:
			err = stopping()
		case <-ctx.Done():
			err = ctx.Err()
		}
		p.StopWaiting(&w)
		return Next{r.Partition, at}, 0, err
	}
}
