package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// chaos drives a shard with requests of members that forget, lie, crash and come
// back, and checks what must hold whatever they do.
type chaos struct {
	*world
	t *rapid.T
	// waiting are the callers that have no answer yet.
	waiting map[*waiter]bool
	// known are member ids that were handed out, of any age.
	known []string
	// assigned is what each member was given in a generation of a group.
	assigned map[string]string
	// committed are the offsets whose commit was acknowledged.
	committed map[string]int64
}

// waiter is a caller who must be answered exactly once.
type waiter struct {
	c       *chaos
	request kmsg.Request
}

// Complete implements shard.Caller.
func (w *waiter) Complete(response any) {
	if !w.c.waiting[w] {
		w.c.t.Fatalf("%T was answered twice", w.request)
	}
	delete(w.c.waiting, w)
	response.(kmsg.Response).AppendTo(nil)
	if got, want := response.(kmsg.Response).GetVersion(), w.request.GetVersion(); got != want {
		w.c.t.Fatalf("%T of version %d was answered in version %d", w.request, want, got)
	}
	w.c.learn(w.request, response)
}

// learn remembers what an answer says and checks it against the ones before.
func (c *chaos) learn(request kmsg.Request, response any) {
	switch r := response.(type) {
	case *kmsg.JoinGroupResponse:
		if r.MemberID != "" {
			c.known = append(c.known, r.MemberID)
		}
		if r.ErrorCode == 0 && r.LeaderID != r.MemberID && len(r.Members) > 0 {
			c.t.Fatal("a follower was given the members")
		}
	case *kmsg.SyncGroupResponse:
		req := request.(*kmsg.SyncGroupRequest)
		if r.ErrorCode != 0 {
			return
		}
		key := fmt.Sprintf("%s/%d/%s", req.Group, req.Generation, req.MemberID)
		if before, ok := c.assigned[key]; ok && before != string(r.MemberAssignment) {
			c.t.Fatalf("%s was given %q and then %q", key, before, r.MemberAssignment)
		}
		c.assigned[key] = string(r.MemberAssignment)
	case *kmsg.OffsetCommitResponse:
		req := request.(*kmsg.OffsetCommitRequest)
		if p := req.Topics[0].Partitions[0]; r.Topics[0].Partitions[0].ErrorCode == 0 {
			c.committed[fmt.Sprintf("%s/%d", req.Group, p.Partition)] = p.Offset
		}
	}
}

func (c *chaos) do(req kmsg.Request, version int16) {
	req.SetVersion(version)
	w := &waiter{c, req}
	c.waiting[w] = true
	c.step(func(fx *shard.Effects) {
		c.shard.Handle(&group.Context{NowMs: c.nowMs, Caller: w, ClientID: "c"}, req, fx)
	})
	c.shard.Check()
}

func (c *chaos) member() string {
	if len(c.known) == 0 {
		return ""
	}
	// The newest are the most interesting.
	recent := c.known[max(0, len(c.known)-6):]
	return rapid.SampledFrom(append([]string{""}, recent...)).Draw(c.t, "member")
}

func (c *chaos) instance() *string {
	i, k := "i", "k"
	return rapid.SampledFrom([]*string{nil, nil, nil, &i, &k}).Draw(c.t, "instance")
}

func (c *chaos) group() string { return rapid.SampledFrom([]string{"g", "h"}).Draw(c.t, "group") }

func (c *chaos) generation(id string) int32 {
	d, _ := c.shard.Describe(id)
	return d.Generation + rapid.SampledFrom([]int32{0, 0, 0, 0, -1, 1}).Draw(c.t, "generation")
}

func (c *chaos) join(*rapid.T) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = c.group(), c.member(), c.instance()
	req.SessionTimeoutMillis = rapid.SampledFrom([]int32{6_000, 30_000}).Draw(c.t, "session")
	req.RebalanceTimeoutMillis = rapid.SampledFrom([]int32{0, 1_000, 20_000}).Draw(c.t, "rebalance")
	req.ProtocolType = "consumer"
	for _, name := range rapid.SampledFrom([][]string{
		{"range"}, {"range"}, {"sticky", "range"}, {"range", "sticky"}, {"odd"},
	}).Draw(c.t, "protocols") {
		req.Protocols = append(req.Protocols,
			kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(name)})
	}
	version := int16(rapid.IntRange(0, 9).Draw(c.t, "version"))
	if version < 5 {
		req.InstanceID = nil
	}
	c.do(req, version)
}

func (c *chaos) sync(*rapid.T) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID = c.group(), c.member(), c.instance()
	req.Generation = c.generation(req.Group)
	d, _ := c.shard.Describe(req.Group)
	for i, m := range d.Members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
			MemberID: m.MemberID, MemberAssignment: []byte(fmt.Sprintf("%d.%d", len(c.log), i)),
		})
	}
	c.do(req, int16(rapid.IntRange(3, 5).Draw(c.t, "version")))
}

