package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
)

// Changes of members go through the log, one at a time: the library ignores a second
// while one is not applied. Each wish is asked what it needs until it needs nothing:
//
//	wish ---next()---> a change ---log, applied---> next() ... ---> done
//	           \-----> wait: for a learner to catch up

// wish is a change of members that somebody waits for. The loop owns it.
type wish struct {
	// next returns the change to make now; or wait, because something must happen
	// first; or neither, when the wish is fulfilled or can't be. It makes each step once
	// at most: two wishes about one node could undo what the other does for ever, and the
	// loop would do nothing else.
	next func() (change *raftpb.ConfChangeV2, wait bool, err error)
	done chan error
	// underway says that a change of it is in the log.
	underway bool
}

// maxWishes is how many changes of members may wait.
const maxWishes = 64

// AddLearner makes a node follow without a vote. Nodes that ask to join become
// learners by themselves.
func (q *Quorum) AddLearner(ctx context.Context, m Member) error {
	if err := q.canAdd(m); err != nil {
		return err
	}
	return q.wish(ctx, func() (*raftpb.ConfChangeV2, bool, error) {
		switch known, _ := q.Member(m.ID); {
		case isVoter(q.conf, raftID(m.ID)):
			return nil, false, &MemberError{ID: m.ID, Problem: AlreadyVoter}
		case isLearner(q.conf, raftID(m.ID)) && known == m:
			return nil, false, nil
		}
		return changeOf(raftpb.ConfChangeAddLearnerNode, m), false, nil
	})
}

// canAdd refuses a node that no message could be sent to: the library would make it a
// member all the same.
func (q *Quorum) canAdd(m Member) error {
	if err := m.check(); err != nil {
		return err
	}
	if q.opt.Transport == nil {
		return &MemberError{ID: m.ID, Problem: Unreachable}
	}
	return nil
}

// AddVoter gives a node a vote, once it has caught up; before that it is made a
// learner if it is none. It returns when its vote counts. A member's address may be
// left out.
func (q *Quorum) AddVoter(ctx context.Context, m Member) error {
	if err := q.canAdd(m); err != nil {
		return err
	}
	id := raftID(m.ID)
	removed, added := false, false
	return q.wish(ctx, func() (*raftpb.ConfChangeV2, bool, error) {
		known, _ := q.Member(m.ID)
		if m.Address == "" {
			m.Address = known.Address
		}
		other := known.Directory != [16]byte{} && known.Directory != m.Directory
		switch {
		case isVoter(q.conf, id) && other, isLearner(q.conf, id) && other && (removed || added):
			return nil, false, &MemberError{ID: m.ID, Problem: OtherDirectory}
		case isVoter(q.conf, id):
			return nil, false, nil
		case isLearner(q.conf, id) && other:
			// It lost its data: its progress must begin anew.
			removed = true
			return changeOf(raftpb.ConfChangeRemoveNode, m), false, nil
		case !isLearner(q.conf, id) && (m.Address == "" || added || !q.heardOf(m.ID)):
			// Who was never there would be sent to for ever.
			return nil, false, &MemberError{ID: m.ID, Problem: NotMember}
		case !isLearner(q.conf, id):
			added = true
			return changeOf(raftpb.ConfChangeAddLearnerNode, m), false, nil
		case !q.caughtUp(id):
			return nil, true, nil
		}
		return changeOf(raftpb.ConfChangeAddNode, m), false, nil
	})
}

// RemoveVoter takes a node out of the quorum. With a directory other than zero it
// does so only if that is the voter's, and never if those that would be left could not
// decide anything, not even to take it back. A leader that is removed stops leading. A
// node that goes on running joins again as a learner.
func (q *Quorum) RemoveVoter(ctx context.Context, id kafka.BrokerID, directory [16]byte) error {
	return q.remove(ctx, id, directory, isVoter)
}

// RemoveLearner is RemoveVoter for a learner.
func (q *Quorum) RemoveLearner(ctx context.Context, id kafka.BrokerID, directory [16]byte) error {
	return q.remove(ctx, id, directory, isLearner)
}

func (q *Quorum) remove(
	ctx context.Context, id kafka.BrokerID, directory [16]byte, kind func(*raftpb.ConfState, uint64) bool,
) error {
	proposed, giveUp := false, time.Time{}
	return q.wish(ctx, func() (*raftpb.ConfChangeV2, bool, error) {
		known, _ := q.Member(id)
		switch {
		case !kind(q.conf, raftID(id)) && proposed:
			return nil, false, nil
		case !kind(q.conf, raftID(id)):
			return nil, false, &MemberError{ID: id, Problem: NotMember}
		case directory != [16]byte{} && known.Directory != [16]byte{} && directory != known.Directory:
			return nil, false, &MemberError{ID: id, Problem: OtherDirectory}
		case slices.Equal(q.conf.GetVoters(), []uint64{raftID(id)}):
			return nil, false, &MemberError{ID: id, Problem: LastVoter}
		}
		if silent := q.silentWithout(raftID(id)); len(silent) > 0 {
			if giveUp.IsZero() {
				giveUp = time.Now().Add(q.electionTimeout()) // They may be about to say something.
			}
			if time.Now().Before(giveUp) {
				return nil, true, nil
			}
			return nil, false, &MemberError{ID: id, Problem: TooFewLeft, Silent: silent}
		}
		proposed = true
		return changeOf(raftpb.ConfChangeRemoveNode, Member{ID: id}), false, nil
	})
}

