package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// racked starts brokers 2 and up in racks; broker 1 is in the first.
func racked(t testingT, racks ...string) *world {
	w := newWorld(t, 1, nil)
	for i, rack := range racks {
		req := registration(int32(i+1), -1)
		req.Rack = &rack
		w.start(req)
		w.up(int32(i + 1))
	}
	return w
}

func TestRacks(t *testing.T) {
	w := racked(t, "a", "a", "b", "b", "c", "c")
	w.create(topicOf("t", 60, 3), topicOf("u", 60, 2))
	rack := func(id kafka.BrokerID) string { b, _ := w.Image().Broker(id); return b.Rack }
	leads, holds := map[kafka.BrokerID]int{}, map[kafka.BrokerID]int{}
	for _, topic := range w.Image().Topics() {
		for i, p := range topic.Partitions {
			leads[p.Leader]++
			seen := map[string]bool{}
			for _, id := range p.Replicas {
				holds[id]++
				if seen[rack(id)] {
					t.Errorf("%s-%d has two replicas in rack %s: %v", topic.Name, i, rack(id), p.Replicas)
				}
				seen[rack(id)] = true
			}
		}
	}
	for id := kafka.BrokerID(1); id <= 6; id++ {
		if leads[id] != 20 || holds[id] < 35 || holds[id] > 65 {
			t.Errorf("broker %d leads %d and holds %d", id, leads[id], holds[id])
		}
	}
}

// Replicas never share a rack while another has none, whatever the racks are, and
// leaders are even.
func TestPlacementLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 8).Draw(t, "racks")
		w := racked(t, racks...)
		factor := rapid.IntRange(1, len(racks)).Draw(t, "factor")
		w.create(topicOf("t", 3*int32(len(racks)), int16(factor)))
		distinct := slices.Compact(slices.Sorted(slices.Values(racks)))
		leads := map[kafka.BrokerID]int{}
		for _, p := range w.Image().Topic("t").Partitions {
			used := map[string]bool{}
			for _, id := range p.Replicas {
				used[racks[id-1]] = true
			}
			if len(used) < min(factor, len(distinct)) {
				t.Fatalf("%v: %v stands in %d racks", racks, p.Replicas, len(used))
			}
			leads[p.Leader]++
		}
		for id, n := range leads {
			if n != 3 {
				t.Fatalf("broker %d leads %d of %d", id, n, 3*len(racks))
			}
		}
	})
}

// A topic can be created with as many replicas as there are brokers while one is
// down: its replica catches up later.
func TestPlacementWithABrokerDown(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.fence(2)
	w.create(topicOf("t", 6, 3), topicOf("u", 6, 2))
	for i, p := range w.Image().Topic("t").Partitions {
		if len(p.Replicas) != 3 || p.Replicas[2] != 2 || slices.Contains(p.ISR, 2) || len(p.ISR) != 2 {
			t.Errorf("t-%d: %+v", i, p)
		}
	}
	for i, p := range w.Image().Topic("u").Partitions {
		if slices.Contains(p.Replicas, 2) {
			t.Errorf("u-%d: %+v", i, p)
		}
	}
	resp, _ := w.CreateTopics(createRequestOf(topicOf("v", 1, 4)))
	expect(t, "too many", resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage,
		kafka.ErrInvalidReplicationFactor, "there are 3 broker(s)")
	w.fence(1, 3)
	resp, _ = w.CreateTopics(createRequestOf(topicOf("v", 1, 1)))
	expect(t, "nobody there", resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage,
		kafka.ErrInvalidReplicationFactor, fmt.Sprintf("none of the %d broker(s)", 3))
}

