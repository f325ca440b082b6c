package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// cluster is control planes on one log. The test says who leads; an entry that is
// decided is applied on all nodes that run before Do returns.
type cluster struct {
	*testing.T
	mu     sync.Mutex
	nodes  map[kafka.BrokerID]*node
	leader kafka.BrokerID
	term   uint64
	log    [][]byte
}

// node is one of them. It is its proposer and its way to the others.
type node struct {
	*cluster
	id      kafka.BrokerID
	plane   *controlplane.ControlPlane
	life    *controlplane.Lifecycle
	applied int
	disk    byte // The id of its data directory.
	stop    context.CancelFunc
	ended   chan error    // What the lifecycle ended with.
	down    bool          // The process is gone.
	hung    chan struct{} // Closed when it runs again; nil while it does.
	lose    bool          // The next decision is made, and leadership lost.
	late    bool          // What is decided does not reach it.
	asked   int           // Decisions.
	ill     atomic.Bool   // Its disk hangs.
	full    atomic.Bool   // It is full.
}

var (
	errNotLeader = errors.New("not the leader")
	errClosed    = errors.New("the connection was closed")
)

// refusedError is what a dial meets where no process is.
type refusedError struct{}

func (refusedError) Error() string { return "connection refused" }
func (refusedError) Unsent() bool  { return true }

// newCluster starts nodes 1 to n, of which 1 leads, and waits until they serve.
func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{T: t, nodes: map[kafka.BrokerID]*node{}, leader: kafka.NoBroker}
	for i := range n {
		c.start(kafka.BrokerID(i + 1))
	}
	c.elect(1)
	for id := range c.nodes {
		c.nodes[id].join(true)
	}
	c.serving(1, 2, 3)
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.wake()
		n.stop()
	}
}

// start starts a node's process, which knows what is in the log.
func (c *cluster) start(id kafka.BrokerID) *node {
	c.Helper()
	n := &node{cluster: c, id: id, disk: byte(id), ended: make(chan error, 1)}
	plane, err := controlplane.New(controlplane.Options{Self: id, Remote: remote{n}, Hangs: n.ill.Load, Full: n.full.Load})
	if err != nil {
		c.Fatal(err)
	}
	n.plane = plane
	plane.Attach(n)
	c.mu.Lock()
	c.nodes[id] = n
	n.catchUp()
	leader, term := c.leader, c.term
	c.mu.Unlock()
	plane.LeaderChanged(leader, term)
	ctx, cancel := context.WithCancel(c.Context())
	n.stop = cancel
	go func() { _ = plane.Run(ctx) }()
	return n
}

// join has a node register and send heartbeats.
func (n *node) join(clean bool) {
	n.life = n.plane.NewLifecycle(controlplane.Registration{
		Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: int32(n.id)}},
		Directory: [16]byte{n.disk}, Clean: clean,
	})
	ctx, cancel := context.WithCancel(n.Context())
	stop := n.stop
	n.stop = func() { cancel(); stop() }
	go func() {
		if _, err := n.life.Join(ctx); err != nil {
			n.ended <- err
			return
		}
		n.ended <- n.life.Run(ctx)
	}()
}

// catchUp applies what a node has not. The cluster is locked.
func (n *node) catchUp() {
	for ; n.applied < len(n.log) && !n.late; n.applied++ {
		if err := n.plane.Apply(uint64(n.applied+1), n.log[n.applied]); err != nil {
			n.Error(err)
		}
	}
}

// Do implements controlplane.Proposer.
func (n *node) Do(ctx context.Context, decide func() ([]byte, error)) error {
	if err := n.awake(ctx); err != nil {
		return err
	}
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != n.id || n.down {
		return errNotLeader
	}
	entry, err := decide()
	n.asked++
	if n.lose {
		n.lose = false
		return errLost
	}
	if err != nil || entry == nil {
		return err
	}
	if err := n.plane.Stage(entry); err != nil {
		return err
	}
	c.log = append(c.log, entry)
	n.catchUp()
	for _, other := range c.nodes {
		if !other.down && other.hung == nil {
			other.catchUp()
		}
	}
	return nil
}

