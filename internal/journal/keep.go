package journal

import (
	"fmt"
	"slices"

	"github.com/strandline/strandline/internal/kafka"
)

// Keep ends a recovery and gives nothing up: what Replay reported stays needed
// until the logs' own files are synced, as if it had been enqueued just now. So
// a start after a crash waits for one sync, that of Open. It takes the place of
// Reset, and is called while Run is not running.
//
// find returns the log of an id, in whose own files all of Replay's entries are
// now, durable there or not; or nil if it has them not. Keep reports false, and
// has changed nothing, if some log is missing or the files are of an older
// version: then the logs' own files are to be synced, and Reset called.
func (j *Journal) Keep(find func(kafka.TopicIDPartition) Log) (bool, error) {
	if len(j.recovered) == 0 || !j.files.allOf(fileVersion) {
		return false, nil
	}
	entries, ok, err := j.liveEntries(find)
	if !ok || err != nil {
		return false, err
	}
	j.files.startAtNeeded()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		s := j.stateLocked(e.log)
		s.staged = true
		s.lastSequence.Store(e.file.lastSequence)
		if s.fileFirst != e.file.firstSequence {
			s.fileFirst = e.file.firstSequence
			e.file.logs = append(e.file.logs, s)
		}
		if e.truncated > 0 {
			s.truncated = e.truncated
		}
		if e.synced > s.truncated {
			s.truncated = 0
		}
	}
	j.recovered, j.entries = nil, true
	clear(j.histories)
	return true, nil
}

// liveEntry stands for all entries of a log in one file.
type liveEntry struct {
	log  Log
	file *file
	// The newest frames in which there is a truncation and a synced entry.
	truncated, synced uint64
	// forgotten says that the newest entry is: the log was deleted.
	forgotten bool
}

// liveEntries returns what was recovered by log and file, the oldest file
// first. It reports false if a log is missing.
func (j *Journal) liveEntries(find func(kafka.TopicIDPartition) Log) ([]*liveEntry, bool, error) {
	type place struct {
		id   kafka.TopicIDPartition
		file *file
	}
	var all []*liveEntry
	byPlace := map[place]*liveEntry{}
	err := j.walkRecovered(func(f frame, _ int, e Entry) error {
		live := byPlace[place{e.ID, f.file}]
		if live == nil {
			live = &liveEntry{log: find(e.ID), file: f.file}
			byPlace[place{e.ID, f.file}] = live
			all = append(all, live)
		}
		switch e.Kind {
		case Truncate:
			live.truncated = f.sequence
		case synced:
			live.synced = f.sequence
		}
		live.forgotten = e.Kind == forgotten
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("keep journal: %w", err)
	}
	// What was deleted needs no log; older files may not know that it was.
	deleted := map[kafka.TopicIDPartition]bool{}
	for p, live := range byPlace {
		deleted[p.id] = deleted[p.id] || live.forgotten && live.log == nil
	}
	for p, live := range byPlace {
		if live.log == nil && !deleted[p.id] {
			return nil, false, nil
		}
	}
	return slices.DeleteFunc(all, func(e *liveEntry) bool { return e.log == nil }), true, nil
}

// allOf reports whether all files have a version.
func (s *fileSet) allOf(version uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range append(s.full, s.free...) {
		if f.version != version {
			return false
		}
	}
	return s.current != nil && s.current.version == version
}

// startAtNeeded has every file begin with the first frame in it that is needed:
// those before were given up, and are not to come back when files are released.
func (s *fileSet) startAtNeeded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.full {
		f.firstSequence = max(f.firstSequence, s.neededFrom)
	}
	s.current.firstSequence = max(s.current.firstSequence, s.neededFrom)
}