// wish hands a wish to the loop and waits for it.
func (q *Quorum) wish(ctx context.Context, next func() (*raftpb.ConfChangeV2, bool, error)) error {
	w := &wish{next: next, done: make(chan error, 1)}
	if err := q.push(ctx, inbound{call: func() { q.takeWish(w) }}); err != nil {
		return err
	}
	err := q.outcome(ctx, w.done)
	if ctx.Err() != nil {
		// The loop may be gone, which forgets all wishes anyway.
		_ = q.push(context.WithoutCancel(ctx), inbound{call: func() { q.dropWish(w) }})
	}
	return err
}

func (q *Quorum) takeWish(w *wish) {
	switch {
	case !q.role.leading:
		w.done <- &NotLeaderError{Leader: brokerID(q.role.leader)}
	case len(q.wishes) >= maxWishes:
		w.done <- fmt.Errorf("%d changes of members wait already", len(q.wishes))
	default:
		q.wishes = append(q.wishes, w)
	}
}

func (q *Quorum) dropWish(w *wish) {
	q.wishes = slices.DeleteFunc(q.wishes, func(other *wish) bool { return other == w })
}

// abandonWishes fails all of them.
func (q *Quorum) abandonWishes(reason func(underway bool) error) {
	for _, w := range q.wishes {
		w.done <- reason(w.underway)
	}
	q.wishes, q.changing = nil, false
}

// fulfil makes the next change that somebody wishes for, if none is under way.
func (q *Quorum) fulfil() {
	for i := 0; i < len(q.wishes) && q.active() && !q.changing; {
		w := q.wishes[i]
		w.underway = false
		change, wait, err := w.next()
		if change != nil {
			if err = q.proposeChange(change); err == nil {
				w.underway = true
				return
			}
		}
		if wait && err == nil {
			i++
			continue
		}
		w.done <- err
		q.wishes = slices.Delete(q.wishes, i, i+1)
	}
}

// changeOf returns the change of one member.
func changeOf(kind raftpb.ConfChangeType, m Member) *raftpb.ConfChangeV2 {
	c := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: new(kind), NodeId: new(raftID(m.ID))},
	}}
	if kind != raftpb.ConfChangeRemoveNode {
		c.Context = appendMember(nil, m)
	}
	return c
}

// changeIn returns the change of members that an entry makes; nil for one that makes
// none.
func changeIn(e *raftpb.Entry) (raftpb.ConfChangeI, error) {
	switch e.GetType() {
	case raftpb.EntryNormal:
		return nil, nil
	case raftpb.EntryConfChange:
		c := &raftpb.ConfChange{}
		return c, proto.Unmarshal(e.GetData(), c)
	case raftpb.EntryConfChangeV2:
		c := &raftpb.ConfChangeV2{}
		return c, proto.Unmarshal(e.GetData(), c)
	}
	return nil, fmt.Errorf("type %d is not known to this build", e.GetType())
}

// checkChange refuses what applyChange would fail for, at every node and at each start.
func checkChange(change raftpb.ConfChangeI) error {
	c := change.AsV2()
	for _, one := range c.GetChanges() {
		id := one.GetNodeId()
		if id == raft.None || id > maxNode {
			return fmt.Errorf("a change of node %d, which can be none", id)
		}
		if len(c.GetContext()) == 0 {
			continue
		}
		if _, err := parseMember(brokerID(id), c.GetContext()); err != nil {
			return err
		}
	}
	return nil
}

// checkConf refuses a configuration for which the library would end the process.
func checkConf(conf *raftpb.ConfState) error {
	if conf == nil {
		return errors.New("no configuration")
	}
	for _, ids := range [...][]uint64{
		conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing(), conf.GetLearnersNext(),
	} {
		for _, id := range ids {
			if id == raft.None || id > maxNode {
				return fmt.Errorf("%d stands for no node", id)
			}
		}
	}
	restored := tracker.MakeProgressTracker(1, 0)
	var err error
	restored.Config, restored.Progress, err = confchange.Restore(confchange.Changer{Tracker: restored, LastIndex: 1}, conf)
	if err != nil {
		return err
	}
	return raftpb.EnsureConfState(conf).Equivalent(restored.ConfState())
}

