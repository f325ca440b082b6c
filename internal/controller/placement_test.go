package controller_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
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
