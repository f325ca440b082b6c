package group_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// run runs one command of a script. Common arguments: group=g, version=N, and
// as=NAME for who is answered.
func (w *world) run(a *args) error {
	req := w.request(a)
	if req != nil {
		version := int64(req.MaxVersion())
		switch kmsg.Key(req.Key()) { // The last ones with topic names.
		case kmsg.OffsetCommit, kmsg.OffsetFetch:
			version = 9
		case kmsg.TxnOffsetCommit:
			version = 5
		}
		req.SetVersion(int16(a.num("version", version)))
		w.handle(a, req)
		return nil
	}
	switch a.d.Cmd {
	case "members":
		w.members(a)
	case "describe":
		g := w.shard.DescribeGroup(int16(a.num("version", 6)), a.str("group", "g"))
		w.printf("%s\n", showDescribed(&g))
	case "list":
		for _, g := range w.shard.List(nil, a.list("states"), a.list("types")) {
			w.printf("%s type=%s state=%s protocol-type=%q\n",
				g.Group, g.GroupType, g.GroupState, g.ProtocolType)
		}
	case "delete":
		w.step(func(fx *shard.Effects) {
			w.shard.DeleteGroup(w.context(a), int16(a.num("version", 3)), a.str("group", "g"), fx)
		})
	case "end": // producer=N, and commit or not.
		w.end(kafka.ProducerID(a.num("producer", 7)), a.has("commit"))
	case "advance":
		w.advance(mustDuration(a.d.CmdArgs[0].Key))
	case "set-clock":
		by := mustDuration(a.d.CmdArgs[0].Key).Milliseconds()
		w.nowMs += by
		w.shard.ClockSet(by)
	case "reject":
		w.reject = kafka.Code(a.num("code", int64(kafka.ErrCoordinatorNotAvailable)))
	case "reload":
		w.step(func(fx *shard.Effects) { w.shard.Unloaded(fx, kafka.ErrNotCoordinator) })
		w.shard = w.replayed()
	case "settings":
		w.configure(a)
	case "topic":
		name := a.d.CmdArgs[0].Key
		w.topics[name] = topicEntry{byte(a.num("id", 0)), int32(a.num("partitions", 1))}
	case "topic-deleted":
		name := a.d.CmdArgs[0].Key
		delete(w.topics, name)
		w.shard.TopicDeleted(name, topicID(byte(a.num("id", 0))))
		w.advance(0)
	case "offsets":
		for _, o := range w.shard.Offsets(a.str("group", "g"), w.knownTopics(), &w.fx) {
			w.printf("%s %d\n", o.TopicPartition, o.Offset.Offset)
		}
	default:
		return errors.New("unknown command " + a.d.Cmd)
	}
	return nil
}

func (w *world) context(a *args) *group.Context {
	return &group.Context{
		NowMs: w.nowMs, Caller: &caller{w, a.str("as", "client")},
		ClientID: a.str("client", "c"), ClientHost: "/127.0.0.1", Topics: w.knownTopics(),
	}
}

// knownTopics is nil, so that all topics are known, unless the script makes
// some.
func (w *world) knownTopics() group.Topics {
	if len(w.topics) == 0 {
		return nil
	}
	return w.topics
}

func (w *world) handle(a *args, req kmsg.Request) {
	w.step(func(fx *shard.Effects) { w.shard.Handle(w.context(a), req, fx) })
}

func (w *world) configure(a *args) {
	s := &w.settings
	s.InitialRebalanceDelay = a.duration("initial-delay", s.InitialRebalanceDelay)
	s.OffsetsRetention = a.duration("retention", s.OffsetsRetention)
	s.RetentionCheck = a.duration("check", s.RetentionCheck)
	s.MaxSize = int(a.num("max-size", int64(s.MaxSize)))
	s.OffsetMetadataMax = int(a.num("metadata-max", int64(s.OffsetMetadataMax)))
	s.MaxPendingMembers = int(a.num("max-pending", int64(s.MaxPendingMembers)))
	w.shard.Configure(*s)
	if a.has("check") {
		w.shard.Loaded(w.nowMs)
	}
}

// members makes a stable group of the members named, without showing how.
func (w *world) members(a *args) {
	w.silent = true
	defer func() { w.silent = false }()
	names := a.list("names")
	saved := w.settings
	w.settings.InitialRebalanceDelay = time.Millisecond
	w.shard.Configure(w.settings)
	first := w.uuids + 1
	for _, name := range names {
		req := w.joinRequest(a)
		req.Version = 3
		c := w.context(a)
		c.ClientID = name
		w.step(func(fx *shard.Effects) { w.shard.JoinGroup(c, req, fx) })
	}
	w.advance(5 * time.Millisecond)
	w.settings = saved
	w.shard.Configure(saved)
	d, _ := w.shard.Describe(a.str("group", "g"))
	for i, name := range names {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.Generation = d.GroupID, d.Generation
		req.MemberID = longIDs(fmt.Sprintf("%s#%d", name, first+i))
		if i == 0 {
			for k, to := range names {
				req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
					MemberID:         longIDs(fmt.Sprintf("%s#%d", to, first+k)),
					MemberAssignment: []byte("for-" + to),
				})
			}
		}
		w.handle(a, req)
	}
	d, _ = w.shard.Describe(a.str("group", "g"))
	w.silent = false
	w.printf("%s generation=%d leader=%s\n", d.State, d.Generation, d.Leader)
}

