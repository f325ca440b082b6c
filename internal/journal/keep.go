package journal

import (
	"errors"

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
// version: then the logs' own files are to be synced, and Reset called. Replay has
// been called before, and told of everything.
func (j *Journal) Keep(find func(kafka.TopicIDPartition) Log) (bool, error) {
	if len(j.recovered) == 0 || !j.files.allOf(fileVersion) {
		return false, nil
	}
	if j.live == nil {
		return false, errors.New("keep journal: Replay comes first")
	}
	logs, ok := j.findLive(find)
	if !ok {
		return false, nil
	}
	j.files.startAtNeeded()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, e := range j.live {
		if logs[i] == nil {
			continue
		}
		s := j.stateLocked(logs[i])
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
	j.recovered, j.live, j.entries = nil, nil, true
	clear(j.histories)
	return true, nil
}

// liveEntry stands for all recovered entries of a log in one file.
type liveEntry struct {
	id   kafka.TopicIDPartition
	file *file
	// The newest frames in which there is a truncation and a synced entry.
	truncated, synced uint64
	// forgotten says that the newest entry is: the log was deleted.
	forgotten bool
}

// noteLive takes an entry that a replay has read into live, which it returns. The
// entries of a log come in the order of their files.
func (h *history) noteLive(live []*liveEntry, f frame, e Entry) []*liveEntry {
	if h.live == nil || h.live.file != f.file {
		h.live = &liveEntry{id: e.ID, file: f.file}
		live = append(live, h.live)
	}
	switch e.Kind {
	case Truncate:
		h.live.truncated = f.sequence
	case synced:
		h.live.synced = f.sequence
	}
	h.live.forgotten = e.Kind == forgotten
	return live
}

// findLive returns the log of each live entry, nil for one that was deleted. It
// reports false if another is missing.
func (j *Journal) findLive(find func(kafka.TopicIDPartition) Log) ([]Log, bool) {
	logs := make([]Log, len(j.live))
	deleted := map[kafka.TopicIDPartition]bool{} // Older files may not know that it was.
	for i, e := range j.live {
		if logs[i] = find(e.id); logs[i] == nil && e.forgotten {
			deleted[e.id] = true
		}
	}
	for i, e := range j.live {
		if logs[i] == nil && !deleted[e.id] {
			return nil, false
		}
	}
	return logs, true
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
