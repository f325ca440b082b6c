package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// Verification is the word of a transaction's coordinator that a producer's
// transaction is open in this partition. The zero value is of nobody who asked.
type Verification struct {
	Verified bool
	// LogEnd is what BeginVerification returned before the coordinator was asked: a
	// marker that came since has ended what it speaks of.
	LogEnd kafka.Offset
	// Gaps says that the producer leaves sequences out: see producerstate.Append. It
	// holds whether anybody was asked or not.
	Gaps bool
}

// Marker is the end of a producer's transaction, as its coordinator asks for it.
type Marker struct {
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Commit           bool
	// Bumped says that the epoch is above that of the transaction which it ends
	// (KIP-890, version 2 of transactions): one that is not is late, and refused.
	Bumped bool
	// Decision is the offset of the record of the decision, in the log of its coordinator;
	// 0 if that is not known. A marker of a decision that had its marker here is late
	// where a transaction is open, and refused. Where that has to hold across leaders, the
	// marker is to be sent under a leader epoch: only the leader that appends one knows.
	Decision kafka.Offset
}

// BeginVerification returns what an append of a producer's transactional batch must
// bring along as its Verification. needed is false if there is no need to ask: a
// transaction of this epoch is open here.
func (l *Log) BeginVerification(
	id kafka.ProducerID, epoch kafka.ProducerEpoch,
) (logEnd kafka.Offset, needed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return kafka.NoOffset, false, err
	}
	if err := l.loadProducersLocked(); err != nil {
		return kafka.NoOffset, false, err
	}
	if t := l.w.producers.table; t != nil {
		if _, of, open := t.Ongoing(id); open && of == epoch {
			return l.LogEndOffset(), false, nil
		}
	}
	return l.LogEndOffset(), true, nil
}

// MarkedSince reports whether a producer's transaction was ended here at or above an
// offset that BeginVerification returned.
func (l *Log) MarkedSince(id kafka.ProducerID, logEnd kafka.Offset) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.w.producers.table
	return t != nil && t.MarkedSince(id, logEnd)
}

// OngoingTxn returns where a producer's open transaction began, and its epoch; false
// if it has none here.
func (l *Log) OngoingTxn(id kafka.ProducerID) (kafka.Offset, kafka.ProducerEpoch, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return kafka.NoOffset, 0, false, err
	}
	if err := l.loadProducersLocked(); err != nil || l.w.producers.table == nil {
		return kafka.NoOffset, 0, false, err
	}
	first, epoch, open := l.w.producers.table.Ongoing(id)
	return first, epoch, open, nil
}

// LastSequence returns the last sequence of a producer's epoch here; false if it has none.
func (l *Log) LastSequence(id kafka.ProducerID, epoch kafka.ProducerEpoch) (int32, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadProducersLocked(); err != nil || l.w.producers.table == nil {
		return 0, false, err
	}
	sequence, ok := l.w.producers.table.LastSequence(id, epoch)
	return sequence, ok, nil
}

// AppendMarkers ends transactions, as the leader: a control batch for each marker,
// written with one call. refused, if not nil, says of each marker why it was refused;
// the others are appended all the same. A marker that ends nothing is appended too:
// it has the producer's epoch, which fences older ones.
func (l *Log) AppendMarkers(
	ms []Marker, epoch kafka.LeaderEpoch, now time.Time,
) (info AppendInfo, refused []error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info = AppendInfo{BaseOffset: kafka.NoOffset, LogAppendTimeMs: -1}
	for i := 0; i < len(ms); {
		n := i + 1 // Up to the second marker of a producer: it must be checked after the first.
		for n < len(ms) && !slices.ContainsFunc(ms[i:n], func(m Marker) bool { return m.ProducerID == ms[n].ProducerID }) {
			n++
		}
		one, why, err := l.appendMarkersLocked(ms[i:n], epoch, now.UnixMilli())
		if err != nil {
			l.reportRefused(err)
			return info, refused, fmt.Errorf("append to %s: %w", l.id, err)
		}
		if why != nil {
			refused = slices.Grow(refused, len(ms))[:len(ms)]
			copy(refused[i:], why)
		}
		if info.BaseOffset == kafka.NoOffset {
			info.BaseOffset = one.BaseOffset
		}
		info.LastOffset, i = one.LastOffset, n
	}
	info.LogStartOffset = l.LogStartOffset()
	return info, refused, nil
}

