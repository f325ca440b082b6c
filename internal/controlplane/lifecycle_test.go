package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
)

// A process that is gone is noticed at once, and everything that it led moves.
func TestABrokerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[2].replicated("a", 30)
		before := len(c.log)
		c.kill(3)
		if took := c.serving(1, 2); took > 50*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		if n := len(c.log) - before; n != 1 {
			t.Errorf("%d entries for one failure", n)
		}
		if led := leaders(c.nodes[2].plane.Image()); led[3] != 0 || led[1]+led[2] != 30 {
			t.Errorf("leaders: %v", led)
		}
		c.start(3).join(false)
		if took := c.serving(1, 2, 3); took > 500*time.Millisecond {
			t.Errorf("back after %v", took)
		}
	})
}

// A process that starts again before anybody has noticed takes its own place.
func TestABrokerRestartsQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 30)
		c.mu.Lock()
		c.nodes[3].down = true
		c.mu.Unlock()
		c.nodes[3].stop()
		synctest.Wait()
		c.start(3).join(false)
		synctest.Wait()
		if took := c.serving(1, 2, 3); took > 100*time.Millisecond {
			t.Errorf("back after %v", took)
		}
		if led := leaders(c.nodes[1].plane.Image()); led[3] != 0 || led[kafka.NoBroker] != 0 {
			t.Errorf("leaders: %v", led)
		}
	})
}

// A process that hangs is noticed when its session is over, and comes back by
// itself.
func TestABrokerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 3)
		c.nodes[3].hang()
		took := c.serving(1, 2)
		if took < 1200*time.Millisecond || took > 1600*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		pass(10 * time.Second)
		c.nodes[3].wake()
		if took := c.serving(1, 2, 3); took > 500*time.Millisecond {
			t.Errorf("back after %v", took)
		}
	})
}

// A broker whose disk hangs, and whose process does not, has others lead, and comes back
// when its disk does.
func TestADiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 30)
		c.nodes[3].ill.Store(true)
		if took := c.serving(1, 2); took > 500*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		if led := leaders(c.nodes[1].plane.Image()); led[3] != 0 || led[kafka.NoBroker] != 0 {
			t.Errorf("leaders: %v", led)
		}
		if !c.nodes[3].plane.Hangs() || c.nodes[1].plane.Hangs() {
			t.Error("the broker itself does not know, or another believes it")
		}
		before := len(c.log)
		pass(5 * time.Second)
		if n := len(c.log) - before; n != 0 {
			t.Errorf("%d entries while it hangs", n)
		}
		c.nodes[3].ill.Store(false)
		if took := c.serving(1, 2, 3); took > 500*time.Millisecond {
			t.Errorf("back after %v", took)
		}
	})
}

// A broker that finds its disk full says so at once, and not with the next heartbeat that
// is due: another broker, and the active controller.
func TestAFullDiskIsToldAtOnce(t *testing.T) {
	for _, id := range []kafka.BrokerID{3, 1} {
		for i := range 5 {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3)
				c.nodes[1].replicated("a", 30)
				pass(time.Second + time.Duration(i)*47*time.Millisecond) // Somewhere between two heartbeats.
				c.nodes[id].full.Store(true)
				c.nodes[id].plane.Urge()
				pass(10 * time.Millisecond)
				if led := leaders(c.nodes[2].plane.Image()); led[id] != 0 || led[kafka.NoBroker] != 0 {
					t.Errorf("leaders when the disk of broker %d is full: %v", id, led)
				}
			})
		}
	}
}

// Brokers whose disks are full have others lead, one after the other, and the last leads
// what nobody else can.
func TestDisksAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 30)
		for _, id := range []kafka.BrokerID{3, 2, 1} {
			c.nodes[id].full.Store(true)
			pass(time.Second)
			led := leaders(c.nodes[1].plane.Image())
			if led[kafka.NoBroker] != 0 || id != 1 && led[id] != 0 {
				t.Errorf("leaders when broker %d is full too: %v", id, led)
			}
		}
		for _, n := range c.nodes {
			n.full.Store(false)
		}
		if took := c.serving(1, 2, 3); took > 500*time.Millisecond {
			t.Errorf("back after %v", took)
		}
	})
}

