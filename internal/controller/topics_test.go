package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

func TestCreateTopicsRefusals(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"max.partitions.per.broker": "20000"})
	w.create(topicOf("old.topic", 1, 1))
	null := topicOf("null", 1, 1)
	null.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	for _, c := range []struct {
		topic kmsg.CreateTopicsRequestTopic
		want  kafka.Code
		part  string
	}{
		{topicOf("fine", 1, 1), kafka.ErrNone, ""},
		{topicOf("old.topic", 1, 1), kafka.ErrTopicAlreadyExists, "already exists"},
		{topicOf("old_topic", 1, 1), kafka.ErrInvalidTopicException, "collides with existing topic: old.topic"},
		{topicOf("a/b", 1, 1), kafka.ErrInvalidTopicException, `has the character '/'`},
		{topicOf("a\u00e9", 1, 1), kafka.ErrInvalidTopicException, `has the character 'é'`},
		{topicOf("a\xff", 1, 1), kafka.ErrInvalidTopicException, `has the character '\xff'`},
		{topicOf("", 1, 1), kafka.ErrInvalidTopicException, "may not be empty"},
		{topicOf("..", 1, 1), kafka.ErrInvalidTopicException, "may not be called"},
		{topicOf("none", 0, 1), kafka.ErrInvalidPartitions, "cannot have 0 partitions"},
		{topicOf("minus", -2, 1), kafka.ErrInvalidPartitions, "cannot have -2 partitions"},
		{topicOf("rf0", 1, 0), kafka.ErrInvalidReplicationFactor, "cannot have 0 replicas"},
		{topicOf("rf3", 1, 3), kafka.ErrInvalidReplicationFactor, "there are 1 broker(s)"},
		{topicOf("huge", 2147483647, 1), kafka.ErrPolicyViolation, "one request may create 10000 partitions"},
		{topicOf("wide", 9000, 3), kafka.ErrPolicyViolation, "may hold 19999 more partition replicas"},
		{topicOf("bad", 1, 1, "retention.ms=soon"), kafka.ErrInvalidConfig, "want a whole number"},
		{topicOf("typo", 1, 1, "retention.m=1"), kafka.ErrInvalidConfig, "did you mean retention.ms?"},
		{topicOf("zip", 1, 1, "compression.type=gzip"), kafka.ErrInvalidConfig, "only producer is supported"},
		{
			topicOf("lag", 1, 1, "min.compaction.lag.ms=2", "max.compaction.lag.ms=1"), kafka.ErrInvalidConfig,
			"may not exceed max.compaction.lag.ms",
		},
		{null, kafka.ErrInvalidConfig, "Null value not supported"},
	} {
		req := createRequest()
		req.Topics = append(req.Topics, c.topic)
		resp, records := w.CreateTopics(req)
		got := resp.Topics[0]
		expect(t, c.topic.Topic, got.ErrorCode, got.ErrorMessage, c.want, c.part)
		if (len(records) == 1) != (c.want == kafka.ErrNone) {
			t.Errorf("%s: %d records", c.topic.Topic, len(records))
		}
		if got.Configs == nil {
			t.Errorf("%s: configs are null, which Kafka's own tools cannot read", c.topic.Topic)
		}
	}
	w.checkReplayLaw()
}

// Someone who creates the groups' topic by hand need not know how it is to be
// kept.
func TestCreateOffsetsTopicIsCompacted(t *testing.T) {
	w := newWorld(t, 1, nil)
	req := createRequest()
	req.Topics = append(req.Topics, topicOf(metadata.OffsetsTopic, 1, 1), topicOf("other", 1, 1))
	_, records := w.CreateTopics(req)
	if len(records) != 2 {
		t.Fatalf("%d records, want 2", len(records))
	}
	for i, want := range []string{"compact", ""} {
		created := records[i].(*metadata.TopicCreated)
		if got := created.Config["cleanup.policy"]; got != want {
			t.Errorf("%s: cleanup.policy is %q, want %q", created.Name, got, want)
		}
	}

	given := newWorld(t, 1, nil)
	req = createRequest()
	req.Topics = append(req.Topics, topicOf(metadata.OffsetsTopic, 1, 1, "cleanup.policy=compact,delete"))
	_, records = given.CreateTopics(req)
	if got := records[0].(*metadata.TopicCreated).Config["cleanup.policy"]; got != "compact,delete" {
		t.Errorf("a policy that was given became %q", got)
	}
}

