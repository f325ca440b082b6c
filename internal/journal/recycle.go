package journal

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// growWithin is how soon after a recycling the next may come before the
	// journal rather makes another file.
	growWithin = 10 * time.Second
	// retryAfter is how long a full disk is left alone.
	retryAfter = 10 * time.Second
	// recycleSyncers bounds how many logs are synced at once in the
	// background.
	recycleSyncers = 4
	// settleBytes is how much a log journals before its own files are synced
	// in the background.
	settleBytes = 1 << 20
)

// recycleWhileNeeded sees to it that a free file is there before the current
// one is full.
func (j *Journal) recycleWhileNeeded(ctx context.Context) {
	var last, retry time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.recycle:
		}
		if err := j.settle(ctx); err != nil {
			j.fail(fmt.Errorf("commit journal %s: %w", j.files.dir, err))
			return
		}
		for ctx.Err() == nil && j.files.wanting() {
			now := time.Now()
			grow := j.files.count() < 2 || j.files.isStarved() || now.Sub(last) < growWithin
			if grow && j.files.count() < j.opt.MaxFiles && !now.Before(retry) {
				err := j.files.prepare(ctx)
				if err == nil {
					j.log.Info("made a journal file", "dir", j.files.dir, "files", j.files.count())
					continue
				}
				if ctx.Err() != nil {
					return
				}
				if !isDiskFull(err) {
					j.fail(err)
					return
				}
				retry = now.Add(retryAfter)
				j.log.Warn("no space for a journal file, acknowledgements are slower meanwhile",
					"dir", j.files.dir, "error", err)
			}
			if !j.files.anyFull() {
				break // A later round asks again.
			}
			if err := j.recycleFull(func() bool { return ctx.Err() != nil }); err != nil {
				j.fail(fmt.Errorf("commit journal %s: recycle: %w", j.files.dir, err))
				return
			}
			last = now
		}
	}
}

// isDiskFull reports whether err goes away when space is freed.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
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
	last := files[len(files)-1].lastSequence
	covered := j.writtenSequence.Load()
	g := errgroup.Group{}
	g.SetLimit(recycleSyncers)
	seen := map[*logState]bool{}
	for _, f := range files {
		for _, s := range f.logs {
			needed := min(s.lastSequence.Load(), last)
			if seen[s] || s.gone.Load() || s.syncedSequence.Load() >= needed {
				continue
			}
			seen[s] = true
			g.Go(func() error {
				if stopped() {
					return nil
				}
				return j.syncInBackground(s, covered)
			})
		}
	}
	if err := g.Wait(); err != nil || stopped() {
		return err
	}
	j.files.release(files, j.writtenSequence.Load()+1)
	j.counters.recycled.Add(uint64(len(files)))
	return nil
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

// maybeSettleLater has the log's own files synced in the background once it
// has journaled enough. Were they left to the recycling, so many dirty pages
// would come at once that every round waits for the disk.
func (j *Journal) maybeSettleLater(s *logState, n int) {
	s.unsettled += n
	if s.unsettled < settleBytes {
		return
	}
	s.unsettled = 0
	j.settleMu.Lock()
	j.settleList = append(j.settleList, s)
	j.settleMu.Unlock()
}

// settle syncs the own files of the logs that asked for it.
func (j *Journal) settle(ctx context.Context) error {
	j.settleMu.Lock()
	list := j.settleList
	j.settleList = nil
	j.settleMu.Unlock()
	for _, s := range list {
		if s.gone.Load() || ctx.Err() != nil {
			continue
		}
		if err := j.syncInBackground(s, j.writtenSequence.Load()); err != nil {
			return err
		}
	}
	return nil
}

func (j *Journal) anySettling() bool {
	j.settleMu.Lock()
	defer j.settleMu.Unlock()
	return len(j.settleList) > 0
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
