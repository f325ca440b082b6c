package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
)

// Elections that need not wait for a timeout: nobody has led yet, or the leader's
// process is known to be gone. The voters take turns, so that they do not split the
// vote:
//
//	time   0      step    2 step   3 step ...
//	       A      B       C        A
//
// Each asks in its turn whether the others would vote for it (pre-vote, which
// disturbs nobody: who hears from a leader says no). Who sees that an election is
// under way lets a round pass.
const (
	hasteStep = 50 * time.Millisecond
	// hasteRounds is for how long; after that Raft's own timeouts do it.
	hasteRounds = 20
)

// haste is this node's part in it.
type haste struct {
	timer *time.Timer // Nil while there is no haste.
	slot  time.Duration
	left  int
	term  uint64
}

// due is when this node's turn comes.
func (h *haste) due() <-chan time.Time {
	if h.timer == nil {
		return nil
	}
	return h.timer.C
}

func (h *haste) stop() {
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
}

// hurry begins to take turns. missing is a voter that is known not to take part.
func (q *Quorum) hurry(missing uint64) {
	self := raftID(q.opt.NodeID)
	if !slices.Contains(q.conf.GetVoters(), self) || q.gated() {
		return
	}
	voters := slices.DeleteFunc(slices.Sorted(slices.Values(q.conf.GetVoters())),
		func(id uint64) bool { return id == missing })
	turn := max(slices.Index(voters, self), 0)
	q.haste.stop()
	q.haste = haste{
		timer: time.NewTimer(time.Duration(turn) * hasteStep),
		slot:  time.Duration(len(voters)) * hasteStep,
		left:  hasteRounds,
		term:  q.node.BasicStatus().GetTerm(),
	}
}

// takeTurn asks for votes, unless there is a leader or an election under way.
func (q *Quorum) takeTurn() error {
	status := q.node.BasicStatus()
	if status.Lead != raft.None || q.haste.left == 0 || q.forgot {
		q.haste.stop()
		return nil
	}
	q.haste.left--
	q.haste.timer.Reset(q.haste.slot)
	if status.GetTerm() != q.haste.term {
		q.haste.term = status.GetTerm()
		return nil
	}
	if err := q.node.Campaign(); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	return nil
}

// ReportDown says that a node's process is gone: it closed its connection, or its
// host refuses to connect. If it leads, the voters elect another at once. A false
// alarm costs nothing: who still hears from the leader votes for nobody else.
func (q *Quorum) ReportDown(ctx context.Context, node kafka.BrokerID) error {
	return q.push(ctx, inbound{down: raftID(node)})
}

func (q *Quorum) leaderDown(id uint64) {
	if q.node.BasicStatus().Lead != id || q.role.leading {
		return
	}
	q.opt.Logger.Info("the quorum's leader is gone", "node", q.opt.NodeID, "leader", brokerID(id))
	if err := q.node.ForgetLeader(); err != nil {
		q.opt.Logger.Debug("leader not forgotten", "node", q.opt.NodeID, "error", err)
		return
	}
	q.hurry(id)
}

// A new quorum is founded by all of its voters together: none votes before it has
// heard from every other one that it too has nothing. Otherwise voters that lost
// their disks could found a second quorum beside one that still has everything.
// Once founded, a majority is enough.

// founding says that this node is to begin a quorum, with others, and holds nothing.
func (q *Quorum) founding() bool {
	return q.log.last() == bootstrapID() && !q.soleVoter() && isVoter(q.conf, raftID(q.opt.NodeID))
}

// gated says that it must not take part in elections yet.
func (q *Quorum) gated() bool {
	if !q.founding() {
		return false
	}
	for _, id := range q.conf.GetVoters() {
		if id != raftID(q.opt.NodeID) && !q.founders[id] {
			return true
		}
	}
	return false
}

// joining says that this node belongs to no quorum and would like to.
func (q *Quorum) joining() bool {
	return q.opt.Transport != nil && !belongs(q.conf, raftID(q.opt.NodeID))
}

// unheard says that this node has heard of no leader. It may have another address than the
// leader looks for it at, or the leader another than it knows, and those that it asks for
// votes say nothing of one whom they still hear.
func (q *Quorum) unheard() bool {
	return q.opt.Transport != nil && q.role.leader == raft.None && belongs(q.conf, raftID(q.opt.NodeID))
}