// request makes the protocol's request that a command stands for, or nil.
func (w *world) request(a *args) kmsg.Request {
	switch a.d.Cmd {
	case "join":
		return w.joinRequest(a)
	case "sync":
		return syncRequest(a)
	case "heartbeat":
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.Generation = a.str("group", "g"), int32(a.num("generation", 1))
		req.MemberID, req.InstanceID = a.str("member", ""), a.strp("instance")
		return req
	case "leave":
		return leaveRequest(a)
	case "commit":
		return commitRequest(a)
	case "txn-commit":
		return txnCommitRequest(a)
	case "fetch":
		return fetchRequest(a)
	case "offset-delete":
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = a.str("group", "g")
		for _, tp := range a.list("partitions") {
			topic, partition := splitPartition(tp)
			req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{
				Topic:      topic,
				Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}},
			})
		}
		return req
	}
	return nil
}

// joinRequest: protocols=(range:t1+t2,sticky:t1) with subscribed topics;
// protocols=(range) subscribes to t; protocols=(range!) sends bytes that are no
// metadata.
func (w *world) joinRequest(a *args) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID = a.str("group", "g"), a.str("member", "")
	req.InstanceID = a.strp("instance")
	req.SessionTimeoutMillis = int32(a.duration("session", 10*time.Second).Milliseconds())
	req.RebalanceTimeoutMillis = int32(a.duration("rebalance", time.Minute).Milliseconds())
	req.ProtocolType = a.str("type", "consumer")
	protocols := a.list("protocols")
	if !a.has("protocols") {
		protocols = []string{"range"}
	}
	for _, p := range protocols {
		if p == "" {
			continue
		}
		name, topics, given := strings.Cut(p, ":")
		if !given {
			topics = "t"
		}
		m := kmsg.NewConsumerMemberMetadata()
		m.Topics = strings.Split(topics, "+")
		metadata := m.AppendTo(nil)
		if strings.HasSuffix(name, "!") {
			name, metadata = name[:len(name)-1], []byte("\x00\x01\x7f\xff\xff\xff")
		}
		req.Protocols = append(req.Protocols,
			kmsg.JoinGroupRequestProtocol{Name: name, Metadata: metadata})
	}
	return req
}

// syncRequest: assign=(c#1=x,c#2=y).
func syncRequest(a *args) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.Generation = a.str("group", "g"), int32(a.num("generation", 1))
	req.MemberID, req.InstanceID = a.str("member", ""), a.strp("instance")
	req.ProtocolType, req.Protocol = a.strp("type"), a.strp("protocol")
	for _, s := range a.list("assign") {
		member, assignment, _ := strings.Cut(s, "=")
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
			MemberID: member, MemberAssignment: []byte(assignment),
		})
	}
	return req
}

// leaveRequest: member=c#1 for old versions, members=(c#1,i:c#2,i:) otherwise.
func leaveRequest(a *args) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = a.str("group", "g"), a.str("member", "")
	for _, s := range a.list("members") {
		m := kmsg.LeaveGroupRequestMember{MemberID: s}
		if instance, member, ok := strings.Cut(s, ":"); ok {
			m.MemberID, m.InstanceID = member, &instance
		}
		req.Members = append(req.Members, m)
	}
	return req
}

// commitRequest: offsets=(t-0@5,t-1@7); ids are used from version 10 on: @ takes
// the topic for an id, as in offsets=(7-0@5).
func commitRequest(a *args) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = a.str("group", "g"), int32(a.num("generation", -1))
	req.MemberID, req.InstanceID = a.str("member", ""), a.strp("instance")
	req.RetentionTimeMillis = a.num("retention", -1)
	version := a.num("version", 9)
	for _, s := range a.list("offsets") {
		tp, offset, _ := strings.Cut(s, "@")
		topic, partition := splitPartition(tp)
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		if version >= 10 {
			n, _ := strconv.Atoi(topic)
			t.Topic, t.TopicID = "", topicID(byte(n))
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Metadata = partition, a.strp("metadata")
		p.Offset, _ = strconv.ParseInt(offset, 10, 64)
		p.LeaderEpoch = int32(a.num("epoch", -1))
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// txnCommitRequest: producer=N, and the rest as of a commit.
func txnCommitRequest(a *args) *kmsg.TxnOffsetCommitRequest {
	commit := commitRequest(a)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.Group = "x", a.num("producer", 7), commit.Group
	req.Generation, req.MemberID, req.InstanceID = commit.Generation, commit.MemberID, commit.InstanceID
	for _, t := range commit.Topics {
		rt := kmsg.TxnOffsetCommitRequestTopic{Topic: t.Topic}
		if a.num("version", 5) >= 6 {
			n, _ := strconv.Atoi(t.Topic)
			rt.Topic, rt.TopicID = "", topicID(byte(n))
		}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.TxnOffsetCommitRequestTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata,
			})
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// fetchRequest: partitions=(t-0,t-1), or all offsets without.
func fetchRequest(a *args) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	version := a.num("version", 9)
	req.Group = a.str("group", "g")
	req.RequireStable = a.has("stable")
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	for _, s := range a.list("partitions") {
		topic, partition := splitPartition(s)
		gt := kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{partition}}
		if version >= 10 {
			n, _ := strconv.Atoi(topic)
			gt.Topic, gt.TopicID = "", topicID(byte(n))
		}
		req.Topics = append(req.Topics,
			kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: []int32{partition}})
		g.Topics = append(g.Topics, gt)
	}
	req.Groups = append(req.Groups, g)
	return req
}

func splitPartition(s string) (string, int32) {
	i := strings.LastIndexByte(s, '-')
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		panic(err)
	}
	return s[:i], int32(n)
}
