package journal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// Log is what the journal knows of a partition's log. All methods are called
// from the journal's goroutines, without a lock of the journal held.
type Log interface {
	// ID names the log in the journal's entries.
	ID() kafka.TopicIDPartition
	// SyncFiles makes everything durable that the log wrote to its own files
	// (bytes, lengths, directory entries) before the call. It runs beside
	// Enqueue, and may run twice at once. It must not need a lock that a
	// caller of Truncate holds. An error is final for the data directory; a
	// closed or deleted log returns nil.
	SyncFiles() error
	// StartWriteback asks the disk to begin writing what the log wrote to its
	// own files. It is a hint: it waits for nothing and makes a later SyncFiles
	// cheap.
	StartWriteback()
	// Durable tells that everything below end survives a crash. It is called
	// in order of end, except after a Truncate.
	Durable(end kafka.Offset)
	// Failed tells that the disk failed and what is not durable yet never
	// will be. It is called once or more.
	Failed(err error)
}

// Options are the settings of a journal. The zero value means the defaults.
type Options struct {
	// FileBytes is the length of a journal file: a multiple of 4 KiB, by
	// default 32 MiB. The first file of a journal is shorter, so that it is
	// ready soon.
	FileBytes int64
	// MaxFiles bounds the number of files, by default 8. The journal starts
	// with one and adds more while recycling proves too frequent.
	MaxFiles int
	// MinGap is the least time between the starts of two rounds under load, by
	// default 1 ms, and twice that where much comes in. A round after a pause
	// starts at once.
	MinGap time.Duration
	// GapPerSync bounds the gap by what a sync costs: it is no longer than so many
	// times the duration of one, by default 5. A sync's CPU time is about half of its
	// duration where syncs are fast, so that they take at most a tenth of a core.
	GapPerSync int
	// Replicated tells, before each round, whether other brokers sync what comes in too.
	// Rounds start further apart then: pace.go says why. nil is no.
	Replicated func() bool
	// FileSyncBytes is the number of bytes that one log may add to a round
	// before its own files are synced instead of journaling a copy, by default
	// 32 KiB. It holds while more than FileSyncRate bytes per second come in,
	// by default 24 MiB; else a log may add 32 times as much. The package
	// documentation says why.
	FileSyncBytes, FileSyncRate int
	// WithoutFiles makes the journal sync the logs' own files always and write
	// no file of its own but for truncations: right where a sync costs
	// nothing, as in memory.
	WithoutFiles bool
	// Logger gets one line for each change of state; nil is silence.
	Logger *slog.Logger
	// OnFailure is called once, from Run's goroutine, when the disk failed.
	OnFailure func(error)
	// Checkpoint has the owner write down how far the logs' own files were
	// synced, where the journal can't say it: before entries are given up, and
	// soon after own files were synced while no file of the journal is ready.
	// nil is nobody.
	Checkpoint func()
	// Random is where the journal's id comes from; nil is the system.
	Random io.Reader
}

const (
	defaultFileBytes     = 32 << 20
	defaultMaxFiles      = 8
	defaultMinGap        = time.Millisecond
	defaultGapPerSync    = 5
	defaultFileSyncBytes = 32 << 10
	defaultFileSyncRate  = 24 << 20
	// patience is how much more of a log is journaled while little comes in.
	patience = 32
)

// Kind says what an Entry does.
type Kind uint8

// The kinds of Entry that Replay reports.
const (
	Append   Kind = 1 // Data was appended at BaseOffset and ends before EndOffset.
	Truncate Kind = 2 // The log was cut: EndOffset became its log end offset.
)

// Entry is one change of a log, as Replay reports it.
type Entry struct {
	Kind       Kind
	ID         kafka.TopicIDPartition
	BaseOffset kafka.Offset
	EndOffset  kafka.Offset
	// Data is valid during the call only.
	Data []byte
}

// ErrClosed is returned by what needs a running journal after Close or after
// Run returned.
var ErrClosed = errors.New("journal closed")