// Remote's way: the request and the answer are written and read on their way.
func (n *node) ask(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	if err := n.awake(ctx); err != nil {
		return nil, err
	}
	n.mu.Lock()
	peer := n.nodes[to]
	down := peer == nil || peer.down
	n.mu.Unlock()
	if down {
		return nil, refusedError{}
	}
	if err := peer.awake(ctx); err != nil {
		return nil, err
	}
	req.SetVersion(req.MaxVersion())
	arrived := kmsg.RequestForKey(req.Key())
	arrived.SetVersion(req.GetVersion())
	if err := arrived.ReadFrom(req.AppendTo(nil)); err != nil {
		n.Error(err)
	}
	resp, err := peer.plane.Serve(ctx, arrived)
	if err != nil {
		return nil, errClosed
	}
	answer := req.ResponseKind()
	if err := answer.ReadFrom(resp.AppendTo(nil)); err != nil {
		n.Error(err)
	}
	return answer, nil
}

// remote makes a node a Remote.
type remote struct{ *node }

func (r remote) Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	return r.ask(ctx, to, req)
}

// awake waits while a node hangs.
func (n *node) awake(ctx context.Context) error {
	n.mu.Lock()
	hung := n.hung
	n.mu.Unlock()
	if hung == nil {
		return nil
	}
	select {
	case <-hung:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *node) hang() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = make(chan struct{})
}

func (n *node) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hung != nil {
		close(n.hung)
		n.hung = nil
		n.catchUp()
	}
}

// elect makes a node the leader; those that run are told.
func (c *cluster) elect(id kafka.BrokerID) {
	c.mu.Lock()
	if old := c.nodes[c.leader]; old != nil {
		old.plane.Unstage()
	}
	c.leader = id
	c.term++
	term := c.term
	c.mu.Unlock()
	for _, n := range c.nodes {
		if !n.down && n.hung == nil {
			n.plane.LeaderChanged(id, term)
		}
	}
}

// kill ends a node's process; the others see it by their connections.
func (c *cluster) kill(id kafka.BrokerID) {
	n := c.nodes[id]
	c.mu.Lock()
	n.down = true
	c.mu.Unlock()
	n.stop()
	for _, other := range c.nodes {
		if other.id != id && !other.down {
			other.plane.ReportDown(id, false)
			other.plane.ReportDown(id, true)
			other.plane.ReportDown(id, true)
		}
	}
}

// serving waits until all nodes know that exactly these brokers serve.
func (c *cluster) serving(ids ...kafka.BrokerID) time.Duration {
	c.Helper()
	start := time.Now()
	for time.Since(start) < 30*time.Second {
		synctest.Wait()
		same := true
		for _, n := range c.nodes {
			if !n.down && n.hung == nil && !slices.Equal(serves(n.plane.Image()), ids) {
				same = false
			}
		}
		if same {
			return time.Since(start)
		}
		pass(10 * time.Millisecond)
	}
	c.Fatalf("serving: %v, want %v", serves(c.nodes[c.leader].plane.Image()), ids)
	return 0
}

func serves(image *metadata.Image) (ids []kafka.BrokerID) {
	for _, b := range image.Brokers() {
		if b.Available() {
			ids = append(ids, b.ID)
		}
	}
	return ids
}

// pass lets the bubble's time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// replicated creates a topic with three replicas a partition.
func (n *node) replicated(name string, partitions int32) {
	n.Helper()
	req := createRequest(name)
	req.Topics[0].NumPartitions, req.Topics[0].ReplicationFactor = partitions, 3
	resp, err := n.plane.CreateTopics(n.Context(), req)
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		n.Fatalf("create %s: %v, %+v", name, err, resp)
	}
}

// leaders counts the partitions that each broker leads.
func leaders(image *metadata.Image) map[kafka.BrokerID]int {
	out := map[kafka.BrokerID]int{}
	for t := range image.AllTopics() {
		for _, p := range t.Partitions {
			out[p.Leader]++
		}
	}
	return out
}

func TestClusterForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newCluster(t, 3)
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		id := c.nodes[1].plane.Image().ClusterID()
		for _, n := range c.nodes {
			if got := n.plane.Image().ClusterID(); got != id || len(id) != 22 || n.life.Fenced() {
				t.Errorf("node %d is in cluster %q, fenced is %v", n.id, got, n.life.Fenced())
			}
			if active, known := n.plane.ActiveController(); active != 1 || !known {
				t.Errorf("node %d holds %d for the active controller", n.id, active)
			}
		}
		pass(time.Minute)
		c.serving(1, 2, 3)
		before := len(c.log)
		pass(time.Minute)
		if len(c.log) != before {
			t.Errorf("%d entries while nothing happens", len(c.log)-before)
		}
	})
}

// What a node watches begins when it has joined, with everything.
func TestWatchersOfAMemberAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 1)
		c.kill(3)
		c.serving(1, 2)
		n := c.start(3)
		var told news
		n.plane.OnImage(told.told)
		synctest.Wait()
		told.want(t)
		n.join(false)
		c.serving(1, 2, 3)
		if len(told.lines) == 0 || told.lines[0] != "0->1 +a" {
			t.Errorf("told: %q", told.lines)
		}
	})
}

func TestRequestsReachTheActiveController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		n := c.nodes[3]
		n.replicated("a", 3)
		if n.plane.Image().Topic("a") == nil {
			t.Fatal("the node that asked does not see the topic")
		}
		grow := kmsg.NewPtrCreatePartitionsRequest()
		item := kmsg.NewCreatePartitionsRequestTopic()
		item.Topic, item.Count = "a", 4
		grow.Topics = append(grow.Topics, item)
		if resp, err := n.plane.CreatePartitions(t.Context(), grow); err != nil || resp.Topics[0].ErrorCode != 0 ||
			len(n.plane.Image().Topic("a").Partitions) != 4 {
			t.Errorf("grow: %v, %+v", err, resp)
		}
		alter(t, n.plane, kmsg.ConfigResourceTypeTopic, "a", "retention.ms", "7")
		alter(t, n.plane, kmsg.ConfigResourceTypeBroker, "3", "fetch.max.bytes", "4096")
		if got := n.plane.BrokerConfig().FetchMaxBytes; got != 4096 {
			t.Errorf("fetch.max.bytes of broker 3: %d", got)
		}
		first, err := n.plane.NextProducerID(t.Context())
		other, err2 := c.nodes[2].plane.NextProducerID(t.Context())
		if err != nil || err2 != nil || first/1000 == other/1000 {
			t.Errorf("producer ids %d and %d: %v, %v", first, other, err, err2)
		}
		replace := kmsg.NewPtrAlterConfigsRequest()
		resource := kmsg.NewAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, "a"
		replace.Resources = append(replace.Resources, resource)
		if resp, err := n.plane.AlterConfigs(t.Context(), replace); err != nil || resp.Resources[0].ErrorCode != 0 {
			t.Errorf("replace configs: %v, %+v", err, resp)
		}
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.Version = 1
		if resp, err := n.plane.ElectLeaders(t.Context(), elect); err != nil || resp.ErrorCode != 0 || resp.Version != 1 || elect.Version != 1 {
			t.Errorf("elect: %v, %+v", err, resp)
		}
		move := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Replicas = []int32{1, 2}
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic, rt.Partitions = "a", append(rt.Partitions, rp)
		move.Topics = append(move.Topics, rt)
		if resp, err := n.plane.AlterPartitionReassignments(t.Context(), move); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("move: %v, %+v", err, resp)
		}
		list := kmsg.NewPtrListPartitionReassignmentsRequest()
		if resp, err := n.plane.ListPartitionReassignments(t.Context(), list); err != nil || len(resp.Topics) != 0 {
			t.Errorf("moves: %v, %+v", err, resp)
		}
		unregister := kmsg.NewPtrUnregisterBrokerRequest()
		unregister.BrokerID = 2
		if resp, err := n.plane.UnregisterBroker(t.Context(), unregister); err != nil || kafka.Code(resp.ErrorCode) != kafka.ErrInvalidRequest {
			t.Errorf("unregister one that runs: %v, %+v", err, resp)
		}
		remove(t, n.plane, "a") // In version 0, which names topics elsewhere.
		if n.plane.Image().Topic("a") != nil {
			t.Error("the node that asked still sees the topic")
		}
	})
}

