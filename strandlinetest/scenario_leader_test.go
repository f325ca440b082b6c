package strandlinetest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/strandlinetest"
)

// Scenario 18: the leader is paused with the requests of a producer and of a reader in its
// sockets, and goes on when another leads. What it then appends is acknowledged by nobody and
// read by nobody, and it does not tell where its own log ends for where the other's does.
func TestZombieWithQueuedRequests(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 1)
	zombie := c.Leader("orders", 0)
	c.Pause(zombie)
	// These go to the zombie alone, and wait in its socket.
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[zombie-1]))
	defer direct.Close()
	answers := make(chan error, 1)
	go func() { answers <- produceTo(t.Context(), direct, zombie, "orders", valueOfNobody) }()
	type end struct {
		offset int64
		err    error
	}
	ends := make(chan end, 1)
	go func() {
		offset, err := latest(t, c, zombie, 0, kgo.RequestTimeoutOverhead(20*time.Second))
		ends <- end{offset, err}
	}()
	c.Await("another leader", func() bool { l := c.Leader("orders", 0); return l != zombie && l != 0 })
	r.awaitMore(100)
	acked := int64(r.history.AckedCount())
	c.Resume(zombie)
	if e := <-ends; e.err == nil && e.offset < acked {
		t.Errorf("a zombie says that the log ends at %d, where %d records were acknowledged", e.offset, acked)
	} else {
		t.Logf("the zombie's end: %d, %v", e.offset, e.err)
	}
	if err := <-answers; err == nil {
		t.Error("a zombie acknowledged a record")
	} else {
		t.Logf("the zombie's answer: %v", err)
	}
	r.awaitMore(100)
	r.check()
}

// Scenario 15: a leader that is cut off from the other brokers, not from clients, is
// asked for an offset that its successor's log has, and its own has not. It does not call
// that out of range, which would have a consumer begin anew.
func TestCutOffLeaderIsAskedBeyondItsEnd(t *testing.T) {
	for name, to := range map[string]int{"the active controller": 0, "another": 1} {
		t.Run(name, func(t *testing.T) {
			c := strandlinetest.StartCluster(t, 3)
			r := ride(t, c, "orders", 1)
			zombie := 1 + (c.Controller()-1+to)%3
			c.MoveLeader("orders", 0, zombie)
			askBeyondTheEnd(t, c, r, zombie)
		})
	}
}

func askBeyondTheEnd(t *testing.T, c *strandlinetest.Cluster, r *rider, zombie int) {
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[zombie-1]))
	defer direct.Close()
	fetch := func(from int64) error {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxWaitMillis = 12, 10
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = "orders"
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = from, 1<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := direct.SeedBrokers()[0].Request(t.Context(), pinnedFetch{req})
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode)
	}
	const beyond = 1 << 40
	c.Await("it is beyond the end of the log", func() bool { return errors.Is(fetch(beyond), kerr.OffsetOutOfRange) })
	c.Await("it tells the latest offset", func() bool { _, err := latest(t, c, zombie, 0); return err == nil })
	c.Isolate(zombie)
	c.Await("another leader", func() bool { l := c.Leader("orders", 0); return l != zombie && l != 0 })
	r.awaitMore(100)
	if err := fetch(beyond); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("beyond the end of the log of a leader that was replaced: %v", err)
	}
	if offset, err := latest(t, c, zombie, 0); !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Errorf("the latest offset of a leader that was replaced: %d, %v", offset, err)
	}
	if err := askForEpoch(t.Context(), direct, c.Epoch("orders", 0)); !errors.Is(err, kerr.UnknownLeaderEpoch) {
		t.Errorf("the end of the successor's leader epoch: %v", err)
	}
	if err := fetch(0); err != nil {
		t.Errorf("what a leader that was replaced has is as good as ever: %v", err)
	}
	c.Heal()
	r.awaitMore(100)
	r.check()
}

// askForEpoch asks a node, and nobody else, where a leader epoch ends.
func askForEpoch(ctx context.Context, direct *kgo.Client, epoch int) error {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = "orders"
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, int32(epoch)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := direct.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode)
}

// pinnedFetch is a fetch request of a version with names of topics.
type pinnedFetch struct{ *kmsg.FetchRequest }

// MaxVersion implements kmsg.Request.
func (pinnedFetch) MaxVersion() int16 { return 12 }

// valueOfNobody is a value that no rider writes.
const valueOfNobody = 1 << 60