// A connection that ends is no failure: the broker makes another.
func TestAConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		before := len(c.log)
		for range 20 {
			for _, n := range c.nodes {
				n.plane.ReportDown(3, false)
			}
			pass(300 * time.Millisecond)
		}
		c.serving(1, 2, 3)
		if len(c.log) != before {
			t.Errorf("%d entries", len(c.log)-before)
		}
	})
}

// The active controller is killed: the next one knows at once that it is gone, and
// that the others are not.
func TestTheControllerIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[2].replicated("a", 30)
		c.kill(1)
		pass(100 * time.Millisecond)
		before := len(c.log)
		c.elect(2)
		if took := c.serving(2, 3); took > 100*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		for _, p := range c.nodes[3].plane.Image().Topic("a").Partitions {
			if len(p.ISR) != 2 || p.Leader == 1 || p.Leader == kafka.NoBroker {
				t.Errorf("%+v", p)
			}
		}
		pass(5 * time.Second)
		c.serving(2, 3)
		if n := len(c.log) - before; n != 1 {
			t.Errorf("%d entries for one failure", n)
		}
		c.start(1).join(false)
		c.serving(1, 2, 3)
	})
}

// A process that is known to be gone is fenced at once, by the next controller too.
func TestABrokerIsReportedDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[3].hang()
		c.nodes[1].plane.ReportDead(3)
		if took := c.serving(1, 2); took > 50*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		c.nodes[3].wake()
		c.serving(1, 2, 3)
		c.nodes[3].hang()
		c.nodes[2].plane.ReportDead(3)
		c.elect(2)
		if took := c.serving(1, 2); took > 50*time.Millisecond {
			t.Errorf("fenced by the next after %v", took)
		}
	})
}

// What a leader asks of a controller that dies goes on to the next one.
func TestAnISRChangeRidesThroughAnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 3)
		c.kill(3)
		c.serving(1, 2)
		c.start(3).join(false)
		c.serving(1, 2, 3)
		c.nodes[1].hang()
		go func() {
			pass(200 * time.Millisecond)
			c.elect(2)
		}()
		start := time.Now()
		ledBy2 := slices.IndexFunc(c.nodes[2].plane.Image().Topic("a").Partitions, func(p metadata.Partition) bool {
			return p.Leader == 2
		})
		c.letIn("a", int32(ledBy2), 3)
		if took := time.Since(start); took < 100*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// The active controller hangs: the next one gives it less time than the others.
func TestTheControllerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[2].replicated("a", 30)
		c.nodes[1].hang()
		pass(500 * time.Millisecond)
		c.elect(2)
		if took := c.serving(2, 3); took > 600*time.Millisecond {
			t.Errorf("fenced after %v", took)
		}
		c.nodes[1].wake()
		c.nodes[1].plane.LeaderChanged(2, c.term)
		c.serving(1, 2, 3)
	})
}

// Leadership goes from node to node, and no broker is held for failed.
func TestControllersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		before := len(c.log)
		for i := range 30 {
			c.elect(kafka.BrokerID(i%3 + 1))
			pass(time.Duration(i*100) * time.Millisecond)
		}
		c.serving(1, 2, 3)
		if len(c.log) != before {
			t.Errorf("%d entries", len(c.log)-before)
		}
	})
}

// A broker that leaves has handed over what it led when it is told to stop.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, id := range []kafka.BrokerID{3, 1} {
			c := newCluster(t, 3)
			c.nodes[2].replicated("a", 30)
			start := time.Now()
			if err := c.nodes[id].life.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 200*time.Millisecond {
				t.Errorf("left after %v", took)
			}
			led := leaders(c.nodes[2].plane.Image())
			if led[id] != 0 || led[kafka.NoBroker] != 0 || !c.nodes[id].life.Fenced() {
				t.Errorf("leaders: %v", led)
			}
			if err := c.nodes[id].life.Leave(t.Context()); err != nil {
				t.Errorf("again: %v", err)
			}
			c.close()
		}
	})
}

// Without a controller, leaving ends with the time that it is given.
func TestLeaveWithoutAController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.elect(kafka.NoBroker)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := c.nodes[3].life.Leave(ctx); err == nil {
			t.Error("left")
		}
	})
}

