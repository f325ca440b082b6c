package strandlinetest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/history"
)

// coordinated returns the partition of the offsets topic that a group is on, once there
// is one.
func coordinated(t *testing.T, c *strandlinetest.Cluster, group string) int32 {
	t.Helper()
	adm := admin(t, c)
	partitions := int32(0)
	c.Await("the group has a coordinator", func() bool {
		resp := adm.FindGroupCoordinators(t.Context(), group)
		partitions = int32(c.Partitions(metadata.OffsetsTopic))
		return resp.Error() == nil && partitions > 0
	})
	return c.GroupPartition(group, partitions)
}

// Scenario 38: a group's coordinator moves, and is killed, while offsets are committed.
// What was acknowledged is never told as less.
func TestCoordinatorMovesUnderCommits(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := watch(t, c, "orders", 1)
	partition := coordinated(t, c, "readers")
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	clients.Go(func() { commitOn(ctx, t, c, r.history) })
	clients.Go(func() { lookUp(ctx, t, c, r.history) })
	for round := range 4 {
		for id := 1; id <= 3; id++ {
			c.MoveLeader(metadata.OffsetsTopic, partition, id)
		}
		victim := c.Leader(metadata.OffsetsTopic, partition)
		if round%2 == 0 {
			c.Kill(victim)
		} else {
			c.LosePower(victim)
		}
		c.Await("another coordinator", func() bool {
			l := c.Leader(metadata.OffsetsTopic, partition)
			return l != 0 && l != victim
		})
		c.Restart(victim)
		c.AwaitInSync()
	}
	stop()
	clients.Wait()
	if r.history.Mark() < 20 {
		t.Errorf("only %d commits were acknowledged", r.history.Mark())
	}
	r.verdict()
}

// commitOn commits higher and higher offsets of partition 0 for a group without
// members, until ctx ends.
func commitOn(ctx context.Context, t *testing.T, c *strandlinetest.Cluster, h *history.History) {
	adm := admin(t, c)
	for offset := int64(1); ctx.Err() == nil; offset++ {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: offset, LeaderEpoch: -1})
		answer, err := adm.CommitOffsets(ctx, "readers", offsets)
		if err == nil && answer.Ok() {
			h.Committed("readers", 0, 0, offset)
		}
	}
}

// lookUp asks for the committed offset, until ctx ends.
func lookUp(ctx context.Context, t *testing.T, c *strandlinetest.Cluster, h *history.History) {
	adm := admin(t, c)
	for ctx.Err() == nil {
		began := h.Mark()
		offsets, err := adm.FetchOffsets(ctx, "readers")
		if err != nil || !offsets.Ok() {
			continue
		}
		at := int64(-1)
		if o, ok := offsets.Lookup("orders", 0); ok {
			at = o.At
		}
		h.Fetched(began, "readers", 0, 0, at)
	}
}

// Scenario 38: a coordinator is cut off from the other brokers, not from clients, and
// another has taken over. What it knows is old, so it tells nothing.
func TestCoordinatorCutOff(t *testing.T) {
	for name, to := range map[string]int{"the active controller": 0, "another": 1} {
		t.Run(name, func(t *testing.T) {
			c := strandlinetest.StartCluster(t, 3)
			watch(t, c, "orders", 1)
			partition := coordinated(t, c, "readers")
			zombie := 1 + (c.Controller()-1+to)%3
			c.MoveLeader(metadata.OffsetsTopic, partition, zombie)
			cutOffCoordinator(t, c, partition, zombie)
		})
	}
}

func cutOffCoordinator(t *testing.T, c *strandlinetest.Cluster, partition int32, zombie int) {
	commit := func(offset int64) {
		t.Helper()
		adm := admin(t, c)
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: offset, LeaderEpoch: -1})
		c.Await("a commit", func() bool {
			answer, err := adm.CommitOffsets(t.Context(), "readers", offsets)
			return err == nil && answer.Ok()
		})
	}
	commit(1)
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[zombie-1]))
	defer direct.Close()
	// ask asks the zombie, and nobody else.
	ask := func() (int64, error) {
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "readers"
		req.Groups = append(req.Groups, g)
		resp, err := direct.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			return -1, err
		}
		answer := resp.(*kmsg.OffsetFetchResponse).Groups[0]
		if answer.ErrorCode != 0 {
			return -1, kerr.ErrorForCode(answer.ErrorCode)
		}
		return answer.Topics[0].Partitions[0].Offset, nil
	}
	c.Await("it tells the offset", func() bool { at, err := ask(); return err == nil && at == 1 })
	c.Isolate(zombie)
	c.Await("another coordinator", func() bool {
		l := c.Leader(metadata.OffsetsTopic, partition)
		return l != 0 && l != zombie
	})
	commit(2)
	if at, err := ask(); !errors.Is(err, kerr.NotCoordinator) {
		t.Errorf("a coordinator that was replaced tells offset %d, %v", at, err)
	}
	c.Heal()
	c.AwaitInSync()
	c.MoveLeader(metadata.OffsetsTopic, partition, zombie)
	c.Await("it tells the new offset", func() bool { at, err := ask(); return err == nil && at == 2 })
}

