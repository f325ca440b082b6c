package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// DirOptions are the settings of a data directory.
type DirOptions struct {
	// Fresh is the meta data of a directory that has none yet. Its NodeID must
	// be that of an existing one.
	Fresh Meta
	// Events hears what storage does; nil for nobody.
	Events Events
	// CheckpointInterval is how often the checkpoint is written; zero is 5 s.
	CheckpointInterval time.Duration
	// BallastBytes are reserved, so that a start with a full disk has room to
	// work; zero is 8 MiB, negative is none.
	BallastBytes int64
	// RecoveryThreads bounds how many logs are recovered at once; zero is 8.
	RecoveryThreads int
	// OnFull is called when the disk refuses an append and did not before: Full is true
	// from then on. It must not block; nil for nobody.
	OnFull func()
	// Journal are the settings of the commit journal.
	Journal JournalOptions

	// openJournal replaces the journal in tests.
	openJournal func(vfs.FS, DirOptions, *env) (commitJournal, error)
}

func (o *DirOptions) setDefaults() {
	if o.Events == nil {
		o.Events = noEvents{}
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = 5 * time.Second
	}
	if o.BallastBytes == 0 {
		o.BallastBytes = 8 << 20
	}
	if o.RecoveryThreads == 0 {
		o.RecoveryThreads = 8
	}
}

// Dir is a data directory: its lock, its journal, its checkpoint and all logs.
// Its methods may be called from any goroutine.
type Dir struct {
	fs      vfs.FS
	options DirOptions
	lock    io.Closer
	meta    Meta
	clean   bool
	env     *env
	journal commitJournal

	mu     sync.RWMutex // Guards the map.
	logs   map[kafka.TopicIDPartition]*Log
	closed bool

	checkpointMu  sync.Mutex // Held while the checkpoint is written.
	sequence      uint64
	checkpointBuf []byte
	files         [2]vfs.File
	lacksBallast  bool       // It was given back at this start.
	room          [2]int64   // Bytes reserved for each of the files, as far as known.
	doomed        []*segment // Unlinked once the checkpoint has their log start.
	doomedMu      sync.Mutex // Guards doomed.

	burying    sync.Mutex // Held while the files of one are removed; before unburied.mu and tombstones.mu.
	unburied   unburied
	tombstones tombstones
}

// OpenDir opens a data directory, making it if need be, and recovers all of its
// logs: what is newer than the checkpoint is read, torn tails are cut, the
// journal is replayed, and what neither it nor the checkpoint knows to be durable
// is synced. Nothing is changed before the lock is held and the format is known.
func OpenDir(fsys vfs.FS, o DirOptions) (*Dir, error) {
	o.setDefaults()
	lock, err := fsys.Lock(lockName)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	d := &Dir{
		fs: fsys, options: o, lock: lock, logs: map[kafka.TopicIDPartition]*Log{}, unburied: newUnburied(), tombstones: newTombstones(),
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.closeFiles())
	}
	return d, nil
}

func (d *Dir) open() error {
	// First what may refuse the directory; it has changed nothing by then.
	meta, fresh, err := loadMeta(d.fs, d.options.Fresh)
	if err != nil {
		return err
	}
	c, lost, err := loadCheckpoint(d.fs)
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	if fresh {
		if err := replaceFile(d.fs, metaName, meta.encode(), true); err != nil {
			return err
		}
	} else if err := d.fs.SyncDir("."); err != nil {
		return err // A kill may have come between the name of what is here and its sync.
	}
	d.meta = meta
	if err := d.freeBallastIfFull(); err != nil {
		return err
	}
	newTopics, err := makeDir(d.fs, topicsDir)
	if err != nil {
		return err
	}
	d.env = &env{
		broke: make(chan error, 1),
		fs:    d.fs, events: d.options.Events, onFull: d.options.OnFull, checkpoint: d.writeCheckpoint, doom: d.doom,
		wake: make(chan struct{}, 1),
	}
	onFailure := d.options.Journal.OnFailure
	d.options.Journal.OnFailure = func(err error) {
		d.env.breakDown(err)
		if onFailure != nil {
			onFailure(err)
		}
	}
	if err := d.openJournal(c.clean); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	d.env.commit = d.journal
	if newTopics {
		d.restoreBallast()
		d.reserveCheckpoints()
	}
	if err := d.recover(c, lost); err != nil {
		return err
	}
	d.reserveLeaving(startRoom)
	return nil
}

