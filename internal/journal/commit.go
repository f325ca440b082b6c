package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/kafka"
)

// fileSyncers bounds how many logs' own files are synced at once.
const fileSyncers = 16

// Run commits what is enqueued until ctx ends; what was enqueued before that
// is still committed. After a failure it goes on to refuse what comes. It is
// called once, after Keep or Reset if Replay had something to report.
func (j *Journal) Run(ctx context.Context) error {
	if len(j.recovered) > 0 {
		return errors.New("run journal: entries were recovered, Keep or Reset comes first")
	}
	var background sync.WaitGroup
	background.Go(func() { (&recycler{Journal: j, last: time.Now()}).run(ctx) }) // Ends with ctx; awaited below.
	timer, late := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer timer.Stop()
	defer late.Stop()
	for ctx.Err() == nil {
		if len(j.notes) > 0 || j.untold {
			late.Reset(noteDelay - time.Since(j.notesSince))
		}
		select {
		case <-ctx.Done():
			continue
		case <-j.wake:
		case <-late.C:
		}
		j.rest(ctx, timer)
		j.commitRound()
	}
	background.Wait()
	j.commitRound()
	j.refuseWaiters()
	return nil
}

// rest waits until the next round may start, where that is worth its while.
func (j *Journal) rest(ctx context.Context, timer *time.Timer) {
	d := j.pace.wait(time.Now())
	if d <= 0 {
		return
	}
	before := j.wishes()
	timer.Reset(d)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	j.pace.waited(d, j.wishes() > before)
}

// wishes returns how often durability was asked for since the last round began.
func (j *Journal) wishes() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.filling.wishes
}

// commitRound takes what was enqueued and makes it durable, or fails it.
func (j *Journal) commitRound() {
	j.mu.Lock()
	r, failure := j.filling, j.failure
	j.number++
	j.prepareRound(j.spare, time.Now())
	j.filling, j.spare = j.spare, nil
	j.forgetLocked()
	j.mu.Unlock()
	j.pace.started(time.Now())
	if failure == nil && (len(r.items) > 0 || j.notesDue()) {
		failure = j.commit(r)
	}
	for _, w := range r.waiters {
		w <- failure
	}
	j.maybeTellOwner()
	if failure != nil {
		j.notes, j.untold = nil, false
		j.refuse(r, failure)
	}
	j.spare = r
}

// prepareRound makes a round ready to be filled, after the filling one.
func (j *Journal) prepareRound(next *round, now time.Time) {
	next.reset(j.number)
	next.stage = j.failure == nil && !j.opt.WithoutFiles && j.files.ready()
	j.inflow.add(j.filling.bytes, now)
	j.pace.space(&j.opt, j.inflow.perSecond())
	next.syncAbove = j.opt.FileSyncBytes
	if j.inflow.perSecond() < float64(j.opt.FileSyncRate) {
		next.syncAbove *= patience
	}
}

// fail makes failure the answer to everything from now on. The committer tells
// whom it concerns.
func (j *Journal) fail(failure error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == nil {
		j.failure = failure
	}
	j.filling.stage = false
	j.filling.signaled = false
	j.wakeLocked()
}

// refuse tells the logs of a round that it will never be durable.
func (j *Journal) refuse(r *round, failure error) {
	for i := range r.items {
		if !r.items[i].state.gone.Load() {
			r.items[i].state.log.Failed(failure)
		}
	}
	if !j.reported {
		j.reported = true
		j.log.Error("the commit journal failed, its data directory is offline",
			"dir", j.files.dir, "error", failure)
		j.opt.OnFailure(failure)
	}
}

// commit makes a round durable in three steps: the frame of what was staged,
// the own files of the logs that staged not everything, and a frame that says
// so where an older truncation would otherwise cut them when replayed. Logs
// are told as soon as their part is durable.
func (j *Journal) commit(r *round) error {
	began := time.Now()
	j.counters.committing.Store(int64(max(1, began.Sub(j.born))))
	defer j.counters.committing.Store(0)
	j.cutNotes(r)
	err := j.commitStaged(r)
	if err == nil {
		j.acknowledge(r, false)
		err = j.commitFiles(r)
	}
	if err == nil {
		err = j.supersede(r)
	}
	if err != nil {
		err = fmt.Errorf("commit journal %s: %w", j.files.dir, err)
		j.fail(err)
		return err
	}
	j.noteSynced(r)
	took := time.Since(began)
	j.counters.note(r, took)
	j.counters.rounds.Add(1)
	j.counters.lastSync.Store(int64(took))
	j.counters.syncs.add(took)
	if !j.opt.WithoutFiles && (j.files.wanting() || j.anyWriteback()) {
		select {
		case j.recycle <- struct{}{}:
		default:
		}
	}
	return nil
}

