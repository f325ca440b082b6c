package group_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// FuzzReplay: no record crashes a shard, and what it takes in it can run on.
func FuzzReplay(f *testing.F) {
	for _, r := range scriptedRecords() {
		f.Add(r.Key, r.Value)
	}
	f.Add([]byte{0, 2, 0, 1, 'g'}, []byte(nil))
	f.Add([]byte{0, 5, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := newWorld().shard
		for offset := range kafka.Offset(2) {
			_ = s.Replay(shard.Record{Key: key, Value: value, Offset: offset, TimestampMs: 5})
		}
		s.Loaded(1_000)
		for _, g := range s.List(nil, nil, nil) {
			s.DescribeGroup(6, g.Group)
		}
		var fx shard.Effects
		for range 10 {
			if nowMs := s.Deadline(); nowMs != shard.NoDeadline {
				fx.Reset()
				s.Tick(nowMs, &fx)
			}
		}
		s.Unloaded(&fx, kafka.ErrNotCoordinator)
	})
}

// FuzzSubscribedTopics: a stranger's metadata neither crashes us nor makes us
// allocate more than its size.
func FuzzSubscribedTopics(f *testing.F) {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{"t1", "t2"}
	f.Add(m.AppendTo(nil))
	f.Add([]byte("\x00\x01\x7f\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		topics, ok := group.SubscribedTopics(b)
		var m kmsg.ConsumerMemberMetadata
		if err := m.ReadFrom(b); err == nil && ok && !slices.Equal(topics, m.Topics) {
			t.Errorf("kmsg reads %q and we read %q", m.Topics, topics)
		}
		if len(topics) > len(b)/2 {
			t.Errorf("%d topics out of %d bytes", len(topics), len(b))
		}
	})
}

// FuzzAssignedPartitions: the same for assignments.
func FuzzAssignedPartitions(f *testing.F) {
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	f.Add(a.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ps, _ := group.AssignedPartitions(b); len(ps) > len(b)/4 {
			t.Errorf("%d partitions out of %d bytes", len(ps), len(b))
		}
	})
}

// FuzzRequests: whatever a request decodes to, the shard answers or parks it,
// and keeps its invariants.
func FuzzRequests(f *testing.F) {
	kinds := []kmsg.Key{
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.OffsetCommit,
		kmsg.OffsetFetch, kmsg.OffsetDelete,
	}
	for i := range kinds {
		for version := range int16(11) {
			req := kmsg.RequestForKey(kinds[i].Int16())
			req.SetVersion(min(version, req.MaxVersion()))
			seedRequest(req)
			f.Add(uint8(i), version, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, version int16, body []byte) {
		req := kmsg.RequestForKey(kinds[int(kind)%len(kinds)].Int16())
		req.SetVersion(min(max(version, 0), req.MaxVersion()))
		if req.ReadFrom(body) != nil {
			return
		}
		w := newWorld()
		w.silent = true
		for range 2 {
			w.step(func(fx *shard.Effects) {
				w.shard.Handle(&group.Context{NowMs: w.nowMs, Caller: &caller{w, "x"}}, req, fx)
			})
			w.shard.Check()
		}
		group.ErrorResponse(req, kafka.ErrNotCoordinator, "").AppendTo(nil)
		if got, want := w.replayed().Durable(), w.shard.Durable(); got != want {
			t.Errorf("the records rebuild\n%sand not\n%s", got, want)
		}
	})
}

// seedRequest fills in enough that the request does something.
func seedRequest(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		r.Group, r.ProtocolType, r.SessionTimeoutMillis = "g", "consumer", 10_000
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 1}}}
	case *kmsg.SyncGroupRequest:
		r.Group, r.MemberID, r.Generation = "g", "m", 1
	case *kmsg.HeartbeatRequest:
		r.Group, r.MemberID = "g", "m"
	case *kmsg.LeaveGroupRequest:
		r.Group, r.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
	case *kmsg.OffsetCommitRequest:
		r.Group, r.Generation = "g", -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{
			Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 5}},
		}}
	case *kmsg.OffsetFetchRequest:
		r.Group = "g"
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g"}}
	case *kmsg.OffsetDeleteRequest:
		r.Group = "g"
	}
}

