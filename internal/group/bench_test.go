package group_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
)

// BenchmarkCommit is one commit of six partitions, from the request to the
// replayed records.
func BenchmarkCommit(b *testing.B) {
	s := newWorld().shard
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 9, "group", -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "orders"
	for i := range int32(6) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = i, 1<<20
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	c := &group.Context{NowMs: 1_000_000, Caller: collect(func(any) {})}
	var fx shard.Effects
	b.ReportAllocs()
	for b.Loop() {
		fx.Reset()
		s.OffsetCommit(c, req, &fx)
		for _, kv := range fx.Records {
			if err := s.Replay(shard.Record{Key: kv.Key, Value: kv.Value}); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkHeartbeat is one heartbeat in a group of a hundred.
func BenchmarkHeartbeat(b *testing.B) {
	w := newWorld()
	w.silent = true
	for range 100 {
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version = 3
		seedRequest(join)
		handle(w, join)
	}
	d, _ := w.shard.Describe("g")
	req := &kmsg.HeartbeatRequest{Version: 4, Group: "g", Generation: d.Generation, MemberID: d.Leader}
	c := &group.Context{NowMs: w.nowMs, Caller: collect(func(any) {})}
	var fx shard.Effects
	b.ReportAllocs()
	for b.Loop() {
		fx.Reset()
		w.shard.Heartbeat(c, req, &fx)
	}
}
