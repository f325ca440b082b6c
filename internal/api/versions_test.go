package api_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// talk is a connection on which one version of a request is tried. There is a
// topic "seeded" of two partitions, of which 0 has three records.
type talk struct {
	*client
	w       *world
	version int16
	seeded  *metadata.Topic
}

// say sends a request in the version that is tried.
func (k *talk) say(req kmsg.Request) kmsg.Response {
	k.t.Helper()
	req.SetVersion(k.version)
	return k.ask(req)
}

// works sends a request whose answer must have no code but none.
func (k *talk) works(req kmsg.Request) kmsg.Response {
	k.t.Helper()
	return k.answers(req, kafka.ErrNone)
}

// answers sends a request whose answer must have no code but this one.
func (k *talk) answers(req kmsg.Request, want kafka.Code) kmsg.Response {
	k.t.Helper()
	resp := k.say(req)
	codes := codesIn(resp)
	if slices.ContainsFunc(codes, func(c kafka.Code) bool { return c != want }) {
		k.t.Fatalf("%s version %d: codes %v, want %v; %+v", kmsg.NameForKey(req.Key()), k.version, codes, want, resp)
	}
	return resp
}

// name makes a name that no other version uses.
func (k *talk) name(s string) string { return fmt.Sprintf("%s-%d", s, k.version) }

func (k *talk) equal(what string, got, want any) {
	k.t.Helper()
	if !reflect.DeepEqual(got, want) {
		k.t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestEveryVersion tries each advertised request in each advertised version. A
// row of the table that nobody tries here fails.
func TestEveryVersion(t *testing.T) {
	w := startWorld(t)
	topic := w.createTopic("seeded", 2)
	w.createTopic(metadata.OffsetsTopic, 2, "cleanup.policy=compact")
	w.fill("seeded", 0, "a", "b", "c")
	tries := tries()
	for key, row := range w.table {
		try := tries[kmsg.Key(key)]
		if try == nil {
			t.Errorf("%s is advertised and not tried", kmsg.NameForKey(key))
			continue
		}
		delete(tries, kmsg.Key(key))
		for v := row.Min; v <= row.Max; v++ {
			t.Run(fmt.Sprintf("%s/%d", kmsg.NameForKey(key), v), func(t *testing.T) {
				defer func(outer testing.TB) { w.t = outer }(w.t)
				w.t = t
				try(&talk{client: w.connect(), w: w, version: v, seeded: topic})
			})
		}
	}
	for key := range tries {
		t.Errorf("%s is tried and not advertised", key.Name())
	}
}

// tries says how each request is shown to work.
func tries() map[kmsg.Key]func(*talk) {
	return map[kmsg.Key]func(*talk){
		kmsg.Produce: tryProduce, kmsg.Fetch: tryFetch, kmsg.ListOffsets: tryListOffsets,
		kmsg.Metadata: tryMetadata, kmsg.ApiVersions: tryAPIVersions,
		kmsg.FindCoordinator: tryFindCoordinator, kmsg.DescribeCluster: tryDescribeCluster,
		kmsg.DescribeTopicPartitions: tryDescribeTopicPartitions,

		kmsg.CreateTopics: tryCreateTopics, kmsg.DeleteTopics: tryDeleteTopics,
		kmsg.CreatePartitions: tryCreatePartitions, kmsg.DeleteRecords: tryDeleteRecords,
		kmsg.DescribeConfigs: tryDescribeConfigs, kmsg.AlterConfigs: tryAlterConfigs,
		kmsg.IncrementalAlterConfigs: tryIncrementalAlterConfigs,
		kmsg.DescribeLogDirs:         tryDescribeLogDirs,
		kmsg.DescribeACLs:            tryDescribeACLs, kmsg.CreateACLs: tryCreateACLs, kmsg.DeleteACLs: tryDeleteACLs,
		kmsg.InitProducerID: tryInitProducerID, kmsg.DescribeProducers: tryDescribeProducers,
		kmsg.OffsetForLeaderEpoch: tryOffsetForLeaderEpoch,

		kmsg.OffsetCommit: tryOffsetCommit, kmsg.OffsetFetch: tryOffsetFetch,
		kmsg.OffsetDelete: tryOffsetDelete, kmsg.JoinGroup: tryJoinGroup, kmsg.SyncGroup: trySyncGroup,
		kmsg.Heartbeat: tryHeartbeat, kmsg.LeaveGroup: tryLeaveGroup,
		kmsg.DescribeGroups: tryDescribeGroups, kmsg.ListGroups: tryListGroups,
		kmsg.DeleteGroups: tryDeleteGroups,

		kmsg.AddPartitionsToTxn: tryAddPartitionsToTxn, kmsg.AddOffsetsToTxn: tryAddOffsetsToTxn,
		kmsg.EndTxn: tryEndTxn, kmsg.WriteTxnMarkers: tryWriteTxnMarkers,
		kmsg.TxnOffsetCommit: tryTxnOffsetCommit, kmsg.DescribeTransactions: tryDescribeTransactions,
		kmsg.ListTransactions: tryListTransactions,

		kmsg.ElectLeaders: tryElectLeaders, kmsg.AlterPartitionAssignments: tryAlterReassignments,
		kmsg.ListPartitionReassignments: tryListReassignments, kmsg.DescribeQuorum: tryDescribeQuorum,
		kmsg.UnregisterBroker: tryUnregisterBroker, kmsg.AddRaftVoter: tryAddRaftVoter,
		kmsg.RemoveRaftVoter: tryRemoveRaftVoter,
	}
}

func tryProduce(k *talk) {
	before := k.w.partition("seeded", 1).Log().LogEndOffset()
	req := produceOf(k.version, "seeded", 1, batchOf("x", "y"))
	req.Topics[0].TopicID = k.seeded.ID
	p := onlyProduced(k.t, k.works(req))
	k.equal("base offset", p.BaseOffset, int64(before))
	k.equal("log append time", p.LogAppendTime, int64(-1))
	if k.version >= 5 {
		k.equal("log start offset", p.LogStartOffset, int64(0))
	}
}

// fetchOf makes a request without a session.
func fetchOf(version int16, topic *metadata.Topic, offsets ...kafka.Offset) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = version, 1000, 1, 1<<20
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic.Name, topic.ID
	for i, offset := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(i), int64(offset), 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func tryFetch(k *talk) {
	resp := k.works(fetchOf(k.version, k.seeded, 1)).(*kmsg.FetchResponse)
	rt := resp.Topics[0]
	if k.version >= 13 {
		k.equal("topic id", kafka.TopicID(rt.TopicID), k.seeded.ID)
	} else {
		k.equal("topic", rt.Topic, "seeded")
	}
	rp := rt.Partitions[0]
	k.equal("high watermark", rp.HighWatermark, int64(3))
	k.equal("last stable offset", rp.LastStableOffset, int64(3))
	k.equal("values", valuesIn(k.t, rp.RecordBatches), "b c")
}

func tryListOffsets(k *talk) {
	for timestamp, want := range map[int64]int64{-1: 3, -2: 0, 0: 0} {
		req := kmsg.NewPtrListOffsetsRequest()
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = timestamp
		req.Topics = []kmsg.ListOffsetsRequestTopic{
			{Topic: "seeded", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}},
		}
		resp := k.works(req).(*kmsg.ListOffsetsResponse)
		k.equal("offset", resp.Topics[0].Partitions[0].Offset, want)
	}
}

func tryMetadata(k *talk) {
	name := "seeded"
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp := k.works(req).(*kmsg.MetadataResponse)
	b, t := resp.Brokers[0], resp.Topics[0]
	k.equal("broker", fmt.Sprintln(b.NodeID, b.Host, b.Port), "1 broker.example 9092\n")
	k.equal("topic", *t.Topic, "seeded")
	k.equal("partitions", len(t.Partitions), 2)
	k.equal("leader", t.Partitions[1].Leader, int32(1))
	if k.version >= 10 {
		k.equal("topic id", kafka.TopicID(t.TopicID), k.seeded.ID)
	}
	if k.version >= 12 {
		req.Topics = []kmsg.MetadataRequestTopic{{TopicID: k.seeded.ID}}
		k.equal("topic", *k.works(req).(*kmsg.MetadataResponse).Topics[0].Topic, "seeded")
	}
}

func tryAPIVersions(k *talk) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "go", "1"
	resp := k.works(req).(*kmsg.ApiVersionsResponse)
	k.equal("keys", len(resp.ApiKeys), len(k.w.table))
	for _, a := range resp.ApiKeys {
		row := k.w.table[a.ApiKey]
		k.equal("versions of "+kmsg.NameForKey(a.ApiKey), [2]int16{a.MinVersion, a.MaxVersion}, [2]int16{row.Min, row.Max})
	}
}