// Scenario 39: members of a group come, leave, and vanish without a word, while
// brokers are killed. A partition has one owner in a generation, and in the end every
// record was given out and the group is stable.
func TestRebalanceStorm(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("group.min.session.timeout.ms", "500"))
	r := ride(t, c, "orders", 6)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	storm := &storm{t: t, cluster: c, history: r.history, seen: map[history.Place]bool{}}
	var members sync.WaitGroup
	for i := range 4 {
		members.Go(func() { storm.live(ctx, i) })
	}
	for range 3 {
		for id := 1; id <= 3; id++ {
			c.Kill(id)
			r.awaitMore(100)
			c.Restart(id)
			c.AwaitInSync()
		}
	}
	r.end()
	want := r.history.AckedCount()
	began := time.Now()
	storm.calm.Store(true)
	c.Await("every record was given out", func() bool { return storm.count() >= want })
	t.Logf("all given out %v after the storm", time.Since(began))
	stop()
	members.Wait()
	r.check()
}

// storm is a group whose members don't stay.
type storm struct {
	t       *testing.T
	cluster *strandlinetest.Cluster
	history *history.History
	calm    atomic.Bool // Members stay.

	mu   sync.Mutex
	seen map[history.Place]bool
}

func (s *storm) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// live has a member be there for a while, again and again.
func (s *storm) live(ctx context.Context, id int) {
	random := rand.New(rand.NewPCG(uint64(id), 1))
	for life := 0; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("member %d-%d", id, life)
		if id == 0 {
			name = "static" // Its lives are one member's.
		}
		options := []kgo.Opt{
			kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.SessionTimeout(time.Second),
			kgo.HeartbeatInterval(100 * time.Millisecond), kgo.RebalanceTimeout(2 * time.Second),
			kgo.Balancers(kgo.RangeBalancer()), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.OnPartitionsAssigned(s.assigned(name)),
		}
		if id == 0 {
			options = append(options, kgo.InstanceID(name))
		}
		cl := dial(s.t, s.cluster, options...)
		span := time.Duration(200+random.IntN(1500)) * time.Millisecond
		s.member(ctx, cl, span)
		if id%2 == 0 { // Without a word: its session has to run out.
			cl.CloseAllowingRebalance()
			continue
		}
		cl.LeaveGroup()
		cl.CloseAllowingRebalance()
	}
}

// member reads and commits for a while, or for as long as it is calm.
func (s *storm) member(ctx context.Context, cl *kgo.Client, span time.Duration) {
	for end := time.Now().Add(span); ctx.Err() == nil && (s.calm.Load() || time.Now().Before(end)); {
		polling, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := cl.PollRecords(polling, 200)
		cancel()
		var records []*kgo.Record
		for rec := range fetches.RecordsAll() {
			records = append(records, rec)
		}
		committing, cancel := context.WithTimeout(ctx, time.Second)
		_ = cl.CommitRecords(committing, records...) // Or they are given out again.
		cancel()
		s.mu.Lock()
		for _, rec := range records {
			s.seen[placeOf(rec)] = true
		}
		s.mu.Unlock()
		cl.AllowRebalance()
	}
}

// assigned notes what a member was given.
func (s *storm) assigned(member string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, cl *kgo.Client, given map[string][]int32) {
		_, generation := cl.GroupMetadata()
		for _, p := range given["orders"] {
			s.history.Owns("readers", generation, p, member)
		}
	}
}

// Scenario 40: the leader epoch that a group committed is removed with its records, and
// then the group begins anew. It goes on at its offset.
func TestCommittedEpochIsForgotten(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	watch(t, c, "orders", 1)
	produce := func(n int) {
		t.Helper()
		cl := dial(t, c, kgo.DefaultProduceTopic("orders"))
		defer cl.Close()
		for range n {
			if err := cl.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(10)
	reader := func() *kgo.Client {
		return dial(t, c, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	read := func(cl *kgo.Client, from, n int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for end := from + n; from < end; {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			for rec := range fetches.RecordsAll() {
				if rec.Offset != from {
					t.Fatalf("offset %d, want %d", rec.Offset, from)
				}
				from++
			}
		}
	}
	first := reader()
	read(first, 0, 10)
	if err := first.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	for range 3 { // The epoch that was committed is long over, and ended right there.
		c.MoveLeader("orders", 0, 1+c.Leader("orders", 0)%3)
		produce(5)
	}
	var before kadm.Offsets
	before.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 10})
	deleted, err := admin(t, c).DeleteRecords(t.Context(), before)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.MoveLeader("orders", 0, 1)
	second := reader()
	defer second.Close()
	read(second, 10, 15)
}
