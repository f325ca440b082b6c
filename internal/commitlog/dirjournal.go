package commitlog

import (
	"context"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// JournalOptions are the settings of the commit journal.
type JournalOptions = journal.Options

// commitJournal is what a data directory needs of its journal.
type commitJournal interface {
	committer
	// Coverage is what the journal knew of a log when it was opened, and Covered
	// lists the logs of which it knew anything.
	Coverage(id kafka.TopicIDPartition) journal.Coverage
	Covered() []kafka.TopicIDPartition
	Replay(fn func(journalEntry) error) error
	Reset() error
	// Keep takes the place of Reset where the logs' own files are not synced. It
	// reports false if it can't.
	Keep(find func(kafka.TopicIDPartition) *Log) (bool, error)
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

// sharedJournal is the broker-wide journal as logs see it.
type sharedJournal struct{ *journal.Journal }

func openJournal(fsys vfs.FS, o DirOptions, e *env) (commitJournal, error) {
	o.Journal.Checkpoint = func() {
		if err := e.checkpoint(); err != nil {
			e.events.Problem("write checkpoint for the journal", err)
		}
	}
	if _, err := makeDir(fsys, journalDir); err != nil {
		return nil, err
	}
	j, err := journal.Open(fsys, journalDir, o.Journal)
	if err != nil {
		return nil, err
	}
	return sharedJournal{j}, nil
}

// Enqueue implements committer.
func (j sharedJournal) Enqueue(l *Log, base, end kafka.Offset, data []byte) {
	j.Journal.Enqueue(l, base, end, data)
}

// EnqueueSync implements committer.
func (j sharedJournal) EnqueueSync(l *Log, end kafka.Offset) { j.Journal.EnqueueSync(l, end) }

// Truncate implements committer.
func (j sharedJournal) Truncate(l *Log, to kafka.Offset) error { return j.Journal.Truncate(l, to) }

// Forget implements committer.
func (j sharedJournal) Forget(l *Log) { j.Journal.Forget(l) }

// Replay implements commitJournal.
func (j sharedJournal) Replay(fn func(journalEntry) error) error {
	return j.Journal.Replay(func(e journal.Entry) error {
		return fn(journalEntry{
			Truncate: e.Kind == journal.Truncate, ID: e.ID, Base: e.BaseOffset, End: e.EndOffset, Data: e.Data,
		})
	})
}

// Keep implements commitJournal.
func (j sharedJournal) Keep(find func(kafka.TopicIDPartition) *Log) (bool, error) {
	return j.Journal.Keep(func(id kafka.TopicIDPartition) journal.Log {
		if l := find(id); l != nil {
			return l
		}
		return nil
	})
}
