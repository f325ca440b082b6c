package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// resign has a broker ask for an ISR of a-0 without itself.
func (w *world) resign(id kafka.BrokerID) kafka.Code {
	w.Helper()
	topic := w.Image().Topic("a")
	p := topic.Partitions[0]
	b, _ := w.Image().Broker(id)
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.LeaderEpoch, rp.PartitionEpoch = int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	for _, other := range p.ISR {
		if other != id {
			member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			member.BrokerID, member.BrokerEpoch = int32(other), -1
			rp.NewEpochISR = append(rp.NewEpochISR, member)
		}
	}
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = topic.ID, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(id), int64(b.Epoch)
	req.Topics = append(req.Topics, rt)
	resp, records := w.AlterPartition(req)
	w.replay(records)
	if resp.ErrorCode != 0 {
		return kafka.Code(resp.ErrorCode)
	}
	return kafka.Code(resp.Topics[0].Partitions[0].ErrorCode)
}

// alter sets an option of topic a.
func (w *world) alter(name, value string) {
	w.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "a"
	r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: &value})
	req.Resources = append(req.Resources, r)
	resp, records := w.IncrementalAlterConfigs(req)
	if code := resp.Resources[0].ErrorCode; code != 0 {
		w.Fatalf("%s=%s: %v", name, value, kafka.Code(code))
	}
	w.replay(records)
}

// eligible writes who may lead: leader, ISR, eligible and last known eligible replicas.
func eligible(p metadata.Partition) string {
	leader := fmt.Sprint(p.Leader)
	if p.Leader == kafka.NoBroker {
		leader = "none"
	}
	if p.Lost {
		leader = "lost"
	}
	return fmt.Sprintf("%s %v %v %v", leader, p.ISR, p.Eligible, p.LastEligible)
}

