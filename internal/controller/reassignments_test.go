package controller_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
)

// moveRequest asks for a partition to be moved, or, without replicas, for the end
// of its move.
func moveRequest(topic string, partition int32, replicas ...int32) *kmsg.AlterPartitionAssignmentsRequest {
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition, rp.Replicas = partition, replicas
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version = 1
	req.Topics = append(req.Topics, rt)
	return req
}

// move asks for a move that must not be refused.
func (w *world) move(topic string, replicas ...int32) {
	w.Helper()
	resp, records := w.AlterPartitionReassignments(moveRequest(topic, 0, replicas...))
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 {
		w.Fatalf("move to %v: %v %s", replicas, kafka.Code(p.ErrorCode), *p.ErrorMessage)
	}
	w.replay(records)
}

// where is a partition's replicas, those on the way in and out, leader and ISR.
func (w *world) where() string {
	p := w.Image().Topic("a").Partitions[0]
	return fmt.Sprintf("%v +%v -%v %s", p.Replicas, p.Adding, p.Removing, describe(p))
}

func TestReassignment(t *testing.T) {
	type step struct {
		do   func(*world)
		want string
	}
	to := func(replicas ...int32) func(*world) { return func(w *world) { w.move("a", replicas...) } }
	in := func(id kafka.BrokerID) func(*world) {
		return func(w *world) {
			if code := w.join(id); code != kafka.ErrNone && code != kafka.ErrNewLeaderElected {
				w.Fatalf("join: %v", code)
			}
		}
	}
	fence := func(ids ...kafka.BrokerID) func(*world) { return func(w *world) { w.fence(ids...) } }
	for name, steps := range map[string][]step{
		"to others": {
			{to(3, 4), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2] 0"},
			{in(3), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2 3] 0"},
			{in(4), "[3 4] +[] -[] 3 [3 4] 1"},
		},
		"add one": {
			{to(1, 2, 3), "[1 2 3] +[3] -[] 1 [1 2] 0"},
			{in(3), "[1 2 3] +[] -[] 1 [1 2 3] 0"},
		},
		"remove one: at once": {
			{to(2), "[2] +[] -[] 2 [2] 1"},
		},
		"remove a follower: a new leader epoch all the same": {
			{to(1), "[1] +[] -[] 1 [1] 1"},
		},
		"another order": {
			{to(2, 1), "[2 1] +[] -[] 1 [1 2] 0"},
		},
		"no change": {
			{to(1, 2), "[1 2] +[] -[] 1 [1 2] 0"},
		},
		"remove the only one in sync: not before another is": {
			{fence(2), "[1 2] +[] -[] 1 [1] 0"},
			{func(w *world) { w.up(2) }, "[1 2] +[] -[] 1 [1] 0"},
			{to(2), "[2 1] +[] -[1] 1 [1] 0"},
			{in(2), "[2] +[] -[] 2 [2] 1"},
		},
		"think again": {
			{to(3, 4), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2] 0"},
			{in(3), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2 3] 0"},
			{to(1, 4), "[1 4 2] +[4] -[2] 1 [1 2] 1"},
			{in(4), "[1 4] +[] -[] 1 [1 4] 2"},
		},
		"give up": {
			{to(3, 4), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2] 0"},
			{in(3), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2 3] 0"},
			{to(), "[1 2] +[] -[] 1 [1 2] 1"},
		},
		"give up when one on the way in leads": {
			{to(3, 4), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2] 0"},
			{in(3), "[3 4 1 2] +[3 4] -[1 2] 1 [1 2 3] 0"},
			{fence(1), "[3 4 1 2] +[3 4] -[1 2] 3 [2 3] 1"},
			{to(), "[1 2] +[] -[] 2 [2] 2"},
		},
		"what is new fails": {
			{to(3, 2), "[3 2 1] +[3] -[1] 1 [1 2] 0"},
			{in(3), "[3 2] +[] -[] 3 [2 3] 1"},
			{fence(3), "[3 2] +[] -[] 2 [2] 2"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, nil)
			req := createRequest()
			rt := topicOf("a", -1, -1)
			rt.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 2}}}
			req.Topics = append(req.Topics, rt)
			_, records := w.CreateTopics(req)
			w.replay(records)
			for i, s := range steps {
				s.do(w)
				if got := w.where(); got != s.want {
					t.Fatalf("step %d: %s, want %s", i, got, s.want)
				}
			}
			w.checkReplayLaw()
		})
	}
}

