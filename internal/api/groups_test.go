package api_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// commitOf returns a commit of one offset from outside of a group.
func commitOf(version int16, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = version, "g", -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

// TestCommitTimeout: a commit that is not durable in time says so instead of
// leaving the client to wait, what comes behind it is answered, and the commit
// itself is not lost.
func TestCommitTimeout(t *testing.T) {
	disk := newSlowDisk()
	w := newWorld(t)
	w.settings["offsets.commit.timeout.ms"] = "20"
	w.files = errorfs.Wrap(memfs.New(), disk.inject)
	w.start()
	w.createTopic("t", 1)
	w.must(w.ensureOffsetsTopic(t.Context()))
	c := w.connect()
	if got := codesIn(c.ask(commitOf(8, 1))); got[0] != kafka.ErrNone {
		t.Fatalf("a commit on a disk that works: %v", got)
	}
	close(disk.on)
	late, behind := c.send(commitOf(8, 2)), c.send(kmsg.NewPtrDescribeClusterRequest())
	if got := codesIn(c.receive(late)); got[0] != kafka.ErrCoordinatorNotAvailable {
		t.Errorf("a commit on a disk that hangs: %v", got)
	}
	c.receive(behind)
	close(disk.gate)
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Group = 7, "g"
	fetch.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	got := c.ask(fetch).(*kmsg.OffsetFetchResponse)
	if len(got.Topics) != 1 || got.Topics[0].Partitions[0].Offset != 2 {
		t.Errorf("the offset is %+v, want 2", got)
	}
}

// TestSyncTimeout: so does an assignment. The client joins again, or finds what it
// assigned in effect.
func TestSyncTimeout(t *testing.T) {
	disk := newSlowDisk()
	w := newWorld(t)
	w.settings["offsets.commit.timeout.ms"] = "20"
	w.files = errorfs.Wrap(memfs.New(), disk.inject)
	w.start()
	w.must(w.ensureOffsetsTopic(t.Context()))
	c := w.connect()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 60_000, 60_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	joined := c.ask(join).(*kmsg.JoinGroupResponse)
	if joined.ErrorCode != 0 || joined.LeaderID != joined.MemberID {
		t.Fatalf("joined: %+v", joined)
	}
	close(disk.on)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID = 3, "g", joined.Generation, joined.MemberID
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{
		{MemberID: joined.MemberID, MemberAssignment: []byte("all")},
	}
	synced := c.ask(sync).(*kmsg.SyncGroupResponse)
	if kafka.Code(synced.ErrorCode) != kafka.ErrCoordinatorNotAvailable || len(synced.MemberAssignment) > 0 {
		t.Errorf("an assignment on a disk that hangs: %+v", synced)
	}
	close(disk.gate)
	synced = c.ask(sync).(*kmsg.SyncGroupResponse)
	if synced.ErrorCode != 0 || string(synced.MemberAssignment) != "all" {
		t.Errorf("after it went on: %+v", synced)
	}
}