func (c *chaos) heartbeat(*rapid.T) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID = c.group(), c.member(), c.instance()
	req.Generation = c.generation(req.Group)
	c.do(req, 4)
}

func (c *chaos) leave(*rapid.T) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = c.group()
	for range rapid.IntRange(1, 2).Draw(c.t, "members") {
		req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{
			MemberID: c.member(), InstanceID: c.instance(),
		})
	}
	c.do(req, 5)
}

func (c *chaos) commit(*rapid.T) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID = c.group(), c.member(), c.instance()
	req.Generation = c.generation(req.Group)
	if rapid.Bool().Draw(c.t, "simple") {
		req.Generation, req.MemberID, req.InstanceID = -1, "", nil
	}
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = int32(rapid.IntRange(0, 2).Draw(c.t, "partition")), int64(len(c.log))
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	c.do(req, 9)
}

func (c *chaos) txnCommit(*rapid.T) {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.Generation = c.group(), -1
	req.ProducerID = int64(rapid.IntRange(1, 3).Draw(c.t, "producer"))
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = int32(rapid.IntRange(0, 2).Draw(c.t, "partition")), int64(len(c.log))
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{
		Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p},
	}}
	c.do(req, 5)
}

// endTransaction checks that what is told after a commit is the newest of what was
// committed in any way.
func (c *chaos) endTransaction(*rapid.T) {
	producer, commit := kafka.ProducerID(rapid.IntRange(1, 3).Draw(c.t, "producer")), rapid.Bool().Draw(c.t, "commit")
	if commit {
		c.learnTransaction(producer)
	}
	c.end(producer, commit)
	c.shard.Check()
}

// learnTransaction notes what the transaction that is committed now commits: what was
// appended in it since its last marker, unless something newer was committed since.
func (c *chaos) learnTransaction(producer kafka.ProducerID) {
	pending := map[string]int64{}
	for i := range c.log {
		e := &c.log[i]
		key, offset, kept := group.OffsetOf(e.Key, e.Value)
		switch {
		case e.ends && e.producer == producer:
			clear(pending)
		case e.ends:
		case e.producer == producer:
			pending[key] = offset
		case e.producer == kafka.NoProducerID && !kept:
			delete(pending, key)
		}
	}
	for key, offset := range pending { // Offsets grow with the log.
		if before, ok := c.committed[key]; !ok || offset > before {
			c.committed[key] = offset
		}
	}
}

func (c *chaos) pass(*rapid.T) {
	ms := rapid.SampledFrom([]int{1, 900, 5_000, 12_000, 400_000}).Draw(c.t, "ms")
	c.advance(time.Duration(ms) * time.Millisecond)
	c.shard.Check()
}

func (c *chaos) rejectNext(*rapid.T) { c.reject = kafka.ErrCoordinatorNotAvailable }

// reload moves the shard to another coordinator. Everybody who waits is told.
func (c *chaos) reload(t *rapid.T) {
	c.reject = kafka.ErrNone
	c.step(func(fx *shard.Effects) { c.shard.Unloaded(fx, kafka.ErrNotCoordinator) })
	if len(c.waiting) > 0 {
		t.Fatalf("%d callers were forgotten", len(c.waiting))
	}
	c.shard = c.replayed()
}

// check runs after every action.
func (c *chaos) check(t *rapid.T) {
	if got, want := c.replayed().Durable(), c.shard.Durable(); got != want {
		t.Fatalf("the records rebuild\n%sand not\n%s", got, want)
	}
	for key, want := range c.committed {
		var id string
		var partition int32
		fmt.Sscanf(key, "%1s/%d", &id, &partition)
		var fx shard.Effects
		got := int64(-1)
		for _, o := range c.shard.Offsets(id, nil, &fx) {
			if o.Partition == partition {
				got = int64(o.Offset.Offset)
			}
		}
		if got != want {
			t.Fatalf("%s: %d was committed and %d is told", key, want, got)
		}
	}
}

// TestChaos: whatever members do, the invariants hold, everybody is answered
// once, an assignment never changes within a generation, an acknowledged commit
// is what is told, and the records rebuild the state.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.silent = true
		w.settings.OffsetsRetention = 10 * 365 * 24 * time.Hour
		delay := rapid.SampledFrom([]int{0, 3}).Draw(t, "delay")
		w.settings.InitialRebalanceDelay = time.Duration(delay) * time.Second
		w.settings.MaxSize = rapid.IntRange(2, 5).Draw(t, "size")
		w.shard.Configure(w.settings)
		c := &chaos{
			world: w, t: t, waiting: map[*waiter]bool{},
			assigned: map[string]string{}, committed: map[string]int64{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": c.join, "join again": c.join, "sync": c.sync, "sync again": c.sync,
			"heartbeat": c.heartbeat, "leave": c.leave, "commit": c.commit,
			"txn commit": c.txnCommit, "end": c.endTransaction,
			"pass": c.pass, "reject": c.rejectNext, "reload": c.reload, "": c.check,
		})
		c.reload(t)
	})
}
