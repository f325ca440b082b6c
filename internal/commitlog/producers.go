package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// producers is the producer state of a log with its snapshots on disk. The
// table is nil until a producer with an id writes.
type producers struct {
	table     *producerstate.Table
	snapshots []kafka.Offset // On disk, rising.
	usable    kafka.Offset   // The newest that was written or read.
	nowMs     int64          // The broker's clock at the current append or scan.
	// loadedFrom and loadedTo bound the batches whose headers the table was made of when
	// it was loaded.
	loadedFrom, loadedTo kafka.Offset
}

// producerFields are the producer's part of a batch header.
type producerFields struct {
	id           kafka.ProducerID
	epoch        kafka.ProducerEpoch
	baseSequence int32
	count        int32
}

// parseProducerFields reads them from a header, from producerPosition on.
func parseProducerFields(b []byte) producerFields {
	return producerFields{
		id:           kafka.ProducerID(binary.BigEndian.Uint64(b)),
		epoch:        kafka.ProducerEpoch(binary.BigEndian.Uint16(b[8:])),
		baseSequence: int32(binary.BigEndian.Uint32(b[10:])),
		count:        int32(binary.BigEndian.Uint32(b[14:])),
	}
}

const (
	attributeTransactional = 1 << 4
	attributeControl       = 1 << 5
)

// checkProducersLocked looks the batches up in the producer state. It returns
// true if they are in the log already.
func (l *Log) checkProducersLocked(bs []record.Batch, v Verification, nowMs int64) (AppendInfo, bool, error) {
	p := &l.w.producers
	p.nowMs = nowMs
	for _, b := range bs {
		if b.ProducerID() < 0 {
			continue
		}
		if p.table == nil {
			p.table = producerstate.New(producerstate.Options{})
		}
		a := producerAppend(b)
		a.Verified, a.VerifiedAt, a.Gaps = v.Verified, v.LogEnd, v.Gaps
		verdict, err := p.table.Check(a)
		if err != nil {
			return AppendInfo{}, false, fmt.Errorf("append to %s: %w", l.id, err)
		}
		if verdict.Duplicate {
			info := AppendInfo{
				BaseOffset: verdict.BaseOffset, LastOffset: verdict.LastOffset, LogAppendTimeMs: -1,
				LogStartOffset: l.LogStartOffset(), Duplicate: true,
			}
			if l.options.Load().Config.LogAppendTime {
				info.LogAppendTimeMs = verdict.Timestamp
			}
			return info, true, nil
		}
	}
	return AppendInfo{}, false, nil
}

func producerAppend(b record.Batch) producerstate.Append {
	return producerstate.Append{
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(),
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(),
		MaxTimestamp: b.MaxTimestamp(), Transactional: b.IsTransactional(),
	}
}

// update notes a producer's batch that is in the log, and reports whether it began
// a transaction.
func (p *producers) update(b record.Batch) (began bool) {
	if p.table == nil {
		p.table = producerstate.New(producerstate.Options{})
	}
	return p.table.Update(producerAppend(b), p.nowMs)
}

// updateHeader is update for a batch of which only the header was read.
func (p *producers) updateHeader(h batchHeader) {
	f := h.producer
	if p.table == nil {
		p.table = producerstate.New(producerstate.Options{})
	}
	// Compaction may have emptied the batch: its sequences span its offsets.
	span, last := int32(h.lastOffset-h.baseOffset), record.NoSequence
	if f.baseSequence >= 0 {
		last = int32(uint32(f.baseSequence+span) & 0x7fffffff)
	}
	p.table.Update(producerstate.Append{
		ProducerID: f.id, ProducerEpoch: f.epoch,
		BaseSequence: f.baseSequence,
		LastSequence: last,
		BaseOffset:   h.baseOffset, LastOffset: h.lastOffset,
		MaxTimestamp:  h.maxTimestamp,
		Transactional: h.attributes&attributeTransactional != 0,
	}, p.nowMs)
}

func (p *producers) empty() bool { return p.table == nil || p.table.Len() == 0 }

// Producers returns what is known of the log's idempotent producers.
func (l *Log) Producers() ([]producerstate.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadProducersLocked(); err != nil {
		return nil, err
	}
	var out []producerstate.Entry
	if l.w.producers.table != nil {
		l.w.producers.table.Active(func(e producerstate.Entry) bool {
			out = append(out, e)
			return true
		})
	}
	return out, nil
}

// expireProducersLocked forgets producers that have been silent for too long.
func (l *Log) expireProducersLocked(now time.Time) {
	if t := l.w.producers.table; t != nil {
		t.Expire(now.UnixMilli(), l.options.Load().Config.ProducerExpirationMs)
	}
}

// snapshot writes the state as of offset. Those at the start of a segment must be
// durable, because the segments before may be deleted; without another, an older
// one and more of the log do as well.
func (p *producers) snapshot(l *Log, offset kafka.Offset, durable bool) error {
	if p.usable == offset && offset > 0 && !durable {
		return nil
	}
	table := p.table
	if table == nil {
		table = producerstate.New(producerstate.Options{})
	}
	name := fileName(l.dir, offset, snapshotSuffix)
	if err := replaceFile(l.env.fs, name, table.Encode(nil), durable); err != nil {
		return err
	}
	if n := len(p.snapshots); n == 0 || p.snapshots[n-1] != offset {
		p.snapshots = append(p.snapshots, offset)
	}
	p.usable = offset
	return nil
}

