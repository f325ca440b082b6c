package controller_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controller"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

func electRequest(kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 2, kind
	if topic != "" {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = topic, partitions
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// elect asks for an election and replays it.
func (w *world) elect(req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	w.Helper()
	resp, records := w.ElectLeaders(req)
	w.replay(records)
	return resp
}

func TestElectPreferredLeaders(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 3), topicOf("b", 3, 1))
	w.fence(1)
	for what, c := range map[string]struct {
		topic     string
		partition int32
		code      kafka.Code
		part      string
	}{
		"no topic":     {"x", 0, kafka.ErrUnknownTopicOrPartition, "x-0"},
		"no partition": {"a", 1, kafka.ErrUnknownTopicOrPartition, "a-1"},
		"a negative":   {"a", -1, kafka.ErrUnknownTopicOrPartition, "a--1"},
		"not there":    {"a", 0, kafka.ErrPreferredLeaderNotAvailable, "[2 3]"},
	} {
		p := w.elect(electRequest(0, c.topic, c.partition)).Topics[0].Partitions[0]
		expect(t, what, p.ErrorCode, p.ErrorMessage, c.code, c.part)
	}
	w.up(1)
	p := w.elect(electRequest(0, "a", 0, 0)).Topics[0].Partitions
	if len(p) != 1 {
		t.Errorf("a partition named twice is answered %d times", len(p))
	}
	expect(t, "not in sync", p[0].ErrorCode, p[0].ErrorMessage, kafka.ErrPreferredLeaderNotAvailable, "[2 3]")
	w.join(1)
	epoch := w.Image().Topic("a").Partitions[0].LeaderEpoch
	resp := w.elect(electRequest(0, ""))
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != "a" || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("all: %+v", resp)
	}
	if p := w.Image().Topic("a").Partitions[0]; p.Leader != 1 || p.LeaderEpoch != epoch+1 {
		t.Errorf("elected: %+v", p)
	}
	p = w.elect(electRequest(0, "a", 0)).Topics[0].Partitions
	expect(t, "again", p[0].ErrorCode, p[0].ErrorMessage, kafka.ErrElectionNotNeeded, "leads already")
	if resp := w.elect(electRequest(7, "a", 0)); kafka.Code(resp.ErrorCode) != kafka.ErrInvalidRequest {
		t.Errorf("an unknown type: %+v", resp)
	}
	old := electRequest(1, "a", 0)
	old.Version = 0
	if p := w.elect(old).Topics[0].Partitions[0]; kafka.Code(p.ErrorCode) != kafka.ErrElectionNotNeeded {
		t.Errorf("version 0 elects preferred leaders: %+v", p)
	}
	if controller.IsUnclean(old) || !controller.IsUnclean(electRequest(1, "")) || controller.IsUnclean(electRequest(0, "")) {
		t.Error("which elections are unclean")
	}
	w.checkReplayLaw()
}

func TestElectUncleanLeaders(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 2))
	p := w.elect(electRequest(1, "a", 0)).Topics[0].Partitions[0]
	expect(t, "with a leader", p.ErrorCode, p.ErrorMessage, kafka.ErrElectionNotNeeded, "broker 1 leads")
	w.fence(2)
	w.fence(1)
	p = w.elect(electRequest(1, "a", 0)).Topics[0].Partitions[0]
	expect(t, "nobody there", p.ErrorCode, p.ErrorMessage, kafka.ErrEligibleLeadersNotAvailable, "[1 2]")
	w.up(2)
	if p := w.Image().Topic("a").Partitions[0]; p.Leader != kafka.NoBroker {
		t.Fatalf("without the wish: %+v", p)
	}
	resp := w.elect(electRequest(1, ""))
	if len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("all: %+v", resp)
	}
	if got := describe(w.Image().Topic("a").Partitions[0]); got != "2 [2] 2" {
		t.Errorf("elected: %s", got)
	}
	w.checkReplayLaw()
}

// A partition that lost its log leads again by wish only.
func TestElectForALostPartition(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.dress()
	w.create(topicOf("a", 1, 1))
	scenario(t, w, `
		fence 1 -> none [1] 1
		wipe 1  -> lost [1] 1
		up 1    -> lost [1] 1`)
	p := w.elect(electRequest(0, "a", 0)).Topics[0].Partitions[0]
	expect(t, "preferred", p.ErrorCode, p.ErrorMessage, kafka.ErrPreferredLeaderNotAvailable, "1")
	if p := w.elect(electRequest(1, "a", 0)).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("unclean: %+v", p)
	}
	if got := describe(w.Image().Topic("a").Partitions[0]); got != "1 [1] 2" {
		t.Errorf("elected: %s", got)
	}
}

// Preferred leaders come back a few at a time, and only where they are in sync.
func TestPreferLeaders(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 3), topicOf("b", 9, 2))
	w.fence(1)
	w.up(1)
	w.replay(w.PreferLeaders(100))
	if p := w.Image().Topic("a").Partitions[0]; p.Leader == 1 {
		t.Errorf("leads without being in sync: %+v", p)
	}
	w.join(1)
	// Bring broker 1 back into all of b.
	b := w.Image().Topic("b")
	change := &metadata.PartitionsChanged{ID: b.ID}
	away := 0
	for i, p := range b.Partitions {
		if p.Replicas[0] == 1 {
			away++
		}
		p.ISR = p.Replicas
		p.PartitionEpoch++
		change.Changes = append(change.Changes, metadata.PartitionChange{Index: int32(i), Partition: p})
	}
	w.replay([]metadata.Record{change})
	w.unseen[1] = true
	if records := w.PreferLeaders(100); len(records) > 0 {
		t.Error("a broker that was not heard of gets leadership back")
	}
	w.unseen[1] = false
	for moves := away + 1; moves > 0; moves -= 2 {
		records := w.PreferLeaders(2)
		n := 0
		for _, r := range records {
			n += len(r.(*metadata.PartitionsChanged).Changes)
		}
		if n != min(2, moves) {
			t.Fatalf("%d partitions go back, %d are left", n, moves)
		}
		w.replay(records)
	}
	if records := w.PreferLeaders(100); len(records) > 0 {
		t.Errorf("%d records when all are back", len(records))
	}
	w.checkReplayLaw()
}

// A topic that comes to allow unclean elections gets its leader.
func TestSettleLeaderless(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.create(topicOf("a", 1, 2))
	w.fence(2)
	w.fence(1)
	w.up(2)
	if records := w.SettleLeaderless(); len(records) > 0 {
		t.Errorf("%d records", len(records))
	}
	_, records := w.IncrementalAlterConfigs(incremental(topic, "a", "unclean.leader.election.enable=true"))
	w.replay(records)
	w.replay(w.SettleLeaderless())
	if got := describe(w.Image().Topic("a").Partitions[0]); got != "2 [2] 2" {
		t.Errorf("settled: %s", got)
	}
}
