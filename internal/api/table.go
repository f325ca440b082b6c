package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/wire"
)

// entry is one row of the table: a request, the versions that work here, and
// what answers it. What stands in the table is advertised, and what is
// advertised works.
type entry struct {
	key      kmsg.Key
	min, max int16
	handle   func(context.Context, *wire.Request) wire.Response
}

// rows lists every request this broker answers. Versions are those of Apache
// Kafka 4.4.
func (s *Services) rows(m *memory) []entry {
	produce := &produceAPI{s: s}
	fetch := newFetchAPI(s, m)
	return []entry{
		{kmsg.Produce, 3, 13, produce.handle},
		{kmsg.Fetch, 4, 18, fetch.handle},
		{kmsg.ListOffsets, 1, 11, unary(m, s.listOffsets)},
		{kmsg.Metadata, 0, 13, unary(m, s.metadata)},
		{kmsg.OffsetCommit, 2, 10, grouped[kmsg.OffsetCommitRequest](s)},
		{kmsg.OffsetFetch, 1, 10, grouped[kmsg.OffsetFetchRequest](s)},
		{kmsg.FindCoordinator, 0, 6, unary(m, s.findCoordinator)},
		{kmsg.JoinGroup, 0, 9, grouped[kmsg.JoinGroupRequest](s)},
		{kmsg.Heartbeat, 0, 4, grouped[kmsg.HeartbeatRequest](s)},
		{kmsg.LeaveGroup, 0, 5, grouped[kmsg.LeaveGroupRequest](s)},
		{kmsg.SyncGroup, 0, 5, grouped[kmsg.SyncGroupRequest](s)},
		{kmsg.DescribeGroups, 0, 6, unary(m, s.describeGroups)},
		{kmsg.ListGroups, 0, 5, unary(m, s.listGroups)},
		{kmsg.ApiVersions, 0, 5, s.anyVersion(unary(m, s.apiVersions))},
		{kmsg.CreateTopics, 2, 7, unary(m, s.createTopics)},
		{kmsg.DeleteTopics, 1, 6, unary(m, s.deleteTopics)},
		{kmsg.DeleteRecords, 0, 2, unary(m, s.deleteRecords)},
		{kmsg.InitProducerID, 0, 5, unary(m, s.initProducerID)},
		{kmsg.AddPartitionsToTxn, 0, 5, unary(m, s.addPartitionsToTxn)},
		{kmsg.AddOffsetsToTxn, 0, 4, unary(m, s.addOffsetsToTxn)},
		{kmsg.EndTxn, 0, 5, unary(m, s.endTxn)},
		{kmsg.WriteTxnMarkers, 1, 2, unary(m, s.writeTxnMarkers)},
		{kmsg.TxnOffsetCommit, 0, 6, s.txnOffsetCommit},
		{kmsg.OffsetForLeaderEpoch, 2, 4, unary(m, s.offsetForLeaderEpoch)},
		{kmsg.DescribeACLs, 1, 3, unary(m, s.describeACLs)},
		{kmsg.CreateACLs, 1, 3, unary(m, s.createACLs)},
		{kmsg.DeleteACLs, 1, 3, unary(m, s.deleteACLs)},
		{kmsg.DescribeConfigs, 1, 4, unary(m, s.describeConfigs)},
		{kmsg.AlterConfigs, 0, 2, unary(m, s.alterConfigs)},
		{kmsg.DescribeLogDirs, 1, 5, unary(m, s.describeLogDirs)},
		{kmsg.CreatePartitions, 0, 3, unary(m, s.createPartitions)},
		{kmsg.DeleteGroups, 0, 3, grouped[kmsg.DeleteGroupsRequest](s)},
		{kmsg.ElectLeaders, 0, 2, unary(m, s.electLeaders)},
		{kmsg.IncrementalAlterConfigs, 0, 1, unary(m, s.incrementalAlterConfigs)},
		{kmsg.AlterPartitionAssignments, 0, 1, unary(m, s.alterReassignments)},
		{kmsg.ListPartitionReassignments, 0, 0, unary(m, s.listReassignments)},
		{kmsg.OffsetDelete, 0, 0, grouped[kmsg.OffsetDeleteRequest](s)},
		{kmsg.DescribeQuorum, 0, 2, unary(m, s.describeQuorum)},
		{kmsg.DescribeCluster, 0, 2, unary(m, s.describeCluster)},
		{kmsg.DescribeProducers, 0, 0, unary(m, s.describeProducers)},
		{kmsg.DescribeTransactions, 0, 0, unary(m, s.describeTransactions)},
		{kmsg.ListTransactions, 0, 2, unary(m, s.listTransactions)},
		{kmsg.UnregisterBroker, 0, 0, unary(m, s.unregisterBroker)},
		{kmsg.AddRaftVoter, 0, 1, unary(m, s.addRaftVoter)},
		{kmsg.RemoveRaftVoter, 0, 0, unary(m, s.removeRaftVoter)},
		{kmsg.DescribeTopicPartitions, 0, 0, unary(m, s.describeTopicPartitions)},
	}
}

// api is the row as package wire takes it.
func (e entry) api() wire.API {
	return wire.API{
		Name: e.key.Name(), Key: e.key.Int16(), Min: e.min, Max: e.max,
		FlexibleFrom: flexibleFrom(e.key), Handle: e.handle,
		Quick:    e.key == kmsg.Produce || e.key == kmsg.Fetch,
		LongPoll: e.key == kmsg.Fetch, Small: !isWide(e.key),
	}
}

// advertisedAs is the row as ApiVersions tells of it.
func advertisedAs(a wire.API) kmsg.ApiVersionsResponseApiKey {
	return kmsg.ApiVersionsResponseApiKey{ApiKey: a.Key, MinVersion: a.Min, MaxVersion: a.Max}
}

// Table returns what answers each request, by its key.
func (s *Services) Table() map[int16]wire.API {
	s.divideMemory()
	rows := s.rows(s.memory)
	apis := make(map[int16]wire.API, len(rows))
	for _, row := range rows {
		s.errors.add(row.key)
		a := row.api()
		a.Handle = s.noticed(row)
		apis[a.Key] = a
		s.versions = append(s.versions, advertisedAs(a))
	}
	return apis
}

// noticed tells Reach of a request with which a client begins to work.
func (s *Services) noticed(row entry) func(context.Context, *wire.Request) wire.Response {
	if s.Reach == nil || row.key == kmsg.ApiVersions || row.key == kmsg.Metadata {
		return row.handle
	}
	return func(ctx context.Context, w *wire.Request) wire.Response {
		s.Reach.Came(w)
		return row.handle(ctx, w)
	}
}