// A broker that is cordoned gets no replicas, but where too few others are left: first
// those that are down do.
func TestPlacementBesideCordonedBrokers(t *testing.T) {
	w := newWorld(t, 4, nil)
	cordon := func(value string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			resp, records := w.IncrementalAlterConfigs(incremental(broker, id, "cordoned.log.dirs="+value))
			if r := resp.Resources[0]; r.ErrorCode != 0 {
				t.Fatal(*r.ErrorMessage)
			}
			w.replay(records)
		}
	}
	cordon("*", "3")
	w.create(topicOf("t", 8, 3), topicOf("all", 4, 4))
	for i, p := range w.Image().Topic("t").Partitions {
		if slices.Contains(p.Replicas, 3) {
			t.Errorf("t-%d: %+v", i, p)
		}
	}
	for i, p := range w.Image().Topic("all").Partitions {
		if p.Replicas[3] != 3 || len(p.ISR) != 4 || p.Leader == 3 {
			t.Errorf("all-%d: %+v", i, p)
		}
	}
	w.fence(2)
	w.create(topicOf("u", 8, 3))
	for i, p := range w.Image().Topic("u").Partitions {
		if slices.Contains(p.Replicas, 3) || len(p.ISR) != 2 {
			t.Errorf("u-%d: %+v", i, p)
		}
	}
	given := topicOf("given", -1, -1)
	given.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{3, 1}}}
	resp, _ := w.CreateTopics(createRequestOf(given))
	expect(t, "given", resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage,
		kafka.ErrInvalidReplicaAssignment, "broker 3 is cordoned")
	moved, _ := w.AlterPartitionReassignments(moveRequest("t", 0, 1, 3, 4))
	p := moved.Topics[0].Partitions[0]
	expect(t, "a move", p.ErrorCode, p.ErrorMessage, kafka.ErrInvalidReplicaAssignment, "broker 3 is cordoned")
	// Where all are, none is.
	cordon("*", "1", "2", "4")
	w.create(topicOf("v", 2, 3))
	cordon("", "1", "2", "3", "4")
	w.create(topicOf("w", 8, 1))
	if !slices.ContainsFunc(w.Image().Topic("w").Partitions, func(p metadata.Partition) bool { return p.Leader == 3 }) {
		t.Error("nothing is placed on broker 3 when it is cordoned no more")
	}
	w.checkReplayLaw()
}

// max.partitions.per.broker holds for each broker: who is full is passed over, and
// only where too few have room a topic is refused.
func TestPartitionsPerBroker(t *testing.T) {
	w := newWorld(t, 3, map[string]string{"max.partitions.per.broker": "10"})
	given := topicOf("given", -1, -1)
	for i := range int32(9) {
		given.ReplicaAssignment = append(given.ReplicaAssignment,
			kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: i, Replicas: []int32{1}})
	}
	w.create(given)
	// One more fits on broker 1, and ten on each of the others.
	w.create(topicOf("spread", 9, 2))
	for id, want := range map[kafka.BrokerID]int{1: 10, 2: 9, 3: 8} {
		if got := w.Image().ReplicasOn(id); got < want-1 || got > 10 {
			t.Errorf("broker %d holds %d", id, got)
		}
	}
	refused := func(topic kmsg.CreateTopicsRequestTopic, part string) {
		t.Helper()
		resp, records := w.CreateTopics(createRequestOf(topic))
		expect(t, topic.Topic, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage, kafka.ErrPolicyViolation, part)
		if len(records) > 0 {
			t.Errorf("%s: refused, with records", topic.Topic)
		}
	}
	refused(topicOf("wide", 1, 3), "may hold more partition replicas (max.partitions.per.broker=10), and 3 are needed")
	refused(topicOf("many", 4, 1), "may hold 3 more partition replicas")
	given.Topic, given.ReplicaAssignment = "more", given.ReplicaAssignment[:1]
	refused(given, "broker 1 holds all the partition replicas")

	moves := moveRequest("spread", 1, 2, 3, 1)
	if at := w.Image().Topic("spread").Partitions[1].Replicas; slices.Contains(at, 1) {
		t.Fatalf("spread-1 is at %v: it was to be one that is not at the full broker", at)
	}
	resp, _ := w.AlterPartitionReassignments(moves)
	p := resp.Topics[0].Partitions[0]
	expect(t, "a move", p.ErrorCode, p.ErrorMessage, kafka.ErrPolicyViolation, "broker 1 holds all")
	w.checkReplayLaw()
}