// A node that is asked and does not lead says so, whatever the request.
func TestServeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		for _, req := range serveable() {
			resp, err := c.nodes[2].plane.Serve(t.Context(), req)
			if err != nil || controlplane.RefusedBy(resp) != kafka.ErrNotController {
				t.Errorf("%T: %v, %+v", req, err, resp)
			}
		}
		if _, err := c.nodes[1].plane.Serve(t.Context(), kmsg.NewPtrFetchRequest()); err == nil {
			t.Error("a request that is not the controller's is served")
		}
		c.nodes[1].lose = true
		resp, err := c.nodes[1].plane.Serve(t.Context(), createRequest("a"))
		if err != nil || controlplane.RefusedBy(resp) != kafka.ErrRequestTimedOut {
			t.Errorf("a decision of which nobody knows: %v, %+v", err, resp)
		}
	})
}

func serveable() []kmsg.Request {
	name := "a"
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Version, remove.Topics = 6, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	removeOld := kmsg.NewPtrDeleteTopicsRequest()
	removeOld.TopicNames = []string{"a"}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = append(grow.Topics, kmsg.NewCreatePartitionsRequestTopic())
	alter := kmsg.NewPtrAlterConfigsRequest()
	alter.Resources = append(alter.Resources, kmsg.NewAlterConfigsRequestResource())
	incremental := kmsg.NewPtrIncrementalAlterConfigsRequest()
	incremental.Resources = append(incremental.Resources, kmsg.NewIncrementalAlterConfigsRequestResource())
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Version = 1
	return []kmsg.Request{
		createRequest("a"), remove, removeOld, grow, alter, incremental, elect,
		kmsg.NewPtrBrokerHeartbeatRequest(), kmsg.NewPtrAlterPartitionRequest(), kmsg.NewPtrAllocateProducerIDsRequest(),
		kmsg.NewPtrBrokerRegistrationRequest(), kmsg.NewPtrUnregisterBrokerRequest(),
		kmsg.NewPtrAlterPartitionAssignmentsRequest(),
	}
}

// A request waits for a controller, and goes on to the next one where the last has
// not decided.
func TestRequestsRideThroughElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.kill(1)
		c.elect(kafka.NoBroker)
		done := make(chan error, 1)
		go func() {
			resp, err := c.nodes[3].plane.CreateTopics(t.Context(), createRequest("a"))
			if err == nil && resp.Topics[0].ErrorCode != 0 {
				err = fmt.Errorf("%+v", resp)
			}
			done <- err
		}()
		pass(time.Second)
		c.elect(2)
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.elect(kafka.NoBroker)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.nodes[3].plane.CreateTopics(ctx, createRequest("b"))
		var refused *kafka.Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.Code != kafka.ErrNotController {
			t.Errorf("without a controller: %v", err)
		}
	})
}

// A decision that may have been made is not asked for again, unless that does no
// harm.
func TestUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].lose = true
		resp, err := c.nodes[3].plane.CreateTopics(t.Context(), createRequest("a"))
		if err != nil || kafka.Code(resp.Topics[0].ErrorCode) != kafka.ErrRequestTimedOut {
			t.Errorf("elsewhere: %v, %+v", err, resp)
		}
		c.nodes[1].lose = true
		if _, err := c.nodes[1].plane.CreateTopics(t.Context(), createRequest("b")); !errors.Is(err, errLost) {
			t.Errorf("here: %v", err)
		}
		c.nodes[1].hang()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.nodes[3].plane.CreateTopics(ctx, createRequest("c"))
		var refused *kafka.Error
		if !errors.As(err, &refused) || refused.Code != kafka.ErrRequestTimedOut {
			t.Errorf("a controller that hangs: %v", err)
		}
	})
}

// Nobody waits for a controller that hangs once there is another: what came of the request is not known, and whoever
// asks again is answered.
func TestAControllerThatHangsIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].hang()
		done := make(chan error, 1)
		go func() {
			_, err := c.nodes[3].plane.CreateTopics(t.Context(), createRequest("a"))
			done <- err
		}()
		pass(time.Second)
		begun := time.Now()
		c.elect(2)
		var refused *kafka.Error
		if err := <-done; !errors.As(err, &refused) || refused.Code != kafka.ErrRequestTimedOut {
			t.Errorf("asked of one that hangs: %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it was waited for %v after there was another", took)
		}
		c.nodes[3].replicated("a", 1)
	})
}