// Journal is the commit journal of one data directory. See the package
// documentation for who may call what.
type Journal struct {
	opt   Options
	log   *slog.Logger
	files *fileSet
	born  time.Time

	// recovered is what Open found, until Keep or Reset.
	recovered []frame
	// live is what Replay saw of it, for Keep.
	live []*liveEntry
	// histories are of the logs with entries in what was recovered.
	histories map[kafka.TopicIDPartition]*history

	mu      sync.Mutex // Guards what follows.
	states  map[Log]*logState
	filling *round
	failure error // The disk failed, or the journal was closed.
	// forgetLater are deleted logs that found no room in a round.
	forgetLater []*logState

	// Of the committer: the goroutine of Run.
	spare    *round
	pace     pace
	inflow   inflow
	number   uint64 // Of the filling round.
	release  []byte // One aligned block, for frames without entries.
	stamped  uint64 // What the newest durable frame says of neededFrom.
	entries  bool   // Frames since the last Reset have entries.
	reported bool   // OnFailure was called.
	// notes are logs whose own files were synced and of which no frame says so
	// yet, the first of them since notesSince.
	notes      []*logState
	notesSince time.Time
	untold     bool // The same, of logs that can't be noted: the owner is to be told.

	wake    chan struct{} // Has room for one: the filling round is not empty.
	recycle chan struct{} // Has room for one: a file may be wanted.
	// writtenSequence is the newest frame that is durable. All of its entries
	// were in their logs' own files before, durable there or not.
	writtenSequence atomic.Uint64
	counters        counters

	recycleMu sync.Mutex // Held while files are recycled.

	writebackMu sync.Mutex
	writebacks  []*logState // Whose own files the disk is to begin writing.
}

// Open opens the journal in dir, which exists, reads what it holds, and makes that
// durable. It writes nothing. A *CorruptionError says that acknowledged entries are
// missing, a *VersionError that a newer program wrote the journal.
func Open(fsys vfs.FS, dir string, opt Options) (*Journal, error) {
	if err := opt.fill(); err != nil {
		return nil, err
	}
	j := &Journal{
		opt:       opt,
		born:      time.Now(),
		log:       opt.Logger,
		files:     newFileSet(fsys, dir, opt),
		histories: map[kafka.TopicIDPartition]*history{},
		states:    map[Log]*logState{},
		wake:      make(chan struct{}, 1),
		recycle:   make(chan struct{}, 1),
	}
	if err := j.scan(); err != nil {
		return nil, errors.Join(err, j.files.close())
	}
	roundBytes := int(min(maxRoundBytes, opt.FileBytes))
	j.filling, j.spare = newRound(roundBytes), newRound(roundBytes)
	j.release = alignedBytes(blockBytes)
	j.number = 1
	j.prepareRound(j.filling, time.Now())
	return j, nil
}

// fill sets what was left out.
func (o *Options) fill() error {
	if o.FileBytes == 0 {
		o.FileBytes = defaultFileBytes
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = defaultMaxFiles
	}
	if o.MinGap == 0 {
		o.MinGap = defaultMinGap
	}
	if o.GapPerSync == 0 {
		o.GapPerSync = defaultGapPerSync
	}
	if o.Replicated == nil {
		o.Replicated = func() bool { return false }
	}
	if o.FileSyncBytes == 0 {
		o.FileSyncBytes = defaultFileSyncBytes
	}
	if o.FileSyncRate == 0 {
		o.FileSyncRate = defaultFileSyncRate
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnFailure == nil {
		o.OnFailure = func(error) {}
	}
	if o.Checkpoint == nil {
		o.Checkpoint = func() {}
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.FileBytes < minFileBytes || o.FileBytes%blockBytes != 0 {
		return fmt.Errorf("journal: a file of %d bytes: want a multiple of %d, at least %d",
			o.FileBytes, blockBytes, minFileBytes)
	}
	if o.MaxFiles < 2 {
		return fmt.Errorf("journal: %d files: want at least 2", o.MaxFiles)
	}
	return nil
}

// Close releases the journal's files. Run has returned by then; whoever waits
// in Truncate gets ErrClosed. Close is idempotent.
func (j *Journal) Close() error {
	j.refuseWaiters()
	return j.files.close()
}

// refuseWaiters answers whoever waits, and who comes later, with the failure
// there was or ErrClosed.
func (j *Journal) refuseWaiters() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == nil {
		j.failure = ErrClosed
	}
	for _, w := range j.filling.waiters {
		w <- j.failure
	}
	j.filling.waiters = nil
}