// mayVote reports whether a request for a vote may be answered. Who has lost entries
// that it had acknowledged votes for nobody: they may be committed on the strength of
// that. Who joins votes for nobody before it holds a log, and who is founding for
// nobody that holds nothing either before all are there.
func (q *Quorum) mayVote(m *raftpb.Message) bool {
	if t := m.GetType(); t != raftpb.MsgVote && t != raftpb.MsgPreVote {
		return true
	}
	if q.log.last().index == 0 || q.forgot {
		return false
	}
	return m.GetIndex() > bootstrapID().index || !q.gated()
}

// Greeted takes the greeting of a node that is founding, when fresh is set, or joining. A
// *StrangerError says that the node is not the one that the quorum knows by this id, a
// *TwinError that it is there twice.
func (q *Quorum) Greeted(ctx context.Context, from Member, fresh bool) error {
	if err := from.check(); err != nil {
		return err
	}
	stranger := q.admit(from)
	var twin *TwinError
	switch {
	case errors.As(stranger, &twin):
		return stranger
	case stranger == nil:
		return q.push(ctx, inbound{greeting: true, fresh: fresh, from: from})
	case !slices.Contains(q.Status().Learners, from.ID):
		return stranger
	}
	done := make(chan error, 1)
	if err := q.push(ctx, inbound{call: func() { done <- q.beginAnew(from) }}); err != nil {
		return err
	}
	return q.outcome(ctx, done)
}

// beginAnew lets a learner that lost its data begin anew: nobody counts on what it had.
// While the one that is known is there, the other is a second node of the same id: each
// would drive out the other for ever.
func (q *Quorum) beginAnew(from Member) error {
	stranger := q.check(from)
	if stranger == nil || !isLearner(q.conf, raftID(from.ID)) || !q.active() {
		return nil // What is so now, its next greeting will find.
	}
	if q.heardOf(from.ID) {
		return stranger
	}
	if !q.changing {
		q.enrollAs(raftpb.ConfChangeRemoveNode, from)
	}
	return nil
}

func (q *Quorum) greeted(from Member, fresh bool) {
	if q.check(from) != nil {
		return
	}
	q.contact(from)
	if !fresh || !q.founding() {
		return
	}
	before := q.gated()
	q.founders[raftID(from.ID)] = true
	if before && !q.gated() {
		q.hurry(raft.None)
	}
}

// tickOrGreet lets Raft's clock go on, and tells others of a node that founds or joins.
func (q *Quorum) tickOrGreet() {
	founding := q.founding()
	if founding || (q.joining() || q.unheard()) && q.ticks%joiningTicks == 0 {
		q.opt.Transport.Greet(founding)
	}
	q.ticks++
	q.missLeader()
	if !q.gated() && !q.forgot {
		q.node.Tick()
	}
}

// missLeader has a learner forget a leader that has been silent for as long as voters bear at
// most. The library has only those miss it that may ask for votes, and one that stepped down
// because it lost its majority tells nobody: who has no vote would wait for it for ever.
func (q *Quorum) missLeader() {
	if q.role.leader == raft.None || !isLearner(q.conf, raftID(q.opt.NodeID)) {
		return
	}
	if time.Since(q.led) <= 2*q.electionTimeout() {
		return
	}
	if err := q.node.ForgetLeader(); err != nil {
		q.opt.Logger.Debug("leader not forgotten", "node", q.opt.NodeID, "error", err)
	}
}

// joiningTicks is how often who joins says so.
const joiningTicks = 5

// errNobody says that leadership can't be handed over.
var errNobody = errors.New("no other voter is there to lead")

// Resign hands the leadership to the voter that is furthest, and returns when this
// node does not lead any more, if it ever did. It fails when no other voter is there;
// the only voter there is has nothing to hand over.
func (q *Quorum) Resign(ctx context.Context) error {
	done := make(chan error, 1)
	if err := q.push(ctx, inbound{call: func() { q.resign(done) }}); err != nil {
		return err
	}
	return q.outcome(ctx, done)
}

// outcome waits for what the loop has to say.
func (q *Quorum) outcome(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-q.stopped:
		select {
		case err := <-done:
			return err
		default:
			return q.stopErr
		}
	}
}

func (q *Quorum) resign(done chan error) {
	if !q.role.leading || q.soleVoter() {
		done <- nil
		return
	}
	heir := q.heir()
	if heir == raft.None {
		done <- errNobody
		return
	}
	q.resigning = append(q.resigning, done)
	q.node.TransferLeader(heir)
}

// resigned lets those go who wait for Resign.
func (q *Quorum) resigned(err error) {
	for _, done := range q.resigning {
		done <- err
	}
	q.resigning = nil
}
