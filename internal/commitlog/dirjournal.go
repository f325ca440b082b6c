package commitlog

import (
	"context"
	"sync"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// JournalOptions are the settings of the commit journal.
type JournalOptions struct{}

// commitJournal is what a data directory needs of its journal.
type commitJournal interface {
	committer
	Replay(fn func(journalEntry) error) error
	Reset() error
	Run(ctx context.Context) error
	Close() error
}

// journalEntry is an append or a truncation in a journal.
type journalEntry struct {
	Truncate bool
	ID       kafka.TopicIDPartition
	Base     kafka.Offset
	End      kafka.Offset
	Data     []byte
}

// fileSyncs commits by syncing the files of the logs that grew, with one round
// for all that waits.
type fileSyncs struct {
	mu   sync.Mutex
	ends map[*Log]kafka.Offset
	wake chan struct{}
}

func openJournal(vfs.FS, DirOptions, *env) (commitJournal, error) {
	return &fileSyncs{ends: map[*Log]kafka.Offset{}, wake: make(chan struct{}, 1)}, nil
}

// Enqueue implements committer.
func (j *fileSyncs) Enqueue(l *Log, _, end kafka.Offset, _ []byte) { j.EnqueueSync(l, end) }

// EnqueueSync implements committer.
func (j *fileSyncs) EnqueueSync(l *Log, end kafka.Offset) {
	j.mu.Lock()
	j.ends[l] = end
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Truncate implements committer: there is nothing to replay.
func (j *fileSyncs) Truncate(*Log, kafka.Offset) error { return nil }

// Forget implements committer.
func (j *fileSyncs) Forget(l *Log) {
	j.mu.Lock()
	delete(j.ends, l)
	j.mu.Unlock()
}

// Replay implements commitJournal.
func (j *fileSyncs) Replay(func(journalEntry) error) error { return nil }

// Reset implements commitJournal.
func (j *fileSyncs) Reset() error { return nil }

// Close implements commitJournal.
func (j *fileSyncs) Close() error { return nil }

// Run implements commitJournal.
func (j *fileSyncs) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-j.wake:
			j.round()
		}
	}
}

func (j *fileSyncs) round() {
	j.mu.Lock()
	ends := j.ends
	j.ends = map[*Log]kafka.Offset{}
	j.mu.Unlock()
	for l, end := range ends {
		if err := l.SyncFiles(); err == nil {
			l.Durable(end)
		}
	}
}