// proposeChange puts a change into the log. The caller has seen that none is there.
func (q *Quorum) proposeChange(change *raftpb.ConfChangeV2) error {
	if err := checkChange(change); err != nil {
		return err
	}
	size := entryHeaderBytes + proto.Size(change)
	if err := q.wal.reserve(alignUp(frameBytes(nil) + int64(q.unsavedBytes+size))); err != nil {
		return err
	}
	if err := q.node.ProposeConfChange(change); err != nil {
		return &NotLeaderError{Leader: brokerID(q.role.leader)}
	}
	q.unsavedBytes += size
	q.changing = true
	return nil
}

// applyChange changes who takes part.
func (q *Quorum) applyChange(change raftpb.ConfChangeI) error {
	q.conf = q.node.ApplyConfChange(change)
	q.changing = false
	c := change.AsV2()
	for _, one := range c.GetChanges() {
		id := brokerID(one.GetNodeId())
		if !belongs(q.conf, one.GetNodeId()) {
			q.removeMember(id)
			delete(q.contacts, id)
			q.leaderDown(one.GetNodeId()) // If it leads: it stops now.
			continue
		}
		if len(c.GetContext()) == 0 {
			continue
		}
		m, err := parseMember(id, c.GetContext())
		if err != nil {
			return err
		}
		q.setMember(m)
		q.opt.Logger.Info("quorum member", "node", q.opt.NodeID, "member", id, "address", m.Address,
			"voter", isVoter(q.conf, one.GetNodeId()))
	}
	q.adjustTicker()
	return nil
}

// silentWithout returns the voters not heard of lately, if without a certain one those
// that are heard of would be no majority.
func (q *Quorum) silentWithout(removed uint64) (silent []kafka.BrokerID) {
	if !isVoter(q.conf, removed) {
		return nil
	}
	left := 0
	for _, id := range q.conf.GetVoters() {
		if id == removed {
			continue
		}
		left++
		if id != raftID(q.opt.NodeID) && !q.heardOf(brokerID(id)) {
			silent = append(silent, brokerID(id))
		}
	}
	if left-len(silent) > left/2 {
		return nil
	}
	return silent
}

// heardOf reports whether another member has given a sign of life lately.
func (q *Quorum) heardOf(id kafka.BrokerID) bool {
	return time.Since(q.contacts[id].at) <= q.electionTimeout()
}

// electionTimeout is the shortest silence for which a leader is missed.
func (q *Quorum) electionTimeout() time.Duration {
	return time.Duration(q.opt.ElectionTicks) * q.opt.TickInterval
}

// maxBehind is how many entries a learner may lack when it becomes a voter: under
// load it always lacks a few.
const maxBehind = 64

// caughtUp reports whether a follower has nearly all that is committed.
func (q *Quorum) caughtUp(id uint64) (yes bool) {
	commit := q.node.BasicStatus().GetCommit()
	q.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		if other == id {
			yes = p.State == tracker.StateReplicate && p.Match+maxBehind >= commit
		}
	})
	return yes
}

// contact is a sign of life of another node.
type contact struct {
	at       time.Time
	caughtUp time.Time // When it last had everything.
}

// contact notes a sign of life. A leader makes those learners that it does not know,
// and notes where members are and on which directory.
func (q *Quorum) contact(from Member) {
	if belongs(q.conf, raftID(from.ID)) {
		c := q.contacts[from.ID]
		c.at = time.Now()
		q.contacts[from.ID] = c
	}
	if q.active() && !q.changing {
		q.enroll(from)
	}
	if q.active() && !q.changing && !q.alone() {
		q.enroll(Member{q.opt.NodeID, q.opt.Directory, q.opt.Address})
	}
}

// enrollPause is between attempts that fail, and after a member moved.
const enrollPause = time.Second

// enroll brings what the quorum knows of a node up to date. One that can't be reached
// is none: anything may come over the wire.
func (q *Quorum) enroll(m Member) {
	if m.Directory == [16]byte{} || m.Address == "" || len(m.Address) > maxAddressBytes {
		return
	}
	switch known, _ := q.Member(m.ID); {
	case !belongs(q.conf, raftID(m.ID)):
		if q.opt.Transport != nil {
			q.enrollAs(raftpb.ConfChangeAddLearnerNode, m)
		}
	case known != m:
		q.enrollAs(raftpb.ConfChangeUpdateNode, m)
		if known.Address != "" {
			// Two that pass for the same node must not fill the log with moves.
			q.noEnroll = time.Now().Add(enrollPause)
		}
	}
}

// enrollAs proposes a change that nobody waits for: the node will be heard of again.
func (q *Quorum) enrollAs(kind raftpb.ConfChangeType, m Member) {
	if time.Now().Before(q.noEnroll) {
		return
	}
	if err := q.proposeChange(changeOf(kind, m)); err != nil {
		q.noEnroll = time.Now().Add(enrollPause)
		q.opt.Logger.Warn("quorum member not enrolled", "node", q.opt.NodeID, "member", m.ID, "error", err)
	}
}
