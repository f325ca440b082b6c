package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// network connects nodes in memory; each link may be cut.
type network struct {
	mu    sync.Mutex
	nodes map[kafka.BrokerID]*node
	cut   map[kafka.BrokerID]bool // Nodes nobody hears or reaches.
	// directories are those of nodes that have one: messages name whom they are for.
	directories map[kafka.BrokerID][16]byte
	// addresses are where nodes are: nobody reaches one that it looks for elsewhere.
	addresses map[kafka.BrokerID]string
	snaps     int  // Snapshots sent.
	mute      bool // Entries are lost, votes arrive.
}

// port is one node's transport: a queue and one sender, so that Send does not
// block.
type port struct {
	net   *network
	from  kafka.BrokerID
	self  quorum.Member
	queue chan parcel
}

// parcel is a message, or a greeting to all.
type parcel struct {
	m     *raftpb.Message
	fresh bool
}

func (p *port) Greet(fresh bool) { p.send(parcel{fresh: fresh}) }

func (p *port) send(x parcel) {
	select {
	case p.queue <- x:
	default:
	}
}

func (p *port) Send(messages []*raftpb.Message) {
	for _, m := range messages {
		// A copy through the wire format, as a real network makes.
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		m = &raftpb.Message{}
		if err := proto.Unmarshal(b, m); err != nil {
			panic(err)
		}
		p.send(parcel{m: m})
	}
}

// run delivers until ctx ends.
func (p *port) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-p.queue:
			if x.m == nil {
				p.greet(ctx, x.fresh)
			} else {
				p.deliver(ctx, x.m)
			}
		}
	}
}

func (p *port) greet(ctx context.Context, fresh bool) {
	p.net.mu.Lock()
	var reached []*node
	for id, n := range p.net.nodes {
		if id != p.from && !p.net.cut[id] && !p.net.cut[p.from] {
			reached = append(reached, n)
		}
	}
	p.net.mu.Unlock()
	for _, n := range reached {
		_ = n.Greeted(ctx, p.self, fresh)
	}
}

func (p *port) deliver(ctx context.Context, m *raftpb.Message) {
	to := kafka.BrokerID(m.GetTo() - 1)
	p.net.mu.Lock()
	n := p.net.nodes[to]
	reachable := n != nil && p.net.nodes[p.from] != nil && !p.net.cut[to] && !p.net.cut[p.from] &&
		(!p.net.mute || m.GetType() != raftpb.MsgApp)
	self := p.net.nodes[p.from]
	if reachable && self != nil {
		known, _ := self.Member(to)
		reachable = (known.Directory == [16]byte{} || known.Directory == p.net.directories[to]) &&
			(known.Address == "" || known.Address == p.net.addresses[to])
	}
	if m.GetType() == raftpb.MsgSnap {
		p.net.snaps++
	}
	p.net.mu.Unlock()
	var err error
	if reachable {
		err = n.Receive(ctx, p.self, m)
	}
	if self == nil {
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		_ = self.ReportSnapshot(ctx, to, reachable && err == nil)
	} else if !reachable {
		_ = self.ReportUnreachable(ctx, to)
	}
}

// cluster is three voters.
type cluster struct {
	t        *testing.T
	net      *network
	disks    map[kafka.BrokerID]*memfs.FS
	machines map[kafka.BrokerID]*stagedList
	change   func(*quorum.Options)
}

func startCluster(t *testing.T, change func(*quorum.Options)) *cluster {
	c := &cluster{
		t: t, net: &network{
			nodes: map[kafka.BrokerID]*node{}, cut: map[kafka.BrokerID]bool{},
			directories: map[kafka.BrokerID][16]byte{}, addresses: map[kafka.BrokerID]string{},
		},
		disks: map[kafka.BrokerID]*memfs.FS{}, machines: map[kafka.BrokerID]*stagedList{},
		change: change,
	}
	for id := range kafka.BrokerID(3) {
		c.disks[id] = memfs.New()
		c.start(id)
	}
	return c
}

// join starts another node, which is no voter.
func (c *cluster) join(id kafka.BrokerID) {
	c.t.Helper()
	c.disks[id] = memfs.New()
	c.start(id)
	c.agree()
}

// address is where a node would be reached.
func address(id kafka.BrokerID) string { return fmt.Sprint("node-", id) }

// start runs a node on its disk.
func (c *cluster) start(id kafka.BrokerID) {
	c.t.Helper()
	p := &port{net: c.net, from: id, queue: make(chan parcel, 4096)}
	c.machines[id] = &stagedList{}
	opt := quorum.Options{
		FS: c.disks[id], Dir: "quorum", NodeID: id, Voters: []kafka.BrokerID{0, 1, 2},
		Machine: c.machines[id], Transport: p, Address: address(id),
	}
	if c.change != nil {
		c.change(&opt)
	}
	p.self = quorum.Member{ID: id, Directory: opt.Directory, Address: opt.Address}
	n := start(c.t, opt)
	go p.run(c.t.Context())
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.nodes[id], c.net.directories[id], c.net.addresses[id] = n, opt.Directory, opt.Address
}

