package quorum

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// maxPerRound limits how much input one round takes before it saves.
const (
	maxInboundPerRound      = 256
	maxDecisionsPerRound    = 256
	maxDecisionBytesInRound = 1 << 20
)

// role is what the loop knows of who leads.
type role struct {
	leader  uint64 // The library's id; raft.None while nobody is known to lead.
	term    uint64
	leading bool // This node leads.
}

// inbound is something the transport has to say, or a call that runs on the loop.
type inbound struct {
	message     *raftpb.Message
	from        Member // Of message and greeting.
	greeting    bool
	fresh       bool
	unreachable uint64
	down        uint64
	snapshotTo  uint64
	snapshotOK  bool
	call        func()
}

// Run drives the quorum until ctx ends, which is no error, or something fails.
// It is called once.
func (q *Quorum) Run(ctx context.Context) error {
	if q.closed.Load() || q.started.Swap(true) {
		return errors.New("run quorum: it ran or was closed already")
	}
	err := q.loop(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	if q.ticker != nil {
		q.ticker.Stop()
	}
	q.haste.stop()
	q.stopErr = ErrStopped
	if err != nil {
		q.stopErr = fmt.Errorf("%w: %w", ErrStopped, err)
	}
	q.abandon(q.stopErr)
	q.abandonWishes(func(bool) error { return q.stopErr })
	q.resigned(q.stopErr)
	close(q.stopped)
	return err
}

// loop runs rounds.
func (q *Quorum) loop(ctx context.Context) error {
	if err := q.start(); err != nil {
		return err
	}
	for {
		if err := q.round(ctx); err != nil {
			return err
		}
		if err := q.wait(ctx); err != nil {
			return err
		}
	}
}

// round is the order of things: nothing is applied before it is saved, and what a
// message promises is saved before it is sent.
func (q *Quorum) round(ctx context.Context) error {
	for q.fulfil(); q.node.HasReady(); q.fulfil() {
		rd := q.node.Ready()
		q.follow()
		promises := q.sendRest(rd.Messages)
		if err := q.save(ctx, rd); err != nil {
			return err
		}
		q.send(promises)
		if err := q.apply(rd); err != nil {
			return err
		}
		q.node.Advance(rd)
	}
	if err := q.compact(); err != nil {
		return err
	}
	q.publish()
	return nil
}

// start brings the machine to the last snapshot. A lone voter does not wait
// for a timeout to find out that nobody leads.
func (q *Quorum) start() error {
	if q.snapshotID.index > bootstrapID().index {
		if err := q.machine.Restore(q.snapshotID.index, q.restore); err != nil {
			return fmt.Errorf("restore snapshot %d: %w", q.snapshotID.index, err)
		}
	}
	q.restore = nil
	q.adjustTicker()
	if q.soleVoter() {
		if err := q.node.Campaign(); err != nil {
			return fmt.Errorf("campaign: %w", err)
		}
		return nil
	}
	if q.ticker != nil && (q.founding() || q.joining()) {
		q.opt.Transport.Greet(q.founding())
	}
	q.hurry(raft.None)
	return nil
}

// soleVoter reports whether this node's vote alone decides.
func (q *Quorum) soleVoter() bool {
	voters := q.conf.GetVoters()
	return len(voters) == 1 && voters[0] == raftID(q.opt.NodeID) && len(q.conf.GetVotersOutgoing()) == 0
}

// adjustTicker runs the clock only where it has a use: Raft's timeouts watch
// other nodes.
func (q *Quorum) adjustTicker() {
	switch needless := q.alone() && !q.joining(); {
	case needless && q.ticker != nil:
		q.ticker.Stop()
		q.ticker = nil
	case !needless && q.ticker == nil:
		q.ticker = time.NewTicker(q.opt.TickInterval)
	}
}

// follow notices a change of leader before anything of the round is applied:
// decisions of a lost term must not be mistaken for what comes instead.
func (q *Quorum) follow() {
	basic := q.node.BasicStatus()
	now := role{
		leader:  basic.Lead,
		term:    basic.GetTerm(),
		leading: basic.RaftState == raft.StateLeader,
	}
	if now == q.role {
		return
	}
	before := q.role
	q.role = now
	if before.leading && (!now.leading || now.term != before.term) {
		if q.stager != nil {
			q.stager.Unstage()
		}
		q.abandon(&NotLeaderError{Leader: brokerID(now.leader), Proposed: true})
		q.abandonWishes(func(underway bool) error {
			return &NotLeaderError{Leader: brokerID(now.leader), Proposed: underway}
		})
		q.resigned(nil)
	}
	if now.leader != before.leader {
		q.opt.Logger.Info("quorum leader changed", "node", q.opt.NodeID,
			"leader", brokerID(now.leader), "term", now.term)
	}
}

// save makes durable what Raft must not forget. What is committed alone is not
// worth a sync: a node learns it anew, and it goes out with the next frame.
func (q *Quorum) save(ctx context.Context, rd raft.Ready) error {
	q.unsavedBytes = 0
	hs := q.wal.hard
	if rd.HardState != nil {
		hs = hardState{rd.GetTerm(), rd.GetVote(), rd.GetCommit()}
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		err := q.awaitingRoom(ctx, func() error { return q.saveSnapshot(rd.Snapshot, hs) })
		if err != nil {
			return err
		}
	}
	if !rd.MustSync {
		q.wal.hard = hs
		return nil
	}
	err := q.awaitingRoom(ctx, func() error {
		return q.keepingAlive(func() error { return q.wal.save(hs, rd.Entries) })
	})
	if err != nil {
		return err
	}
	if err := q.log.put(rd.Entries); err != nil {
		return fmt.Errorf("the library broke the order of the log: %w", err)
	}
	return nil
}

// saveSnapshot stores a leader's snapshot, then begins the log anew behind it.
// A crash in between is finished by recovery.
func (q *Quorum) saveSnapshot(s *raftpb.Snapshot, hs hardState) error {
	meta := s.GetMetadata()
	all, state, err := unwrapState(s)
	if err != nil {
		return fmt.Errorf("the leader's snapshot %d: %w", meta.GetIndex(), err)
	}
	snap := snapshot{
		id:   entryID{meta.GetIndex(), meta.GetTerm()},
		conf: meta.GetConfState(), members: all, data: state,
	}
	if err := writeSnapshot(q.opt, snap); err != nil {
		return fmt.Errorf("store the leader's snapshot %d: %w", snap.id.index, err)
	}
	if err := q.wal.reset(snap.id, hs); err != nil {
		return err
	}
	q.log.reset(snap.id)
	return nil
}

// sendRest sends what promises nothing and returns the rest, which must wait until the
// round is saved: the answers to entries and to requests for votes. Entries may leave
// before the leader has them itself, since it counts its own only once they are
// synced, and a candidate may ask for votes while its own is being saved, likewise.
func (q *Quorum) sendRest(messages []*raftpb.Message) (promises []*raftpb.Message) {
	var rest []*raftpb.Message
	for _, m := range messages {
		switch m.GetType() {
		case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
			promises = append(promises, m)
		default:
			rest = append(rest, m)
		}
	}
	q.send(rest)
	return promises
}

// send hands messages to the transport. Without one there may still be learners, of
// when there was one.
func (q *Quorum) send(messages []*raftpb.Message) {
	if len(messages) > 0 && q.opt.Transport != nil {
		q.opt.Transport.Send(messages)
	}
}

// maxKeptAlive is for how many times the election timeout a leader is kept alive
// that waits for its disk: then it passes for one that hangs.
const maxKeptAlive = 3

// keepingAlive runs a write while a leader goes on showing itself to the others: a
// sync that takes long on a busy disk is no reason to elect another. When the disk
// hangs it has another voter lead at once, since nothing that comes from there reaches
// the loop before the disk goes on.
func (q *Quorum) keepingAlive(write func() error) error {
	if !q.role.leading || q.ticker == nil {
		return write()
	}
	done := make(chan error, 1)
	// Ends with the write, which is waited for here.
	go func() { done <- write() }()
	gone := false
	for ticks := 1; ; ticks++ {
		select {
		case err := <-done:
			return err
		case <-q.ticker.C:
			switch {
			case gone:
			case ticks >= maxKeptAlive*q.opt.ElectionTicks || q.opt.Hangs != nil && q.opt.Hangs():
				q.giveUp("the disk hangs")
				gone = true
			case ticks%q.opt.HeartbeatTicks == 0:
				q.send(q.heartbeats())
			}
		}
	}
}

// giveUp has the voter that is furthest ask for votes, as the library does when
// leadership is handed over. What was sent to it before arrives before: it may have
// entries that this node waits to have itself, and decides about them. Until the disk goes
// on this node takes it for the leader, so that it is asked for what concerns this one.
func (q *Quorum) giveUp(why string) {
	heir := q.heir()
	if heir == raft.None {
		return
	}
	q.opt.Logger.Warn(why+": another voter is to lead the quorum", "node", q.opt.NodeID,
		"leader", brokerID(heir))
	q.send([]*raftpb.Message{{
		Type: new(raftpb.MsgTimeoutNow), From: new(raftID(q.opt.NodeID)), To: new(heir), Term: new(q.role.term),
	}})
	q.shown = Leadership{Leader: brokerID(heir), Term: q.role.term}
	status := q.Status()
	status.Leadership = q.shown
	q.status.Store(&status)
	if q.opt.OnLeader != nil {
		q.opt.OnLeader(q.shown)
	}
}

// heartbeats are what the library sends when its clock goes on.
func (q *Quorum) heartbeats() (out []*raftpb.Message) {
	self, status := raftID(q.opt.NodeID), q.node.BasicStatus()
	q.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id != self {
			out = append(out, &raftpb.Message{
				Type: new(raftpb.MsgHeartbeat), From: new(self), To: new(id), Term: new(q.role.term),
				Commit: new(min(p.Match, status.GetCommit())),
			})
		}
	})
	return out
}