func TestCreateTopicsByAssignment(t *testing.T) {
	w := newWorld(t, 3, nil)
	assigned := func(partitions int32, replicas int16, lists ...[]int32) kmsg.CreateTopicsRequestTopic {
		out := topicOf("t", partitions, replicas)
		for i, list := range lists {
			out.ReplicaAssignment = append(out.ReplicaAssignment,
				kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: list})
		}
		return out
	}
	type list = []int32
	shifted, twice := assigned(-1, -1, list{1}), assigned(-1, -1, list{1}, list{1})
	shifted.ReplicaAssignment[0].Partition, twice.ReplicaAssignment[1].Partition = 1, 0
	for name, c := range map[string]struct {
		topic kmsg.CreateTopicsRequestTopic
		want  kafka.Code
		part  string
	}{
		"fine":       {assigned(-1, -1, list{3, 1}, list{2, 3}), kafka.ErrNone, ""},
		"count too":  {assigned(2, -1, list{1}, list{2}), kafka.ErrInvalidRequest, "must be -1"},
		"factor too": {assigned(-1, 1, list{1}), kafka.ErrInvalidRequest, "must be -1"},
		"gap":        {shifted, kafka.ErrInvalidReplicaAssignment, "without a gap"},
		"twice":      {twice, kafka.ErrInvalidReplicaAssignment, "assigned twice"},
		"uneven":     {assigned(-1, -1, list{1}, list{1, 2}), kafka.ErrInvalidReplicaAssignment, "1 and 2 replicas"},
		"empty":      {assigned(-1, -1, list{}), kafka.ErrInvalidReplicaAssignment, "names no replica"},
		"repeated":   {assigned(-1, -1, list{1, 1}), kafka.ErrInvalidReplicaAssignment, "named twice"},
		"unknown":    {assigned(-1, -1, list{4}), kafka.ErrInvalidReplicaAssignment, "no broker 4"},
	} {
		req := createRequest()
		req.Topics = append(req.Topics, c.topic)
		resp, records := w.CreateTopics(req)
		expect(t, name, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage, c.want, c.part)
		if c.want == kafka.ErrNone {
			w.replay(records)
			defer w.checkReplayLaw()
			got := w.Image().Topic("t").Partitions
			if got[0].Leader != 3 || got[1].Leader != 2 || !slices.Equal(got[0].ISR, []kafka.BrokerID{3, 1}) {
				t.Errorf("assigned: %+v", got)
			}
			_, gone := w.DeleteTopics(deleteRequest(6, "t"))
			w.replay(gone)
		}
	}
}

// The answer has what Kafka's admin client reads: the id, the numbers and every
// configuration with its source.
func TestCreateTopicsAnswer(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"num.partitions": "4"})
	resp := w.create(topicOf("a", -1, -1), topicOf("b", 2, 1, "retention.ms= 9 "))
	a, b := resp.Topics[0], resp.Topics[1]
	if a.NumPartitions != 4 || a.ReplicationFactor != 1 || a.TopicID != w.Image().Topic("a").ID {
		t.Errorf("a: %+v", a)
	}
	sources := func(topic *kmsg.CreateTopicsResponseTopic) (value string, source int8) {
		for _, c := range topic.Configs {
			if c.Name == "retention.ms" {
				return *c.Value, c.Source
			}
		}
		return "", 0
	}
	if v, s := sources(&a); v != "604800000" || s != 5 {
		t.Errorf("a's retention is %s from %d", v, s)
	}
	if v, s := sources(&b); v != "9" || s != 1 {
		t.Errorf("b's retention is %s from %d", v, s)
	}
	if diff := cmp.Diff(map[string]string{"retention.ms": "9"}, w.Image().Topic("b").Config); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	dry := createRequest("c", "c.d", "c_d", "e", "e")
	dry.ValidateOnly = true
	resp, records := w.CreateTopics(dry)
	if records != nil || !kafka.TopicID(resp.Topics[0].TopicID).IsZero() || resp.Topics[0].NumPartitions != 1 {
		t.Errorf("a dry run: %d records, %+v", len(records), resp.Topics[0])
	}
	expect(t, "c_d beside c.d", resp.Topics[2].ErrorCode, resp.Topics[2].ErrorMessage,
		kafka.ErrInvalidTopicException, "collides")
	expect(t, "e twice", resp.Topics[3].ErrorCode, resp.Topics[3].ErrorMessage,
		kafka.ErrInvalidRequest, "2 times")
	if len(resp.Topics) != 4 {
		t.Errorf("%d answers", len(resp.Topics))
	}
	w.checkReplayLaw()
}