// kill takes a node's power; what it had not synced is mostly gone.
func (c *cluster) kill(id kafka.BrokerID, seed uint64) {
	c.net.mu.Lock()
	n := c.net.nodes[id]
	delete(c.net.nodes, id)
	c.net.mu.Unlock()
	c.disks[id] = c.disks[id].CrashClone(seed, 30)
	n.stop(c.t)
}

func (c *cluster) setCut(id kafka.BrokerID, cut bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.cut[id] = cut
}

func (c *cluster) setMute(mute bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.mute = mute
}

// leader returns a node that leads and is not cut off, waiting for one.
func (c *cluster) leader() (kafka.BrokerID, *node) {
	c.t.Helper()
	for range 1000 {
		synctest.Wait()
		c.net.mu.Lock()
		for id, n := range c.net.nodes {
			if s := n.Status(); s.Leader == id && !c.net.cut[id] {
				c.net.mu.Unlock()
				return id, n
			}
		}
		c.net.mu.Unlock()
		advance(10 * time.Millisecond)
	}
	c.t.Fatal("no leader after 10 s")
	return 0, nil
}

// advance lets virtual time pass.
func advance(d time.Duration) { <-time.After(d) }

// add has an entry decided by whoever leads, until it succeeds.
func (c *cluster) add(entry string) {
	c.t.Helper()
	for range 100 {
		_, n := c.leader()
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		err := n.add(ctx, entry)
		cancel()
		var not *quorum.NotLeaderError
		if err == nil || errors.As(err, &not) && not.Proposed {
			return
		}
		advance(10 * time.Millisecond)
	}
	c.t.Fatalf("%q was never taken", entry)
}

// agree waits until all running nodes have applied the same, and returns it.
func (c *cluster) agree() []string {
	c.t.Helper()
	var diff string
	for range 500 {
		synctest.Wait()
		var want []string
		same, first := true, true
		for id := range c.net.nodes {
			got := c.machines[id].entries()
			if first {
				want, first = got, false
			}
			diff = cmp.Diff(want, got)
			same = same && diff == ""
		}
		if same {
			return want
		}
		advance(10 * time.Millisecond)
	}
	c.t.Fatalf("nodes differ for 5 s:\n%s", diff)
	return nil
}

func (c *cluster) stop() {
	for _, n := range c.net.nodes {
		n.stop(c.t)
	}
}

func TestThreeVotersReplicate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, nil)
		id, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "a", "b")
		if diff := cmp.Diff([]string{"a", "b"}, c.agree()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		for other, follower := range c.net.nodes {
			<-follower.Ready()
			var not *quorum.NotLeaderError
			if err := follower.add(t.Context(), "x"); other != id && (!errors.As(err, &not) || not.Leader != id) {
				t.Errorf("follower: %v, want leader %d named", err, id)
			}
		}
		c.stop()
	})
}

// A follower that has everything is caught up for as long as it is heard of, also where
// nothing is decided.
func TestCaughtUpWhileIdle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, nil)
		id, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "a")
		c.agree()
		advance(time.Minute)
		d, err := n.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Voters {
			if behind := time.Since(r.LastCaughtUp); behind > time.Second {
				t.Errorf("leader %d: node %d was caught up %v ago", id, r.ID, behind)
			}
		}
		c.stop()
	})
}

// A leader cut off steps down, fails what it had on its way, and takes over
// the others' history.
func TestLeaderCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, nil)
		old, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "before")
		c.setCut(old, true)
		lost := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { lost <- n.add(ctx, "lost") }()
		id, other := c.leader()
		if id == old {
			t.Fatal("the one cut off still leads")
		}
		<-other.Ready()
		mustAdd(t, other, "after")
		var not *quorum.NotLeaderError
		if err := <-lost; !errors.As(err, &not) || !not.Proposed {
			t.Errorf("the entry on its way: %v", err)
		}
		if c.machines[old].unstaged != 1 {
			t.Errorf("unstaged %d times, want 1", c.machines[old].unstaged)
		}
		c.setCut(old, false)
		if diff := cmp.Diff([]string{"before", "after"}, c.agree()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
		c.stop()
	})
}

