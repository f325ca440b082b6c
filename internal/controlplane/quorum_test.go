package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/controlplane"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
	"github.com/strandline/strandline/test/seeds"
)

// sim is three brokers' control planes on quorums of their own, with disks and a
// network in memory.
type sim struct {
	*testing.T
	mu    sync.Mutex
	nodes map[kafka.BrokerID]*simNode
	disks map[kafka.BrokerID]*memfs.FS
	cut   map[kafka.BrokerID]bool
}

type simNode struct {
	sim    *sim
	id     kafka.BrokerID
	plane  *controlplane.ControlPlane
	life   *controlplane.Lifecycle
	quorum *quorum.Quorum
	queue  chan parcel
	// stranded counts what Options.Stranded was told.
	stranded atomic.Int64
	stop     context.CancelFunc
	running  sync.WaitGroup
}

type parcel struct {
	m     *raftpb.Message
	fresh bool
}

// Greet implements quorum.Transport.
func (n *simNode) Greet(fresh bool) { n.enqueue(parcel{fresh: fresh}) }

// Send implements quorum.Transport.
func (n *simNode) Send(messages []*raftpb.Message) {
	for _, m := range messages {
		n.enqueue(parcel{m: proto.Clone(m).(*raftpb.Message)})
	}
}

func (n *simNode) enqueue(p parcel) {
	select {
	case n.queue <- p:
	default:
	}
}

// reach returns another node, if a packet to it arrives.
func (n *simNode) reach(id kafka.BrokerID) (*simNode, bool) {
	n.sim.mu.Lock()
	defer n.sim.mu.Unlock()
	other := n.sim.nodes[id]
	alive := other != nil && n.sim.nodes[n.id] == n
	return other, alive && !n.sim.cut[id] && !n.sim.cut[n.id]
}

func (n *simNode) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-n.queue:
			if p.m == nil {
				for id := kafka.BrokerID(1); id <= 3; id++ {
					if other, ok := n.reach(id); ok && id != n.id {
						_ = other.quorum.Greeted(ctx, quorum.Member{ID: n.id}, p.fresh)
					}
				}
				continue
			}
			to := kafka.BrokerID(p.m.GetTo() - 1)
			other, ok := n.reach(to)
			if ok {
				ok = other.quorum.Receive(ctx, quorum.Member{ID: n.id}, p.m) == nil
			}
			if p.m.GetType() == raftpb.MsgSnap {
				_ = n.quorum.ReportSnapshot(ctx, to, ok)
			} else if !ok {
				_ = n.quorum.ReportUnreachable(ctx, to)
			}
		}
	}
}

// Do implements controlplane.Remote.
func (n *simNode) Do(ctx context.Context, to kafka.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	n.sim.mu.Lock()
	_, runs := n.sim.nodes[to]
	n.sim.mu.Unlock()
	if !runs {
		return nil, refusedError{}
	}
	other, ok := n.reach(to)
	if !ok {
		<-ctx.Done() // Lost on the way.
		return nil, ctx.Err()
	}
	req.SetVersion(req.MaxVersion())
	arrived := kmsg.RequestForKey(req.Key())
	arrived.SetVersion(req.GetVersion())
	if err := arrived.ReadFrom(req.AppendTo(nil)); err != nil {
		return nil, err
	}
	resp, err := other.plane.Serve(ctx, arrived)
	if err != nil {
		return nil, errClosed
	}
	if _, ok := n.reach(to); !ok {
		return nil, errClosed // The answer is lost.
	}
	answer := req.ResponseKind()
	return answer, answer.ReadFrom(resp.AppendTo(nil))
}

// newSim starts three brokers on empty disks and waits until they serve.
func newSim(t *testing.T) *sim {
	s := &sim{
		T: t, nodes: map[kafka.BrokerID]*simNode{}, disks: map[kafka.BrokerID]*memfs.FS{},
		cut: map[kafka.BrokerID]bool{},
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		s.disks[id] = memfs.New()
		s.start(id)
	}
	begun := time.Now()
	s.settle()
	if took := time.Since(begun); took > time.Second {
		t.Errorf("the cluster took %v to form", took)
	}
	return s
}

func (s *sim) stop() {
	for _, n := range s.nodes {
		n.stop()
	}
	for _, n := range s.nodes {
		n.running.Wait()
		_ = n.quorum.Close()
	}
}

// setCut takes a node off the network, or back.
func (s *sim) setCut(id kafka.BrokerID, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut[id] = cut
}