func tryFindCoordinator(k *talk) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
	resp := k.works(req).(*kmsg.FindCoordinatorResponse)
	if k.version < 4 {
		k.equal("coordinator", fmt.Sprintln(resp.NodeID, resp.Host, resp.Port), "1 broker.example 9092\n")
		return
	}
	for i, want := range []string{"g 1 broker.example 9092", "h 1 broker.example 9092"} {
		c := resp.Coordinators[i]
		k.equal("coordinator", fmt.Sprint(c.Key, " ", c.NodeID, " ", c.Host, " ", c.Port), want)
	}
}

func tryDescribeCluster(k *talk) {
	resp := k.works(kmsg.NewPtrDescribeClusterRequest()).(*kmsg.DescribeClusterResponse)
	k.equal("cluster", resp.ClusterID, "cluster")
	k.equal("controller", resp.ControllerID, int32(1))
	k.equal("brokers", len(resp.Brokers), 1)
	if k.version >= 1 {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = 2
		k.answers(req, kafka.ErrMismatchedEndpointType)
	}
}

func tryDescribeTopicPartitions(k *talk) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "seeded"}}
	req.ResponsePartitionLimit = 1
	resp := k.works(req).(*kmsg.DescribeTopicPartitionsResponse)
	k.equal("first page", resp.Topics[0].Partitions[0].Partition, int32(0))
	k.equal("cursor", *resp.NextCursor, kmsg.DescribeTopicPartitionsResponseNextCursor{Topic: "seeded", Partition: 1})
	req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "seeded", Partition: 1}
	resp = k.works(req).(*kmsg.DescribeTopicPartitionsResponse)
	k.equal("second page", resp.Topics[0].Partitions[0].Partition, int32(1))
	if resp.NextCursor != nil {
		k.t.Errorf("a third page is promised: %+v", resp.NextCursor)
	}
}
