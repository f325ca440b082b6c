package strandlinetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
)

// pairs is a cluster of five whose partitions have two replicas, both of which must have a
// record: three nodes may go, and with them the quorum, and some partitions miss nothing.
func pairs(t *testing.T) *strandlinetest.Cluster {
	t.Helper()
	return strandlinetest.StartCluster(t, 5,
		strandlinetest.WithSetting("default.replication.factor", "2"),
		strandlinetest.WithSetting("min.insync.replicas", "2"),
		strandlinetest.WithSetting("offsets.topic.replication.factor", "2"),
		strandlinetest.WithSetting("transaction.state.log.replication.factor", "2"),
	)
}

// named returns a name whose partition of an internal topic is as wanted.
func named(t *testing.T, c *strandlinetest.Cluster, topic string, want func(replicas []int, leader int) bool) string {
	t.Helper()
	partitions := int32(c.Partitions(topic))
	for i := range 1000 {
		name := fmt.Sprint("name-", i)
		p := c.GroupPartition(name, partitions)
		if want(c.Replicas(topic, p), c.Leader(topic, p)) {
			return name
		}
	}
	t.Fatalf("no partition of %s is as wanted", topic)
	return ""
}

// TestQuorumLost: a majority of the voters is gone, and all replicas in sync of some
// partitions are left. Those work on as ever: records are written and read, groups commit
// and their members start anew, latest offsets are told, transactions begin and end. What
// lacks a replica in sync is served as far as it is known, and says nothing that might be
// old.
func TestQuorumLost(t *testing.T) {
	c := pairs(t)
	adm := admin(t, c)
	if _, err := adm.CreateTopic(t.Context(), 30, 2, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	first := dial(t, c, kgo.TransactionalID("warm-up"))
	defer first.Close()
	if err := first.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := first.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	coordinated(t, c, "warm-up")
	c.AwaitInSync()
	left := c.Replicas("orders", 0)
	slices.Sort(left)
	whole := func(replicas []int, _ int) bool {
		slices.Sort(replicas)
		return slices.Equal(replicas, left)
	}
	halved := func(replicas []int, leader int) bool {
		return slices.Contains(left, leader) && slices.ContainsFunc(replicas, func(id int) bool { return !slices.Contains(left, id) })
	}
	group, lame := named(t, c, metadata.OffsetsTopic, whole), named(t, c, metadata.OffsetsTopic, halved)
	writer := dial(t, c, kgo.TransactionalID(named(t, c, metadata.TransactionsTopic, whole)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer writer.Close()
	records := 0
	write := func() {
		t.Helper()
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			rec := &kgo.Record{Topic: "orders", Partition: 0, Value: fmt.Append(nil, records)}
			if err := writer.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
			records++
		}
		if err := writer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	write()
	read := func() {
		t.Helper()
		readAsMember(t, c, group, &records)
	}
	read()
	commitOutside(t, c, lame)
	var gone []int
	for id := 1; id <= 5; id++ {
		if !slices.Contains(left, id) {
			gone = append(gone, id)
		}
	}
	c.Kill(gone...)
	c.Await("no broker knows that it leads still", func() bool { return !c.Leased(left[0]) && !c.Leased(left[1]) })
	for range 3 {
		write()
		read()
	}
	t.Run("latest", func(t *testing.T) {
		offset, code := latest(t, c, c.Leader("orders", 0), 0)
		const markers = 4
		if want := int64(records + markers); code != nil || offset != want {
			t.Errorf("the latest offset is %d, want %d: %v", offset, want, code)
		}
	})
	t.Run("latest without a replica in sync", func(t *testing.T) {
		for p := range int32(30) {
			if replicas := c.Replicas("orders", p); halved(replicas, c.Leader("orders", p)) {
				if _, code := latest(t, c, c.Leader("orders", p), p); !errors.Is(code, kerr.NotLeaderForPartition) {
					t.Errorf("the latest offset of partition %d on %v: %v", p, replicas, code)
				}
				return
			}
		}
		t.Error("no partition has one of its replicas left, which leads")
	})
	t.Run("without a replica in sync", func(t *testing.T) {
		p := c.GroupPartition(lame, int32(c.Partitions(metadata.OffsetsTopic)))
		took, code := offsetFetch(t, c, c.Leader(metadata.OffsetsTopic, p), lame)
		if !errors.Is(code, kerr.NotCoordinator) || took > time.Second {
			t.Errorf("after %v: %v", took, code)
		}
	})
}

// readAsMember has a new member of a group read on from what was committed, up to the last
// of as many records as there are, in order, and commit.
func readAsMember(t *testing.T, c *strandlinetest.Cluster, group string, records *int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	adm := admin(t, c)
	c.Await("what the group has committed is told", func() bool {
		before, err := adm.FetchOffsets(ctx, group) // The client may try a node that is gone.
		return err == nil && before.Ok()
	})
	cl := dial(t, c, kgo.ConsumerGroup(group), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	next := *records - 5
	for next < *records {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("read up to %d of %d: %v", next, *records, fetches.Err())
		}
		for rec := range fetches.RecordsAll() {
			if got := string(rec.Value); got != fmt.Sprint(next) {
				t.Fatalf("record %d is %q", next, got)
			}
			next++
		}
	}
	if err := cl.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
}

// commitOutside commits something for a group without members.
func commitOutside(t *testing.T, c *strandlinetest.Cluster, group string) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 1, LeaderEpoch: -1})
	answer, err := admin(t, c).CommitOffsets(t.Context(), group, offsets)
	if err = errors.Join(err, answer.Error()); err != nil {
		t.Fatal(err)
	}
}

// latest asks one broker for the latest offset of a partition.
func latest(t *testing.T, c *strandlinetest.Cluster, id int, partition int32, options ...kgo.Opt) (int64, error) {
	t.Helper()
	cl := dial(t, c, append(options, kgo.SeedBrokers(c.Addrs()[id-1]))...)
	defer cl.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "orders"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		return -1, err
	}
	out := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return out.Offset, kerr.ErrorForCode(out.ErrorCode)
}

// offsetFetch asks one broker for what a group has committed.
func offsetFetch(t *testing.T, c *strandlinetest.Cluster, id int, group string) (time.Duration, error) {
	t.Helper()
	cl := dial(t, c, kgo.SeedBrokers(c.Addrs()[id-1]))
	defer cl.Close()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	req.Groups = append(req.Groups, g)
	began := time.Now()
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		return time.Since(began), err
	}
	return time.Since(began), kerr.ErrorForCode(resp.(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode)
}