// scriptedRecords are records of all kinds and versions that are read.
func scriptedRecords() []shard.Record {
	var all []shard.Record
	for version := range int16(5) {
		k := kmsg.OffsetCommitKey{Version: min(version, 1), Group: "g", Topic: "t", Partition: 3}
		v := kmsg.OffsetCommitValue{
			Version: version, Offset: 7, LeaderEpoch: 2, Metadata: "m", CommitTimestamp: 9,
			ExpireTimestamp: 11, TopicID: [16]byte{1},
		}
		all = append(all, shard.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)})
		gk := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
		gv := kmsg.GroupMetadataValue{
			Version: version, ProtocolType: "consumer", Generation: 4,
			Protocol: kmsg.StringPtr("range"), Leader: kmsg.StringPtr("m"),
			Members: []kmsg.GroupMetadataValueMember{{
				MemberID: "m", ClientID: "c", ClientHost: "/h", InstanceID: kmsg.StringPtr("i"),
				RebalanceTimeoutMillis: 5, SessionTimeoutMillis: 6,
				Subscription: []byte{0, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
				Assignment:   []byte("a"),
			}},
		}
		all = append(all, shard.Record{Key: gk.AppendTo(nil), Value: gv.AppendTo(nil)})
	}
	return all
}

// TestReadsAllVersions: records of every version that Kafka has written are
// understood.
func TestReadsAllVersions(t *testing.T) {
	for _, r := range scriptedRecords() {
		s := newWorld().shard
		if err := s.Replay(r); err != nil {
			t.Fatalf("%x = %x: %v", r.Key, r.Value, err)
		}
		s.Loaded(0)
		if r.Key[1] == 2 {
			d, ok := s.Describe("g")
			if !ok || d.State != group.Stable || d.Generation != 4 || len(d.Members) != 1 ||
				!bytes.Equal(d.Members[0].Assignment, []byte("a")) {
				t.Errorf("version %d: %+v", r.Value[1], d)
			}
			continue
		}
		var fx shard.Effects
		all := s.Offsets("g", nil, &fx)
		if len(all) != 1 || all[0].Partition != 3 ||
			all[0].Offset.Offset != 7 || all[0].Metadata != "m" {
			t.Errorf("version %d: %+v", r.Value[1], all)
		}
	}
}

// TestReadsNoNonsense: what could not have been written is refused, and leaves
// the state alone.
func TestReadsNoNonsense(t *testing.T) {
	group2 := []byte{0, 2, 0, 1, 'g'}
	offset := []byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 0}
	twice := kmsg.GroupMetadataValue{Version: 3, Members: []kmsg.GroupMetadataValueMember{
		{MemberID: "m"}, {MemberID: "m"},
	}}
	for name, r := range map[string]shard.Record{
		"no key":                {Value: []byte{0, 0}},
		"a kind of KIP-848":     {Key: []byte{0, 3, 0, 1, 'g'}, Value: []byte{0, 0}},
		"key cut in the group":  {Key: []byte{0, 2, 0, 5, 'g'}, Value: []byte{0, 0}},
		"key cut in the topic":  {Key: []byte{0, 1, 0, 1, 'g', 0, 9}, Value: []byte{0, 0}},
		"key cut before topic":  {Key: []byte{0, 1, 0, 9, 'g'}, Value: []byte{0, 0}},
		"key too long":          {Key: append(bytes.Clone(group2), 1), Value: []byte{0, 0}},
		"negative length":       {Key: []byte{0, 2, 0xff, 0xff}, Value: []byte{0, 0}},
		"value without version": {Key: group2, Value: []byte{0}},
		"version of tomorrow":   {Key: group2, Value: []byte{0, 9, 0, 0, 0, 0}},
		"value cut":             {Key: group2, Value: []byte{0, 3, 0, 9}},
		"offset value cut":      {Key: offset, Value: []byte{0, 3, 0}},
		"offset of tomorrow":    {Key: offset, Value: []byte{0, 5, 0}},
		"a member twice":        {Key: group2, Value: twice.AppendTo(nil)},
	} {
		s := newWorld().shard
		if err := s.Replay(r); err == nil || err.Error() == "" {
			t.Errorf("%s: no error", name)
		}
		if d := s.Durable(); d != "" {
			t.Errorf("%s: left %s", name, d)
		}
	}
}
