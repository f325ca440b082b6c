package strandlinetest_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
)

// TestMembersReadOn: a majority of the voters is gone, and with them a replica in sync of a
// group's partition of __consumer_offsets. Its coordinator can commit nothing, and there is no
// other. A member keeps its partitions, and reads what is written, for longer than its session
// lasts, and when another wants to join, or leaves; whoever seeks the coordinator again after a commit was refused is sent away first,
// and told of this one when it goes on asking.
func TestMembersReadOn(t *testing.T) {
	const session = 2 * time.Second
	c := strandlinetest.StartCluster(t, 5,
		strandlinetest.WithSetting("default.replication.factor", "2"),
		strandlinetest.WithSetting("min.insync.replicas", "2"),
		strandlinetest.WithSetting("offsets.topic.replication.factor", "2"),
		strandlinetest.WithSetting("group.min.session.timeout.ms", "500"),
	)
	if _, err := admin(t, c).CreateTopic(t.Context(), 1, 2, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	coordinated(t, c, "warm-up")
	c.AwaitInSync()
	left := c.Replicas("orders", 0)
	group := named(t, c, metadata.OffsetsTopic, func(replicas []int, leader int) bool {
		return slices.Contains(left, leader) &&
			slices.ContainsFunc(replicas, func(id int) bool { return !slices.Contains(left, id) })
	})
	coordinator := c.Leader(metadata.OffsetsTopic, c.GroupPartition(group, int32(c.Partitions(metadata.OffsetsTopic))))
	var lost atomic.Int32
	gone := func(context.Context, *kgo.Client, map[string][]int32) { lost.Add(1) }
	reader := dial(t, c, kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/10), kgo.OnPartitionsLost(gone),
		kgo.OnPartitionsRevoked(gone), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.CloseAllowingRebalance()
	writer := dial(t, c, kgo.DefaultProduceTopic("orders"))
	defer writer.Close()
	next := int64(0)
	step := func() {
		t.Helper()
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Value: []byte("a record")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		patient, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for before := next; next == before; {
			fetches := reader.PollFetches(patient)
			if patient.Err() != nil {
				t.Fatalf("record %d is not read; partitions were lost %d times: %v", next, lost.Load(), fetches.Err())
			}
			for rec := range fetches.RecordsAll() {
				if rec.Offset != next {
					t.Fatalf("read %d, want %d", rec.Offset, next)
				}
				next++
			}
		}
	}
	step()
	if err := reader.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	committedAt := next
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[coordinator-1]), kgo.MaxVersions(kversion.V3_9_0()))
	defer direct.Close()
	var others []int
	for id := 1; id <= 5; id++ {
		if !slices.Contains(left, id) {
			others = append(others, id)
		}
	}
	c.Kill(others...)
	c.Await("who asks for the coordinator is sent away", func() bool {
		step()
		return errors.Is(found(t, direct, group), kerr.CoordinatorNotAvailable)
	})
	stranger := dial(t, c, kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/10))
	defer stranger.CloseAllowingRebalance()
	c.Await("who wants to join is refused", func() bool {
		step()
		return errors.Is(joined(t, direct, group), kerr.NotCoordinator)
	})
	began := time.Now()
	for found(t, direct, group) != nil {
		step()
		if took := time.Since(began); took > 2*session {
			t.Fatalf("who asks for the coordinator was sent away for %v", took)
		}
	}
	for time.Since(began) < 3*session {
		step()
	}
	if n := lost.Load(); n > 0 {
		t.Errorf("the member lost its partitions %d times", n)
	}
	t.Logf("%d records were read", next)
	c.Restart(others...)
	c.AwaitInSync()
	c.Await("what was committed before is told", func() bool {
		at, err := admin(t, c).FetchOffsets(t.Context(), group)
		o, ok := at.Lookup("orders", 0)
		return err == nil && ok && o.At == committedAt
	})
	step()
	c.Await("the member commits again", func() bool { return reader.CommitUncommittedOffsets(t.Context()) == nil })
}

// joined returns what a client's first seed says to a new member of a group.
func joined(t *testing.T, cl *kgo.Client, group string) error {
	t.Helper()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, "consumer", 2000, 2000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name = "cooperative-sticky"
	req.Protocols = append(req.Protocols, protocol)
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.JoinGroupResponse).ErrorCode)
}