// start starts a broker's process on its disk.
func (s *sim) start(id kafka.BrokerID) {
	s.Helper()
	n := &simNode{sim: s, id: id, queue: make(chan parcel, 1000)}
	plane, err := controlplane.New(controlplane.Options{
		Self: id, Remote: n, Stranded: func() { n.stranded.Add(1) },
	})
	if err != nil {
		s.Fatal(err)
	}
	q, err := quorum.Open(quorum.Options{
		FS: s.disks[id], Dir: "metadata", NodeID: id, Voters: []kafka.BrokerID{1, 2, 3}, Machine: plane, Transport: n,
		SnapshotEntries: 40, TrailingEntries: 5,
		OnLeader: func(l quorum.Leadership) { plane.LeaderChanged(l.Leader, l.Term) },
	})
	if err != nil {
		s.Fatal(err)
	}
	plane.Attach(q)
	n.plane, n.quorum = plane, q
	n.life = plane.NewLifecycle(controlplane.Registration{
		Endpoints: []metadata.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: int32(id)}}, Directory: [16]byte{byte(id)},
	})
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	s.mu.Lock()
	s.nodes[id] = n
	s.mu.Unlock()
	n.running.Go(func() { n.deliver(ctx) })
	n.running.Go(func() {
		if err := q.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.Errorf("node %d: %v", id, err)
		}
	})
	n.running.Go(func() { _ = plane.Run(ctx) })
	n.running.Go(func() {
		if _, err := n.life.Join(ctx); err != nil {
			return
		}
		if err := n.life.Run(ctx); err != nil {
			s.Errorf("node %d: %v", id, err)
		}
	})
}

// kill ends a process without a word; what it did not sync may be lost.
func (s *sim) kill(id kafka.BrokerID, seed uint64) {
	s.mu.Lock()
	n := s.nodes[id]
	delete(s.nodes, id)
	s.mu.Unlock()
	n.stop()
	n.running.Wait()
	disk := s.disks[id].CrashClone(seed, 50) // Nothing was promised since.
	_ = n.quorum.Close()
	s.disks[id] = disk
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.nodes {
		if !s.cut[id] && !s.cut[other.id] {
			go other.plane.ReportDead(id)
			go func() { _ = other.quorum.ReportDown(context.Background(), id) }()
		}
	}
}

// settle waits until all run and serve, and know the same.
func (s *sim) settle() {
	s.Helper()
	var last []string
	for range 3000 {
		synctest.Wait()
		last = last[:0]
		var snapshots [][]byte
		serving := true
		for id := kafka.BrokerID(1); id <= 3; id++ {
			image := s.nodes[id].plane.Image()
			serving = serving && len(serves(image)) == 3
			last = append(last, fmt.Sprint(serves(image), leaders(image)))
			snapshots = append(snapshots, image.AppendSnapshot(nil))
		}
		if serving && bytes.Equal(snapshots[0], snapshots[1]) && bytes.Equal(snapshots[1], snapshots[2]) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	s.Fatalf("the cluster does not settle: %v", last)
}

// Kills, power failures, cuts and shutdowns in any order: the cluster comes back,
// all know the same, and what was answered with a success is there.
func TestFaultsOnAQuorum(t *testing.T) {
	for seed := range seeds.Of(t, 10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t)
				defer s.stop()
				s.runFaults(rand.New(rand.NewPCG(seed, 7)))
			})
		})
	}
}

func (s *sim) runFaults(random *rand.Rand) {
	var created []string
	for round := range 12 {
		id := kafka.BrokerID(random.IntN(3) + 1)
		s.fault(random, id)
		name := fmt.Sprintf("t%d", round)
		req := createRequest(name)
		req.Topics[0].ReplicationFactor, req.Topics[0].NumPartitions = int16(random.IntN(3)+1), 5
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		resp, err := s.nodes[id].plane.CreateTopics(ctx, req)
		cancel()
		if err == nil && resp.Topics[0].ErrorCode == 0 {
			created = append(created, name)
			if s.nodes[id].plane.Image().Topic(name) == nil {
				s.Errorf("%s is not there for the one who asked", name)
			}
		}
		if random.IntN(2) == 0 {
			s.settle()
		}
	}
	s.settle()
	if len(created) < 6 {
		s.Errorf("only %d topics were created", len(created))
	}
	image := s.nodes[1].plane.Image()
	for _, name := range created {
		if image.Topic(name) == nil {
			s.Errorf("%s is gone", name)
		}
	}
	if led := leaders(image); led[kafka.NoBroker] > 0 {
		s.Errorf("%d partitions have no leader", led[kafka.NoBroker])
	}
}