// A voter is not removed if those that are left and heard of could decide nothing: the
// quorum would be lost, and the removal could not be undone.
func TestRemovalThatWouldStrand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		id, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "before")
		gone, third := (id+1)%3, (id+2)%3
		c.setCut(gone, true)
		advance(2 * time.Second)
		for _, removed := range []kafka.BrokerID{third, id} {
			var refused *quorum.MemberError
			err := n.RemoveVoter(t.Context(), removed, [16]byte{})
			if !errors.As(err, &refused) || refused.Problem != quorum.TooFewLeft || !slices.Equal(refused.Silent, []kafka.BrokerID{gone}) {
				t.Errorf("removing node %d while node %d is away: %v", removed, gone, err)
			}
		}
		mustAdd(t, n, "still")
		// Who was away a moment ago is waited for, and who is away can be removed.
		c.setCut(gone, false)
		if err := n.RemoveVoter(t.Context(), third, [16]byte{}); err != nil {
			t.Errorf("removing node %d right after node %d is back: %v", third, gone, err)
		}
		c.add("after")
		c.stop()
	})
}

// Two ask for a vote for one node, which each says to have another directory. Neither undoes
// what the other has done for ever: the quorum goes on, and does not fill its log with them.
func TestWishesThatContradict(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		_, n := c.leader()
		<-n.Ready()
		before := n.Status().LastIndex
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var asking sync.WaitGroup
		for directory := range byte(3) {
			asking.Go(func() {
				m := quorum.Member{ID: 7, Directory: [16]byte{directory + 1}, Address: "nobody:1"}
				if err := n.AddVoter(ctx, m); err == nil {
					t.Errorf("a node that nobody runs got a vote, with directory %d", directory+1)
				}
			})
		}
		asking.Wait()
		mustAdd(t, n, "on")
		if written := n.Status().LastIndex - before; written > 12 {
			t.Errorf("%d entries were written", written)
		}
		c.stop()
	})
}

// A voter that is away can be removed: what is left is a majority.
func TestRemovalOfOneAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		id, n := c.leader()
		<-n.Ready()
		gone := (id + 1) % 3
		c.setCut(gone, true)
		advance(2 * time.Second)
		if err := n.RemoveVoter(t.Context(), gone, [16]byte{}); err != nil {
			t.Errorf("removing the one that is away: %v", err)
		}
		mustAdd(t, n, "two decide")
		c.stop()
	})
}

// A second node of a learner's id, with a data directory of its own, is refused for as
// long as the first is there: else each would drive out the other for ever. Where the
// first is gone, it lost its data, and begins anew.
func TestTwoLearnersOfOneID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, identified(t))
		_, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "before")
		c.join(3)
		advance(time.Second)
		known, _ := n.Member(3)
		second := quorum.Member{ID: 3, Directory: [16]byte{99}, Address: "elsewhere"}
		before := n.Status().LastIndex
		for range 20 {
			var stranger *quorum.StrangerError
			if err := n.Greeted(t.Context(), second, false); !errors.As(err, &stranger) {
				t.Fatalf("the second of two is greeted with %v", err)
			}
			advance(150 * time.Millisecond)
		}
		if m, _ := n.Member(3); m != known || n.Status().LastIndex != before {
			t.Errorf("after 20 greetings of another, node 3 is %+v, and was %+v; the log has %d entries and had %d",
				m, known, n.Status().LastIndex, before)
		}
		c.setCut(3, true)
		advance(2 * time.Second)
		if err := n.Greeted(t.Context(), second, false); err != nil {
			t.Error(err)
		}
		advance(100 * time.Millisecond)
		if m, ok := n.Member(3); ok && m.Directory == known.Directory {
			t.Errorf("the first is gone, and still counts: %+v", m)
		}
		c.stop()
	})
}

// A new leader decides nothing before it has applied all that came before it.
func TestNewLeaderDecidesOnlyWhenCaughtUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, nil)
		old, n := c.leader()
		<-n.Ready()
		mustAdd(t, n, "before")
		c.setCut(old, true)
		c.setMute(true)
		id, other := c.leader()
		decided := make(chan int, 1)
		done := make(chan error, 1)
		go func() {
			done <- other.Do(t.Context(), func() ([]byte, error) {
				decided <- len(c.machines[id].seen())
				return []byte("after"), nil
			})
		}()
		synctest.Wait()
		select {
		case <-decided:
			t.Error("decided before its first entry was applied")
		default:
		}
		c.setMute(false)
		if got := <-decided; got != 1 {
			t.Errorf("decided on %d entries", got)
		}
		if err := <-done; err != nil {
			t.Errorf("Do: %v", err)
		}
		c.stop()
	})
}