// appendMarkersLocked appends markers of different producers.
func (l *Log) appendMarkersLocked(ms []Marker, epoch kafka.LeaderEpoch, nowMs int64) (AppendInfo, []error, error) {
	if err := l.readyLocked(); err != nil {
		return AppendInfo{}, nil, err
	}
	p := &l.w.producers
	p.nowMs = nowMs
	cfg := &l.options.Load().Config
	next := l.w.end.nextOffset
	info := AppendInfo{BaseOffset: next}
	var refused []error
	var bs []record.Batch
	builder := record.NewBuilder(record.CodecNone, 0)
	for i, m := range ms {
		if err := p.checkMarker(m); err != nil {
			if refused == nil {
				refused = make([]error, len(ms))
			}
			refused[i] = fmt.Errorf("append to %s: %w", l.id, err)
			continue
		}
		b, _, err := record.Next(bytes.Clone(builder.BuildEndMarker(
			record.MarkedProducer{ID: m.ProducerID, Epoch: m.ProducerEpoch},
			record.EndMarker{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}, nowMs)))
		if err != nil {
			return info, nil, err
		}
		b.Stamp(next, epoch)
		if cfg.LogAppendTime {
			b.StampLogAppendTime(nowMs)
		}
		next = b.LastOffset() + 1
		bs = append(bs, b)
	}
	info.LastOffset = next - 1
	for len(bs) > 0 {
		n := fitting(bs, cfg.SegmentBytes)
		if err := l.appendLocked(bs[:n], cfg, nowMs); err != nil {
			return info, nil, err
		}
		bs = bs[n:]
	}
	for i, m := range ms {
		if refused == nil || refused[i] == nil {
			p.table.NoteDecision(m.ProducerID, m.Decision)
		}
	}
	return info, refused, nil
}

func (p *producers) checkMarker(m Marker) error {
	if p.table == nil {
		p.table = producerstate.New(producerstate.Options{})
	}
	return p.table.CheckMarker(producerstate.Marker{
		ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch,
		CoordinatorEpoch: m.CoordinatorEpoch, Bumped: m.Bumped, Decision: m.Decision,
	})
}

// loadProducersLocked makes the producers' state that of the log's end.
func (l *Log) loadProducersLocked() error {
	if l.w.active == nil && len(*l.segments.Load()) > 0 {
		return l.activateLocked()
	}
	return nil
}

// noteProducerLocked takes a batch with a producer id, which is in the log, into what
// is known of producers and transactions. Readers do not see its end yet.
func (l *Log) noteProducerLocked(b record.Batch) {
	if !b.IsControl() {
		if l.w.producers.update(b) {
			l.stability.began(b.BaseOffset())
		}
		return
	}
	m, commit, ok := markerOf(b)
	if !ok {
		return
	}
	t, ended := l.w.producers.end(m)
	if !ended {
		return
	}
	open := l.firstOpenLocked()
	if !commit {
		t.LastStableOffset = min(open, t.LastStableOffset)
		l.hasAborted.Store(true)
		if err := l.w.active.txnIndexOf().add(t); err != nil {
			l.env.failLater(l, err) // A restart makes the index anew.
		}
	}
	l.stability.ended(decidedTxn{t.FirstOffset, t.LastOffset}, open)
}

// markerOf returns the end of a transaction that a batch is. A control batch that is
// not understood means nothing here.
func markerOf(b record.Batch) (m producerstate.Marker, commit, ok bool) {
	e, ok, err := b.EndMarker()
	return producerstate.Marker{
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), CoordinatorEpoch: e.CoordinatorEpoch,
		Offset: b.BaseOffset(), Timestamp: b.MaxTimestamp(),
	}, e.Commit, ok && err == nil
}

