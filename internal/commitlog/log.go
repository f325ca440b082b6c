package commitlog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// committer is what a log needs of the journal.
type committer interface {
	Enqueue(l *Log, base, end kafka.Offset, data []byte)
	EnqueueSync(l *Log, end kafka.Offset)
	Truncate(l *Log, to kafka.Offset) error
	Forget(l *Log)
}

// env is what the logs of one data directory share.
type env struct {
	fs     vfs.FS
	commit committer
	events Events
	onFull func() // May be nil.
	// checkpoint makes the checkpoints of all logs durable now.
	checkpoint func() error
	// doom has deleted segments unlinked after the next checkpoint.
	doom func([]*segment)
	// changed tells that some log's checkpoint has moved.
	changed atomic.Bool
	// relaxed tells that some log has an append that nobody asked to sync.
	relaxed atomic.Bool

	failuresMu sync.Mutex
	failures   []failedLog
	wake       chan struct{} // Has room for one: failures is not empty.
	// broke has room for one: why nothing can be made durable any more.
	broke chan error

	reports reports
	gather  sync.Pool // of *[]byte.
}

// failedLog is a failure that is still to be reported.
type failedLog struct {
	log *Log
	err error
}

// failLater takes a log offline at once and reports it from Dir.Run, because
// the caller holds locks that the report may need.
func (e *env) failLater(l *Log, err error) {
	e.failuresMu.Lock()
	e.failures = append(e.failures, failedLog{l, err})
	e.failuresMu.Unlock()
	l.broken.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// breakDown ends Dir.Run: a sync failed.
func (e *env) breakDown(err error) {
	select {
	case e.broke <- err:
	default: // One reason is enough.
	}
}

// reportFailures tells the owners of failed logs.
func (e *env) reportFailures() {
	e.failuresMu.Lock()
	failures := e.failures
	e.failures = nil
	e.failuresMu.Unlock()
	for _, f := range failures {
		f.log.Failed(f.err)
	}
}

// Log is one partition's log. See the package documentation for who may call
// what.
type Log struct {
	env *env
	id  kafka.TopicIDPartition
	dir string

	// What readers see, without a lock. A change of segments publishes the new
	// ring before the new list.
	segments   atomic.Pointer[[]*segment]
	ring       atomic.Pointer[tailRing] // nil while nothing was appended since open.
	logStart   atomic.Int64
	logEnd     atomic.Int64
	durableEnd atomic.Int64
	options    atomic.Pointer[Options]
	failure    atomic.Pointer[failure]
	broken     atomic.Bool // Failed, and not yet reported.
	gone       atomic.Bool // Closed: there are no segments any more.
	damaged    atomic.Pointer[failure]
	// cuts counts the beginnings and the ends of truncations: odd while one is under way.
	cuts atomic.Uint64
	// unflushedSince is when the oldest append that nobody asked to sync was
	// made, in milliseconds; zero if there is none.
	unflushedSince atomic.Int64
	// corruption is damage found in what was durable: no appends.
	corruption atomic.Pointer[CorruptionError]
	// gapsTo is the offset at or below which batches may begin behind a gap: what
	// was compacted, or copied from a log that was.
	gapsTo atomic.Int64
	// epochsDoubted tells that batches disagree with the leader epoch history.
	epochsDoubted atomic.Bool
	// stability is how far transactions have ended, and hasAborted tells that some
	// segment has an index of aborted ones.
	stability  stability
	hasAborted atomic.Bool

	mu sync.Mutex // Guards what follows.
	w  writer
	// replayedFrom is where a replay of the journal began to append.
	replayedFrom kafka.Offset
	// knownEnd is the offset below which everything was durable before the
	// start, in the log's files or in the journal. Only recovery uses it.
	knownEnd kafka.Offset
	readBack *readBack // nil but in a recovery.

	syncMu sync.Mutex // Held around a sync of files; taken before mu.
}

// writer is the state of a log that its appends change.
type writer struct {
	active        *segment // nil until the first append after open.
	file          vfs.File
	end           boundary
	sinceIndex    int64 // Bytes since the last entry of the offset index.
	rollTimestamp int64 // Of the active segment's first batch, or noTimestamp.
	rollBase      int64 // Wall clock of the active segment's first append.
	largest       timestampOffset
	last          lastBatch
	epochs        epochHistory
	epochsLoaded  bool
	epochsDirty   bool // The file is older than the history.
	epochsStored  bool // There is a file of epochs on disk, of now or of before.
	producers     producers
	gather        []byte
	writtenBack   int64 // The disk was asked to write the active segment up to here.

	enqueuedEnd kafka.Offset // Everything below was given to the journal, or is durable.
	unflushed   int64        // Records since the last request to sync (flush.messages > 1).
	dirty       []*segment   // Grown since the last sync of files.
	newFiles    bool         // Entries of the log's directory are not synced.
	rearranged  bool         // Recovery cut it, or finished what compaction had begun.
	newDir      bool         // Nor is the entry of the directory itself.
	hasDir      bool
	openedStart kafka.Offset // The log start offset when the log was opened.
	truncations int          // Counts truncations, so that a sync sees one that passed it.
	truncating  bool
	swapping    bool // A compaction is changing files.
	closed      bool
	synced      checkpointEntry
}

// lastBatch identifies the batch before the end of a log.
type lastBatch struct {
	position    int64
	sizeBytes   int32
	crc         uint32
	leaderEpoch kafka.LeaderEpoch
}

func newLog(e *env, id kafka.TopicIDPartition) *Log {
	l := &Log{env: e, id: id, dir: LogDir(id), replayedFrom: kafka.NoOffset}
	l.segments.Store(new([]*segment))
	l.options.Store(&Options{Config: DefaultConfig()})
	l.w.largest = timestampOffset{timestamp: noTimestamp}
	l.w.last.leaderEpoch = kafka.NoLeaderEpoch
	l.w.rollTimestamp = noTimestamp
	l.stability.init()
	return l
}

// ID returns the log's identity.
func (l *Log) ID() kafka.TopicIDPartition { return l.id }

// LogStartOffset returns the first offset that may be read.
func (l *Log) LogStartOffset() kafka.Offset { return kafka.Offset(l.logStart.Load()) }

// LogEndOffset returns the offset of the next record.
func (l *Log) LogEndOffset() kafka.Offset { return kafka.Offset(l.logEnd.Load()) }

// DurableEnd returns the offset below which everything is on disk.
func (l *Log) DurableEnd() kafka.Offset { return kafka.Offset(l.durableEnd.Load()) }

// ReportedEnd returns the offset below which everything is as durable as the
// topic asks for: the durable end, or the log's end if the topic gave the sync
// before the ack up (flush.messages above 1).
func (l *Log) ReportedEnd() kafka.Offset {
	if l.options.Load().Config.FlushMessages > 1 {
		return l.LogEndOffset()
	}
	return l.DurableEnd()
}

// Config returns the log's configuration.
func (l *Log) Config() Config { return l.options.Load().Config }

// SetConfig replaces the configuration.
func (l *Log) SetConfig(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := *l.options.Load()
	o.Config = c
	l.options.Store(&o)
}

// Size returns the bytes of all segments.
func (l *Log) Size() int64 {
	var size int64
	for _, s := range *l.segments.Load() {
		size += s.size.Load()
	}
	return size
}

// Err returns why the log is offline, or nil.
func (l *Log) Err() error {
	if f := l.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// Durable implements journal.Log: everything below end is on disk.
func (l *Log) Durable(end kafka.Offset) {
	end = min(end, l.LogEndOffset()) // A round may overlap a truncation.
	for {
		old := l.durableEnd.Load()
		if int64(end) <= old || l.durableEnd.CompareAndSwap(old, int64(end)) {
			break
		}
	}
	if fn := l.options.Load().OnDurable; fn != nil {
		fn(end)
	}
}

// Failed implements journal.Log: the disk failed under this log. What was
// appended and not acknowledged never will be.
func (l *Log) Failed(err error) {
	f := &failure{fmt.Errorf("log %s: %w: %w", l.id, ErrOffline, err)}
	if !l.failure.CompareAndSwap(nil, f) {
		return
	}
	l.env.events.Failed(l.id, err)
	if fn := l.options.Load().OnFailed; fn != nil {
		fn(f.err)
	}
}

// BeginEpoch notes that a leader epoch begins at the log's end. It reaches the
// disk with the epoch's first batch.
func (l *Log) BeginEpoch(epoch kafka.LeaderEpoch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadEpochsLocked(); err != nil {
		return err
	}
	l.assignEpochLocked(epoch, l.LogEndOffset())
	return nil
}

func (l *Log) assignEpochLocked(epoch kafka.LeaderEpoch, start kafka.Offset) {
	history, changed := l.w.epochs.assign(epoch, start)
	if changed {
		l.w.epochs, l.w.epochsDirty = history, true
	}
}

// EndOffsetForEpoch returns the largest leader epoch at or below the one asked
// for and the offset where it ends. One before all that are known is taken to end where the
// first of those begins; NoLeaderEpoch and NoOffset stand for one after them.
func (l *Log) EndOffsetForEpoch(epoch kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadEpochsLocked(); err != nil {
		return kafka.NoLeaderEpoch, kafka.NoOffset, err
	}
	history := l.w.epochs.truncateStart(l.LogStartOffset())
	found, end := history.endOffset(epoch, l.LogEndOffset())
	return found, end, nil
}

// EpochAt returns the leader epoch of the record at offset.
func (l *Log) EpochAt(offset kafka.Offset) (kafka.LeaderEpoch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadEpochsLocked(); err != nil {
		return kafka.NoLeaderEpoch, err
	}
	return l.w.epochs.at(offset), nil
}

// Epochs returns the leader epoch history, oldest first.
func (l *Log) Epochs() ([]EpochEntry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.loadEpochsLocked(); err != nil {
		return nil, err
	}
	return slices.Clone(l.w.epochs.truncateStart(l.LogStartOffset())), nil
}

// writableLocked tells why nothing may be appended, if so.
func (l *Log) writableLocked() error {
	switch {
	case l.failure.Load() != nil:
		return l.failure.Load().err
	case l.broken.Load():
		return ErrOffline
	case l.corruption.Load() != nil:
		return fmt.Errorf("no appends to %s: %w: %w", l.id, ErrFrozen, l.corruption.Load())
	case l.w.closed:
		return ErrDeleted
	case l.w.truncating:
		return ErrTruncating
	}
	return nil
}