// Who left the ISR below min.insync.replicas may lead; who lost what it had may not.
func TestEligibleReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		script string
	}{
		"kept below min.insync.replicas alone": {"min.insync.replicas=2", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			up 2    -> 1 [1] [2] []
			join 2  -> 1 [1 2] [] []`},
		"one of them leads, and not one that left before": {"min.insync.replicas=2", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			fence 1 -> none [1] [2] []
			up 3    -> none [1] [2] []
			up 2    -> 2 [2] [1] []
			up 1    -> 2 [2] [1] []
			fence 2 -> 1 [1] [2] []`},
		"one member suffices: nobody else has everything": {"min.insync.replicas=1", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [] []
			fence 1 -> none [1] [] []
			up 2    -> none [1] [] []`},
		"what syncs keeps what it has over a crash": {"min.insync.replicas=2", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			crash 2 -> 1 [1] [2] []
			fence 1 -> none [1] [2] []
			up 2    -> 2 [2] [1] []`},
		"what does not sync has lost it": {"min.insync.replicas=2 flush.messages=1000", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			crash 2 -> 1 [1] [] [2]
			fence 1 -> none [1] [] [2]
			up 2    -> none [1] [] [2]
			up 1    -> 1 [1] [] [2]`},
		"nor does an empty directory have it": {"min.insync.replicas=3", `
			fence 3 -> 1 [1 2] [3] []
			fence 2 -> 1 [1] [3 2] []
			wipe 3  -> 1 [1] [2] [3]
			fence 1 -> none [1] [2] [3]
			up 3    -> none [1] [2] [3]
			wipe 1  -> none [2] [] [3 1]
			up 1    -> none [2] [] [3 1]
			up 2    -> 2 [2] [] [3 1]`},
		"the last one without its log": {"min.insync.replicas=2", `
			fence 3 -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			wipe 2  -> 1 [1] [] [2]
			fence 1 -> none [1] [] [2]
			wipe 1  -> lost [1] [] [2]
			up 2    -> lost [1] [] [2]`},
		"whoever was eligible last comes first where a loss is allowed": {
			"min.insync.replicas=2 unclean.leader.election.enable=true flush.messages=1000", `
			fence 2 -> 1 [1 3] [] []
			fence 3 -> 1 [1] [3] []
			crash 3 -> 1 [1] [] [3]
			up 2    -> 1 [1] [] [3]
			up 3    -> 1 [1] [] [3]
			fence 1 -> 3 [3] [1] []`,
		},
		"a member that resigns is not eligible": {"min.insync.replicas=3", `
			resign 3 -> 1 [1 2] [] [3]
			resign 1 -> 2 [2] [] [3 1]
			resign 2 -> 2 [2] [] [3 1]`},
		"nor stays one that resigns later": {"min.insync.replicas=3", `
			fence 3  -> 1 [1 2] [3] []
			up 3     -> 1 [1 2] [3] []
			resign 3 -> 1 [1 2] [] [3]`},
		"a leader does not resign for brokers that are not there": {"min.insync.replicas=2", `
			fence 2  -> 1 [1 3] [] []
			fence 3  -> 1 [1] [3] []
			resign 1 -> 1 [1] [3] []`},
		"fewer suffice from now on": {"min.insync.replicas=3", `
			fence 3 -> 1 [1 2] [3] []
			min 2   -> 1 [1 2] [] []
			fence 2 -> 1 [1] [2] []
			min 1   -> 1 [1] [] []`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, nil)
			w.dress()
			w.create(topicOf("a", 1, 3, strings.Fields(c.config)...))
			w.arrange()
			for line := range strings.Lines(strings.TrimSpace(c.script)) {
				what, want, _ := strings.Cut(line, "->")
				words := strings.Fields(what)
				switch words[0] {
				case "resign":
					w.resign(kafka.BrokerID(words[1][0] - '0'))
				case "min":
					w.alter("min.insync.replicas", words[1])
				default:
					play(t, w, words)
				}
				if got := eligible(w.Image().Topic("a").Partitions[0]); got != strings.TrimSpace(want) {
					t.Fatalf("after %q: %s, want %s", strings.TrimSpace(what), got, strings.TrimSpace(want))
				}
			}
			w.checkReplayLaw()
		})
	}
}

// arrange makes broker 1 the leader of a-0, and the replicas 1, 2, 3.
func (w *world) arrange() {
	t := w.Image().Topic("a")
	p := t.Partitions[0]
	p.Replicas, p.ISR, p.Leader = []kafka.BrokerID{1, 2, 3}, []kafka.BrokerID{1, 2, 3}, 1
	p.PartitionEpoch++
	w.replay([]metadata.Record{&metadata.PartitionsChanged{
		ID: t.ID, Changes: []metadata.PartitionChange{{Partition: p}},
	}})
}

// Only the replica itself may resign, and nobody but itself.
func TestResignationsAreChecked(t *testing.T) {
	w := newWorld(t, 4, nil)
	w.create(topicOf("a", 1, 3, "min.insync.replicas=2"))
	w.arrange()
	if code := w.resign(4); code != kafka.ErrInvalidRequest {
		t.Errorf("one that is no replica: %v", code)
	}
	before := w.Image().Topic("a").Partitions[0]
	topic := w.Image().Topic("a")
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.LeaderEpoch, rp.PartitionEpoch = int32(before.LeaderEpoch), int32(before.PartitionEpoch)
	member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
	member.BrokerID, member.BrokerEpoch = 1, -1
	rp.NewEpochISR = append(rp.NewEpochISR, member) // Without 2, and without 3, that asks.
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = topic.ID, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterPartitionRequest()
	b, _ := w.Image().Broker(3)
	req.Version, req.BrokerID, req.BrokerEpoch = 3, 3, int64(b.Epoch)
	req.Topics = append(req.Topics, rt)
	resp, records := w.AlterPartition(req)
	if code := kafka.Code(resp.Topics[0].Partitions[0].ErrorCode); code != kafka.ErrInvalidRequest || len(records) > 0 {
		t.Errorf("one that puts others out: %v", code)
	}
	if after := w.Image().Topic("a").Partitions[0]; !slices.Equal(after.ISR, before.ISR) {
		t.Errorf("%+v", after)
	}
}
