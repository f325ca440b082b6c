package quorum

import (
	"context"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/strandline/strandline/internal/vfs"
)

// A disk that is full is met in two places. A leader makes room for an entry before it
// proposes it, and refuses the decision where it can't: then others had better lead, who
// may have room (makeWay). Who follows can't refuse what it is sent, and a leader can't
// refuse its own vote: the loop stands still until there is room (awaitingRoom), and says
// who leads meanwhile.
//
// What must not happen: where all disks are full, leadership goes round and round, and
// each that leads writes votes and an entry to say so, until the room that is left for that
// is used up. So who is asked to lead and has no room itself does not ask for votes
// (mayLead); after a while the leader, which goes on leading, asks another.

// fullPause is how long a full disk is left alone.
const fullPause = 500 * time.Millisecond

// room is what a leader does about a full disk.
type room struct {
	asked     uint64    // Who was asked last to lead in its place.
	notBefore time.Time // When the next may be: the library gives that one up after a timeout.
}

// roomToLead is how much room a node must have to be of use as a leader.
const roomToLead = 64 << 10

// mayLead reports whether a node that is asked to lead has room to decide anything.
func (q *Quorum) mayLead() bool {
	err := q.wal.reserve(roomToLead)
	if err != nil {
		q.opt.Logger.Warn("asked to lead the quorum, and there is no room on the disk", "node", q.opt.NodeID, "error", err)
	}
	return err == nil
}

// makeWay has another voter lead, if there is one, since decisions that this node makes find
// no room on its disk.
func (q *Quorum) makeWay() {
	now := time.Now()
	if q.soleVoter() || now.Before(q.room.notBefore) {
		return
	}
	heir := q.heirAfter(q.room.asked)
	if heir == raft.None {
		return
	}
	q.room = room{heir, now.Add(2 * time.Duration(q.opt.ElectionTicks) * q.opt.TickInterval)}
	q.opt.Logger.Warn("the disk is full: another voter is to lead the quorum", "node", q.opt.NodeID,
		"leader", brokerID(heir))
	q.node.TransferLeader(heir)
}

// heir returns the other voter that is furthest, or nobody.
func (q *Quorum) heir() uint64 { return q.heirAfter(raft.None) }

// heirAfter is heir for who has asked one already, or raft.None: of several that are as far
// it is the next one by its id.
func (q *Quorum) heirAfter(asked uint64) uint64 {
	self, heir, match := raftID(q.opt.NodeID), uint64(raft.None), uint64(0)
	q.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == self || !isVoter(q.conf, id) || !p.RecentActive {
			return
		}
		next := id-asked-1 < heir-asked-1 // Of those up to asked, the difference wraps around.
		if p.Match > match || p.Match == match && heir != raft.None && next {
			heir, match = id, p.Match
		}
	})
	return heir
}

// awaitingRoom repeats a write while the disk is full: the others decide without this node,
// and what it has is served on. A leader has another voter lead.
func (q *Quorum) awaitingRoom(ctx context.Context, write func() error) error {
	for told := false; ; told = true {
		err := write()
		if !vfs.IsFull(err) || q.wal.failed != nil {
			if told && err == nil {
				q.opt.Logger.Info("there is room for the quorum log again", "node", q.opt.NodeID)
			}
			return err
		}
		if !told {
			q.opt.Logger.Error("the disk is full: the metadata stands still on this node until space is freed",
				"node", q.opt.NodeID, "error", err)
			if q.role.leading {
				q.giveUp("the disk is full")
			} else {
				q.publish() // Who leads may be news that came with what is to be written.
			}
		}
		timer := time.NewTimer(fullPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
