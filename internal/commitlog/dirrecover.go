package commitlog

import (
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// recover opens every log on disk and brings all of them to one durable state.
func (d *Dir) recover(c *checkpoint, lost error) error {
	d.sequence, d.clean = c.sequence, c.clean
	if lost != nil {
		d.options.Events.Alarm("neither checkpoint can be read: all data is read back, and log starts are where "+
			"the oldest segments begin", lost)
	}
	if err := d.recoverLogs(c, lost != nil); err != nil {
		return err
	}
	r := replay{dir: d, kept: map[kafka.TopicIDPartition]*keptEntries{}}
	if err := r.run(); err != nil {
		return err
	}
	for _, l := range d.snapshotLogs() {
		l.readBack = nil
		l.checkShortfall()
		l.clampStart()
	}
	kept, err := d.journal.Keep(d.usable)
	if err != nil {
		return err
	}
	if err := d.finishRecovery(kept); err != nil {
		return err
	}
	if d.clean || d.env.changed.Load() {
		switch err := d.writeCheckpointFile(false); {
		case vfs.IsFull(err):
			// All is synced in the logs' own files: a crash costs another look.
			d.options.Events.Problem("write checkpoint: the disk is full, and a next start takes longer", err)
		case err != nil:
			return fmt.Errorf("write checkpoint: %w", err)
		}
	}
	if kept {
		return nil
	}
	return d.journal.Reset()
}

// usable returns a log that took all that the journal has of it, or nil.
func (d *Dir) usable(id kafka.TopicIDPartition) *Log {
	if l := d.logs[id]; l != nil && l.isUsable() {
		return l
	}
	return nil
}

func (d *Dir) recoverLogs(c *checkpoint, lost bool) error {
	dirs, err := d.fs.ReadDir(topicsDir)
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	g := errgroup.Group{}
	g.SetLimit(d.options.RecoveryThreads)
	deleted := map[string]bool{}
	for _, e := range dirs {
		if strings.HasSuffix(e.Name(), deletedSuffix) {
			deleted[e.Name()] = true
			if err := d.bury(topicsDir + "/" + e.Name()); err != nil {
				d.options.Events.Problem("remove deleted log", err)
			}
			continue
		}
		id, err := parseLogDirName(e.Name())
		if err != nil {
			d.options.Events.Problem("not a log, left alone", err)
			continue
		}
		r := recovery{clean: c.clean, lost: lost, cover: d.journal.Coverage(id)}
		if entry, ok := c.entries[id]; ok {
			r.entry = &entry
			delete(c.entries, id)
		}
		g.Go(func() error { return d.recoverOne(id, r) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for id, entry := range c.entries {
		if !deleted[logDirName(id)+deletedSuffix] {
			d.recoverBare(id, recovery{entry: &entry, cover: d.journal.Coverage(id)})
		}
	}
	for _, id := range d.journal.Covered() {
		if d.logs[id] == nil && !deleted[logDirName(id)+deletedSuffix] {
			d.recoverBare(id, recovery{cover: d.journal.Coverage(id)})
		}
	}
	return nil
}

func (d *Dir) recoverOne(id kafka.TopicIDPartition, r recovery) error {
	l, err := recoverLog(d.env, id, r)
	if err != nil {
		// The other logs are none the worse: this one goes offline alone.
		l = newLog(d.env, id)
		l.w.hasDir = true
		l.giveUp(r, err)
	}
	d.mu.Lock()
	d.logs[id] = l
	d.mu.Unlock()
	return nil
}

// recoverBare makes a log that the checkpoint or the journal knows and that has
// no directory. If there should be data that the journal does not have,
// finishRecovery finds that it is missing.
func (d *Dir) recoverBare(id kafka.TopicIDPartition, r recovery) {
	l := newLog(d.env, id)
	l.w.synced, l.knownEnd = r.point(), r.knownEnd()
	start := l.w.synced.logStart
	l.w.openedStart = start
	l.w.epochsLoaded = true
	l.logStart.Store(int64(start))
	l.logEnd.Store(int64(start))
	l.durableEnd.Store(int64(start))
	d.logs[id] = l
}

// finishRecovery makes what was found durable. What the journal keeps is so
// already, and its logs' own files are synced in the background; but for those
// that recovery cut: batches may be lying behind the cut, and must be gone
// before others are written over a part of them.
func (d *Dir) finishRecovery(kept bool) error {
	var found []*Log
	for _, l := range d.snapshotLogs() {
		switch {
		case len(l.w.dirty) == 0:
		case kept && !l.w.rearranged && l.LogEndOffset() <= l.knownEnd:
			l.takenAsDurable()
		default:
			found = append(found, l)
		}
	}
	return d.syncLogs(found)
}

// syncLogs makes all that the logs have durable, by one sync of everything if
// there are many. Nothing is appended to them meanwhile.
func (d *Dir) syncLogs(logs []*Log) error {
	ok, err := vfs.SyncMany(d.fs, len(logs))
	if err != nil {
		return fmt.Errorf("sync %d logs: %w", len(logs), err)
	}
	g := errgroup.Group{}
	g.SetLimit(2 * d.options.RecoveryThreads)
	for _, l := range logs {
		g.Go(func() error { return l.syncWhole(ok) })
	}
	return g.Wait()
}

// syncWhole makes the whole log its durable state.
func (l *Log) syncWhole(synced bool) error {
	if synced {
		l.takenAsSynced()
	}
	if err := l.SyncFiles(); err != nil {
		return fmt.Errorf("sync log %s: %w", l.id, err)
	}
	l.takenAsDurable()
	return nil
}

// takenAsDurable notes that all of the log is durable, here or in the journal.
func (l *Log) takenAsDurable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durableEnd.Store(l.logEnd.Load())
	l.w.enqueuedEnd = l.LogEndOffset()
}

// tidyBytes is how far a segment grows between two syncs of its indexes, and
// tidyCloseBytes what of them a clean stop may leave to be made again.
const (
	tidyBytes      = 64 << 20
	tidyCloseBytes = 1 << 20
)

// checkpointIfChanged writes the checkpoint if some log's part of it moved.
func (d *Dir) checkpointIfChanged() error {
	for _, l := range d.snapshotLogs() {
		if err := l.tidy(tidyBytes); vfs.IsFull(err) {
			l.reportRefused(err)
		} else if err != nil {
			d.options.Events.Problem("tidy log", err)
		}
	}
	if !d.env.changed.Load() {
		return nil
	}
	return d.writeCheckpoint()
}

// writeCheckpoint makes the checkpoints of all logs durable.
func (d *Dir) writeCheckpoint() error { return d.writeCheckpointFile(false) }

func (d *Dir) writeCheckpointFile(clean bool) error {
	d.checkpointMu.Lock()
	defer d.checkpointMu.Unlock()
	d.env.changed.Store(false)
	doomed, tombstones := d.takeDoomed(), d.tombstones.list()
	d.sequence++
	buf := beginCheckpoint(d.checkpointBuf, d.sequence, clean)
	for _, l := range d.snapshotLogs() {
		if c := l.checkpointPoint(); c.recoveryPoint > 0 || c.logStart > 0 || c.knownEnd > 0 || c.flags&entryGaps != 0 {
			buf = appendCheckpointEntry(buf, l.id, c)
		}
	}
	buf = endCheckpoint(buf)
	d.checkpointBuf = buf
	if err := d.writeSlot(buf); err != nil {
		d.env.changed.Store(true)
		d.doom(doomed)
		return err
	}
	for name, which := range tombstones {
		if err := d.tombstones.remove(d.fs, name, which); err != nil {
			d.options.Events.Problem("remove deleted log", err)
		}
	}
	for _, s := range doomed {
		if err := s.unlink(); err != nil {
			d.options.Events.Problem("remove deleted segment", err)
		}
	}
	return nil
}

// writeSlot writes the older of the two checkpoint files over, in place: that
// needs no space on a full disk, unless it grows.
func (d *Dir) writeSlot(buf []byte) error {
	slot, name := d.sequence%2, checkpointName(d.sequence)
	if d.files[slot] == nil {
		f, err := d.fs.Open(name, vfs.ReadWrite|vfs.Create)
		if err != nil {
			return err
		}
		d.files[slot] = f
		if err := d.fs.SyncDir("."); err != nil {
			return err
		}
	}
	f := d.files[slot]
	err := d.env.sparing(func() error {
		if room := checkpointRoom(len(buf)); d.room[slot] < room {
			if err := f.Allocate(0, room); err != nil {
				return err
			}
			d.room[slot] = room
		}
		_, err := f.WriteAt(buf, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Sync()
}

// doom schedules segments for unlinking.
func (d *Dir) doom(segments []*segment) {
	d.doomedMu.Lock()
	d.doomed = append(d.doomed, segments...)
	d.doomedMu.Unlock()
}

func (d *Dir) takeDoomed() []*segment {
	d.doomedMu.Lock()
	defer d.doomedMu.Unlock()
	segments := d.doomed
	d.doomed = nil
	return segments
}

// unlink removes a deleted segment's files and gives up the log's reference.
func (s *segment) unlink() error {
	defer s.release()
	if s.replaced.Load() {
		return nil // Compaction removed them, and their names may be another's.
	}
	return removeSegmentFiles(s.fs, s.dir, s.baseOffset)
}
