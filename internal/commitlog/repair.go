package commitlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// A frozen log, or one with damage that no reader gets past, stays so until a
// person decides to go on without what is lost. Then a Repair makes it whole
// again:
//
//  1. The log ends where everything was durable, with a new segment there: no
//     offset is given twice. From here on it takes appends, and the checkpoint says
//     so; the damage is still in its place, and reads report it.
//  2. Every damaged segment is copied aside and rewritten, by the same steps as in
//     a compaction. Good batches stay as they are. What the journal has had of the
//     lost ones, and recovery put aside, comes back. In the place of the others
//     come batches without records, so that offsets are dense.
//
// A crash in between leaves the one or the other; a repair may be done again.

// LostRange is a range of offsets whose records are gone.
type LostRange struct {
	From, To kafka.Offset // [From, To).
	Found    *CorruptionError
}

// Repair is what is wrong with a log, and the way out.
type Repair struct {
	ID         kafka.TopicIDPartition
	Frozen     *CorruptionError // nil if the log takes appends.
	Start, End kafka.Offset     // After the repair.
	Lost       []LostRange      // Rising.
	Restored   int64            // Offsets that come back from what the journal has had.
	Mended     int64            // Batches with a wrong leader epoch, which no checksum covers.
	PutAside   []string         // By Apply: where what it replaced is.

	log      *Log
	segments []*damagedSegment // All of the log, rising.
	beyond   []segmentFile     // Segments at or above its end.
	kept     []record.Batch    // What the journal has had, rising.
	unsynced kafka.Offset      // Segments from here on may not be durable.
	doubted  []kafka.Offset    // Producer snapshots of nobody knows which batches.
	epoch    kafka.LeaderEpoch // Of the last batch looked at.
}

// damagedSegment is a segment with what a survey found.
type damagedSegment struct {
	*segment
	whole   boundary
	damages []damage
	absent  bool // There is no file: all of it comes from the journal.
	// epochs are the right leader epochs of batches that have a wrong one, by
	// position.
	epochs map[int64]kafka.LeaderEpoch
}

// Examine reads all of the log and returns what is wrong with it, or nil. It
// changes nothing. No append and no read may run meanwhile.
func (l *Log) Examine() (*Repair, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	r := &Repair{
		ID: l.id, Frozen: l.corruption.Load(), Start: l.w.synced.logStart, End: l.LogEndOffset(),
		log: l, unsynced: max(l.w.synced.segmentBase, 0), epoch: kafka.NoLeaderEpoch,
	}
	files, err := l.listFiles()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, s := range l.w.dirty { // A replay of the journal may have gone on with an earlier one.
		r.unsynced = min(r.unsynced, s.baseOffset)
	}
	for _, offset := range files.snapshots {
		if offset > l.w.synced.recoveryPoint {
			r.doubted = append(r.doubted, offset)
		}
	}
	if err := r.loadKept(); err != nil {
		return nil, err
	}
	for i, f := range files.segments {
		if f.base >= r.End {
			r.beyond = append(r.beyond, f)
			continue
		}
		end := r.End
		if i+1 < len(files.segments) {
			end = min(end, files.segments[i+1].base)
		}
		if err := r.survey(f, end); err != nil {
			return nil, err
		}
	}
	r.makeUpSegment()
	r.findMissing()
	if r.Frozen == nil && len(r.Lost) == 0 && r.Restored == 0 && r.Mended == 0 {
		return nil, nil
	}
	return r, nil
}

// survey looks at a segment that should reach to an offset.
func (r *Repair) survey(file segmentFile, end kafka.Offset) error {
	l := r.log
	s := newSegment(l, file.base)
	s.size.Store(file.size)
	d := &damagedSegment{segment: s, whole: boundary{file.size, end}}
	f, err := s.open(vfs.ReadWrite)
	if err != nil {
		return err
	}
	defer s.closeFiles()
	q := segmentRead{
		cuts:    l.cuts.Load(),
		segment: s, file: f, from: file.base, upTo: end, begin: boundary{0, file.base}, end: d.whole, whole: d.whole,
		blind: true, interval: l.options.Load().Config.IndexIntervalBytes,
	}
	if err := q.survey(l); err != nil {
		return err
	}
	d.damages = slices.Clone(*s.damages.Load())
	if err := d.doubt(r.Frozen, f); err != nil {
		return err
	}
	for i := range d.damages {
		r.lose(d.damages[i].from.nextOffset, d.damages[i].to.nextOffset, d.damages[i].corruption(s))
	}
	r.segments = append(r.segments, d)
	return r.mendEpochs(d, f)
}

// mendEpochs finds batches whose leader epoch does not fit between those of their
// neighbours, or is alone in contradicting the history. They are sound otherwise.
func (r *Repair) mendEpochs(d *damagedSegment, f vfs.File) error {
	var found []batchHeader
	err := d.good(func(from, to int64) error {
		w := newHeaderWalk(f, from, to)
		defer w.close()
		for {
			h, err := w.next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read %s at position %d: %w", d.path(logSuffix), w.position, err)
			}
			found = append(found, h)
		}
	})
	if err != nil {
		return err
	}
	history, err := r.log.epochsToCheck()
	if err != nil {
		return err
	}
	for i, h := range found {
		next, agrees := max(h.leaderEpoch, r.epoch), true
		if i+1 < len(found) {
			next = max(found[i+1].leaderEpoch, r.epoch)
			agrees = history.at(found[i+1].baseOffset) == found[i+1].leaderEpoch
		}
		right, noted := h.leaderEpoch, history.at(h.baseOffset)
		switch {
		case agrees && noted >= max(r.epoch, 0) && (noted <= next || i+1 == len(found)):
			right = noted
		case right >= r.epoch && right <= next:
		case r.epoch >= 0:
			right = r.epoch
		default:
			right = next
		}
		if r.epoch = right; right != h.leaderEpoch {
			if d.epochs == nil {
				d.epochs = map[int64]kafka.LeaderEpoch{}
			}
			d.epochs[h.position] = right
			r.Mended++
		}
	}
	return nil
}

