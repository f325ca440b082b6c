package commitlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/journal"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs"
)

// JournalModel is a commit journal in memory whose rounds the test runs. It
// survives the crash of a disk as a journal file would.
type JournalModel struct {
	durable []modelRecord
	pending []modelEntry
	// Keeps has recoveries keep what was replayed.
	Keeps bool
}

type modelEntry struct {
	journalEntry
	log  *Log
	sync bool
}

// modelRecord is what the model has durably: an entry, or a note that a replay
// leaves out.
type modelRecord struct {
	journalEntry
	kind modelKind
}

type modelKind int

const (
	modelReplayed  modelKind = iota
	modelSynced              // The log's own files are durable up to End.
	modelForgotten           // The log was deleted.
)

// Use makes a data directory commit through the model.
func (j *JournalModel) Use(o *DirOptions) {
	o.openJournal = func(vfs.FS, DirOptions, *env) (commitJournal, error) { return j, nil }
}

func (j *JournalModel) Enqueue(l *Log, base, end kafka.Offset, data []byte) {
	j.pending = append(j.pending, modelEntry{
		journalEntry: journalEntry{ID: l.id, Base: base, End: end, Data: append([]byte(nil), data...)}, log: l,
	})
}

func (j *JournalModel) EnqueueSync(l *Log, end kafka.Offset) {
	j.pending = append(j.pending, modelEntry{journalEntry: journalEntry{End: end}, log: l, sync: true})
}

// Round commits what is pending: by syncing files, or by journaling.
func (j *JournalModel) Round(files bool) error {
	for _, e := range j.pending {
		if files || e.sync {
			if err := e.log.SyncFiles(); err != nil {
				return err
			}
		}
	}
	for _, e := range j.pending {
		if files || e.sync {
			j.durable = append(j.durable, modelRecord{journalEntry{ID: e.log.id, End: e.End}, modelSynced})
		} else {
			j.durable = append(j.durable, modelRecord{e.journalEntry, modelReplayed})
		}
	}
	done := j.pending
	j.pending = nil
	for _, e := range done {
		e.log.Durable(e.End)
	}
	return nil
}

func (j *JournalModel) Truncate(l *Log, to kafka.Offset) error {
	if err := j.Round(false); err != nil {
		return err
	}
	j.durable = append(j.durable, modelRecord{journalEntry{Truncate: true, ID: l.id, Base: to, End: to}, modelReplayed})
	return nil
}

func (j *JournalModel) Forget(l *Log) {
	j.durable = append(j.durable, modelRecord{journalEntry{ID: l.id}, modelForgotten})
}

// Coverage says of a log what the journal would.
func (j *JournalModel) Coverage(id kafka.TopicIDPartition) journal.Coverage {
	var c journal.Coverage
	for _, e := range j.durable {
		switch n := len(c.Runs); {
		case e.ID != id:
		case e.kind == modelForgotten:
			c = journal.Coverage{}
		case e.kind == modelSynced:
			c.Durable = max(c.Durable, e.End)
		case e.Truncate:
			c.Durable = min(c.Durable, e.End)
			for len(c.Runs) > 0 && c.Runs[len(c.Runs)-1].Base >= e.End {
				c.Runs = c.Runs[:len(c.Runs)-1]
			}
			if n := len(c.Runs); n > 0 {
				c.Runs[n-1].End = min(c.Runs[n-1].End, e.End)
			}
		case n > 0 && c.Runs[n-1].End == e.Base:
			c.Runs[n-1].End = e.End
		default:
			c.Runs = append(c.Runs, journal.Run{Base: e.Base, End: e.End})
		}
	}
	return c
}