// A follower too far behind gets the state, not the log, and one transfer is
// enough.
func TestFollowerFarBehindGetsSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, func(o *quorum.Options) {
			o.SnapshotEntries, o.TrailingEntries, o.SegmentBytes = 20, 5, 8<<10
		})
		id, n := c.leader()
		<-n.Ready()
		behind := (id + 1) % 3
		mustAdd(t, n, "a")
		c.agree()
		c.kill(behind, 1)
		for i := range 100 {
			mustAdd(t, n, fmt.Sprint(i))
		}
		c.start(behind)
		if got := c.agree(); len(got) != 101 {
			t.Errorf("%d entries", len(got))
		}
		if c.machines[behind].restored == 0 || c.net.snaps == 0 || c.net.snaps > 5 {
			t.Errorf("restored %d times from %d snapshots", c.machines[behind].restored, c.net.snaps)
		}
		mustAdd(t, n, "then the log")
		want := c.agree()
		c.kill(behind, 2)
		c.start(behind)
		if diff := cmp.Diff(want, c.agree()); diff != "" {
			t.Errorf("after its restart (-want +got):\n%s", diff)
		}
		c.stop()
	})
}

// A follower whose disk is full stands still, the others decide without it, and it goes on once there is room: by the
// log if it is a little behind, by a snapshot if it is far.
func TestFollowerWithAFullDisk(t *testing.T) {
	for name, entries := range map[string]int{"log": 30, "snapshot": 200} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startCluster(t, func(o *quorum.Options) {
					o.SnapshotEntries, o.TrailingEntries, o.SegmentBytes = 60, 20, 8<<10
				})
				id, n := c.leader()
				<-n.Ready()
				mustAdd(t, n, "first")
				c.agree()
				full := (id + 1) % 3
				c.disks[full].SetCapacity(0)
				for i := range entries {
					mustAdd(t, n, fmt.Sprint(i, strings.Repeat("x", 500)))
				}
				advance(5 * time.Second)
				if got := len(c.machines[full].seen()); got > entries {
					t.Errorf("%d entries on a full disk", got)
				}
				c.disks[full].SetCapacity(-1)
				if got := c.agree(); len(got) != entries+1 {
					t.Errorf("%d entries", len(got))
				}
				c.stop()
			})
		})
	}
}

// A leader whose disk is full has another lead, soon, whether it refuses a decision or can't save what it has proposed;
// where all disks are full it stays where it is.
func TestLeaderWithAFullDisk(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, func(o *quorum.Options) { o.SegmentBytes = 16 << 10 })
		for range 3 { // By turns.
			full, n := c.leader()
			<-n.Ready()
			c.disks[full].SetCapacity(0)
			var refused time.Time
			for i := 0; ; i++ {
				err := n.add(t.Context(), fmt.Sprint(full, i, strings.Repeat("x", 500)))
				if err != nil {
					refused = time.Now()
					break
				}
			}
			c.add(fmt.Sprint("after ", full, strings.Repeat("x", 500)))
			if took := time.Since(refused); took > 200*time.Millisecond {
				t.Errorf("nothing was decided for %v after the disk of %d was full", took, full)
			}
			if next, _ := c.leader(); next == full {
				t.Errorf("node %d leads still", full)
			}
			c.disks[full].SetCapacity(-1)
			c.agree()
			advance(5 * time.Second) // Who has handed over waits before it does again.
		}
		for id := range c.disks {
			c.disks[id].SetCapacity(0)
		}
		before := c.terms()
		id, n := c.leader()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := n.Resign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("leadership is handed to a node without room: %v", err)
		}
		if next, _ := c.leader(); next != id || c.terms() != before {
			t.Errorf("node %d leads after %d, and terms rose by %d, while no disk had room", next, id, c.terms()-before)
		}
		for id := range c.disks {
			c.disks[id].SetCapacity(-1)
		}
		c.add("last")
		c.agree()
		c.stop()
	})
}

// terms returns the newest term that a node knows.
func (c *cluster) terms() (term uint64) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for _, n := range c.net.nodes {
		term = max(term, n.Status().Term)
	}
	return term
}

// Nodes lose power one after the other under load; nothing that was
// acknowledged is lost and no two nodes ever differ.
func TestPowerLossesLoseNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startCluster(t, func(o *quorum.Options) {
			o.SnapshotEntries, o.TrailingEntries, o.SegmentBytes = 30, 3, 8<<10
		})
		var acked []string
		for round := range uint64(15) {
			for i := range 10 {
				e := fmt.Sprintf("%d/%d", round, i)
				_, n := c.leader()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				if n.add(ctx, e) == nil {
					acked = append(acked, e)
				}
				cancel()
			}
			victim, _ := c.leader()
			if round%3 != 0 {
				victim = (victim + 1) % 3
			}
			c.kill(victim, round)
			c.add(fmt.Sprintf("%d/without %d", round, victim))
			c.start(victim)
			got := "," + strings.Join(c.agree(), ",") + ","
			position := 0
			for _, e := range acked {
				i := strings.Index(got[position:], ","+e+",")
				if i < 0 {
					t.Fatalf("round %d: %q was acknowledged and is gone, or out of order", round, e)
				}
				position += i
			}
		}
		if len(acked) < 100 {
			t.Errorf("only %d entries were acknowledged", len(acked))
		}
		c.stop()
	})
}
