package commitlog

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// AppendAsLeader appends validated batches: it checks the producers' state,
// gives them offsets, stamps them in place, writes them with one call and hands
// them to the journal. They become durable later (OnDurable). The bytes are not
// kept. A batch that is there already is not written again: the result says
// Duplicate and where it is. If newer ones of its producer have driven it from the
// producer state it is looked for in the log.
//
// Batches of a transaction continue one of their producer that is open here; see
// AppendVerified. After an error nothing was appended.
func (l *Log) AppendAsLeader(bs []record.Batch, epoch kafka.LeaderEpoch, now time.Time) (AppendInfo, error) {
	return l.AppendVerified(bs, epoch, Verification{}, now)
}

// AppendVerified is AppendAsLeader for batches that may begin a transaction here:
// their coordinator has said that it is open. What it said is held against what the
// log has seen since, under the lock of the append, so that no transaction begins
// after its end (KIP-890).
func (l *Log) AppendVerified(
	bs []record.Batch, epoch kafka.LeaderEpoch, v Verification, now time.Time,
) (AppendInfo, error) {
	info, err := l.appendAsLeader(bs, epoch, v, now)
	if there, found := l.recallLate(bs, err); found {
		return there, nil
	}
	return info, err
}

// Appended says where batches are that were appended before and come again. It appends
// nothing.
func (l *Log) Appended(bs []record.Batch, now time.Time) (info AppendInfo, there bool) {
	info, there, err := l.checkProducers(bs, now)
	if err != nil {
		return l.recallLate(bs, err)
	}
	return info, there
}

func (l *Log) checkProducers(bs []record.Batch, now time.Time) (AppendInfo, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.prepareLocked(bs); err != nil {
		return AppendInfo{}, false, err
	}
	return l.checkProducersLocked(bs, Verification{}, now.UnixMilli())
}

// recallLate looks for a batch in the log that was refused for its sequence.
func (l *Log) recallLate(bs []record.Batch, refused error) (info AppendInfo, there bool) {
	late, ok := errors.AsType[*producerstate.OutOfOrderSequenceError](refused)
	if !ok || len(bs) != 1 {
		return AppendInfo{}, false
	}
	return l.recall(bs[0], late)
}

func (l *Log) appendAsLeader(
	bs []record.Batch, epoch kafka.LeaderEpoch, v Verification, now time.Time,
) (AppendInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.prepareLocked(bs); err != nil {
		l.reportRefused(err)
		return AppendInfo{}, err
	}
	nowMs := now.UnixMilli()
	if info, dup, err := l.checkProducersLocked(bs, v, nowMs); err != nil || dup {
		return info, err
	}
	cfg := &l.options.Load().Config
	if size := sizeOf(bs); size > cfg.SegmentBytes {
		err := &BatchTooLargeError{size, cfg.SegmentBytes}
		l.reportRefused(err)
		return AppendInfo{}, fmt.Errorf("append to %s at %d: %w", l.id, l.w.end.nextOffset, err)
	}
	info := AppendInfo{
		BaseOffset: l.w.end.nextOffset, LogAppendTimeMs: -1, LogStartOffset: l.LogStartOffset(),
	}
	next := l.w.end.nextOffset
	for _, b := range bs {
		b.Stamp(next, epoch)
		if cfg.LogAppendTime {
			b.StampLogAppendTime(nowMs)
			info.LogAppendTimeMs = nowMs
		}
		next = b.LastOffset() + 1
	}
	info.LastOffset = next - 1
	if err := l.appendLocked(bs, cfg, nowMs); err != nil {
		l.reportRefused(err)
		return AppendInfo{}, fmt.Errorf("append to %s at %d: %w", l.id, info.BaseOffset, err)
	}
	return info, nil
}

// AppendAsFollower appends batches with the offsets and epochs that the leader
// gave them. They must continue the log, but may leave gaps: the leader's log has them
// where it was compacted, now or before its policy changed, and the leader itself answers
// for offsets that continue one another where it was not. After an error some of them
// may have been appended: the log's end says which.
func (l *Log) AppendAsFollower(bs []record.Batch) error {
	if err := l.allowFollowersGap(bs); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.prepareLocked(bs); err != nil {
		l.reportRefused(err)
		return err
	}
	cfg := &l.options.Load().Config
	l.w.producers.nowMs = time.Now().UnixMilli()
	next := l.w.end.nextOffset
	for _, b := range bs {
		if base := b.BaseOffset(); base < next {
			return &UnexpectedOffsetError{BaseOffset: base, LogEndOffset: next}
		}
		if err := b.CheckCRC(); err != nil {
			return fmt.Errorf("append to %s at %d: %w", l.id, b.BaseOffset(), err)
		}
		next = b.LastOffset() + 1
	}
	for len(bs) > 0 {
		n := fitting(bs, cfg.SegmentBytes)
		if err := l.appendLocked(bs[:n], cfg, l.w.producers.nowMs); err != nil {
			l.reportRefused(err)
			return fmt.Errorf("append to %s at %d: %w", l.id, bs[0].BaseOffset(), err)
		}
		bs = bs[n:]
	}
	return nil
}