// apply brings what is committed to the machine and lets its proposers go.
func (q *Quorum) apply(rd raft.Ready) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		if err := q.applySnapshot(rd.Snapshot); err != nil {
			return err
		}
	}
	for _, e := range rd.CommittedEntries {
		if err := q.applyEntry(e); err != nil {
			return fmt.Errorf("apply entry %d: %w", e.GetIndex(), err)
		}
		q.applied = idOf(e)
		q.sinceEntries++
		q.sinceBytes += int64(len(e.GetData())) + entryHeaderBytes
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			q.settle(e)
		}
	}
	return nil
}

func (q *Quorum) applyEntry(e *raftpb.Entry) error {
	change, err := changeIn(e)
	switch {
	case err != nil:
		return err
	case change != nil:
		return q.applyChange(change)
	case len(e.GetData()) == 0:
		return nil // A new leader's first entry.
	}
	return q.machine.Apply(e.GetIndex(), e.GetData())
}

func (q *Quorum) applySnapshot(s *raftpb.Snapshot) error {
	meta := s.GetMetadata()
	all, state, err := unwrapState(s)
	if err == nil {
		err = q.machine.Restore(meta.GetIndex(), state)
	}
	if err != nil {
		return fmt.Errorf("restore the leader's snapshot %d: %w", meta.GetIndex(), err)
	}
	q.conf = meta.GetConfState()
	q.setMembers(all)
	q.applied = entryID{meta.GetIndex(), meta.GetTerm()}
	q.snapshotTaken(int64(len(state)))
	q.adjustTicker()
	q.opt.Logger.Info("quorum snapshot received", "node", q.opt.NodeID, "index", q.applied.index)
	return nil
}