// Covered lists the logs with a coverage.
func (j *JournalModel) Covered() []kafka.TopicIDPartition {
	var ids []kafka.TopicIDPartition
	for _, e := range j.durable {
		if !slices.Contains(ids, e.ID) && j.Coverage(e.ID).End() > 0 {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// Recycle empties the journal after syncing the files of a log's entries.
func (j *JournalModel) Recycle(d *Dir) error {
	for _, l := range d.snapshotLogs() {
		if err := l.SyncFiles(); err != nil {
			return err
		}
	}
	if err := d.writeCheckpoint(); err != nil {
		return err
	}
	j.durable = nil
	return nil
}

// Crash forgets what was pending, except for a prefix that happened to reach
// the disk.
func (j *JournalModel) Crash(rnd *rand.Rand) {
	n := 0
	// Not beyond a sync that did not happen: what follows may build on it.
	for rnd != nil && n < len(j.pending) && !j.pending[n].sync && rnd.IntN(2) == 0 {
		j.durable = append(j.durable, modelRecord{j.pending[n].journalEntry, modelReplayed})
		n++
	}
	j.pending = nil
}

func (j *JournalModel) Replay(fn func(journalEntry) error) error {
	for i, e := range j.durable {
		cutOff := func(later modelRecord) bool {
			return later.ID == e.ID && (later.kind == modelForgotten || later.Truncate && later.Base <= e.Base && !e.Truncate)
		}
		if e.kind != modelReplayed || slices.ContainsFunc(j.durable[i+1:], cutOff) {
			continue
		}
		if err := fn(e.journalEntry); err != nil {
			return err
		}
	}
	return nil
}

func (j *JournalModel) Reset() error {
	j.durable = nil
	return nil
}

func (j *JournalModel) Keep(find func(kafka.TopicIDPartition) *Log) (bool, error) {
	return j.Keeps && !slices.ContainsFunc(j.durable, func(r modelRecord) bool { return find(r.ID) == nil }), nil
}

func (j *JournalModel) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (j *JournalModel) Close() error { return nil }

// Checkpoint writes the checkpoint now.
func (d *Dir) Checkpoint() error { return d.writeCheckpoint() }

// Tidy syncs indexes and writes a producer snapshot as the background does.
func (l *Log) Tidy(growthBytes int64) error { return l.tidy(growthBytes) }

// DiscardJournal makes appends durable never.
func DiscardJournal(o *DirOptions) {
	o.openJournal = func(vfs.FS, DirOptions, *env) (commitJournal, error) { return discardJournal{}, nil }
}

type discardJournal struct{}

func (discardJournal) Enqueue(*Log, kafka.Offset, kafka.Offset, []byte)     {}
func (discardJournal) EnqueueSync(*Log, kafka.Offset)                       {}
func (discardJournal) Truncate(*Log, kafka.Offset) error                    { return nil }
func (discardJournal) Forget(*Log)                                          {}
func (discardJournal) Coverage(kafka.TopicIDPartition) (c journal.Coverage) { return c }
func (discardJournal) Covered() []kafka.TopicIDPartition                    { return nil }
func (discardJournal) Replay(func(journalEntry) error) error                { return nil }
func (discardJournal) Reset() error                                         { return nil }
func (discardJournal) Keep(func(kafka.TopicIDPartition) *Log) (bool, error) { return false, nil }
func (discardJournal) Run(ctx context.Context) error                        { <-ctx.Done(); return nil }
func (discardJournal) Close() error                                         { return nil }

// Clone returns a copy.
func (j *JournalModel) Clone() *JournalModel {
	return &JournalModel{durable: slices.Clone(j.durable)}
}

// Pending returns the number of requests that the next round will serve.
func (j *JournalModel) Pending() int { return len(j.pending) }

// FlushDue asks for the syncs that are due at now.
func (d *Dir) FlushDue(now time.Time) { d.flushDue(now) }

// Bury removes the files of deleted logs, as Run does.
func (d *Dir) Bury() {
	for d.buryNext() {
	}
}

// Maintain does what the background does at each checkpoint.
func (d *Dir) Maintain() { d.restoreBallast() }

// SampleCheckpoint returns a checkpoint file of one log.
func SampleCheckpoint() []byte {
	buf := beginCheckpoint(nil, 3, true)
	c := newCheckpointEntry()
	c.recoveryPoint, c.segmentBase, c.position = 42, 40, 500
	return endCheckpoint(appendCheckpointEntry(buf, kafka.TopicIDPartition{Partition: 2}, c))
}

// DecodeSmallFiles decodes data as each of the small files; what decodes must
// encode to the same again.
func DecodeSmallFiles(t testing.TB, data []byte) {
	if c, err := decodeCheckpoint(data); err == nil {
		buf := beginCheckpoint(nil, c.sequence, c.clean)
		for id, e := range c.entries {
			buf = appendCheckpointEntry(buf, id, e)
		}
		again, err := decodeCheckpoint(endCheckpoint(buf))
		if err != nil || len(again.entries) != len(c.entries) || again.sequence != c.sequence {
			t.Fatalf("checkpoint does not survive encoding: %v", err)
		}
		for id, e := range c.entries {
			if again.entries[id] != e {
				t.Fatalf("entry %v became %v", e, again.entries[id])
			}
		}
	}
	if h, err := decodeEpochs(data); err == nil {
		again, err := decodeEpochs(h.encode())
		if err != nil || len(again) != len(h) {
			t.Fatalf("epochs do not survive encoding: %v", err)
		}
	}
	if m, err := decodeMeta(data); err == nil {
		if again, err := decodeMeta(m.encode()); err != nil || again != m {
			t.Fatalf("meta %+v became %+v, %v", m, again, err)
		}
	}
}

// FormatFacts returns what the format documents must say, by file.
func FormatFacts() map[string][]string {
	return map[string][]string{
		"checkpoint.md": {
			fmt.Sprintf("%#x", checkpointMagic), fmt.Sprintf("version, %d", checkpointVersion),
			fmt.Sprintf("header, %d bytes", checkpointHeaderSize), fmt.Sprintf("entry, %d bytes", checkpointEntrySize),
			checkpointName(0), checkpointName(1),
		},
		"index.md": {
			fmt.Sprintf("`.index`, %d bytes an entry", offsetEntrySize),
			fmt.Sprintf("`.timeindex`, %d bytes an entry", timeEntrySize),
			fmt.Sprintf("`%s`, %d bytes an entry", txnIndexSuffix, txnEntrySize),
			fmt.Sprintf("%d entries", maxTailEntries), fmt.Sprintf("%d MiB", tidyBytes>>20),
		},
		"meta.md": {
			metaName, lockName, ballastName, journalDir, topicsDir, quarantineDir,
			fmt.Sprintf("whole directory, %d", formatVersion),
		},
		"segment.md": {
			epochName, cleanedSuffix, swapSuffix, tempSuffix, deletedSuffix,
			fmt.Sprintf("%d decimal digits", offsetDigits),
		},
	}
}

// NewerCheckpoint returns a checkpoint file of a version that is not known yet.
func NewerCheckpoint() []byte {
	buf := SampleCheckpoint()
	binary.BigEndian.PutUint32(buf[4:], checkpointVersion+1)
	binary.BigEndian.PutUint32(buf[24:], crc32.Checksum(buf[:24], castagnoli))
	return append(buf[:checkpointHeaderSize], "of another layout"...)
}

// CheckpointAsVersion1 returns a checkpoint file as version 1 had it.
func CheckpointAsVersion1(data []byte) []byte {
	be := binary.BigEndian
	count := int(be.Uint32(data[20:]))
	out := slices.Clone(data[:checkpointHeaderSize])
	be.PutUint32(out[4:], checkpointVersion1)
	be.PutUint32(out[24:], 0)
	for i := range count {
		out = append(out, data[checkpointHeaderSize+i*checkpointEntrySize:][:checkpointEntrySize1]...)
	}
	return be.AppendUint32(out, crc32.Checksum(out, castagnoli))
}