// openJournal opens the journal. After a clean stop nothing in it is needed: a
// damaged one is put aside then.
func (d *Dir) openJournal(clean bool) error {
	open := d.options.openJournal
	if open == nil {
		open = openJournal
	}
	j, err := open(d.fs, d.options, d.env)
	var corrupt *journal.CorruptionError
	if clean && errors.As(err, &corrupt) {
		var aside string
		if aside, err = d.putJournalAside(); err != nil {
			return errors.Join(corrupt, err)
		}
		d.options.Events.Alarm("the journal is damaged and was put aside in "+aside+"; after a clean stop "+
			"nothing in it is needed", corrupt)
		j, err = open(d.fs, d.options, d.env)
	}
	if err != nil {
		return err
	}
	d.journal = j
	return nil
}

// putJournalAside moves the journal to where nothing reads it but a person.
func (d *Dir) putJournalAside() (string, error) {
	if _, err := makeDir(d.fs, quarantineDir); err != nil {
		return "", err
	}
	to := quarantineDir + "/" + journalDir
	if err := d.fs.RemoveAll(to); err != nil { // Of an earlier time.
		return "", err
	}
	if err := d.fs.Rename(journalDir, to); err != nil {
		return "", err
	}
	return to, errors.Join(d.fs.SyncDir(quarantineDir), d.fs.SyncDir("."))
}

// Meta returns whose data this is.
func (d *Dir) Meta() Meta {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta
}

// WasClean tells whether the last broker on this directory stopped in order.
func (d *Dir) WasClean() bool { return d.clean }

// Log returns a log, new if need be. Nothing is written to disk before the
// first append.
func (d *Dir) Log(id kafka.TopicIDPartition, o Options) (*Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrDeleted
	}
	l := d.logs[id]
	if l == nil {
		l = newLog(d.env, id)
		l.w.synced = newCheckpointEntry()
		l.w.epochsLoaded = true
		d.logs[id] = l
	}
	l.mu.Lock()
	l.options.Store(&o)
	l.mu.Unlock()
	return l, nil
}

// Lookup returns a log that is there.
func (d *Dir) Lookup(id kafka.TopicIDPartition) (*Log, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	l, ok := d.logs[id]
	return l, ok
}

// Logs returns the ids of all logs, on disk and new, sorted.
func (d *Dir) Logs() []kafka.TopicIDPartition {
	d.mu.RLock()
	defer d.mu.RUnlock()
	ids := make([]kafka.TopicIDPartition, 0, len(d.logs))
	for id := range d.logs {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func compareIDs(a, b kafka.TopicIDPartition) int {
	if c := strings.Compare(string(a.ID[:]), string(b.ID[:])); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// snapshotLogs returns all logs.
func (d *Dir) snapshotLogs() []*Log {
	d.mu.RLock()
	defer d.mu.RUnlock()
	logs := make([]*Log, 0, len(d.logs))
	for _, l := range d.logs {
		logs = append(logs, l)
	}
	return logs
}

// Quarantine takes a log out of service and puts its directory aside, where
// nothing reads it but a person.
func (d *Dir) Quarantine(id kafka.TopicIDPartition) error {
	l := d.takeOut(id)
	if l == nil {
		return nil
	}
	if err := d.putAside(l); err != nil {
		return fmt.Errorf("remove %s: %w", l.dir, err)
	}
	return d.fs.SyncDir(topicsDir)
}

func (d *Dir) putAside(l *Log) error {
	if _, err := makeDir(d.fs, quarantineDir); err != nil {
		return err
	}
	to, aside := quarantineDir+"/"+logDirName(l.id), l.dir+deletedSuffix
	if err := errors.Join(d.fs.RemoveAll(to), d.fs.MkdirAll(aside), d.fs.SyncDir(topicsDir)); err != nil {
		return err
	}
	if err := d.fs.Rename(l.dir, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(d.fs.SyncDir(quarantineDir), d.bury(aside))
}

// takeOut takes a log out of service. It returns nil if there are no files of it to remove.
func (d *Dir) takeOut(id kafka.TopicIDPartition) *Log {
	d.mu.Lock()
	l := d.logs[id]
	delete(d.logs, id)
	d.mu.Unlock()
	if l == nil {
		return nil
	}
	hadFiles := l.close()
	d.journal.Forget(l)
	d.env.reports.forget(func(c Corruption) bool { return c.ID == id })
	if !hadFiles {
		return nil
	}
	d.env.changed.Store(true)
	return l
}

// close takes the log out of service. Its segments close with their last user.
func (l *Log) close() (hadFiles bool) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.closed = true
	l.gone.Store(true)
	l.w.dirty = nil
	segments := *l.segments.Load()
	l.publish(nil, nil)
	for _, s := range segments {
		s.deleted.Store(true)
		s.release()
	}
	return l.w.hasDir
}

// Run does the work of the background until ctx ends: the journal, checkpoints,
// unlinking, what is left of deleted logs, and reports of failures. A sync that failed ends it, with a
// *BrokenError: nothing can be made durable any more.
func (d *Dir) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.journal.Run(ctx) })
	g.Go(func() error { return d.maintain(ctx) })
	g.Go(func() error { return d.buryAll(ctx) })
	return g.Wait()
}