// fault has a broker, or all, fail in some way and come back.
func (s *sim) fault(random *rand.Rand, id kafka.BrokerID) {
	wait := func(most int) { <-time.After(time.Duration(random.IntN(most)) * time.Millisecond) }
	switch random.IntN(4) {
	case 0:
		s.kill(id, random.Uint64())
		wait(3000)
		s.start(id)
	case 1:
		for other := kafka.BrokerID(1); other <= 3; other++ {
			s.kill(other, random.Uint64())
		}
		for _, i := range random.Perm(3) {
			wait(1000)
			s.start(kafka.BrokerID(i + 1))
		}
	case 2:
		s.setCut(id, true)
		wait(5000)
		s.setCut(id, false)
	case 3:
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		defer cancel()
		if err := s.nodes[id].life.Leave(ctx); err == nil {
			_ = s.nodes[id].quorum.Resign(ctx)
			s.kill(id, random.Uint64())
			s.start(id)
		}
	}
}

// A process that dies is missed as soon as messages travel, the active controller
// too; a cut takes the quorum's patience and two heartbeats.
func TestFailoverTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t)
		defer s.stop()
		create := func(name string) {
			req := createRequest(name)
			req.Topics[0].NumPartitions, req.Topics[0].ReplicationFactor = 300, 3
			if resp, err := s.nodes[1].plane.CreateTopics(t.Context(), req); err != nil || resp.Topics[0].ErrorCode != 0 {
				t.Fatalf("%v, %+v", err, resp)
			}
		}
		create("a")
		active, _ := s.nodes[1].plane.ActiveController()
		for _, id := range []kafka.BrokerID{active%3 + 1, active} {
			most := 20 * time.Millisecond
			if id == active { // Who asks for votes before the other knows is refused, and the turn goes on.
				most = 200 * time.Millisecond
			}
			s.kill(id, 1)
			if took := s.missed(id); took > most {
				t.Errorf("the death of broker %d is noticed after %v", id, took)
			}
			s.start(id)
			s.settle()
		}
		remove(t, s.nodes[1].plane, "a") // Nobody copies, so just one broker was in sync.
		create("b")
		active, _ = s.nodes[1].plane.ActiveController()
		s.setCut(active, true)
		if took := s.missed(active); took > 2500*time.Millisecond {
			t.Errorf("a cut of the active controller is noticed after %v", took)
		}
		s.setCut(active, false)
		s.settle()
	})
}

// A broker that is cut off knows that others may lead in its place, whoever is the active
// controller, and those that are not cut off know of no such thing.
func TestOutOfTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t)
		defer s.stop()
		active, _ := s.nodes[1].plane.ActiveController()
		for _, id := range []kafka.BrokerID{active%3 + 1, active} {
			s.setCut(id, true)
			<-time.After(2100 * time.Millisecond) // A session, and what the last heartbeat took.
			before := s.nodes[id].stranded.Load()
			<-time.After(time.Second)
			if told := s.nodes[id].stranded.Load() - before; told < 9 {
				t.Errorf("broker %d was cut off for 2 s, and those who wait were told %d times in a second", id, told)
			}
			for range 2 {
				<-time.After(time.Second)
				for other, n := range s.nodes {
					if other != id && n.plane.OutOfTouch() {
						t.Errorf("broker %d is out of touch when %d is cut off", other, id)
					}
				}
			}
			if told := s.nodes[id].stranded.Load(); !s.nodes[id].plane.OutOfTouch() || told == 0 {
				t.Errorf("5 s after broker %d was cut off: out of touch %v, told %d times",
					id, s.nodes[id].plane.OutOfTouch(), told)
			}
			s.setCut(id, false)
			s.settle()
			if s.nodes[id].plane.OutOfTouch() {
				t.Errorf("broker %d is out of touch when it serves again", id)
			}
		}
	})
}

// missed waits until the others know that a broker leads nothing, and returns how
// long that took.
func (s *sim) missed(id kafka.BrokerID) time.Duration {
	start := time.Now()
	for time.Since(start) < 20*time.Second {
		synctest.Wait()
		noticed := true
		for other, n := range s.nodes {
			if other != id {
				led := leaders(n.plane.Image())
				noticed = noticed && led[id] == 0 && led[kafka.NoBroker] == 0 && len(serves(n.plane.Image())) == 2
			}
		}
		if noticed {
			break
		}
		<-time.After(time.Millisecond)
	}
	return time.Since(start)
}
