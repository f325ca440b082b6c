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
	"github.com/twmb/franz-go/pkg/kversion"

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
	more := func() {
		t.Helper()
		before := r.history.Mark()
		c.Await("commits", func() bool { return r.history.Mark() >= before+2 })
	}
	for round := range 4 {
		for id := 1; id <= 3; id++ {
			c.MoveLeader(metadata.OffsetsTopic, partition, id)
			more()
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
		more()
		c.Restart(victim)
		c.AwaitInSync()
	}
	stop()
	clients.Wait()
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
	// Commits name the topic, not its id.
	direct := dial(t, c, kgo.SeedBrokers(c.Addrs()[zombie-1]), kgo.MaxVersions(kversion.V3_9_0()))
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
	// It sends away who asks it, so that they find the other one.
	c.Await("it refuses commits at once, and does not name itself", func() bool {
		return errors.Is(committed(t, direct, "readers"), kerr.NotCoordinator) &&
			errors.Is(found(t, direct, "readers"), kerr.CoordinatorNotAvailable)
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

// committed returns what comes of a commit of offset 1 at a client's first seed.
func committed(t *testing.T, cl *kgo.Client, group string) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "orders", append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// found returns what a client's first seed says of who coordinates a group.
func found(t *testing.T, cl *kgo.Client, group string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode)
}

// Scenario 39: members of groups come, leave, vanish without a word, and hang for longer than
// their sessions last and commit then, while brokers are killed. A partition has one owner in
// a generation, what was committed is not taken back by who was replaced, and in the end
// every record was given out, and the groups are stable soon.
func TestRebalanceStorm(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("group.min.session.timeout.ms", "500"))
	r := ride(t, c, "orders", 6)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var members sync.WaitGroup
	storms := []*storm{
		newStorm(t, c, r.history, "eager", kgo.RangeBalancer()),
		newStorm(t, c, r.history, "cooperative", kgo.CooperativeStickyBalancer()),
	}
	for _, s := range storms {
		for i := range s.ways() {
			members.Go(func() { s.live(ctx, i) })
		}
	}
	for range 3 {
		for id := 1; id <= 3; id++ {
			c.Kill(id)
			r.awaitMore(100)
			c.Restart(id)
			c.AwaitInSync()
		}
	}
	// Where coordinators die faster than sessions run out, and each begins sessions anew, no
	// member is missed: late commits are for the time when none dies.
	c.Await("late commits are refused, and members are told offsets", func() bool {
		return storms[0].raged() && storms[1].raged()
	})
	r.end()
	want := r.history.AckedCount()
	for _, s := range storms {
		s.calm.Store(true)
	}
	c.Await("the last members are there that are to stay", func() bool {
		return int(storms[0].staying.Load()) == len(storms[0].ways()) && int(storms[1].staying.Load()) == len(storms[1].ways())
	})
	began := time.Now()
	for _, s := range storms {
		c.Await("the group is stable", func() bool { return s.stable(ctx, t, c) })
		t.Logf("%s: stable %v after the storm", s.group, time.Since(began))
		c.Await("every record was given out", func() bool { return s.count() >= want })
		t.Logf("%s: all given out %v after the storm; %d late commits were refused, %d members were told offsets",
			s.group, time.Since(began), s.refused.Load(), s.told.Load())
	}
	const soon = 10 * time.Second
	if took := time.Since(began); took > soon {
		t.Errorf("the groups were stable, and all was given out, only %v after the storm", took)
	}
	stop()
	members.Wait()
	r.check()
}

// storm is a group whose members don't stay.
type storm struct {
	t        *testing.T
	cluster  *strandlinetest.Cluster
	history  *history.History
	group    string
	balancer kgo.GroupBalancer
	calm     atomic.Bool  // Members stay.
	staying  atomic.Int32 // Members that do.
	refused  atomic.Int64 // Commits of members that were replaced.
	told     atomic.Int64 // Where members began.

	mu   sync.Mutex
	seen map[history.Place]bool
}

func newStorm(
	t *testing.T, c *strandlinetest.Cluster, h *history.History, group string, balancer kgo.GroupBalancer,
) *storm {
	return &storm{t: t, cluster: c, history: h, group: group, balancer: balancer, seen: map[history.Place]bool{}}
}

// raged reports whether enough has happened.
func (s *storm) raged() bool { return s.refused.Load() >= 2 && s.told.Load() >= 10 }

func (s *storm) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// stable reports whether the group has all its members, and they all partitions.
func (s *storm) stable(ctx context.Context, t *testing.T, c *strandlinetest.Cluster) bool {
	groups, err := admin(t, c).DescribeGroups(ctx, s.group)
	g := groups[s.group]
	if err != nil || g.Err != nil || g.State != "Stable" || len(g.Members) != len(s.ways()) {
		return false
	}
	assigned := g.AssignedPartitions()
	return len(assigned["orders"]) == c.Partitions("orders")
}

// member is one member in one of its lives.
type member struct {
	*storm
	name   string
	client *kgo.Client
	line   line
	// begins are the partitions that it was given and has had nothing of yet.
	begins map[int32]beginning
}

// beginning is when a member was given a partition.
type beginning struct {
	at         history.Mark
	generation int32
}

// ways are the ways in which members end, or almost.
func (s *storm) ways() []func(context.Context, *member) {
	leave := func(_ context.Context, m *member) { m.client.CloseAllowingRebalance() }
	return []func(context.Context, *member){
		leave, // Without a word, as it is static: it comes back as who it was.
		leave,
		func(ctx context.Context, m *member) { // Without a word: its session has to run out.
			m.line.cut()
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_ = m.client.LeaveGroupContext(gone) // Or closing would try for long.
			m.client.CloseAllowingRebalance()
		},
		func(ctx context.Context, m *member) { // It has records when it hangs, and commits them later.
			const tries, patience = 30, 1500 * time.Millisecond // Longer than a session.
			hung := false
			for try := 0; try < tries && !hung && ctx.Err() == nil; try++ {
				m.step(ctx, func() {
					hung = true
					m.line.hold()
					let(ctx, patience)
					m.line.release()
				})
			}
			leave(ctx, m)
		},
	}
}

// let lets time go by.
func let(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// live has a member be there for a while, again and again.
func (s *storm) live(ctx context.Context, id int) {
	random := rand.New(rand.NewPCG(uint64(id), 1))
	for life := 0; ctx.Err() == nil; life++ {
		m := &member{storm: s, name: fmt.Sprintf("member %d-%d", id, life), begins: map[int32]beginning{}}
		options := []kgo.Opt{
			kgo.ConsumerGroup(s.group), kgo.ConsumeTopics("orders"), kgo.SessionTimeout(500 * time.Millisecond),
			kgo.HeartbeatInterval(50 * time.Millisecond), kgo.RebalanceTimeout(time.Second),
			kgo.Balancers(s.balancer), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Dialer(m.line.dial),
			kgo.OnPartitionsAssigned(m.assigned),
		}
		if id == 0 {
			m.name = s.group + " static" // Its lives are one member's.
			options = append(options, kgo.InstanceID(m.name))
		}
		m.client = dial(s.t, s.cluster, options...)
		span := time.Duration(500+random.IntN(2000)) * time.Millisecond
		for end := time.Now().Add(span); ctx.Err() == nil && time.Now().Before(end); {
			m.step(ctx, func() {})
		}
		if s.calm.Load() {
			s.staying.Add(1)
			for ctx.Err() == nil {
				m.step(ctx, func() {})
			}
		}
		s.ways()[id](ctx, m)
	}
}

// step reads, does something if there was something to read, and commits that.
func (m *member) step(ctx context.Context, meanwhile func()) {
	defer m.client.AllowRebalance()
	polling, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	fetches := m.client.PollRecords(polling, 200)
	cancel()
	var records []*kgo.Record
	next := map[int32]int64{}
	for rec := range fetches.RecordsAll() {
		if b, ok := m.begins[rec.Partition]; ok {
			m.history.Fetched(b.at, m.group, rec.Partition, b.generation, rec.Offset)
			m.told.Add(1)
			delete(m.begins, rec.Partition)
		}
		records = append(records, rec)
		next[rec.Partition] = rec.Offset + 1
	}
	if len(records) == 0 {
		return
	}
	_, generation := m.client.GroupMetadata()
	meanwhile()
	committing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	switch err := m.client.CommitRecords(committing, records...); {
	case err == nil:
		for p, offset := range next {
			m.history.Committed(m.group, p, generation, offset)
		}
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration):
		m.refused.Add(1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, rec := range records { // If not committed, they are given out again.
		m.seen[placeOf(rec)] = true
	}
}

// assigned notes what a member was given. It is not called between a poll and the commit of
// what that gave.
func (m *member) assigned(_ context.Context, cl *kgo.Client, given map[string][]int32) {
	_, generation := cl.GroupMetadata()
	for _, p := range given["orders"] {
		m.history.Owns(m.group, generation, p, m.name)
		m.begins[p] = beginning{m.history.Mark(), generation}
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
