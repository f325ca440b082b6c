package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// Apply does the repair. It takes the room of the largest damaged segment twice
// over, once for what is put aside and once for the new one.
func (r *Repair) Apply() error {
	l := r.log
	if err := r.apply(); err != nil {
		return fmt.Errorf("repair %s: %w", l.id, err)
	}
	l.env.reports.forget(func(c Corruption) bool { return c.ID == l.id })
	return nil
}

func (r *Repair) apply() error {
	l := r.log
	if err := r.beginAnew(); err != nil {
		return err
	}
	m := mender{repair: r, builder: record.NewBuilder(record.CodecNone, 0)}
	for _, s := range r.segments {
		if err := m.mend(s); err != nil {
			return err
		}
	}
	if err := r.renewEpochs(); err != nil {
		return err
	}
	l.env.changed.Store(true)
	return l.env.checkpoint()
}

// beginAnew puts a new segment at the log's end and has the log begin there: what
// lies below is as it is, and durable.
func (r *Repair) beginAnew() error {
	l := r.log
	if err := l.env.fs.MkdirAll(l.dir); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if err := r.clearBeyond(); err != nil {
		return err
	}
	for _, offset := range r.doubted { // The batches are read instead.
		if err := removeFile(l.env.fs, fileName(l.dir, offset, snapshotSuffix)); err != nil {
			return err
		}
	}
	segments := make([]*segment, 0, len(r.segments)+1)
	for _, s := range r.segments {
		fresh, err := r.settle(s)
		if err != nil {
			return err
		}
		segments = append(segments, fresh)
	}
	last, err := l.createSegment(r.End, false)
	if err != nil {
		return err
	}
	if err := errors.Join(last.file.Load().Sync(), l.syncDirs(true)); err != nil {
		return err
	}
	l.showRepaired(append(segments, last), r)
	return errors.Join(l.env.checkpoint(), l.env.checkpoint()) // Either may be unreadable one day.
}

// clearBeyond removes the segments above the log's end, and puts aside what is in
// them.
func (r *Repair) clearBeyond() error {
	l := r.log
	for _, f := range r.beyond {
		report := RecoveredLog{}
		s := newSegment(l, f.base)
		s.size.Store(f.size)
		if err := l.dropSegment(s, &report); err != nil {
			return err
		}
		r.PutAside = append(r.PutAside, report.PutAside...)
	}
	return nil
}

// settle makes a segment durable as it is, and returns it as a reader may have it.
// Indexes that a crash may have left half written are made anew.
func (r *Repair) settle(d *damagedSegment) (*segment, error) {
	l := r.log
	s := newSegment(l, d.baseOffset)
	s.size.Store(d.whole.position)
	if d.baseOffset < r.unsynced && !d.absent {
		return s, nil
	}
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		if err := removeFile(l.env.fs, s.path(suffix)); err != nil {
			return nil, err
		}
	}
	s.offsets.missing.Store(true)
	s.times.missing.Store(true)
	s.trustedTo = 0
	flag := vfs.ReadWrite
	if d.absent {
		flag |= vfs.Create
	}
	f, err := s.open(flag)
	if err == nil {
		err = errors.Join(d.forgetAborted(s, f), f.Sync())
	}
	s.closeFiles()
	return s, err
}

// forgetAborted has the segment's index of aborted transactions made anew when it is
// needed, if there may be one: a crash may have left it half written.
func (d *damagedSegment) forgetAborted(s *segment, f vfs.File) error {
	if err := s.dropTxnIndex(); err != nil || d.absent {
		return err
	}
	markers := false
	err := d.good(func(from, to int64) error {
		w := newHeaderWalk(f, from, to)
		defer w.close()
		for {
			h, err := w.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read %s at position %d: %w", s.path(logSuffix), w.position, err)
			}
			markers = markers || h.attributes&attributeControl != 0
		}
	})
	if err != nil || !markers {
		return err
	}
	return s.doubtTxnIndex()
}

// showRepaired makes the log what the segments are, the last of which is empty.
func (l *Log) showRepaired(segments []*segment, r *Repair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range *l.segments.Load() {
		s.release()
	}
	point := newCheckpointEntry()
	point.recoveryPoint, point.segmentBase, point.logStart = r.End, r.End, r.Start
	point.cleanedTo, point.flags = l.w.synced.cleanedTo, l.w.synced.flags&entryGaps|entryOpenTxns
	l.w.synced, l.knownEnd = point, 0
	l.w.active, l.w.file, l.w.dirty, l.w.hasDir = nil, nil, nil, true
	l.w.newFiles, l.w.newDir, l.w.enqueuedEnd = false, false, r.End
	l.publish(segments, nil)
	l.logStart.Store(int64(r.Start))
	l.logEnd.Store(int64(r.End))
	l.durableEnd.Store(int64(r.End))
	l.corruption.Store(nil)
	l.env.changed.Store(true)
}