// end notes a marker and returns what it ends, if anything; the last stable offset
// is as if nothing else were open.
func (p *producers) end(m producerstate.Marker) (AbortedTxn, bool) {
	if p.table == nil {
		p.table = producerstate.New(producerstate.Options{})
	}
	first, ok := p.table.EndTransaction(m, p.nowMs)
	return AbortedTxn{
		ProducerID: m.ProducerID, FirstOffset: first, LastOffset: m.Offset, LastStableOffset: m.Offset + 1,
	}, ok
}

// firstOpenLocked returns where the first open transaction began, or stable.
func (l *Log) firstOpenLocked() kafka.Offset { return l.w.producers.firstOpen() }

func (p *producers) firstOpen() kafka.Offset {
	if p.table != nil {
		if first, ok := p.table.FirstOpenOffset(); ok {
			return first
		}
	}
	return stable
}

// AbortedTxns returns the aborted transactions that have records in [from, upTo), in
// the order of their markers. A transaction whose marker is not in the log is not
// among them, so upTo is at most the last stable offset. It takes no lock.
func (l *Log) AbortedTxns(from, upTo kafka.Offset) ([]AbortedTxn, error) {
	if !l.hasAborted.Load() || from >= upTo {
		return nil, nil
	}
	for {
		out, again, err := l.collectAborted(from, upTo)
		if !again {
			return out, err
		}
	}
}

// collectAborted is AbortedTxns for one view of the segments. It reports whether that
// view is over.
func (l *Log) collectAborted(from, upTo kafka.Offset) (out []AbortedTxn, again bool, err error) {
	if l.gone.Load() {
		return nil, false, ErrDeleted
	}
	segments := *l.segments.Load()
	for _, s := range segments[max(segmentAt(segments, from), 0):] {
		x := s.aborted.Load()
		if x == nil {
			continue
		}
		if !s.acquire() {
			return nil, true, nil
		}
		before := len(out)
		var done bool
		if out, done, err = x.collect(out, from, upTo); err != nil {
			out = out[:before]
			again, err = l.mendTxnIndex(s, err)
		}
		s.release()
		if err != nil || again || done {
			return out, again, err
		}
	}
	return out, false, nil
}

// mendTxnIndex makes the index of a segment anew after an error of reading it. It
// reports whether to try again.
func (l *Log) mendTxnIndex(s *segment, err error) (again bool, _ error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	segments := *l.segments.Load()
	n := slices.Index(segments, s)
	switch {
	case s.deleted.Load() || n < 0:
		return true, nil
	case !isTxnIndexLost(err):
		return false, err
	}
	if err := l.remakeTxnIndexLocked(n, s.size.Load()); err != nil {
		return false, fmt.Errorf("index of aborted transactions of %s: %w", s.path(logSuffix), err)
	}
	return true, nil
}

// isTxnIndexLost tells whether an index must be made anew.
func isTxnIndexLost(err error) bool {
	return errors.Is(err, errTxnIndexDamaged) || errors.Is(err, fs.ErrNotExist)
}

// remakeTxnIndexLocked makes the index of segment number n from its batches below a
// position, and what is known of the transactions that were open before.
func (l *Log) remakeTxnIndexLocked(n int, limit int64) error {
	s := (*l.segments.Load())[n]
	l.env.events.Problem("an index of aborted transactions is made anew from the log", errors.New(s.path(txnIndexSuffix)))
	p := producers{snapshots: l.w.producers.snapshots}
	if err := p.restore(l, n, boundary{0, s.baseOffset}); err != nil {
		return err
	}
	var aborted []AbortedTxn
	err := p.replay(s, s.baseOffset, limit, l.options.Load().Config.IndexIntervalBytes, func(t AbortedTxn) {
		aborted = append(aborted, t)
	})
	if err != nil {
		return err
	}
	if len(aborted) == 0 {
		return s.dropTxnIndex()
	}
	return s.txnIndexOf().replace(aborted)
}

// cutTxnIndexLocked removes what the index of segment number i has from a boundary
// on.
func (l *Log) cutTxnIndexLocked(i int, at boundary) error {
	err := (*l.segments.Load())[i].cutTxnIndex(at.nextOffset)
	if err != nil && isTxnIndexLost(err) {
		return l.remakeTxnIndexLocked(i, at.position)
	}
	return err
}