// Leaders are spread evenly, also over many topics of one partition.
func TestSpread(t *testing.T) {
	w := newWorld(t, 3, nil)
	for i := range 10 {
		w.create(topicOf(fmt.Sprintf("one-%d", i), 1, 2), topicOf(fmt.Sprintf("five-%d", i), 5, 3))
	}
	leads, holds := map[kafka.BrokerID]int{}, map[kafka.BrokerID]int{}
	for topic := range w.Image().AllTopics() {
		for _, p := range topic.Partitions {
			leads[p.Leader]++
			for _, id := range p.Replicas {
				holds[id]++
			}
		}
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		if leads[id] != 20 || holds[id] < 52 || holds[id] > 62 {
			t.Errorf("broker %d leads %d and holds %d", id, leads[id], holds[id])
		}
	}
}

func deleteRequest(version int16, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TopicNames = version, names
	for i := range names {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &names[i]})
	}
	return req
}

func TestDeleteTopics(t *testing.T) {
	w := newWorld(t, 1, nil)
	w.create(topicOf("a", 1, 1), topicOf("b", 1, 1), topicOf("c", 1, 1), topicOf("d", 1, 1),
		topicOf(metadata.OffsetsTopic, 1, 1))
	id := func(name string) [16]byte { return w.Image().Topic(name).ID }
	name := func(s string) *string { return &s }
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{
		{Topic: name("a")},
		{TopicID: id("b")},
		{Topic: name("c"), TopicID: id("c")},
		{},
		{TopicID: [16]byte{9}},
		{Topic: name("nowhere")},
		{Topic: name("d")},
		{TopicID: id("d")},
		{Topic: name(metadata.OffsetsTopic)},
	}
	resp, records := w.DeleteTopics(req)
	for i, want := range []struct {
		code kafka.Code
		part string
	}{
		{kafka.ErrNone, ""},
		{kafka.ErrNone, ""},
		{kafka.ErrInvalidRequest, "named by an id too"},
		{kafka.ErrInvalidRequest, "neither a topic nor an id"},
		{kafka.ErrUnknownTopicID, "no topic has the id"},
		{kafka.ErrUnknownTopicOrPartition, "there is no topic"},
		{kafka.ErrInvalidRequest, "2 times"},
		{kafka.ErrInvalidRequest, "2 times"},
		{kafka.ErrInvalidRequest, "cannot be deleted"},
	} {
		got := resp.Topics[i]
		expect(t, fmt.Sprint("item ", i), got.ErrorCode, got.ErrorMessage, want.code, want.part)
	}
	if *resp.Topics[1].Topic != "b" || resp.Topics[0].TopicID != id("a") {
		t.Error("an answer lacks what the request did not name")
	}
	w.replay(records)
	if w.Image().Topic("a") != nil || w.Image().Topic("b") != nil || w.Image().TopicCount() != 3 {
		t.Errorf("%d topics are left", w.Image().TopicCount())
	}
	w.create(topicOf("a", 1, 1)) // Under another id.
	old, records := w.DeleteTopics(deleteRequest(5, "c"))
	if old.Topics[0].ErrorCode != 0 || len(records) != 1 {
		t.Errorf("version 5: %+v", old.Topics[0])
	}
	w.checkReplayLaw()
}

