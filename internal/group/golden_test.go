package group_test

import (
	"encoding/hex"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
)

// TestGoldenRecords pins the bytes that go to __consumer_offsets, so that Kafka's
// tools and brokers read them: see docs/format/consumer-offsets.md.
func TestGoldenRecords(t *testing.T) {
	w := newWorld()
	w.silent = true
	w.topics = topics{"t": {id: 9, partitions: 4}}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 9, "g", -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = 3, 258, 7, kmsg.StringPtr("m")
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "t", []kmsg.OffsetCommitRequestTopicPartition{p}
	commit.Topics = append(commit.Topics, topic)
	handle(w, commit)
	expiring := *commit
	expiring.Version, expiring.RetentionTimeMillis = 4, 1000
	handle(w, &expiring)

	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.ProtocolType = 3, "g", "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 60_000
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0xAA}}}
	handle(w, join)
	member := longIDs("c#1")
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID = 5, "g", 1, member
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{
		{MemberID: member, MemberAssignment: []byte{0xBB}},
	}
	handle(w, sync)

	id := hex.EncodeToString([]byte(member))
	want := []struct{ what, key, value string }{
		{
			"offset", "0001" + "000167" + "000174" + "00000003",
			"0004" + "0000000000000102" + "00000007" + "026d" + "00000000000f4240" +
				"01" + "00" + "10" + "00000000000000000000000000000009",
		},
		{
			"offset with an expiry", "0001" + "000167" + "000174" + "00000003",
			"0001" + "0000000000000102" + "00016d" + "00000000000f4240" + "00000000000f4628",
		},
		{
			"group", "0002" + "000167",
			"0003" + "0008" + hex.EncodeToString([]byte("consumer")) + "00000001" +
				"000572616e6765" + "0026" + id + "00000000000f4240" + "00000001" +
				"0026" + id + "ffff" + "000163" + "000a" + hex.EncodeToString([]byte("/127.0.0.1")) +
				"0000ea60" + "00002710" + "00000001aa" + "00000001bb",
		},
	}
	if len(w.log) != len(want) {
		t.Fatalf("%d records, want %d", len(w.log), len(want))
	}
	for i, x := range want {
		if got := hex.EncodeToString(w.log[i].Key); got != x.key {
			t.Errorf("%s key\n got %s\nwant %s", x.what, got, x.key)
		}
		if got := hex.EncodeToString(w.log[i].Value); got != x.value {
			t.Errorf("%s value\n got %s\nwant %s", x.what, got, x.value)
		}
	}
}

func handle(w *world, req kmsg.Request) {
	w.step(func(fx *shard.Effects) {
		w.shard.Handle(&group.Context{
			NowMs: w.nowMs, Caller: &caller{w, "x"}, ClientID: "c", ClientHost: "/127.0.0.1",
			Topics: w.knownTopics(),
		}, req, fx)
	})
}
