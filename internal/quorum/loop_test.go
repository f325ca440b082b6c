package quorum

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// These tests turn the loop by hand, to propose what no caller can yet.

type nothing struct{}

func (nothing) Apply(uint64, []byte) error   { return nil }
func (nothing) Snapshot() ([]byte, error)    { return []byte("state"), nil }
func (nothing) Restore(uint64, []byte) error { return nil }

// record keeps what was sent.
type record struct{ sent, snapshots []*raftpb.Message }

func (r *record) Greet(bool) {}

func (r *record) Send(messages []*raftpb.Message) {
	for _, m := range messages {
		if m.GetType() == raftpb.MsgSnap {
			r.snapshots = append(r.snapshots, m)
		} else {
			r.sent = append(r.sent, m)
		}
	}
}

func (r *record) take() []*raftpb.Message {
	sent := r.sent
	r.sent = nil
	return sent
}

// answerOfNewcomer is what a node says that has nothing but its beginning.
func answerOfNewcomer(m *raftpb.Message) *raftpb.Message {
	answer := &raftpb.Message{From: m.To, To: m.From, Term: m.Term, Type: new(raftpb.MsgHeartbeatResp)}
	if m.GetType() == raftpb.MsgApp {
		answer.Type = new(raftpb.MsgAppResp)
		answer.Index, answer.Reject = m.Index, new(true)
		answer.RejectHint, answer.LogTerm = new(bootstrapID().index), new(bootstrapID().term)
	}
	return answer
}

// A lone voter has no clock. When others join, it gets one, and a newcomer is
// sent a snapshot that knows of it: one that did not would be ignored and sent
// again for ever.
func TestNewcomerGetsSnapshotThatKnowsIt(t *testing.T) {
	sent := &record{}
	disk := memfs.New()
	opt := Options{
		FS: disk, Dir: "quorum", NodeID: 1, Voters: []kafka.BrokerID{1},
		Machine: nothing{}, Transport: sent,
	}
	q, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	turn := func() {
		t.Helper()
		if err := q.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.start(); err != nil {
		t.Fatal(err)
	}
	turn()
	if q.ticker != nil {
		t.Error("a lone voter runs a clock")
	}
	change := &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: new(raftpb.ConfChangeAddLearnerNode), NodeId: new(raftID(2))},
	}}
	if err := q.node.ProposeConfChange(change); err != nil {
		t.Fatal(err)
	}
	turn()
	if q.ticker == nil {
		t.Error("with a learner there is no clock")
	}
	if s := q.Status(); len(s.Learners) != 1 || s.Learners[0] != 2 {
		t.Errorf("status %+v", s)
	}
	for range 20 {
		q.node.Tick()
		turn()
		for _, m := range sent.take() {
			q.receive(inbound{message: answerOfNewcomer(m), from: Member{ID: brokerID(m.GetTo())}})
		}
		turn()
	}
	snapshots := 0
	for _, m := range sent.snapshots {
		snapshots++
		if got := m.GetSnapshot().GetMetadata().GetConfState().GetLearners(); len(got) != 1 || got[0] != raftID(2) {
			t.Errorf("a snapshot knows the learners %v", got)
		}
	}
	if snapshots != 1 {
		t.Errorf("%d snapshots on their way, want 1", snapshots)
	}
	q.ticker.Stop()
	if err := q.wal.close(); err != nil {
		t.Fatal(err)
	}
	if q, err = Open(opt); err != nil {
		t.Fatal(err)
	}
	if err := q.start(); err != nil {
		t.Fatal(err)
	}
	turn()
	if s := q.Status(); len(s.Learners) != 1 {
		t.Errorf("after a restart: %+v", s)
	}
	q.ticker.Stop()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}