// acknowledge tells the logs whose part of the round is durable.
func (j *Journal) acknowledge(r *round, syncedFiles bool) {
	for i := range r.items {
		it := &r.items[i]
		if it.wanted && it.syncFiles == syncedFiles {
			it.state.log.Durable(it.end)
		}
	}
}

// commitStaged writes what was staged as a frame, or as several if no file has
// room for one.
func (j *Journal) commitStaged(r *round) error {
	r.dropAppends(0)
	j.stageNotes(r)
	for from := 0; from < len(r.entries); {
		to, err := j.roomFor(r, from)
		if err != nil {
			return err
		}
		if to == from {
			continue // It was only appends, now dropped.
		}
		began := time.Now()
		if err := j.writeFrame(r.seal(j.nextFrame(), from, to)); err != nil {
			return err
		}
		j.pace.synced(time.Since(began))
		j.register(r, from, to)
		from = to
	}
	j.dropWrittenNotes()
	return nil
}

// roomFor makes room for a frame of the entries from one on and returns where
// it ends. If there is none, appends go the way of their logs' own files, and
// what remains gets room at any price; nothing may remain.
func (j *Journal) roomFor(r *round, from int) (to int, err error) {
	n := r.frameBytes(from, len(r.entries))
	current, free := j.files.room(n)
	switch {
	case n <= current:
		return len(r.entries), nil
	case n <= free:
		to = len(r.entries)
	default:
		if to = r.fit(from, current); to == from {
			to = r.fit(from, free)
		}
	}
	if to == from {
		r.syncStagedFiles(from)
		r.dropNotes(from)
		if to = len(r.entries); to == from {
			return to, nil
		}
		return to, j.forceRoom(r.frameBytes(from, to))
	}
	ok, err := j.makeRoom(r.frameBytes(from, to))
	if err == nil && !ok {
		panic("journal: the room for a frame is gone")
	}
	return to, err
}

// forceRoom makes room, if need be by recycling at once: there are at least
// two files, and a frame of marks fits into any.
func (j *Journal) forceRoom(n int) error {
	ok, err := j.makeRoom(n)
	if ok || err != nil {
		return err
	}
	if err := j.recycleFull(func() bool { return false }); err != nil {
		return err
	}
	if ok, err = j.makeRoom(n); !ok && err == nil {
		panic("journal: no room after recycling")
	}
	return err
}

// register remembers which logs have entries in the frame just written: those
// from one to another of the round.
func (j *Journal) register(r *round, from, to int) {
	sequence, cur := j.writtenSequence.Load(), j.files.current
	j.entries = true
	for i := from; i < to; i++ {
		e := r.entries[i]
		s := r.items[e.slot].state
		if e.kind == filesSynced {
			s.note = kafka.NoOffset
			continue
		}
		s.lastSequence.Store(sequence)
		if s.fileFirst != cur.firstSequence {
			s.fileFirst = cur.firstSequence
			cur.logs = append(cur.logs, s)
		}
		if e.kind == Truncate {
			s.truncated = sequence
		}
		j.maybeWriteBackLater(s, r.end(i+1)-e.position)
	}
}

// commitFiles syncs the own files of the logs that need it, several at once,
// and acknowledges each as soon as it is durable.
func (j *Journal) commitFiles(r *round) error {
	var todo []*item
	for i := range r.items {
		if r.items[i].syncFiles && !r.items[i].state.gone.Load() {
			todo = append(todo, &r.items[i])
		}
	}
	if len(todo) == 0 {
		return nil
	}
	began := time.Now()
	covered := j.writtenSequence.Load()
	var next atomic.Int64
	work := func() error {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(todo) {
				return nil
			}
			if err := todo[i].syncOwnFiles(covered); err != nil {
				return err
			}
		}
	}
	errs := make([]error, min(fileSyncers, len(todo)))
	var others sync.WaitGroup
	for i := range errs[1:] {
		others.Go(func() { errs[i+1] = work() }) // Awaited below.
	}
	errs[0] = work()
	others.Wait()
	if r.n == frameHeaderSize {
		j.pace.synced(time.Since(began))
	}
	j.counters.fileSyncs.Add(uint64(len(todo)))
	return errors.Join(errs...)
}

