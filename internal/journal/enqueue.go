package journal

import (
	"fmt"

	"github.com/strandline/strandline/internal/kafka"
)

// Enqueue asks for durability of l up to end. The bytes in data, which have
// the offsets from base to end, were written to the log's own file just before;
// the caller holds the log's write lock, so that offsets come in order. Data is
// copied. Enqueue never waits for the disk and allocates nothing once the log
// is known. Everything below base is durable or was enqueued before.
func (j *Journal) Enqueue(l Log, base, end kafka.Offset, data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.stateLocked(l)
	it := j.filling.item(s)
	it.wanted, it.end = true, end
	it.bytes += len(data)
	j.filling.bytes += len(data)
	j.filling.wishes++
	if !it.syncFiles {
		e := Entry{Kind: Append, ID: s.id, BaseOffset: base, EndOffset: end, Data: data}
		it.syncFiles = !j.filling.stage || it.bytes > j.filling.syncAbove ||
			!j.filling.maybeStage(it, e)
	}
	j.wakeLocked()
}

// EnqueueSync asks for durability of l up to end where the bytes are in the
// log's own files alone: l.SyncFiles is called in this round.
func (j *Journal) EnqueueSync(l Log, end kafka.Offset) {
	j.mu.Lock()
	defer j.mu.Unlock()
	it := j.filling.item(j.stateLocked(l))
	j.filling.wishes++
	it.wanted, it.end, it.syncFiles = true, max(it.end, end), true
	j.wakeLocked()
}

// Truncate notes that l's log end offset becomes to, before or after the log's
// own files are cut. When it returns nil, no crash brings back what the journal
// has of l at or above to, and Durable has been called for all that was
// enqueued before. No Enqueue for l may run meanwhile. Run must be running, and
// the caller must hold no lock that the log's methods take.
func (j *Journal) Truncate(l Log, to kafka.Offset) error {
	done := make(chan error, 1)
	if err := j.truncate(l, to, done); err != nil {
		return err
	}
	return <-done
}

func (j *Journal) truncate(l Log, to kafka.Offset, done chan<- error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure != nil {
		return j.failure
	}
	s := j.states[l]
	if s == nil { // Nothing of the log is in the journal or on the way to it.
		done <- nil
		return nil
	}
	r := j.filling
	it := r.item(s)
	it.end = min(it.end, to)
	if !it.truncated || to < it.cut {
		it.truncated, it.cut = true, to
	}
	e := Entry{Kind: Truncate, ID: s.id, BaseOffset: to, EndOffset: to}
	if s.mayBeIn(r) && !r.maybeStageMark(it, e) {
		return fmt.Errorf("truncate %s in the journal: too many truncations at once", s.id)
	}
	r.waiters = append(r.waiters, done)
	j.wakeLocked()
	return nil
}

// Forget drops a deleted log: what the journal has of it is not replayed into
// a later log of the same id. A round that is being committed may still call
// the log's methods.
func (j *Journal) Forget(l Log) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.states[l]
	if s == nil {
		return
	}
	delete(j.states, l)
	s.gone.Store(true)
	if !s.mayBeIn(j.filling) && s.round != j.filling.number {
		return
	}
	it := j.filling.item(s)
	it.wanted, it.syncFiles = false, false
	if s.mayBeIn(j.filling) && j.failure == nil {
		if !j.filling.maybeStageMark(it, Entry{Kind: forgotten, ID: s.id}) {
			j.forgetLater = append(j.forgetLater, s)
		}
		j.wakeLocked()
	}
}

// forgetLocked stages what Forget found no room for.
func (j *Journal) forgetLocked() {
	for i, s := range j.forgetLater {
		it := j.filling.item(s)
		if !j.filling.maybeStageMark(it, Entry{Kind: forgotten, ID: s.id}) {
			j.forgetLater = j.forgetLater[i:]
			return
		}
		j.wakeLocked()
	}
	j.forgetLater = nil
}

func (j *Journal) stateLocked(l Log) *logState {
	s := j.states[l]
	if s == nil {
		s = &logState{log: l, id: l.ID(), note: kafka.NoOffset}
		j.states[l] = s
	}
	return s
}

// mayBeIn reports whether the journal may have something of the log by the time
// the round is written: an entry, or a note, which is written once files are
// ready.
func (s *logState) mayBeIn(r *round) bool { return s.staged || r.stage }

// wakeLocked tells the committer that there is something to commit.
func (j *Journal) wakeLocked() {
	if j.filling.signaled {
		return
	}
	j.filling.signaled = true
	select {
	case j.wake <- struct{}{}:
	default: // It has been told already.
	}
}