func TestReassignmentRefusals(t *testing.T) {
	w := newWorld(t, 4, nil)
	w.create(topicOf("a", 1, 2), topicOf("moving", 1, 1))
	w.move("moving", 4)
	for what, c := range map[string]struct {
		req  *kmsg.AlterPartitionAssignmentsRequest
		code kafka.Code
		part string
	}{
		"no topic":       {moveRequest("x", 0, 1), kafka.ErrUnknownTopicOrPartition, "x-0"},
		"no partition":   {moveRequest("a", 1, 1), kafka.ErrUnknownTopicOrPartition, "a-1"},
		"no broker":      {moveRequest("a", 0, 9), kafka.ErrInvalidReplicaAssignment, "no broker 9"},
		"twice the same": {moveRequest("a", 0, 3, 3), kafka.ErrInvalidReplicaAssignment, "named twice"},
		"nothing":        {moveRequest("a", 0), kafka.ErrNoReassignmentInProgress, "does not move"},
	} {
		resp, records := w.AlterPartitionReassignments(c.req)
		p := resp.Topics[0].Partitions[0]
		expect(t, what, p.ErrorCode, p.ErrorMessage, c.code, c.part)
		if len(records) > 0 {
			t.Errorf("%s: refused, with records", what)
		}
	}
	empty := moveRequest("a", 0)
	empty.Topics[0].Partitions[0].Replicas = []int32{}
	resp, _ := w.AlterPartitionReassignments(empty)
	p := resp.Topics[0].Partitions[0]
	expect(t, "no replica", p.ErrorCode, p.ErrorMessage, kafka.ErrInvalidReplicaAssignment, "no replica")

	fixed := moveRequest("a", 0, 3)
	fixed.AllowReplicationFactorChange = false
	resp, _ = w.AlterPartitionReassignments(fixed)
	p = resp.Topics[0].Partitions[0]
	expect(t, "another number", p.ErrorCode, p.ErrorMessage, kafka.ErrInvalidReplicationFactor, "has 2 replicas")

	twice := moveRequest("a", 0, 3, 4)
	twice.Topics = append(twice.Topics, moveRequest("a", 0, 1, 4).Topics...)
	resp, records := w.AlterPartitionReassignments(twice)
	p = resp.Topics[1].Partitions[0]
	expect(t, "a partition twice", p.ErrorCode, p.ErrorMessage, kafka.ErrInvalidRequest, "twice")
	if len(records) != 1 {
		t.Errorf("%d records", len(records))
	}
	w.replay(records)

	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	got := controller.ListPartitionReassignments(w.Image(), list)
	if len(got.Topics) != 2 || got.Topics[0].Topic != "a" || got.Topics[1].Topic != "moving" {
		t.Fatalf("all moves: %+v", got)
	}
	want := map[string][]int32{"replicas": {3, 4, 1, 2}, "adding": {3, 4}, "removing": {1, 2}}
	a := got.Topics[0].Partitions[0]
	if diff := cmp.Diff(want, map[string][]int32{
		"replicas": a.Replicas, "adding": a.AddingReplicas, "removing": a.RemovingReplicas,
	}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, partitions := range [][]int32{{0}, {1}} {
		rt := kmsg.NewListPartitionReassignmentsRequestTopic()
		rt.Topic, rt.Partitions = "a", partitions
		list.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{rt}
		if got := controller.ListPartitionReassignments(w.Image(), list); len(got.Topics) != 1-int(partitions[0]) {
			t.Errorf("partitions %v: %+v", partitions, got)
		}
	}
	w.checkReplayLaw()
}