// currentSnapshot is what a follower is sent that is too far behind.
func (q *Quorum) currentSnapshot() (*raftpb.Snapshot, error) {
	data, err := q.machine.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot of the machine: %w", err)
	}
	return &raftpb.Snapshot{
		Data: wrapState(*q.members.Load(), data),
		Metadata: &raftpb.SnapshotMetadata{
			ConfState: proto.CloneOf(q.conf), Index: new(q.applied.index), Term: new(q.applied.term),
		},
	}, nil
}

// compact takes a snapshot when enough was applied since the last, and forgets
// the log before it. It runs on the loop: the machine is metadata, and stands
// still meanwhile.
func (q *Quorum) compact() error {
	if q.alone() {
		// Nobody is behind who would be sent old entries.
		q.log.compact(q.applied.index)
	}
	if q.sinceEntries < q.opt.SnapshotEntries && q.sinceBytes < max(q.opt.SnapshotBytes, q.snapshotSize) {
		return nil
	}
	data, err := q.machine.Snapshot()
	if err != nil {
		return fmt.Errorf("snapshot of the machine: %w", err)
	}
	before := q.snapshotID
	snap := snapshot{q.applied, q.conf, *q.members.Load(), data}
	err = q.keepingAlive(func() error { return writeSnapshot(q.opt, snap) })
	if errors.Is(err, errSnapshotSkipped) {
		// A full disk: the log grows on, if it can, and the next try comes
		// after as many entries again.
		q.opt.Logger.Warn("quorum snapshot failed", "node", q.opt.NodeID, "error", err)
		q.sinceEntries, q.sinceBytes = 0, 0
		return nil
	}
	if err != nil {
		return err
	}
	q.snapshotTaken(int64(len(data)))
	q.forget(before)
	return nil
}

func (q *Quorum) snapshotTaken(size int64) {
	q.snapshotID, q.snapshotSize = q.applied, size
	q.sinceEntries, q.sinceBytes = 0, 0
}

// forget deletes what the new snapshot makes needless. A failure costs space
// only, and the next snapshot or start makes up for it.
func (q *Quorum) forget(before entryID) {
	keepFrom := q.snapshotID.index
	if !q.alone() {
		keepFrom -= min(keepFrom, q.opt.TrailingEntries)
	}
	q.log.compact(keepFrom)
	err := q.wal.prune(keepFrom)
	if before != q.snapshotID {
		err = errors.Join(err, q.opt.FS.Remove(path.Join(q.opt.Dir, snapshotName(before.index))))
	}
	if err != nil {
		q.opt.Logger.Warn("old quorum log not removed", "node", q.opt.NodeID, "error", err)
	}
}

// publish tells the world about the round.
func (q *Quorum) publish() {
	q.publishStatus()
	if now := q.Status().Leadership; now != q.shown {
		q.shown = now
		if q.opt.OnLeader != nil {
			q.opt.OnLeader(now)
		}
	}
	if q.role.leader != raft.None && q.applied.term == q.role.term {
		select {
		case <-q.ready:
		default:
			close(q.ready)
		}
	}
}

// wait sleeps until there is input and takes a round's worth of it.
func (q *Quorum) wait(ctx context.Context) error {
	var ticks <-chan time.Time
	if q.ticker != nil {
		ticks = q.ticker.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case p := <-q.takeable():
		return q.decideAll(p)
	case in := <-q.inbox:
		q.receiveAll(in)
	case <-ticks:
		q.tickOrGreet()
	case <-q.haste.due():
		return q.takeTurn()
	}
	return nil
}