// fitting returns how many of the batches fit into one segment, and at least one:
// a larger one was taken by the leader when segments were larger, and has a segment
// to itself.
func fitting(bs []record.Batch, segmentBytes int64) int {
	n, size := 1, int64(bs[0].Size())
	for n < len(bs) && size+int64(bs[n].Size()) <= segmentBytes {
		size += int64(bs[n].Size())
		n++
	}
	return n
}

func sizeOf(bs []record.Batch) (size int64) {
	for _, b := range bs {
		size += int64(b.Size())
	}
	return size
}

func (l *Log) prepareLocked(bs []record.Batch) error {
	if len(bs) == 0 {
		return errors.New("append: no batch given")
	}
	return l.readyLocked()
}

// readyLocked makes the log ready to append.
func (l *Log) readyLocked() error {
	if err := l.writableLocked(); err != nil {
		return err
	}
	if l.w.active == nil {
		return l.activateLocked()
	}
	return nil
}

// appendLocked writes stamped batches at the end of the log.
func (l *Log) appendLocked(bs []record.Batch, cfg *Config, nowMs int64) error {
	size, maxTimestamp := sizeOf(bs), int64(noTimestamp)
	for _, b := range bs {
		maxTimestamp = max(maxTimestamp, b.MaxTimestamp())
	}
	lastOffset := bs[len(bs)-1].LastOffset()
	if err := l.maybeRollLocked(cfg, rollQuestion{size, maxTimestamp, lastOffset, nowMs}); err != nil {
		return err
	}
	// A follower of a compacted log may begin behind a gap; segments and journal
	// entries continue one another all the same.
	base := l.w.end.nextOffset
	data, giveBack := l.gatherLocked(bs, size)
	defer giveBack()
	if err := l.writeLocked(data); err != nil {
		return err
	}
	l.noteAppendedLocked(bs, cfg.IndexIntervalBytes)
	l.commitLocked(committed{base, lastOffset + 1, data}, cfg, nowMs)
	return nil
}

// maxGatherBytes bounds the buffer that a log keeps for gathering. Larger ones, which
// followers need, are shared by the logs of a directory.
const maxGatherBytes = 64 << 10

// gatherLocked returns the bytes of all batches in one piece, and what gives its buffer
// back: nearly always there is one batch, and nothing is copied.
func (l *Log) gatherLocked(bs []record.Batch, size int64) (data []byte, giveBack func()) {
	if len(bs) == 1 {
		return bs[0].Bytes(), func() {}
	}
	giveBack = func() {}
	buf := l.w.gather[:0]
	if int64(cap(buf)) < size {
		buf, giveBack = l.env.gatherBuffer(size)
	}
	for _, b := range bs {
		buf = append(buf, b.Bytes()...)
	}
	if cap(buf) <= maxGatherBytes {
		l.w.gather = buf
	}
	return buf, giveBack
}

// gatherBuffer returns an empty buffer for size bytes, and what gives it back.
func (e *env) gatherBuffer(size int64) (buf []byte, giveBack func()) {
	if size <= maxGatherBytes {
		return make([]byte, 0, size), func() {}
	}
	shared, _ := e.gather.Get().(*[]byte)
	if shared == nil || int64(cap(*shared)) < size {
		shared = new(make([]byte, 0, size))
	}
	return (*shared)[:0], func() { e.gather.Put(shared) }
}

// writeLocked writes data at the end of the active segment. If that fails the
// torn bytes are cut off again; if they can't be, the log goes offline, because
// nobody could tell them from a batch later.
func (l *Log) writeLocked(data []byte) error {
	w := &l.w
	_, err := w.file.WriteAt(data, w.end.position)
	if err == nil {
		return nil
	}
	if cutErr := w.file.Truncate(w.end.position); cutErr != nil {
		err = errors.Join(err, cutErr)
		l.env.failLater(l, err)
	}
	return fmt.Errorf("write %s: %w", w.active.path(logSuffix), err)
}

// noteAppendedLocked takes written batches into the indexes, the histories and
// the view of readers.
func (l *Log) noteAppendedLocked(bs []record.Batch, indexInterval int64) {
	w := &l.w
	ring := l.ring.Load()
	for _, b := range bs {
		if base := b.BaseOffset(); base > w.end.nextOffset {
			l.noteGapLocked(base)
		}
		w.noteBatch(b, indexInterval)
		l.assignEpochLocked(b.LeaderEpoch(), b.BaseOffset())
		if b.ProducerID() >= 0 {
			l.noteProducerLocked(b)
		}
		ring.add(w.end)
	}
	l.logEnd.Store(int64(w.end.nextOffset))
	w.active.size.Store(w.end.position)
	w.markDirty(w.active)
}