// syncOwnFiles makes the log's part of a round durable in its own files.
func (it *item) syncOwnFiles(covered uint64) error {
	s := it.state
	if err := s.log.SyncFiles(); err != nil {
		return fmt.Errorf("sync log %s: %w", s.id, err)
	}
	s.raiseSynced(covered)
	if it.wanted && s.truncated == 0 {
		s.log.Durable(it.end)
		it.wanted = false
	}
	return nil
}

func (s *logState) raiseSynced(to uint64) {
	for {
		old := s.syncedSequence.Load()
		if old >= to || s.syncedSequence.CompareAndSwap(old, to) {
			return
		}
	}
}

// supersede writes that the files of logs just synced are ahead of all entries
// before, for logs with a truncation among these. Only then are they told.
func (j *Journal) supersede(r *round) error {
	var marked []*item
	for i := range r.items {
		it := &r.items[i]
		if it.syncFiles && it.state.truncated != 0 && !it.state.gone.Load() {
			marked = append(marked, it)
		}
	}
	for len(marked) > 0 {
		r.entries, r.n, r.markBytes = r.entries[:0], frameHeaderSize, 0
		n := 0
		for n < len(marked) && r.maybeMark(0, marked[n].entry(synced)) {
			n++
		}
		if err := j.forceRoom(padded(r.n)); err != nil {
			return err
		}
		if err := j.writeFrame(r.seal(j.nextFrame(), 0, len(r.entries))); err != nil {
			return err
		}
		for _, it := range marked[:n] {
			it.state.truncated = 0
		}
		marked = marked[n:]
	}
	j.acknowledge(r, true)
	return nil
}

// nextFrame returns the header of the frame to be written next.
func (j *Journal) nextFrame() frameHeader {
	j.files.mu.Lock()
	defer j.files.mu.Unlock()
	return frameHeader{
		journalID:  j.files.journalID,
		sequence:   j.writtenSequence.Load() + 1,
		neededFrom: j.files.neededFrom,
	}
}

// writeFrame appends a frame to the current file, which has room, and syncs.
func (j *Journal) writeFrame(frame []byte) error {
	h, ok := parseFrameHeader(frame)
	cur := j.files.current
	if !ok || h.sequence != j.writtenSequence.Load()+1 || cur.position+int64(len(frame)) > cur.sizeBytes {
		panic("journal: a frame out of order or out of bounds")
	}
	if _, err := cur.handle.WriteAt(frame, cur.position); err != nil {
		return fmt.Errorf("write %s: %w", cur.name, err)
	}
	if err := cur.handle.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", cur.name, err)
	}
	j.files.mu.Lock()
	cur.position += int64(len(frame))
	cur.lastSequence = h.sequence
	j.files.mu.Unlock()
	j.writtenSequence.Store(h.sequence)
	j.stamped = h.neededFrom
	j.counters.journalWrites.Add(1)
	j.counters.journalBytes.Add(uint64(len(frame)))
	return nil
}

// makeRoom sees to a current file with room for n bytes above the reserve, and
// reports false if there is none. Before a freed file is written over, a frame
// elsewhere must say durably that a replay needs nothing of it.
func (j *Journal) makeRoom(n int) (bool, error) {
	cur, candidate := j.files.candidate(n)
	if cur != nil && cur.position+int64(n) <= cur.sizeBytes-reserveBytes {
		return true, nil
	}
	if candidate == nil {
		return false, nil
	}
	if candidate.lastSequence >= j.stamped && candidate.lastSequence > 0 {
		if err := j.writeEmptyFrame(j.nextFrame()); err != nil {
			return false, err
		}
	}
	j.files.take(candidate, j.writtenSequence.Load()+1)
	return true, nil
}

// writeEmptyFrame writes a frame for its header's sake.
func (j *Journal) writeEmptyFrame(h frameHeader) error {
	clear(j.release)
	h.put(j.release[:frameHeaderSize])
	return j.writeFrame(j.release)
}
