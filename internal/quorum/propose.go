package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/vfs"
)

// proposal is one call of Do on its way to the loop.
type proposal struct {
	decide func() ([]byte, error)
	done   chan error // Takes one outcome without blocking.

	mu sync.Mutex // Held while decide runs.
	// taken says that decide ran, canceled that it never will.
	taken, canceled bool
}

// outcome is a call of Do that hangs on entries on their way.
type outcome struct {
	proposal *proposal
	// entry says that it has one of its own; else it only waits for those
	// before it, whose effect it has seen, and err is its result.
	entry bool
	err   error
}

// Do changes the machine, or reads it in step with the changes.
//
// decide runs on the loop, on the leader only, when every earlier entry has
// been applied (or staged, see Stager). It reads the machine and returns an
// entry, which Do proposes; Do returns nil after Apply of that entry. Without an
// entry, or with an error, Do returns that error once everything decide could
// see is durable. decide must be quick, and the entry belongs to quorum.
//
// When ctx ends first, Do returns its error, and decide has run or never will:
// what it captures may be touched again. If it ran, its entry may still be
// applied. A node that does not lead returns *NotLeaderError.
func (q *Quorum) Do(ctx context.Context, decide func() (entry []byte, err error)) error {
	p := &proposal{decide: decide, done: make(chan error, 1)}
	select {
	case q.waiting <- p:
	case <-ctx.Done():
		return ctx.Err()
	case <-q.stopped:
		return q.stopErr
	}
	select {
	case err := <-p.done:
		return err
	case <-q.stopped:
		select {
		case err := <-p.done:
			return err
		default:
			return q.stopErr
		}
	case <-ctx.Done():
		if p.cancel() {
			return ctx.Err()
		}
		select {
		case err := <-p.done:
			return err
		default:
			return fmt.Errorf("the change is on its way and may still happen: %w", ctx.Err())
		}
	}
}

// cancel keeps decide from running; it returns false if it ran.
func (p *proposal) cancel() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.canceled = !p.taken
	return p.canceled
}

// run calls decide unless the caller has gone.
func (p *proposal) run() (entry []byte, ran bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.canceled {
		return nil, false, nil
	}
	p.taken = true
	entry, err = p.decide()
	return entry, true, err
}

// takeable returns the queue of proposals when one may be decided now, else
// nil: a new leader waits for its first entry to be applied, and with it all
// that came before; and a machine that can't stage waits for every entry.
func (q *Quorum) takeable() <-chan *proposal {
	switch {
	case !q.role.leading:
		return q.waiting // To be refused.
	case q.applied.term != q.role.term:
		return nil
	case q.stager == nil && len(q.decided) > 0:
		return nil
	case len(q.decided) >= q.opt.MaxWaiting:
		return nil
	}
	return q.waiting
}

// decideAll decides one proposal and those that wait behind it, so that their
// entries share a sync. Entries are decided one after the other, each on top of
// what the ones before have staged.
func (q *Quorum) decideAll(p *proposal) error {
	for range maxDecisionsPerRound {
		if err := q.decide(p); err != nil {
			return err
		}
		if q.unsavedBytes >= maxDecisionBytesInRound {
			return nil
		}
		select {
		case p = <-q.takeable():
		default:
			return nil
		}
	}
	return q.decide(p)
}

// decide runs one decision and proposes its entry. An error ends the loop.
func (q *Quorum) decide(p *proposal) error {
	if !q.role.leading {
		p.done <- &NotLeaderError{Leader: brokerID(q.role.leader)}
		return nil
	}
	entry, ran, err := p.run()
	if !ran {
		return nil
	}
	if err == nil && len(entry) > 0 {
		if err = q.propose(entry); err == nil {
			q.decided = append(q.decided, outcome{proposal: p, entry: true})
			return q.stage(entry)
		}
	}
	if len(q.decided) > 0 {
		q.decided = append(q.decided, outcome{proposal: p, err: err})
	} else {
		p.done <- err
	}
	return q.wal.failed
}

// propose hands an entry to Raft after making room for it on disk: a full disk
// refuses it here, while refusing is still possible.
func (q *Quorum) propose(entry []byte) error {
	if len(entry) > q.opt.MaxEntryBytes {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrEntryTooLarge, len(entry), q.opt.MaxEntryBytes)
	}
	room := frameBytes(nil) + int64(q.unsavedBytes+entryHeaderBytes+len(entry))
	if err := q.wal.reserve(alignUp(room)); err != nil {
		if vfs.IsFull(err) {
			q.makeWay()
		}
		return err
	}
	if err := q.node.Propose(entry); err != nil {
		if errors.Is(err, raft.ErrProposalDropped) {
			return &NotLeaderError{Leader: brokerID(q.role.leader)}
		}
		return fmt.Errorf("propose: %w", err)
	}
	q.unsavedBytes += entryHeaderBytes + len(entry)
	return nil
}

// stage shows an entry on its way to the decisions that follow. The machine
// has decided it itself, so an error breaks an invariant and ends the loop.
func (q *Quorum) stage(entry []byte) error {
	if q.stager == nil {
		return nil
	}
	if err := q.stager.Stage(entry); err != nil {
		return fmt.Errorf("stage an entry: %w", err)
	}
	return nil
}

// settle lets the caller go whose entry was applied, and those that waited
// behind it without one.
func (q *Quorum) settle(e *raftpb.Entry) {
	if !q.role.leading || e.GetTerm() != q.role.term || len(q.decided) == 0 {
		return
	}
	q.decided[0].proposal.done <- nil
	q.decided = q.decided[1:]
	for len(q.decided) > 0 && !q.decided[0].entry {
		q.decided[0].proposal.done <- q.decided[0].err
		q.decided = q.decided[1:]
	}
	if len(q.decided) == 0 {
		q.decided = nil
	}
}

// abandon fails everything on its way.
func (q *Quorum) abandon(err error) {
	for _, o := range q.decided {
		o.proposal.done <- err
	}
	q.decided = nil
}