// isDamaged tells whether the segment needs another in its place.
func (d *damagedSegment) isDamaged() bool { return len(d.damages)+len(d.epochs) > 0 }

// good calls fn with the parts of the segment that are not damaged.
func (d *damagedSegment) good(fn func(from, to int64) error) error {
	from := int64(0)
	for i := range d.damages {
		if err := fn(from, d.damages[i].from.position); err != nil {
			return err
		}
		from = d.damages[i].to.position
	}
	return fn(from, d.whole.position)
}

// doubt adds the batch for which the log was frozen if it is sound by itself, and the
// checkpoint remembers another in its place. Where a freeze has another reason, a sound
// batch is not to blame: the one before it lied about its offsets.
func (d *damagedSegment) doubt(frozen *CorruptionError, f vfs.File) error {
	if frozen == nil || frozen.Reason != anotherBatch || frozen.Path != d.path(logSuffix) || frozen.Position >= d.whole.position {
		return nil
	}
	for i := range d.damages {
		if x := &d.damages[i]; x.from.position <= frozen.Position && frozen.Position < x.to.position {
			return nil
		}
	}
	w := newHeaderWalk(f, frozen.Position, d.whole.position)
	defer w.close()
	h, err := w.next()
	if err != nil {
		return fmt.Errorf("read %s at position %d: %w", frozen.Path, frozen.Position, err)
	}
	d.damages = append(d.damages, damage{boundary{h.position, h.baseOffset}, h.end(), frozen.Reason})
	slices.SortFunc(d.damages, func(a, b damage) int { return cmp.Compare(a.from.position, b.from.position) })
	return nil
}

// lose notes that the segments lack a range, but for what was put aside of it.
func (r *Repair) lose(from, to kafka.Offset, found *CorruptionError) {
	r.fill(max(from, r.Start), to, func(b record.Batch) error {
		r.Restored += int64(b.LastOffset() - b.BaseOffset() + 1)
		return nil
	}, func(from, to kafka.Offset) error {
		r.Lost = append(r.Lost, LostRange{from, to, found})
		return nil
	})
}

// fill goes over a range in order: restore is called with what is there of it, and
// hole with what is not.
func (r *Repair) fill(
	from, to kafka.Offset, restore func(record.Batch) error, hole func(from, to kafka.Offset) error,
) error {
	for _, b := range r.kept {
		if b.BaseOffset() < from || b.LastOffset() >= to {
			continue
		}
		if b.BaseOffset() > from {
			if err := hole(from, b.BaseOffset()); err != nil {
				return err
			}
		}
		if err := restore(b); err != nil {
			return err
		}
		from = b.LastOffset() + 1
	}
	if from < to {
		return hole(from, to)
	}
	return nil
}

// makeUpSegment makes a segment for what the journal has had of a log that has no
// file left.
func (r *Repair) makeUpSegment() {
	if len(r.segments) > 0 || len(r.kept) == 0 {
		return
	}
	base := r.kept[0].BaseOffset()
	d := &damagedSegment{segment: newSegment(r.log, base), whole: boundary{0, r.End}, absent: true}
	d.damages = []damage{{boundary{0, base}, d.whole, "the segment is missing"}}
	r.lose(base, r.End, d.damages[0].corruption(d.segment))
	r.segments = append(r.segments, d)
}

// findMissing notes what lies before the first segment. The log will start there:
// that costs no file.
func (r *Repair) findMissing() {
	first := r.End
	if len(r.segments) > 0 {
		first = r.segments[0].baseOffset
	}
	if first > r.Start {
		found := &CorruptionError{
			Path:   fileName(r.log.dir, r.Start, logSuffix),
			Reason: fmt.Sprintf("segments are missing: offsets %d to %d can't be read", r.Start, first-1),
		}
		r.Lost = slices.Insert(r.Lost, 0, LostRange{r.Start, first, found})
		r.Start = first
	}
}

// loadKept reads what recovery put aside of the journal.
func (r *Repair) loadKept() error {
	l := r.log
	entries, err := l.env.fs.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", l.dir, err)
	}
	for _, e := range entries {
		if _, suffix, ok := parseFileName(e.Name()); ok && strings.HasPrefix(suffix, journalSuffix) {
			if err := r.loadKeptFile(l.dir + "/" + e.Name()); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(r.kept, func(a, b record.Batch) int { return cmp.Compare(a.BaseOffset(), b.BaseOffset()) })
	return nil
}

func (r *Repair) loadKeptFile(name string) error {
	f, err := r.log.env.fs.Open(name, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // It was only read.
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", name, err)
	}
	err = eachBatch(f, 0, size, func(b record.Batch, _ int64) error {
		if b.BaseOffset() >= r.Start && b.LastOffset() < r.End {
			kept, _, err := record.Next(bytes.Clone(b.Bytes()))
			r.kept = append(r.kept, kept)
			return err
		}
		return nil
	})
	var torn *tornError
	if errors.As(err, &torn) {
		return nil // There was no space for the rest.
	}
	return err
}

// eachBatch calls fn with the batches of a file between two positions. A
// *tornError says that one is not whole.
func eachBatch(f vfs.File, from, to int64, fn func(b record.Batch, position int64) error) error {
	scan := newBatchScan(f, from, to)
	defer scan.close()
	for {
		position := scan.position
		b, err := scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(b, position)
		}
		if err != nil {
			return err
		}
	}
}
