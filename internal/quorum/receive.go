package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/strandline/strandline/internal/kafka"
)

// receiveAll steps one message and those that wait behind it.
func (q *Quorum) receiveAll(in inbound) {
	for range maxInboundPerRound {
		q.receive(in)
		select {
		case in = <-q.inbox:
		default:
			return
		}
	}
	q.receive(in)
}

func (q *Quorum) receive(in inbound) {
	switch {
	case in.call != nil:
		in.call()
	case in.message != nil:
		q.step(in.from, in.message)
	case in.greeting:
		q.greeted(in.from, in.fresh)
	case in.down != 0:
		q.leaderDown(in.down)
	case in.snapshotTo != 0 && in.snapshotOK:
		q.node.ReportSnapshot(in.snapshotTo, raft.SnapshotFinish)
	case in.snapshotTo != 0:
		q.node.ReportSnapshot(in.snapshotTo, raft.SnapshotFailure)
	default:
		q.node.ReportUnreachable(in.unreachable)
	}
}

// step gives a message to the library.
func (q *Quorum) step(from Member, m *raftpb.Message) {
	err := q.check(from)
	if err == nil {
		err = q.plausible(m)
	}
	if err == nil {
		q.contact(from)
		if !q.mayVote(m) || m.GetType() == raftpb.MsgTimeoutNow && !q.mayLead() {
			return
		}
		err = q.node.Step(m)
	}
	var forgotten *forgottenError
	if errors.As(err, &forgotten) && !q.forgot && isVoter(q.conf, raftID(from.ID)) {
		q.forgot = true
		q.opt.Logger.Error("entries are missing here that this node has acknowledged: its data directory is older "+
			"than what it had, a backup perhaps. It votes for nobody any more: remove it from the voters, and start it "+
			"with an empty directory", "node", q.opt.NodeID, "leader", from.ID, "last", forgotten.last,
			"acknowledged", forgotten.acknowledged)
	}
	if err != nil {
		q.opt.Logger.Debug("quorum message dropped", "node", q.opt.NodeID, "from", from.ID, "error", err)
		return
	}
	switch m.GetType() {
	case raftpb.MsgAppResp:
		if !m.GetReject() {
			q.noteAnswer(from.ID, m.GetIndex())
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetFrom() == q.node.BasicStatus().Lead {
			q.led = time.Now()
		}
	default:
	}
}

// forgottenError says that the leader takes entries for held here that are not.
type forgottenError struct{ acknowledged, last uint64 }

// Error implements error.
func (e *forgottenError) Error() string {
	return fmt.Sprintf("it takes entry %d for held here, and the last is %d", e.acknowledged, e.last)
}

// plausible refuses what would break the library's assumptions: it takes for granted
// that nobody loses a log, and that all it hears is what it says itself.
func (q *Quorum) plausible(m *raftpb.Message) error {
	if m.GetTerm() == 0 {
		return errors.New("it has no term, as if it came from this node itself")
	}
	last := q.log.last().index
	switch m.GetType() {
	case raftpb.MsgHeartbeat:
		if m.GetCommit() > last {
			return &forgottenError{m.GetCommit(), last}
		}
	case raftpb.MsgAppResp:
		if !m.GetReject() && m.GetIndex() > last {
			return fmt.Errorf("it acknowledges entry %d, and the last is %d", m.GetIndex(), last)
		}
		if match := q.match(m.GetFrom()); m.GetReject() && m.GetIndex() <= match {
			// The library would send what comes next, be refused again, and so on without a pause.
			return fmt.Errorf("it lacks entry %d, and has acknowledged entry %d", m.GetIndex(), match)
		}
	case raftpb.MsgApp:
		return plausibleEntries(m)
	case raftpb.MsgSnap:
		if _, _, err := unwrapState(m.GetSnapshot()); err != nil {
			return err
		}
		return checkConf(m.GetSnapshot().GetMetadata().GetConfState())
	case raftpb.MsgHeartbeatResp:
		if len(m.GetContext()) > 0 {
			return errors.New("it answers a question that nobody here asks")
		}
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
	default:
		return fmt.Errorf("nobody here says %s", m.GetType())
	}
	return nil
}

// match is the last entry that a follower has acknowledged; 0 where this node does not lead.
func (q *Quorum) match(id uint64) (index uint64) {
	q.node.WithProgress(func(other uint64, _ raft.ProgressType, p tracker.Progress) {
		if other == id {
			index = p.Match
		}
	})
	return index
}

// plausibleEntries refuses entries that do not follow one another, and changes of
// members that can't be read.
func plausibleEntries(m *raftpb.Message) error {
	before := entryID{m.GetIndex(), m.GetLogTerm()}
	for _, e := range m.GetEntries() {
		id := idOf(e)
		if id.index != before.index+1 || id.index > maxIndex || id.term < before.term || id.term > m.GetTerm() {
			return fmt.Errorf("entry %d of term %d follows entry %d of term %d in a message of term %d",
				id.index, id.term, before.index, before.term, m.GetTerm())
		}
		change, err := changeIn(e)
		if err == nil && change != nil {
			err = checkChange(change)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", id.index, err)
		}
		before = id
	}
	return nil
}

// Receive takes a message from another node, which quorum owns from then on.
// It waits while too many wait before it. A *StrangerError says that the node is not
// the one that the quorum knows by this id, a *TwinError that it is there twice.
func (q *Quorum) Receive(ctx context.Context, from Member, message *raftpb.Message) error {
	t := message.GetType()
	switch {
	case raft.IsLocalMsg(t) || t == raftpb.MsgProp:
		return fmt.Errorf("message of type %s does not come from other nodes", t)
	case message.GetFrom() != raftID(from.ID) || message.GetTo() != raftID(q.opt.NodeID):
		return fmt.Errorf("message from %d to %d came from node %d to node %d",
			brokerID(message.GetFrom()), brokerID(message.GetTo()), from.ID, q.opt.NodeID)
	}
	if err := q.admit(from); err != nil {
		return err
	}
	return q.push(ctx, inbound{message: message, from: from})
}

// ReportUnreachable says that a message to a node was lost, so that the leader
// probes it before sending more.
func (q *Quorum) ReportUnreachable(ctx context.Context, node kafka.BrokerID) error {
	return q.push(ctx, inbound{unreachable: raftID(node)})
}

// ReportSnapshot says that the transfer of a snapshot to a node ended, and how.
// Until then the leader sends it nothing else.
func (q *Quorum) ReportSnapshot(ctx context.Context, node kafka.BrokerID, ok bool) error {
	return q.push(ctx, inbound{snapshotTo: raftID(node), snapshotOK: ok})
}

func (q *Quorum) push(ctx context.Context, in inbound) error {
	select {
	case q.inbox <- in:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-q.stopped:
		return q.stopErr
	}
}
