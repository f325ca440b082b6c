package journal

import (
	"slices"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// A round that syncs a log's own files leaves nothing in the journal. So that
// a recovery knows all the same how far such a log is durable, a note of it, a
// filesSynced entry, goes along with the next frame that is written anyway, or
// after noteDelay with one of its own.

// noteDelay is how long a note may wait for a frame.
const noteDelay = 100 * time.Millisecond

// noteSynced remembers the logs whose own files the round synced. Before files
// are ready there is nowhere to note it but with the owner.
func (j *Journal) noteSynced(r *round) {
	if !r.stage {
		if len(r.items) > 0 && !j.opt.WithoutFiles && !j.untold {
			j.untold, j.notesSince = true, time.Now()
		}
		return
	}
	for i := range r.items {
		it := &r.items[i]
		if !it.syncFiles || it.state.gone.Load() {
			continue
		}
		if it.state.note == kafka.NoOffset {
			if len(j.notes) == 0 && !j.untold {
				j.notesSince = time.Now()
			}
			j.notes = append(j.notes, it.state)
		}
		it.state.note = max(it.state.note, it.end)
	}
}

// notesDue reports whether the notes have waited long enough for a frame.
func (j *Journal) notesDue() bool { return len(j.notes) > 0 && time.Since(j.notesSince) >= noteDelay }

// maybeTellOwner has the owner write down what could not be noted here.
func (j *Journal) maybeTellOwner() {
	if j.untold && time.Since(j.notesSince) >= noteDelay {
		j.untold = false
		j.opt.Checkpoint()
	}
}

// cutNotes lowers the notes of logs that the round truncates: they will stand
// behind the truncation, which came later than what they say.
func (j *Journal) cutNotes(r *round) {
	for i := range r.items {
		if it := &r.items[i]; it.truncated {
			it.state.note = min(it.state.note, it.cut)
		}
	}
}

// stageNotes stages the notes behind all other entries, if there is a frame to
// be written or they have waited long enough.
func (j *Journal) stageNotes(r *round) {
	if len(j.notes) == 0 || len(r.entries) == 0 && !j.notesDue() {
		return
	}
	if !r.stage { // No file is ready, on a full disk for long: not to be tried again at once.
		j.notesSince = time.Now()
		return
	}
	for _, s := range j.notes {
		if s.gone.Load() {
			s.note = kafka.NoOffset
			continue
		}
		it := item{state: s, end: s.note}
		if !r.maybeMark(len(r.items), it.entry(filesSynced)) {
			return
		}
		r.items = append(r.items, it)
	}
}

// dropWrittenNotes forgets the notes that are in a frame by now.
func (j *Journal) dropWrittenNotes() {
	if len(j.notes) == 0 {
		return
	}
	j.notes = slices.DeleteFunc(j.notes, func(s *logState) bool { return s.note == kafka.NoOffset })
	if j.notesDue() {
		j.notesSince = time.Now() // There was no room: not at once again.
	}
}

// entry returns an entry that says how far the log is durable.
func (it *item) entry(kind Kind) Entry {
	return Entry{Kind: kind, ID: it.state.id, BaseOffset: it.end, EndOffset: it.end}
}