// putAside keeps a copy of a segment.
func (r *Repair) putAside(s *damagedSegment, f vfs.File) error {
	if s.absent {
		return nil
	}
	l := r.log
	name, err := l.cutName(s.baseOffset, logSuffix+cutSuffix)
	if err != nil {
		return err
	}
	if err := copyRange(l.env.fs, f, 0, s.whole.position, name); err != nil {
		return errors.Join(err, removeFile(l.env.fs, name))
	}
	r.PutAside = append(r.PutAside, name)
	return l.env.fs.SyncDir(l.dir)
}

// mender goes over the segments of a log and writes sound ones.
type mender struct {
	*Rewrite
	repair    *Repair
	epoch     kafka.LeaderEpoch // The largest so far,
	timestamp int64             // and the largest timestamp.
	markers   bool              // The segment has control batches.
	builder   *record.Builder
}

// mend puts a damaged segment aside and a sound one in its place.
func (m *mender) mend(s *damagedSegment) error {
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer s.closeFiles()
	if !s.isDamaged() {
		return m.pass(s, f)
	}
	if err := m.repair.putAside(s, f); err != nil {
		return err
	}
	if m.Rewrite, err = m.repair.log.BeginRewrite(s.baseOffset); err != nil {
		return err
	}
	m.repairs = true
	m.markers = false
	err = m.copySegment(s, f)
	if err == nil && m.markers {
		err = m.segment.doubtTxnIndex()
	}
	if err != nil {
		m.Abort()
		return err
	}
	return m.Commit(s.whole.nextOffset, 0)
}

// pass takes what comes behind a sound segment to know.
func (m *mender) pass(s *damagedSegment, f vfs.File) error {
	w := newHeaderWalk(f, 0, s.whole.position)
	defer w.close()
	for {
		h, err := w.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s at position %d: %w", s.path(logSuffix), w.position, err)
		}
		m.epoch, m.timestamp = max(m.epoch, h.leaderEpoch), max(m.timestamp, h.maxTimestamp)
	}
}

func (m *mender) copySegment(s *damagedSegment, f vfs.File) error {
	next := 0
	err := s.good(func(from, to int64) error {
		err := eachBatch(f, from, to, func(b record.Batch, position int64) error {
			if epoch, wrong := s.epochs[position]; wrong {
				b.Stamp(b.BaseOffset(), epoch)
			}
			return m.append(b)
		})
		if err == nil && next < len(s.damages) {
			d := &s.damages[next]
			next++
			err = m.repair.fill(d.from.nextOffset, d.to.nextOffset, m.restore, m.hole)
		}
		return err
	})
	if err != nil {
		return err
	}
	if end := m.w.end.nextOffset; s.breaks(end, s.whole.nextOffset) {
		return fmt.Errorf("the new segment at %d ends at %d, and should reach to %d", s.baseOffset, end, s.whole.nextOffset)
	}
	return nil
}

func (m *mender) append(b record.Batch) error {
	m.markers = m.markers || b.IsControl()
	m.epoch, m.timestamp = max(m.epoch, b.LeaderEpoch()), max(m.timestamp, b.MaxTimestamp())
	return m.Append(b)
}

// restore appends a batch that the journal has had.
func (m *mender) restore(b record.Batch) error {
	b.Stamp(b.BaseOffset(), max(m.epoch, b.LeaderEpoch()))
	return m.append(b)
}

// hole appends a batch without records.
func (m *mender) hole(from, to kafka.Offset) error {
	if to-m.from > math.MaxInt32 {
		return fmt.Errorf("offsets %d to %d are too many for a segment that begins at %d", from, to-1, m.from)
	}
	if m.timestamp == 0 {
		m.timestamp = time.Now().UnixMilli() // For retention: it counts from now on.
	}
	m.builder.SetBase(from, m.epoch)
	m.builder.SetHole(int32(to-from-1), m.timestamp)
	b, _, err := record.Next(m.builder.Build())
	if err != nil {
		return fmt.Errorf("frame a batch: %w", err)
	}
	return m.append(b)
}

// renewEpochs makes the leader epoch history what the batches say.
func (r *Repair) renewEpochs() error {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	history, err := l.collectEpochs()
	if err != nil {
		return err
	}
	l.w.epochs, l.w.epochsLoaded, l.w.epochsDirty = slices.Clone(history), true, true
	l.w.synced.setEpoch(history)
	return l.writeEpochsLocked()
}