// Preferred leaders come back by themselves.
func TestPreferredLeadersComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 3)
		c.kill(3)
		c.serving(1, 2)
		c.start(3).join(false)
		c.serving(1, 2, 3)
		for i := range 3 {
			c.letIn("a", int32(i), 3)
		}
		if led := leaders(c.nodes[1].plane.Image()); led[3] != 0 {
			t.Fatalf("leaders: %v", led)
		}
		pass(11 * time.Second)
		if led := leaders(c.nodes[1].plane.Image()); led[1] != 1 || led[2] != 1 || led[3] != 1 {
			t.Errorf("leaders: %v", led)
		}
	})
}

// letIn has the leader of a partition ask for a broker to be in sync.
func (c *cluster) letIn(topic string, partition int32, id kafka.BrokerID) {
	c.Helper()
	image := c.nodes[c.leader].plane.Image()
	p := image.Topic(topic).Partitions[partition]
	leader, _ := image.Broker(p.Leader)
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = partition, int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	for _, id := range append(append([]kafka.BrokerID{}, p.ISR...), id) {
		b, _ := image.Broker(id)
		member := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		member.BrokerID, member.BrokerEpoch = int32(id), int64(b.Epoch)
		rp.NewEpochISR = append(rp.NewEpochISR, member)
	}
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.TopicID, rt.Partitions = image.Topic(topic).ID, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, int32(p.Leader), int64(leader.Epoch)
	req.Topics = append(req.Topics, rt)
	resp, err := c.nodes[p.Leader].plane.AlterPartition(c.Context(), req)
	if err != nil || resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		c.Fatalf("let %d in: %v, %+v", id, err, resp)
	}
}

// A broker that was unregistered while it hung registers again.
func TestUnregisteredWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[3].hang()
		c.serving(1, 2)
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = 3
		if resp, err := c.nodes[1].plane.UnregisterBroker(t.Context(), req); err != nil || resp.ErrorCode != 0 {
			t.Fatalf("%v, %+v", err, resp)
		}
		c.nodes[3].wake()
		c.serving(1, 2, 3)
	})
}

// A process with another data directory waits for the end of the session of the one
// that may run beside it; and what only that one had is lost until somebody wishes
// for a leader without it.
func TestABrokerComesWithAnEmptyDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		req := createRequest("alone")
		req.Topics[0].ReplicationFactor = -1
		req.Topics[0].NumPartitions = -1
		req.Topics[0].ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{3}}}
		if resp, err := c.nodes[2].plane.CreateTopics(t.Context(), req); err != nil || resp.Topics[0].ErrorCode != 0 {
			t.Fatalf("%v, %+v", err, resp)
		}
		c.nodes[3].hang()
		c.mu.Lock()
		c.nodes[3].down = true
		c.mu.Unlock()
		c.nodes[3].stop()
		n := c.start(3)
		n.disk = 99
		start := time.Now()
		n.join(false)
		for !slices.Contains(serves(c.nodes[1].plane.Image()), 3) || n.life.Fenced() {
			pass(10 * time.Millisecond)
		}
		if took := time.Since(start); took < time.Second || took > 2*time.Second {
			t.Errorf("it came after %v", took)
		}
		part := func() metadata.Partition { return c.nodes[2].plane.Image().Topic("alone").Partitions[0] }
		if p := part(); !p.Lost || p.Leader != kafka.NoBroker {
			t.Errorf("what is gone: %+v", p)
		}
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.Version, elect.ElectionType = 2, 1
		resp, err := c.nodes[1].plane.ElectLeaders(t.Context(), elect)
		if err != nil || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("%v, %+v", err, resp)
		}
		if p := part(); p.Lost || p.Leader != 3 || p.LeaderEpoch == 0 {
			t.Errorf("by wish: %+v", p)
		}
	})
}

// A topic that comes to allow unclean elections gets its leader by itself.
func TestUncleanElectionsAreAllowedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		c.nodes[1].replicated("a", 3)
		c.kill(2)
		c.kill(3)
		c.serving(1)
		c.start(3).join(false)
		c.serving(1, 3)
		c.elect(3)
		c.kill(1)
		c.serving(3)
		if led := leaders(c.nodes[3].plane.Image()); led[kafka.NoBroker] != 3 {
			t.Fatalf("leaders: %v", led)
		}
		alter(t, c.nodes[3].plane, kmsg.ConfigResourceTypeTopic, "a", "unclean.leader.election.enable", "true")
		pass(11 * time.Second)
		if led := leaders(c.nodes[3].plane.Image()); led[3] != 3 {
			t.Errorf("leaders: %v", led)
		}
	})
}

