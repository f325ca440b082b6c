package peer

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

// counter is a quorum that counts what it is given.
type counter struct{ messages, greetings int }

func (c *counter) Receive(context.Context, quorum.Member, *raftpb.Message) error {
	c.messages++
	return nil
}

func (c *counter) Greeted(context.Context, quorum.Member, bool) error {
	c.greetings++
	return nil
}

func (*counter) ReportUnreachable(context.Context, kafka.BrokerID) error    { return nil }
func (*counter) ReportSnapshot(context.Context, kafka.BrokerID, bool) error { return nil }
func (*counter) ReportDown(context.Context, kafka.BrokerID) error           { return nil }
func (*counter) Member(kafka.BrokerID) (quorum.Member, bool)                { return quorum.Member{}, false }

func (*counter) Status() quorum.Status { return quorum.Status{} }

// What is meant for another cluster, node or data directory does not get through.
func TestReceiveChecksWhoIsMeant(t *testing.T) {
	r := NewRaft(RaftOptions{Self: quorum.Member{ID: 1, Directory: [16]byte{7}}, ClusterID: "mine"})
	if err := r.Receive(t.Context(), encode(t, sampleEnvelope())); err == nil {
		t.Error("taken without a quorum")
	}
	q := &counter{}
	r.Attach(q)
	for name, c := range map[string]struct {
		change func(e *envelope)
		code   kafka.Code
	}{
		"all is right":      {func(*envelope) {}, kafka.ErrNone},
		"no cluster yet":    {func(e *envelope) { e.clusterID = "" }, kafka.ErrNone},
		"any directory":     {func(e *envelope) { e.to.Directory = [16]byte{} }, kafka.ErrNone},
		"another cluster":   {func(e *envelope) { e.clusterID = "yours" }, kafka.ErrInconsistentClusterID},
		"another node":      {func(e *envelope) { e.to.ID = 2 }, kafka.ErrInvalidVoterKey},
		"another directory": {func(e *envelope) { e.to.Directory[0]++ }, kafka.ErrInvalidVoterKey},
	} {
		e := sampleEnvelope()
		e.clusterID, e.to = "mine", quorum.Member{ID: 1, Directory: [16]byte{7}}
		c.change(e)
		*q = counter{}
		err := r.Receive(t.Context(), encode(t, e))
		var refused *RefusedError
		switch {
		case c.code == kafka.ErrNone:
			if err != nil || q.messages != 2 || q.greetings != 1 {
				t.Errorf("%s: %v, given %+v", name, err, q)
			}
		case !errors.As(err, &refused) || refused.Code != c.code || *q != counter{}:
			t.Errorf("%s: %v, given %+v", name, err, q)
		}
	}
	if address, ok := r.Address(3); !ok || address != "host:9093" {
		t.Errorf("node 3 is at %q", address)
	}
	// Who says nothing that the quorum looks at says nothing of its address either.
	e := &envelope{clusterID: "mine", to: quorum.Member{ID: 1}, from: quorum.Member{ID: 3, Address: "elsewhere:1"}}
	if err := r.Receive(t.Context(), encode(t, e)); err != nil {
		t.Error(err)
	}
	if address, _ := r.Address(3); address != "host:9093" {
		t.Errorf("node 3 is at %q", address)
	}
}

// A queue is bounded in messages and in bytes, and one message always fits.
func TestQueueIsBounded(t *testing.T) {
	r := NewRaft(RaftOptions{MaxQueued: 3, MaxQueuedBytes: 100})
	o := newOutbound(r, 2)
	heartbeat := &raftpb.Message{Type: new(raftpb.MsgHeartbeat), To: new(uint64(3))}
	big := &raftpb.Message{Type: new(raftpb.MsgApp), Entries: []*raftpb.Entry{{Data: make([]byte, 200)}}}
	if !o.enqueue(big) || o.enqueue(heartbeat) {
		t.Error("the first message must fit, and what comes on top must not")
	}
	if e, _, ok := o.take(); !ok || len(e.messages) != 1 || o.bytes != 0 {
		t.Errorf("took %+v, %d bytes left", e, o.bytes)
	}
	for i := range 4 {
		if o.enqueue(heartbeat) != (i < 3) {
			t.Errorf("message %d", i)
		}
	}
	snapshot := &raftpb.Message{Type: new(raftpb.MsgSnap)}
	o.drop()
	o.enqueue(heartbeat)
	o.enqueue(snapshot)
	if e, snap, ok := o.take(); !ok || snap != nil || len(e.messages) != 1 {
		t.Error("a heartbeat waits behind a snapshot")
	}
	if _, snap, ok := o.take(); !ok || snap != snapshot {
		t.Error("the snapshot is gone")
	}
	if _, _, ok := o.take(); ok {
		t.Error("something is left")
	}
}
