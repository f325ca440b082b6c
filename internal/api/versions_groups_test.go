package api_test

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

func joinOf(group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1}}}
	return req
}

// joined makes a group of one member, in the version at hand of JoinGroup 4 and
// SyncGroup 3, and returns the member and its generation.
func (k *talk) joined(group string) (string, int32) {
	k.t.Helper()
	join := joinOf(group, "")
	join.Version = 4
	join.MemberID = k.ask(join).(*kmsg.JoinGroupResponse).MemberID
	in := k.ask(join).(*kmsg.JoinGroupResponse)
	k.equal("code of the join", kafka.Code(in.ErrorCode), kafka.ErrNone)
	sync := syncOf(group, in.MemberID, in.Generation)
	sync.Version = 3
	k.equal("code of the sync", kafka.Code(k.ask(sync).(*kmsg.SyncGroupResponse).ErrorCode), kafka.ErrNone)
	return in.MemberID, in.Generation
}

func syncOf(group, member string, generation int32) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	kind, protocol := "consumer", "range"
	req.ProtocolType, req.Protocol = &kind, &protocol
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{
		{MemberID: member, MemberAssignment: []byte("mine")},
	}
	return req
}

func tryJoinGroup(k *talk) {
	group := k.name("joined")
	join := joinOf(group, "")
	if k.version >= 4 {
		join.MemberID = k.answers(join, kafka.ErrMemberIDRequired).(*kmsg.JoinGroupResponse).MemberID
	}
	resp := k.works(join).(*kmsg.JoinGroupResponse)
	k.equal("leader", resp.LeaderID, resp.MemberID)
	k.equal("generation", resp.Generation, int32(1))
	k.equal("protocol", text(resp.Protocol), "range")
	k.equal("members", len(resp.Members), 1)
	k.equal("metadata", string(resp.Members[0].ProtocolMetadata), "\x00\x01")
}

func trySyncGroup(k *talk) {
	group := k.name("synced")
	member, generation := k.joined(group)
	resp := k.works(syncOf(group, member, generation)).(*kmsg.SyncGroupResponse)
	k.equal("assignment", string(resp.MemberAssignment), "mine")
	k.answers(syncOf(group, member, generation+1), kafka.ErrIllegalGeneration)
}

func tryHeartbeat(k *talk) {
	group := k.name("beating")
	member, generation := k.joined(group)
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	k.works(req)
	req.Generation++
	k.answers(req, kafka.ErrIllegalGeneration)
}

func tryLeaveGroup(k *talk) {
	group := k.name("left")
	member, generation := k.joined(group)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member}}
	k.works(req)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID, beat.Generation = 4, group, member, generation
	k.equal("code of the heartbeat", kafka.Code(k.ask(beat).(*kmsg.HeartbeatResponse).ErrorCode), kafka.ErrUnknownMemberID)
}

// committing makes a request that commits offset 2 of seeded-0.
func (k *talk) committing(group string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = 2, new("note")
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = "seeded", k.seeded.ID
	t.Partitions = []kmsg.OffsetCommitRequestTopicPartition{p}
	req.Topics = append(req.Topics, t)
	return req
}

// commit commits offset 2 of seeded-0.
func (k *talk) commit(group string) {
	k.t.Helper()
	req := k.committing(group)
	req.Version = 8
	for _, code := range codesIn(k.ask(req)) {
		k.equal("code of the commit", code, kafka.ErrNone)
	}
}

func tryOffsetCommit(k *talk) {
	resp := k.works(k.committing(k.name("committed"))).(*kmsg.OffsetCommitResponse)
	k.equal("partitions", len(resp.Topics[0].Partitions), 1)
	if k.version >= 10 {
		k.equal("topic id", kafka.TopicID(resp.Topics[0].TopicID), k.seeded.ID)
	} else {
		k.equal("topic", resp.Topics[0].Topic, "seeded")
	}
}

func tryOffsetFetch(k *talk) {
	group := k.name("fetched")
	k.commit(group)
	req := kmsg.NewPtrOffsetFetchRequest()
	if k.version < 8 {
		req.Group = group
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "seeded", Partitions: []int32{0}}}
		p := k.works(req).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0]
		k.equal("offset", p.Offset, int64(2))
		k.equal("metadata", text(p.Metadata), "note")
		return
	}
	for range 2 { // Of one group and of two: they go different ways.
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = "seeded", k.seeded.ID, []int32{0}
		g.Topics = append(g.Topics, t)
		req.Groups = append(req.Groups, g)
		resp := k.works(req).(*kmsg.OffsetFetchResponse)
		k.equal("groups", len(resp.Groups), len(req.Groups))
		for _, rg := range resp.Groups {
			k.equal("offset", rg.Topics[0].Partitions[0].Offset, int64(2))
		}
	}
}

func tryOffsetDelete(k *talk) {
	group := k.name("forgotten")
	k.commit(group)
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	req.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "seeded", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
	}
	k.works(req)
}

func tryDescribeGroups(k *talk) {
	group := k.name("described")
	member, _ := k.joined(group)
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	g := k.works(req).(*kmsg.DescribeGroupsResponse).Groups[0]
	k.equal("state", g.State, "Stable")
	k.equal("member", g.Members[0].MemberID, member)
	k.equal("client", g.Members[0].ClientID, "test")

	req.Groups = []string{"never-seen"}
	want := kafka.ErrNone
	if k.version >= 6 {
		want = kafka.ErrGroupIDNotFound
	}
	g = k.answers(req, want).(*kmsg.DescribeGroupsResponse).Groups[0]
	k.equal("state", g.State, "Dead")
}

func tryListGroups(k *talk) {
	group := k.name("listed")
	k.joined(group)
	req := kmsg.NewPtrListGroupsRequest()
	if k.version >= 4 {
		req.StatesFilter = []string{"Stable"}
	}
	if k.version >= 5 {
		req.TypesFilter = []string{"classic"}
	}
	for _, g := range k.works(req).(*kmsg.ListGroupsResponse).Groups {
		if g.Group == group {
			return
		}
	}
	k.t.Errorf("group %s is not listed", group)
}

func tryDeleteGroups(k *talk) {
	group := k.name("gone")
	k.commit(group)
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	k.works(req)
	k.answers(req, kafka.ErrGroupIDNotFound)
}