// A process learns that another has taken its place, and ends.
func TestTwoProcessesOfOneBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		first := c.nodes[3]
		c.mu.Lock()
		c.nodes[103] = first // It still learns what is decided.
		c.mu.Unlock()
		c.start(3).join(false)
		if err := <-first.ended; err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("the first ends with %v", err)
		}
		c.serving(1, 2, 3)
	})
}

// A data directory of another cluster is refused.
func TestJoinAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		n := c.start(4)
		life := n.plane.NewLifecycle(controlplane.Registration{
			ClusterID: "other", Endpoints: []metadata.Endpoint{{Host: "h"}},
		})
		if _, err := life.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "other") {
			t.Errorf("%v", err)
		}
		nowhere := n.plane.NewLifecycle(controlplane.Registration{})
		if _, err := nowhere.Join(t.Context()); err == nil || !strings.Contains(err.Error(), "may not join") {
			t.Errorf("without an address: %v", err)
		}
	})
}

// A node that others may join does nothing until one does.
func TestTheOnlyBrokerIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{T: t, nodes: map[kafka.BrokerID]*node{}, leader: kafka.NoBroker}
		t.Cleanup(c.close)
		c.start(1).join(true)
		c.elect(1)
		c.serving(1)
		before := c.nodes[1].asked
		pass(time.Minute)
		if n := c.nodes[1].asked - before; n > 0 || c.nodes[1].life.Fenced() {
			t.Errorf("%d decisions in a minute, fenced is %v", n, c.nodes[1].life.Fenced())
		}
		c.start(2).join(true)
		c.serving(1, 2)
		pass(time.Minute)
		c.serving(1, 2)
		c.kill(2)
		c.serving(1)
	})
}

// A node that is alone goes through its lifecycle without a heartbeat.
func TestLifecycleOfALoneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane, l := newPlane(t, nil)
		life := plane.NewLifecycle(registration)
		id, err := life.Join(t.Context())
		if err != nil || id != plane.Image().ClusterID() || life.Fenced() {
			t.Fatalf("%q, %v", id, err)
		}
		if active, known := plane.ActiveController(); active != 1 || !known {
			t.Errorf("active controller: %d", active)
		}
		create(t, plane, "a")
		before := len(l.log)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { _ = plane.Run(ctx) }()
		if err := life.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := life.Leave(t.Context()); err != nil || len(l.log) != before {
			t.Errorf("%v, %d entries", err, len(l.log)-before)
		}
	})
}

// A broker that was silent for so long that others lead in its place, and that is heard of
// again before it has learned that, holds no lease until it has.
func TestLeaseOfWhoWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		n := c.nodes[2]
		n.replicated("a", 30)
		pass(time.Second)
		if !n.life.Leased() {
			t.Error("a broker that is heard of holds no lease")
		}
		c.mu.Lock()
		n.late = true
		c.mu.Unlock()
		n.hang()
		pass(20 * time.Second)
		if n.life.Leased() || leaders(c.nodes[1].plane.Image())[2] > 0 {
			t.Fatalf("leased %v, leaders %v", n.life.Leased(), leaders(c.nodes[1].plane.Image()))
		}
		n.wake()
		for range 20 {
			pass(200 * time.Millisecond)
			if n.life.Leased() {
				t.Fatal("a broker that was replaced, and does not know it, holds a lease")
			}
		}
		if !slices.Equal(serves(c.nodes[1].plane.Image()), []kafka.BrokerID{1, 2, 3}) {
			t.Errorf("serving: %v", serves(c.nodes[1].plane.Image()))
		}
		c.mu.Lock()
		n.late = false
		n.catchUp()
		c.mu.Unlock()
		if !n.life.Leased() {
			t.Error("a broker that knows what the controller knew holds no lease")
		}
		pass(time.Second)
		if !n.life.Leased() {
			t.Error("the lease does not go on")
		}
	})
}
