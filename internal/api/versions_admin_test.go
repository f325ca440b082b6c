package api_test

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

func tryCreateTopics(k *talk) {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = k.name("created"), 3, 1
	req.Topics = append(req.Topics, t)
	rt := k.works(req).(*kmsg.CreateTopicsResponse).Topics[0]
	k.equal("partitions here", k.w.partition(t.Topic, 2).ID().Partition, int32(2))
	if k.version >= 5 {
		k.equal("partitions", rt.NumPartitions, int32(3))
		if len(rt.Configs) == 0 {
			k.t.Error("no configs: the Java admin client fails on that")
		}
	}
	rt = k.answers(req, kafka.ErrTopicAlreadyExists).(*kmsg.CreateTopicsResponse).Topics[0]
	if text(rt.ErrorMessage) == "" {
		k.t.Error("a refusal without words")
	}
}

func tryDeleteTopics(k *talk) {
	topic := k.w.createTopic(k.name("deleted"), 1)
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TopicNames = []string{topic.Name}
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: topic.ID}}
	k.works(req)
	if k.w.plane.Image().Topic(topic.Name) != nil {
		k.t.Error("the topic is still there")
	}
	want := kafka.ErrUnknownTopicOrPartition
	if k.version >= 6 {
		want = kafka.ErrUnknownTopicID
	}
	k.answers(req, want)
}

func tryCreatePartitions(k *talk) {
	k.w.createTopic(k.name("grown"), 1)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: k.name("grown"), Count: 4}}
	rt := k.works(req).(*kmsg.CreatePartitionsResponse).Topics[0]
	if !strings.Contains(text(rt.ErrorMessage), "key") {
		k.t.Errorf("the message %q does not warn about keys", text(rt.ErrorMessage))
	}
	k.w.partition(k.name("grown"), 3)
}

func tryDeleteRecords(k *talk) {
	k.w.createTopic(k.name("cut"), 1)
	k.w.fill(k.name("cut"), 0, "a", "b", "c")
	for _, step := range []struct {
		to, low int64
		code    kafka.Code
	}{{2, 2, 0}, {4, -1, kafka.ErrOffsetOutOfRange}, {-1, 3, 0}} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{
			Topic:      k.name("cut"),
			Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: step.to}},
		}}
		resp := k.answers(req, step.code).(*kmsg.DeleteRecordsResponse)
		k.equal("low watermark", resp.Topics[0].Partitions[0].LowWatermark, step.low)
	}
}

func describeConfig(topic, name string) *kmsg.DescribeConfigsRequest {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = []kmsg.DescribeConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name},
	}}
	return req
}

// valueOf returns a topic's config as DescribeConfigs tells it.
func (k *talk) valueOf(topic, name string) string {
	k.t.Helper()
	req := describeConfig(topic, name)
	req.Version = 4
	resp := k.ask(req).(*kmsg.DescribeConfigsResponse)
	if len(resp.Resources) != 1 || len(resp.Resources[0].Configs) != 1 {
		k.t.Fatalf("%s of %s: %+v", name, topic, resp)
	}
	return text(resp.Resources[0].Configs[0].Value)
}

func tryDescribeConfigs(k *talk) {
	resp := k.works(describeConfig("seeded", "retention.ms")).(*kmsg.DescribeConfigsResponse)
	c := resp.Resources[0].Configs[0]
	k.equal("config", c.Name+"="+text(c.Value), "retention.ms=604800000")
	k.answers(describeConfig("missing", "retention.ms"), kafka.ErrUnknownTopicOrPartition)
}

func tryAlterConfigs(k *talk) {
	k.w.createTopic(k.name("altered"), 1, "max.message.bytes=1234")
	value := "5000"
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = []kmsg.AlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: k.name("altered"),
		Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}},
	}}
	k.works(req)
	k.equal("set", k.valueOf(k.name("altered"), "retention.ms"), "5000")
	k.equal("reset", k.valueOf(k.name("altered"), "max.message.bytes"), "1048588")
}

func tryIncrementalAlterConfigs(k *talk) {
	k.w.createTopic(k.name("tuned"), 1, "max.message.bytes=1234")
	value := "5000"
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: k.name("tuned"),
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}},
	}}
	k.works(req)
	k.equal("set", k.valueOf(k.name("tuned"), "retention.ms"), "5000")
	k.equal("kept", k.valueOf(k.name("tuned"), "max.message.bytes"), "1234")
}

func tryDescribeLogDirs(k *talk) {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "seeded", Partitions: []int32{0}}}
	resp := k.works(req).(*kmsg.DescribeLogDirsResponse)
	dir := resp.Dirs[0]
	k.equal("directory", dir.Dir, "/data")
	k.equal("cordoned", dir.IsCordoned, false)
	if k.version >= 5 {
		for _, value := range []string{"*", ""} {
			alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
			alter.Version = alter.MaxVersion()
			alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
				ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1",
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "cordoned.log.dirs", Value: &value}},
			}}
			k.ask(alter)
			k.equal("cordoned by "+value, k.works(req).(*kmsg.DescribeLogDirsResponse).Dirs[0].IsCordoned, value != "")
		}
	}
	p := dir.Topics[0].Partitions
	k.equal("partitions", len(p), 1)
	k.equal("size", p[0].Size, k.w.partition("seeded", 0).Log().Size())
}