// restore sets the state as of the boundary at in segment number i: from the
// newest usable snapshot, and the batch headers after it.
func (p *producers) restore(l *Log, i int, at boundary) error {
	p.nowMs = time.Now().UnixMilli()
	p.table, p.usable = nil, 0
	p.loadedFrom, p.loadedTo = at.nextOffset, at.nextOffset
	if c := l.w.synced; c.flags&entryNoProducers != 0 && c.recoveryPoint == at.nextOffset {
		return nil
	}
	segments, from := *l.segments.Load(), kafka.Offset(0)
	for n := len(p.snapshots) - 1; n >= 0; n-- {
		if p.snapshots[n] > at.nextOffset {
			continue
		}
		table, err := p.load(l, p.snapshots[n])
		if err == nil {
			p.table, from = table, p.snapshots[n]
			p.usable = from
			break
		}
		l.env.events.Problem("producer snapshot is unusable, reading more of the log instead", err)
	}
	p.loadedFrom = from
	for n := max(segmentAt(segments, from), 0); n <= i; n++ {
		limit := at.position
		if n < i {
			limit = segments[n].size.Load()
		}
		err := p.replay(segments[n], from, limit, l.options.Load().Config.IndexIntervalBytes, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// load reads a snapshot.
func (p *producers) load(l *Log, offset kafka.Offset) (*producerstate.Table, error) {
	name := fileName(l.dir, offset, snapshotSuffix)
	data, err := readFile(l.env.fs, name)
	if err != nil {
		return nil, err
	}
	table, err := producerstate.Decode(data, producerstate.Options{}, p.nowMs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return table, nil
}

// replay goes over the headers of a segment below limit, from offset on. aborted, if
// not nil, is called for each transaction that was.
func (p *producers) replay(
	s *segment, from kafka.Offset, limit int64, interval int64, aborted func(AbortedTxn),
) error {
	f, err := s.open(vfs.ReadOnly)
	if err != nil {
		return err
	}
	var position int64
	if from > s.baseOffset {
		q := segmentRead{segment: s, file: f, end: boundary{limit, kafka.NoOffset}, interval: interval}
		hit, err := q.lookUp(func() (indexHit, error) { return s.indexedBefore(from - 1) })
		if err != nil {
			return err
		}
		position = hit.position
	}
	w := newHeaderWalk(f, position, limit)
	defer w.close()
	for {
		h, err := w.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBadHeader):
			return &CorruptionError{s.path(logSuffix), w.position, "no record batch where one should be"}
		case err != nil:
			return err
		}
		switch {
		case h.baseOffset < from || h.producer.id < 0:
		case h.attributes&attributeControl == 0:
			p.updateHeader(h)
		default:
			if err := p.replayMarker(s, f, h, aborted); err != nil {
				return err
			}
		}
	}
}

// maxControlBytes is more than any control batch has.
const maxControlBytes = 4 << 10

// replayMarker reads the control batch at a header.
func (p *producers) replayMarker(s *segment, f vfs.File, h batchHeader, aborted func(AbortedTxn)) error {
	if h.sizeBytes > maxControlBytes {
		return nil // Not ours, and means nothing.
	}
	var buf [maxControlBytes]byte
	if err := readFull(f, buf[:h.sizeBytes], h.position); err != nil {
		return err
	}
	b, _, err := record.Next(buf[:h.sizeBytes])
	if err == nil {
		err = b.CheckCRC()
	}
	if err != nil {
		return &CorruptionError{s.path(logSuffix), h.position, err.Error()}
	}
	m, commit, ok := markerOf(b)
	if !ok {
		return nil
	}
	t, ended := p.end(m)
	if ended && !commit && aborted != nil {
		t.LastStableOffset = min(p.firstOpen(), t.LastStableOffset)
		aborted(t)
	}
	return nil
}

// doubtAbove takes the snapshots above an offset from the list and returns them.
// After a crash nobody knows whether the batches that they are of are those that
// the log has there now.
func (p *producers) doubtAbove(offset kafka.Offset) []kafka.Offset {
	n, _ := slices.BinarySearch(p.snapshots, offset+1)
	doubted := p.snapshots[n:]
	p.snapshots = slices.Clone(p.snapshots[:n])
	return doubted
}

// forgetSnapshots removes the snapshots that drop picks.
func (p *producers) forgetSnapshots(l *Log, drop func(kafka.Offset) bool) error {
	var errs []error
	p.snapshots = slices.DeleteFunc(p.snapshots, func(offset kafka.Offset) bool {
		if !drop(offset) {
			return false
		}
		errs = append(errs, removeFile(l.env.fs, fileName(l.dir, offset, snapshotSuffix)))
		return true
	})
	return errors.Join(errs...)
}