// Scenarios 21 and 23: leadership goes to and fro while records are on their way, and a
// client that asks for the latest offset all the time never sees it go back.
func TestLatestOffsetNeverFalls(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := ride(t, c, "orders", 1)
	ctx, stop := context.WithCancel(t.Context())
	asked := make(chan int)
	go func() { asked <- askLatest(ctx, t, c, "orders") }() // Ends with stop.
	for range 8 {
		for id := 1; id <= 3; id++ {
			c.MoveLeader("orders", 0, id)
		}
	}
	stop()
	t.Logf("asked %d times", <-asked)
	r.check()
}

// askLatest asks for the latest offset of partition 0, until ctx ends.
func askLatest(ctx context.Context, t *testing.T, c *strandlinetest.Cluster, topic string) (times int) {
	adm := admin(t, c)
	highest := int64(-1)
	for ctx.Err() == nil {
		ends, err := adm.ListEndOffsets(ctx, topic)
		o, ok := ends.Lookup(topic, 0)
		if err != nil || !ok || o.Err != nil {
			continue
		}
		times++
		if o.Offset < highest {
			t.Errorf("the latest offset fell from %d to %d", highest, o.Offset)
		}
		highest = max(highest, o.Offset)
	}
	return times
}

// Scenario 25: two of three replicas are gone, and an operator has the third lead, which
// was out of sync. What is lost is said with offsets, the partition takes records again,
// and the others are made equal when they are back.
func TestUncleanElection(t *testing.T) {
	c := strandlinetest.StartCluster(t, 5, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"))
	watch(t, c, "orders", 1, "min.insync.replicas", "1")
	cl := dial(t, c, kgo.DefaultProduceTopic("orders"))
	defer cl.Close()
	produce := func(values ...string) {
		t.Helper()
		for _, v := range values {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord(v)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	replicas := c.Replicas("orders", 0)
	leader, other, last := replicas[0], replicas[1], replicas[2]
	c.MoveLeader("orders", 0, leader)
	produce("everywhere")
	c.AwaitInSync()
	c.Cut(last, leader)
	produce("lost 1", "lost 2") // The first waits for the one cut off to leave the ISR.
	if slices.Contains(c.InSync("orders", 0), last) {
		t.Fatalf("acknowledged without node %d, which is in sync", last)
	}
	c.Kill(leader, other)
	c.Heal()
	c.Await("nobody leads", func() bool { return c.Leader("orders", 0) == 0 })
	epoch := c.Epoch("orders", 0)
	c.Await("an unclean election", func() bool {
		elected, err := electUnclean(t.Context(), admin(t, c), "orders")
		return err == nil && elected && c.Leader("orders", 0) == last
	})
	if c.Epoch("orders", 0) <= epoch {
		t.Errorf("the leader epoch is %d, as before the election", epoch)
	}
	produce("after")
	c.Restart(leader, other)
	c.AwaitInSync()
	// The new leader has offset 0 alone, and what the others have of 1 and 2 goes.
	for line, want := range map[string]string{
		"a leader was elected that may lack acknowledged records": "",
		"this broker leads without having been in sync":           " log_end=1\n",
		"the log is cut where it parts from the leader's":         " from=3 to=1",
	} {
		if !slices.ContainsFunc(strings.SplitAfter(c.Log(), "\n"), func(l string) bool {
			return strings.Contains(l, line) && strings.Contains(l, want)
		}) {
			t.Errorf("nothing says: %s%s\n%s", line, want, c.Log())
		}
	}
	dir := c.LogDir("orders", 0)
	c.Stop(1, 2, 3, 4, 5)
	for _, id := range replicas {
		if got := string(c.Segments(id, dir)); got != string(c.Segments(last, dir)) || strings.Contains(got, "lost") {
			t.Errorf("nodes %d and %d have different logs", id, last)
		}
	}
}

// electUnclean asks for a leader whatever it lacks.
func electUnclean(ctx context.Context, adm *kadm.Client, topic string) (bool, error) {
	var set kadm.TopicsSet
	set.Add(topic, 0)
	results, err := adm.ElectLeaders(ctx, kadm.ElectLiveReplica, set)
	if err != nil {
		return false, err
	}
	for _, partitions := range results {
		for _, p := range partitions {
			if p.Err != nil && !errors.Is(p.Err, kerr.ElectionNotNeeded) {
				return false, p.Err
			}
		}
	}
	return true, nil
}

// Scenario 26: partitions are moved from node to node under load, while nodes are killed
// and cut off.
func TestReassignmentUnderLoad(t *testing.T) {
	c := strandlinetest.StartCluster(t, 4, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"))
	r := ride(t, c, "orders", 2)
	adm := admin(t, c)
	for round := range 4 {
		var req kadm.AlterPartitionAssignmentsReq
		var to []int32
		for i := range 3 {
			to = append(to, int32(1+(round+1+i)%4))
		}
		for p := range r.parts {
			req.Assign("orders", p, to)
		}
		if _, err := adm.AlterPartitionAssignments(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		newcomer, leader := int(to[2]), c.Leader("orders", 0)
		switch round {
		case 0:
			c.Kill(newcomer)
			r.awaitMore(100)
			c.Restart(newcomer)
		case 1:
			c.Kill(leader)
			r.awaitMore(100)
			c.Restart(leader)
		case 2:
			c.Cut(newcomer, leader)
			r.awaitMore(100)
			c.Heal()
		}
		c.Await(fmt.Sprintf("round %d: replicas are %v", round, to), func() bool { return c.ReplicasAre("orders", r.parts, to) })
		r.awaitMore(100)
	}
	r.check() // As the last round leaves it: node 4 has none.
}

// Scenario 27: a topic is deleted and made again while a node and clients are away. None
// of the old records is seen again, the old replica is none of the new topic's, and the
// offsets that a group has committed in the old one are not taken for offsets of the new
// one. What a producer has for the old one does not come into the new one.
func TestTopicMadeAgainMeanwhile(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	adm := admin(t, c)
	create := func() {
		t.Helper()
		if _, err := adm.CreateTopic(t.Context(), 1, 3, nil, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	lasting := dial(t, c, kgo.DefaultProduceTopic("orders"))
	defer lasting.Close()
	produce := func(cl *kgo.Client, n int, what string) {
		t.Helper()
		for i := range n {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(what, " ", i))).FirstErr(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	create()
	produce(lasting, 50, "old")
	member := func() *kgo.Client {
		return dial(t, c, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	before := member()
	readOrders(t, before, "old", 50)
	if err := before.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	before.Close()
	c.AwaitInSync()
	old := c.LogDir("orders", 0)
	c.Stop(3)
	if _, err := adm.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	create()
	newcomer := dial(t, c, kgo.DefaultProduceTopic("orders"))
	defer newcomer.Close()
	produce(newcomer, 5, "new")
	c.Restart(3)
	c.AwaitInSync()
	c.MoveLeader("orders", 0, 3) // Which had the old one.
	produce(newcomer, 5, "new")
	// This client takes no other topic for the one that it knows, before it is told to.
	if err := lasting.ProduceSync(t.Context(), kgo.StringRecord("old")).FirstErr(); !errors.Is(err, kerr.UnknownTopicID) {
		t.Errorf("a record for the old topic: %v", err)
	}
	lasting.PurgeTopicsFromClient("orders")
	produce(lasting, 5, "new")
	after := member()
	defer after.Close()
	readOrders(t, after, "new", 15)
	c.Await("the old replica goes", func() bool { _, err := c.Disk(3).Stat(old); return err != nil })
}

// readOrders reads a number of records that begin with a word, from offset 0 on.
func readOrders(t *testing.T, cl *kgo.Client, what string, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for next := int64(0); next < n; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records of %q were read: %v", next, n, what, fetches.Err())
		}
		for rec := range fetches.RecordsAll() {
			if rec.Offset != next || !strings.HasPrefix(string(rec.Value), what) {
				t.Fatalf("record %q at offset %d, want one of %q at %d", rec.Value, rec.Offset, what, next)
			}
			next++
		}
	}
}

// produceTo sends one record to one node, whoever leads, and returns what it answers.
func produceTo(ctx context.Context, cl *kgo.Client, node int, topic string, value uint64) error {
	_, err := produceBatch(ctx, cl, node, topic, batchOf(value))
	return err
}

// produceBatch sends a batch for partition 0 to one node, whoever leads, and returns the
// base offset that it answers.
func produceBatch(ctx context.Context, cl *kgo.Client, node int, topic string, batch []byte) (int64, error) {
	return produceRequest(ctx, cl, node, topic, nil, batch)
}

// produceTransactional is produceBatch for a batch of a transactional id's.
func produceTransactional(ctx context.Context, cl *kgo.Client, node int, id string, batch []byte) (int64, error) {
	return produceRequest(ctx, cl, node, "orders", &id, batch)
}

func produceRequest(
	ctx context.Context, cl *kgo.Client, node int, topic string, id *string, batch []byte,
) (int64, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = 12, -1, 10_000, id
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	resp, err := cl.Broker(node).Request(ctx, pinned{req})
	if err != nil {
		return -1, err
	}
	answer := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return answer.BaseOffset, kerr.ErrorForCode(answer.ErrorCode)
}

// batchOf returns a batch of one record.
func batchOf(value uint64) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(time.Now().UnixMilli(), nil, binary.BigEndian.AppendUint64(nil, value), nil)
	return b.Build()
}

// pinned is a produce request of a version with names of topics.
type pinned struct{ *kmsg.ProduceRequest }

// MaxVersion implements kmsg.Request.
func (pinned) MaxVersion() int16 { return 12 }