func tryDescribeACLs(k *talk) {
	resp := k.answers(kmsg.NewPtrDescribeACLsRequest(), kafka.ErrSecurityDisabled).(*kmsg.DescribeACLsResponse)
	if text(resp.ErrorMessage) == "" {
		k.t.Error("a refusal without words")
	}
}

func tryCreateACLs(k *talk) {
	req := kmsg.NewPtrCreateACLsRequest()
	req.Creations = make([]kmsg.CreateACLsRequestCreation, 2)
	resp := k.answers(req, kafka.ErrSecurityDisabled).(*kmsg.CreateACLsResponse)
	k.equal("results", len(resp.Results), 2)
}

func tryDeleteACLs(k *talk) {
	req := kmsg.NewPtrDeleteACLsRequest()
	req.Filters = make([]kmsg.DeleteACLsRequestFilter, 2)
	resp := k.answers(req, kafka.ErrSecurityDisabled).(*kmsg.DeleteACLsResponse)
	k.equal("results", len(resp.Results), 2)
}

func tryInitProducerID(k *talk) {
	first := k.works(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
	second := k.works(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
	k.equal("epoch", first.ProducerEpoch, int16(0))
	if first.ProducerID < 0 || first.ProducerID == second.ProducerID {
		k.t.Errorf("ids %d and %d", first.ProducerID, second.ProducerID)
	}
	k.w.must(k.w.ensureTransactionsTopic(k.t.Context())) // As FindCoordinator does.
	id := k.name("tx")
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
	mine := k.works(req).(*kmsg.InitProducerIDResponse)
	k.equal("epoch", mine.ProducerEpoch, int16(0))
	again := k.works(req).(*kmsg.InitProducerIDResponse)
	k.equal("producer", [2]int64{again.ProducerID, int64(again.ProducerEpoch)}, [2]int64{mine.ProducerID, 1})
	if k.version >= 3 {
		req.ProducerID, req.ProducerEpoch = mine.ProducerID, 0
		fenced := kafka.ErrInvalidProducerEpoch
		if k.version >= 4 {
			fenced = kafka.ErrProducerFenced
		}
		k.answers(req, fenced)
		for _, half := range [][2]int64{{-1, 0}, {mine.ProducerID, -1}} {
			req.ProducerID, req.ProducerEpoch = half[0], int16(half[1])
			k.answers(req, kafka.ErrInvalidRequest)
		}
	}
}

func tryDescribeProducers(k *talk) {
	k.w.createTopic(k.name("written"), 1)
	k.produced(produceOf(9, k.name("written"), 0, idempotent(77, 3, 0, "a", "b")))
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: k.name("written"), Partitions: []int32{0}}}
	p := k.works(req).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	k.equal("producers", len(p.ActiveProducers), 1)
	a := p.ActiveProducers[0]
	k.equal("producer", [3]int64{a.ProducerID, int64(a.ProducerEpoch), int64(a.LastSequence)}, [3]int64{77, 3, 1})

	req.Topics[0].Partitions = []int32{9}
	p = k.answers(req, kafka.ErrUnknownTopicOrPartition).(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
	if !strings.Contains(text(p.ErrorMessage), "no partition 9") {
		k.t.Errorf("the message %q does not name the partition", text(p.ErrorMessage))
	}
}

func tryOffsetForLeaderEpoch(k *talk) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.LeaderEpoch = int32(k.w.partition("seeded", 0).LeaderEpoch())
	req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{
		{Topic: "seeded", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}},
	}
	resp := k.works(req).(*kmsg.OffsetForLeaderEpochResponse)
	k.equal("end", resp.Topics[0].Partitions[0].EndOffset, int64(3))
	k.equal("epoch", resp.Topics[0].Partitions[0].LeaderEpoch, p.LeaderEpoch)
}

func tryElectLeaders(k *talk) {
	req := kmsg.NewPtrElectLeadersRequest()
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = "seeded", []int32{0}
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 1000
	resp := k.say(req).(*kmsg.ElectLeadersResponse)
	k.equal("topics", len(resp.Topics), 1)
	k.equal("code", kafka.Code(resp.Topics[0].Partitions[0].ErrorCode), kafka.ErrElectionNotNeeded)
}

func tryAlterReassignments(k *talk) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = "seeded"
	t.Partitions = []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: 0, Replicas: []int32{77}}}
	req.Topics, req.TimeoutMillis = append(req.Topics, t), 1000
	resp := k.say(req).(*kmsg.AlterPartitionAssignmentsResponse)
	k.equal("code", kafka.Code(resp.Topics[0].Partitions[0].ErrorCode), kafka.ErrInvalidReplicaAssignment)
}

func tryListReassignments(k *talk) {
	resp := k.works(kmsg.NewPtrListPartitionReassignmentsRequest()).(*kmsg.ListPartitionReassignmentsResponse)
	k.equal("topics", len(resp.Topics), 0)
}

func tryDescribeQuorum(k *talk) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}
	req.Topics = append(req.Topics, t)
	p := k.works(req).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	k.equal("leader", p.LeaderID, int32(k.w.services.NodeID))
	k.equal("voters", len(p.CurrentVoters), 1)
}

func tryUnregisterBroker(k *talk) {
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = 77
	k.answers(req, kafka.ErrBrokerIDNotRegistered)
}

func tryAddRaftVoter(k *talk) {
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.VoterID, req.TimeoutMillis = 1, 1000
	k.answers(req, kafka.ErrDuplicateVoter)
}

func tryRemoveRaftVoter(k *talk) {
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.VoterID = 77
	k.answers(req, kafka.ErrVoterNotFound)
}