func (d *Dir) maintain(ctx context.Context) error {
	ticker := time.NewTicker(d.options.CheckpointInterval)
	defer ticker.Stop()
	flush := time.NewTicker(flushCheckInterval)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.env.wake:
			d.env.reportFailures()
		case err := <-d.env.broke:
			return &BrokenError{err}
		case now := <-flush.C:
			d.flushDue(now)
		case <-ticker.C:
			if err := d.checkpointIfChanged(); err != nil {
				d.options.Events.Problem("write checkpoint", err)
			}
			d.restoreBallast()
		}
	}
}

// flushCheckInterval is how exactly flush.ms is kept.
const flushCheckInterval = 250 * time.Millisecond

// flushDue asks for the syncs that relaxed topics are due.
func (d *Dir) flushDue(now time.Time) {
	if !d.env.relaxed.Swap(false) {
		return
	}
	for _, l := range d.snapshotLogs() {
		if l.flushIfDue(now.UnixMilli()) {
			d.env.relaxed.Store(true)
		}
	}
}

// Close ends the use of the directory; Run has returned by then. With clean
// everything is synced and the next start has nothing to recover.
func (d *Dir) Close(clean bool) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	var err error
	if clean {
		err = d.closeClean()
	}
	for _, l := range d.snapshotLogs() {
		l.close()
	}
	return errors.Join(err, d.closeFiles())
}

func (d *Dir) closeClean() error {
	logs := d.snapshotLogs()
	g := errgroup.Group{}
	g.SetLimit(d.options.RecoveryThreads)
	for _, l := range logs {
		g.Go(l.settle)
	}
	settled := g.Wait()
	if settled != nil && !vfs.IsFull(settled) {
		return settled
	}
	logs = slices.DeleteFunc(logs, func(l *Log) bool { return !l.isDirty() })
	if err := d.syncLogs(logs); err != nil {
		return err
	}
	if settled != nil {
		d.options.Events.Problem("stop with a full disk: the next start has more to read", settled)
		return nil
	}
	// Before the journal forgets how far the logs are durable.
	if err := d.writeCheckpointFile(false); err != nil {
		return err
	}
	if err := d.journal.Reset(); err != nil {
		return err
	}
	return d.writeCheckpointFile(true)
}

// settle writes what spares the next start any reading.
func (l *Log) settle() error {
	if l.failure.Load() != nil || l.broken.Load() {
		return fmt.Errorf("settle %s: %w", l.id, ErrOffline) // The journal has what it lacks.
	}
	l.mu.Lock()
	var err error
	if w := &l.w; w.active != nil && !w.closed && !w.producers.empty() {
		err = w.producers.snapshot(l, w.end.nextOffset, w.end.position == 0)
	}
	l.mu.Unlock()
	if err == nil {
		err = l.tidy(tidyCloseBytes)
	}
	if err != nil {
		return fmt.Errorf("settle %s: %w", l.id, err)
	}
	return nil
}

func (d *Dir) closeFiles() error {
	var errs []error
	if d.journal != nil {
		errs = append(errs, d.journal.Close())
	}
	for i, f := range d.files {
		if f != nil {
			errs = append(errs, f.Close())
			d.files[i] = nil
		}
	}
	return errors.Join(append(errs, d.lock.Close())...)
}
