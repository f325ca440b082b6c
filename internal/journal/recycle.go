package journal

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/strandline/strandline/internal/vfs"
)

const (
	// A recycling that is to sync more than growSyncs logs may follow the last
	// after growWithin; if it would come sooner, the journal rather makes
	// another file.
	growWithin = 10 * time.Second
	growSyncs  = 16
	// retryAfter is how long a full disk is left alone.
	retryAfter = 10 * time.Second
	// recycleSyncers bounds how many logs are synced at once in the
	// background.
	recycleSyncers = 4
	// writebackBytes is how much a log journals before the disk is asked to
	// begin writing its own files.
	writebackBytes = 128 << 10
)

// recycler is the journal's work in the background.
type recycler struct {
	*Journal
	last  time.Time // When files were last recycled, or Run began.
	retry time.Time // When to ask for space again, after the disk was full.
}

// run sees to it that a free file is there before the current one is full,
// and that recycling finds little to sync.
func (r *recycler) run(ctx context.Context) {
	for {
		if !r.opt.WithoutFiles {
			r.writeBack(ctx)
			var err error
			for err == nil && ctx.Err() == nil && r.files.wanting() {
				var done bool
				if done, err = r.step(ctx); done {
					break // A later round asks again.
				}
			}
			if err != nil {
				r.fail(fmt.Errorf("commit journal %s: %w", r.files.dir, err))
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.recycle:
		}
	}
}

// step makes a file or recycles some, and reports true if it could not.
func (r *recycler) step(ctx context.Context) (done bool, err error) {
	now := time.Now()
	grow := r.files.count() < 2 || r.files.isStarved() ||
		now.Sub(r.last) < growWithin && r.countUnsettled() > growSyncs
	if grow && r.files.count() < r.opt.MaxFiles && !now.Before(r.retry) {
		err := r.files.prepare(ctx)
		switch {
		case err == nil:
			r.log.Info("made a journal file", "dir", r.files.dir, "files", r.files.count())
			return false, nil
		case ctx.Err() != nil:
			return true, nil
		case !vfs.IsFull(err):
			return false, err
		}
		r.retry = now.Add(retryAfter)
		r.log.Warn("no space for a journal file, acknowledgements are slower meanwhile",
			"dir", r.files.dir, "error", err)
	}
	if !r.files.anyFull() {
		return true, nil
	}
	if err := r.recycleFull(func() bool { return ctx.Err() != nil }); err != nil {
		return false, fmt.Errorf("recycle: %w", err)
	}
	r.last = now
	return false, nil
}

// recycleFull makes all full files free. Every log with an entry in one has
// its own files synced first, unless that happened since; one sync of a log
// serves all files at once. It stops early, with nothing freed, once stopped
// says so.
func (j *Journal) recycleFull(stopped func() bool) error {
	j.recycleMu.Lock()
	defer j.recycleMu.Unlock()
	files := j.files.snapshotFull()
	if len(files) == 0 {
		return nil
	}
	covered := j.writtenSequence.Load()
	logs := unsettled(files)
	// It makes the many syncs that follow cheap, and replaces none.
	if _, err := vfs.SyncMany(j.files.fs, len(logs)); err != nil {
		return err
	}
	g := errgroup.Group{}
	g.SetLimit(recycleSyncers)
	for _, s := range logs {
		g.Go(func() error {
			if stopped() {
				return nil
			}
			return j.syncInBackground(s, covered)
		})
	}
	if err := g.Wait(); err != nil || stopped() {
		return err
	}
	j.opt.Checkpoint()
	j.files.release(files, j.writtenSequence.Load()+1)
	j.counters.recycled.Add(uint64(len(files)))
	return nil
}

// countUnsettled returns how many logs recycling would have to sync.
func (j *Journal) countUnsettled() int {
	j.recycleMu.Lock() // The committer may recycle as well, and free the files.
	defer j.recycleMu.Unlock()
	return len(unsettled(j.files.snapshotFull()))
}

// unsettled returns the logs with entries in the files, which are the oldest
// full ones, that are not in the logs' own files for certain.
func unsettled(files []*file) []*logState {
	if len(files) == 0 {
		return nil
	}
	last := files[len(files)-1].lastSequence
	seen := map[*logState]bool{}
	var logs []*logState
	for _, f := range files {
		for _, s := range f.logs {
			needed := min(s.lastSequence.Load(), last)
			if !seen[s] && !s.gone.Load() && s.syncedSequence.Load() < needed {
				seen[s] = true
				logs = append(logs, s)
			}
		}
	}
	return logs
}

// syncInBackground makes the log's entries in frames up to covered, the newest
// durable one, superfluous.
func (j *Journal) syncInBackground(s *logState, covered uint64) error {
	if err := s.log.SyncFiles(); err != nil {
		return fmt.Errorf("sync log %s: %w", s.id, err)
	}
	s.raiseSynced(covered)
	j.counters.recycleSyncs.Add(1)
	return nil
}

// maybeWriteBackLater has the disk begin writing the log's own files once it has
// journaled enough. Were all left to the recycling, so many dirty pages would
// come at once that every round waits for the disk; and syncs in between, a
// megabyte at a time, take the disk for milliseconds each.
func (j *Journal) maybeWriteBackLater(s *logState, n int) {
	s.unwritten += n
	if s.unwritten < writebackBytes {
		return
	}
	s.unwritten = 0
	j.writebackMu.Lock()
	j.writebacks = append(j.writebacks, s)
	j.writebackMu.Unlock()
}

// writeBack starts the write-back of the logs that are due.
func (j *Journal) writeBack(ctx context.Context) {
	j.writebackMu.Lock()
	list := j.writebacks
	j.writebacks = nil
	j.writebackMu.Unlock()
	for _, s := range list {
		if s.gone.Load() || ctx.Err() != nil {
			continue
		}
		s.log.StartWriteback()
	}
}

func (j *Journal) anyWriteback() bool {
	j.writebackMu.Lock()
	defer j.writebackMu.Unlock()
	return len(j.writebacks) > 0
}

// anyFull reports whether a file could be recycled.
func (s *fileSet) anyFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.full) > 0
}

// snapshotFull returns the full files, oldest first.
func (s *fileSet) snapshotFull() []*file {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*file(nil), s.full...)
}
