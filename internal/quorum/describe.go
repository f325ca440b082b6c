package quorum

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/strandline/strandline/internal/kafka"
)

// Description is the quorum as its leader sees it.
type Description struct {
	Leader kafka.BrokerID
	Term   uint64
	// CommitIndex and LastIndex are the leader's.
	CommitIndex uint64
	LastIndex   uint64
	// Voters and Learners are sorted by id.
	Voters   []Replica
	Learners []Replica
}

// Replica is one member as the leader sees it.
type Replica struct {
	Member
	// Match is the last entry that it is known to hold, synced.
	Match uint64
	// LastContact is when it was last heard of, and LastCaughtUp when it last had
	// everything; zero for never. Of the leader itself both are now.
	LastContact  time.Time
	LastCaughtUp time.Time
}

// Describe returns what the leader knows of all members. Others return
// *NotLeaderError.
func (q *Quorum) Describe(ctx context.Context) (Description, error) {
	var d Description
	done := make(chan error, 1)
	describe := func() {
		if !q.role.leading {
			done <- &NotLeaderError{Leader: brokerID(q.role.leader)}
			return
		}
		d = q.describe(time.Now())
		done <- nil
	}
	err := q.push(ctx, inbound{call: describe})
	if err == nil {
		err = q.outcome(ctx, done)
	}
	if err != nil {
		return Description{}, err
	}
	return d, nil
}

func (q *Quorum) describe(now time.Time) Description {
	status := q.node.BasicStatus()
	d := Description{
		Leader: q.opt.NodeID, Term: status.GetTerm(),
		CommitIndex: status.GetCommit(), LastIndex: q.log.last().index,
	}
	q.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		r := Replica{Member: Member{ID: brokerID(id)}, Match: p.Match}
		if m, ok := q.Member(r.ID); ok {
			r.Member = m
		}
		if r.ID == q.opt.NodeID {
			r.Directory, r.Address = q.opt.Directory, q.opt.Address
			r.LastContact, r.LastCaughtUp = now, now
		} else {
			c := q.contacts[r.ID]
			r.LastContact, r.LastCaughtUp = c.at, c.caughtUp
			if p.Match >= d.LastIndex {
				r.LastCaughtUp = c.at // Where nothing is decided, it answers heartbeats only.
			}
		}
		if isVoter(q.conf, id) {
			d.Voters = append(d.Voters, r)
		} else {
			d.Learners = append(d.Learners, r)
		}
	})
	byID := func(a, b Replica) int { return int(a.ID) - int(b.ID) }
	slices.SortFunc(d.Voters, byID)
	slices.SortFunc(d.Learners, byID)
	return d
}

// noteAnswer notes when a follower has everything.
func (q *Quorum) noteAnswer(from kafka.BrokerID, index uint64) {
	if c, ok := q.contacts[from]; ok && index >= q.log.last().index {
		c.caughtUp = c.at
		q.contacts[from] = c
	}
}