func TestTopicsMayNotBeDeleted(t *testing.T) {
	w := newWorld(t, 1, map[string]string{"delete.topic.enable": "false"})
	w.create(topicOf("a", 1, 1))
	for version, want := range map[int16]kafka.Code{2: kafka.ErrInvalidRequest, 6: kafka.ErrTopicDeletionDisabled} {
		resp, records := w.DeleteTopics(deleteRequest(version, "a"))
		expect(t, "disabled", resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage, want, "delete.topic.enable")
		if records != nil {
			t.Error("and it was deleted all the same")
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	w := newWorld(t, 2, nil)
	w.create(topicOf("a", 2, 2), topicOf("b", 2, 1), topicOf(metadata.OffsetsTopic, 2, 1))
	ask := func(name string, count int32, lists ...[]int32) kmsg.CreatePartitionsRequestTopic {
		out := kmsg.NewCreatePartitionsRequestTopic()
		out.Topic, out.Count = name, count
		for _, list := range lists {
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			a.Replicas = list
			out.Assignment = append(out.Assignment, a)
		}
		return out
	}
	for _, c := range []struct {
		topics []kmsg.CreatePartitionsRequestTopic
		want   kafka.Code
		part   string
	}{
		{[]kmsg.CreatePartitionsRequestTopic{ask("x", 2)}, kafka.ErrUnknownTopicOrPartition, "no topic"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", 2)}, kafka.ErrInvalidPartitions, "already has 2 partition(s)"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", 1)}, kafka.ErrInvalidPartitions, "would not be an increase"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", -1)}, kafka.ErrInvalidPartitions, "would not be an increase"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", 3), ask("a", 3)}, kafka.ErrInvalidRequest, "2 times"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", 2147483647)}, kafka.ErrPolicyViolation, "10000"},
		{
			[]kmsg.CreatePartitionsRequestTopic{ask("a", 4, []int32{1, 2})},
			kafka.ErrInvalidReplicaAssignment, "2 partitions are to be added",
		},
		{
			[]kmsg.CreatePartitionsRequestTopic{ask("a", 3, []int32{1})},
			kafka.ErrInvalidReplicaAssignment, "2 and 1 replicas",
		},
		{
			[]kmsg.CreatePartitionsRequestTopic{ask(metadata.OffsetsTopic, 3)},
			kafka.ErrInvalidPartitions, "cannot grow",
		},
		{[]kmsg.CreatePartitionsRequestTopic{ask("b", 3, []int32{2})}, kafka.ErrNone, "keys map to other partitions"},
		{[]kmsg.CreatePartitionsRequestTopic{ask("a", 5)}, kafka.ErrNone, "5 instead of 2"},
	} {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Topics = c.topics
		resp, records := w.CreatePartitions(req)
		what := fmt.Sprintf("%s to %d", c.topics[0].Topic, c.topics[0].Count)
		expect(t, what, resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage, c.want, c.part)
		if len(resp.Topics) != 1 || (len(records) == 1) != (c.want == kafka.ErrNone) {
			t.Errorf("%s: %d answers, %d records", what, len(resp.Topics), len(records))
		}
		req.ValidateOnly = true
		if _, dry := w.CreatePartitions(req); dry != nil {
			t.Errorf("%s: a dry run has records", what)
		}
		w.replay(records)
	}
	if p := w.Image().Topic("a").Partitions; len(p) != 5 || len(p[4].Replicas) != 2 {
		t.Errorf("a: %+v", p)
	}
	if p := w.Image().Topic("b").Partitions; len(p) != 3 || p[2].Leader != 2 {
		t.Errorf("b: %+v", p)
	}
	w.checkReplayLaw()
}

// A thousand topics are one decision and take a fraction of a second.
func BenchmarkCreateThousandTopics(b *testing.B) {
	w := newWorld(b, 1, nil)
	var topics []kmsg.CreateTopicsRequestTopic
	for i := range 1000 {
		topics = append(topics, topicOf(fmt.Sprintf("%s-%d", strings.Repeat("t", 20), i), 1, 1))
	}
	req := createRequest()
	req.Topics = topics
	b.ReportAllocs()
	for b.Loop() {
		resp, records := w.CreateTopics(req)
		if len(records) != 1000 {
			b.Fatal(len(records))
		}
		resp.AppendTo(nil)
		data := metadata.AppendRecords(nil, records...)
		if _, err := metadata.DecodeRecords(data); err != nil {
			b.Fatal(err)
		}
	}
}