// markDirty notes that a segment's files have something to sync.
func (w *writer) markDirty(s *segment) {
	if n := len(w.dirty); n == 0 || w.dirty[n-1] != s {
		w.dirty = append(w.dirty, s)
	}
}

// noteBatch moves the end over a batch and indexes it by Kafka's rule: an entry
// for the first batch after more than indexInterval bytes without one.
func (w *writer) noteBatch(b record.Batch, indexInterval int64) {
	lastOffset, size := b.LastOffset(), int64(b.Size())
	if t := b.MaxTimestamp(); t > w.largest.timestamp {
		w.largest = timestampOffset{t, lastOffset}
	}
	if w.rollTimestamp == noTimestamp && w.end.position == 0 {
		w.rollTimestamp = b.MaxTimestamp()
	}
	if w.sinceIndex > indexInterval {
		w.active.appendOffsetEntry(lastOffset, w.end.position)
		w.active.maybeAppendTimeEntry(w.largest)
		w.sinceIndex = 0
	}
	w.sinceIndex += size
	w.last = lastBatch{w.end.position, int32(size), b.CRC(), b.LeaderEpoch()}
	w.end = boundary{w.end.position + size, lastOffset + 1}
}

// committed is what an append wrote.
type committed struct {
	base, end kafka.Offset
	data      []byte
}

// commitLocked asks for durability as the topic wants it.
func (l *Log) commitLocked(c committed, cfg *Config, nowMs int64) {
	w, base, end := &l.w, c.base, c.end
	if cfg.FlushMessages > 1 {
		w.unflushed += int64(end - base)
		if w.unflushed >= cfg.FlushMessages {
			l.requestSyncLocked(end)
		} else if l.unflushedSince.Load() == 0 {
			l.unflushedSince.Store(nowMs)
			l.env.relaxed.Store(true)
		}
		return
	}
	if w.enqueuedEnd < base && l.DurableEnd() < base {
		// Something below is neither durable nor in the journal (the topic did
		// without until now): its files are synced in the same round.
		l.requestSyncLocked(base)
	}
	w.enqueuedEnd = end
	l.env.commit.Enqueue(l, base, end, c.data)
}

func (l *Log) requestSyncLocked(end kafka.Offset) {
	l.w.unflushed = 0
	l.unflushedSince.Store(0)
	l.env.commit.EnqueueSync(l, end)
}

// flushIfDue asks for the sync that a topic with flush.messages above 1 wants
// after flush.ms, and wants after maxUnflushedMs in any case, so that a restart
// has little to read.
func (l *Log) flushIfDue(nowMs int64) (waiting bool) {
	since := l.unflushedSince.Load()
	if since == 0 {
		return false
	}
	if nowMs-since < min(l.options.Load().Config.FlushMs, maxUnflushedMs) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writableLocked() == nil && l.w.unflushed > 0 {
		l.requestSyncLocked(l.w.end.nextOffset)
	}
	return false
}

// maxUnflushedMs bounds how long an append stays without a sync.
const maxUnflushedMs = 30_000

// rollQuestion is an append that may need a new segment.
type rollQuestion struct {
	sizeBytes    int64
	maxTimestamp int64
	lastOffset   kafka.Offset
	nowMs        int64
}

// shouldRoll is Kafka's rule: the segment would get too large, its first batch
// is segment.ms older than the newest, an index is full, or the offsets would
// not fit into 31 bits.
func (w *writer) shouldRoll(cfg *Config, q rollQuestion) bool {
	if int64(q.lastOffset-w.active.baseOffset) > math.MaxInt32 {
		return true
	}
	if w.end.position == 0 {
		return false
	}
	waited := q.nowMs - w.rollBase
	if w.rollTimestamp >= 0 && q.maxTimestamp >= 0 {
		waited = q.maxTimestamp - w.rollTimestamp
	}
	entries := int64(w.active.offsets.state.Load().count()) + 1
	timeEntries := int64(w.active.times.state.Load().count()) + 1
	return w.end.position+q.sizeBytes > cfg.SegmentBytes || waited > cfg.SegmentMs ||
		entries*offsetEntrySize > cfg.IndexMaxBytes || timeEntries*timeEntrySize > cfg.IndexMaxBytes
}

func (l *Log) maybeRollLocked(cfg *Config, q rollQuestion) error {
	if l.w.end.position == 0 {
		l.w.rollBase = q.nowMs
	}
	if !l.w.shouldRoll(cfg, q) {
		return nil
	}
	if err := l.rollLocked(l.w.end.nextOffset); err != nil {
		return fmt.Errorf("roll: %w", err)
	}
	l.w.rollBase = q.nowMs
	return nil
}
