package chaos_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// startLinkedLoad is startClusterLoad with each broker on a host of its own.
func startLinkedLoad(t *testing.T, topic string) (*harness.Links, *harness.Cluster, *load) {
	t.Helper()
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir())
	two := "2"
	return links, c, startLoadOn(t, c.Addrs(), topic, 6, 2, map[string]*string{"min.insync.replicas": &two})
}

// controller returns the node that is the active controller.
func controller(t *testing.T, addrs []string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return int(describeQuorum(t, cl).LeaderID)
}

// fault is something that happens to a broker, and how it ends.
type fault struct {
	name  string
	begin func(node int)
	end   func(node int)
	// onlyController says that the broker has to be the active controller.
	onlyController bool
}

// cuts are the ways of cutting a broker off.
func cuts(links *harness.Links) []fault {
	heal := func(int) { links.Heal() }
	others := func(node int) [2]int { return [2]int{1 + node%3, 1 + (node+1)%3} }
	return []fault{
		{name: "cut off from brokers, not from clients", begin: func(node int) { links.Isolate(node, 0) }, end: heal},
		{name: "cut off from everything", begin: func(node int) { links.Isolate(node) }, end: heal},
		{name: "heard by nobody of the brokers", end: heal, begin: func(node int) {
			for _, o := range others(node) {
				links.CutOneWay(node, o)
			}
		}},
		{name: "deaf to the brokers", end: heal, begin: func(node int) {
			for _, o := range others(node) {
				links.CutOneWay(o, node)
			}
		}},
		{name: "one link cut", begin: func(node int) { links.Cut(node, others(node)[0]) }, end: heal},
		{name: "one link cut, one way", begin: func(node int) { links.CutOneWay(node, others(node)[0]) }, end: heal},
		{name: "the controller cut off", begin: func(node int) { links.Isolate(node) }, end: heal, onlyController: true},
		{name: "the controller, and the link between the others cut", end: heal, onlyController: true, begin: func(node int) {
			links.Cut(others(node)[0], others(node)[1]) // Both are heard by the controller.
		}},
	}
}

// clientPatience is longer than clients here wait for an answer.
const clientPatience = 3 * time.Second

// clientCuts are the ways of cutting a broker off from clients alone: it leads on, so that
// they have to wait until that is over, which it is when begin returns. What they have sent
// may have been done, and they are not told.
func clientCuts(links *harness.Links) []fault {
	alone := func(name string, from func(node int) (int, int)) fault {
		return fault{name: name, end: func(int) {}, begin: func(node int) {
			links.CutOneWay(from(node))
			<-time.After(clientPatience)
			links.Heal()
		}}
	}
	return []fault{
		alone("heard by no client", func(node int) (int, int) { return node, 0 }),
		alone("deaf to clients", func(node int) (int, int) { return 0, node }),
	}
}

// suffer has each fault happen to brokers in turn, and returns how long partitions were
// without an acknowledgement.
func suffer(t *testing.T, c *harness.Cluster, l *load, n int, faults []fault) (gaps []time.Duration) {
	t.Helper()
	l.awaitMore(1000)
	for i := range n {
		f := faults[i%len(faults)]
		node := 1 + i%len(c.Brokers)
		if f.onlyController {
			node = controller(t, c.Addrs())
		}
		awaitInSync(t.Context(), t, c.Addrs(), l.topic) // Else nobody waits for who is cut off.
		l.takeGap()
		f.begin(node)
		// Until every partition has gone on, or was never stopped: after what was on its way.
		const onItsWay = 200 * time.Millisecond
		l.awaitEach(time.Now().Add(onItsWay))
		l.awaitMore(1000)
		gap := l.takeGap()
		f.end(node)
		l.awaitMore(1000)
		t.Logf("broker %d %s: no acknowledgement for %v; after that was over, %v", node, f.name, gap, l.takeGap())
		gaps = append(gaps, gap)
	}
	return gaps
}

// judge says what the gaps were, and fails the test for those that were too long.
func judge(t *testing.T, what string, gaps []time.Duration, goal time.Duration) {
	t.Helper()
	slices.Sort(gaps)
	last := gaps[len(gaps)-1-len(gaps)/100]
	t.Logf("%d times %s; longest time without an acknowledgement: median %v, 99th percentile %v, most %v",
		len(gaps), what, gaps[len(gaps)/2], last, gaps[len(gaps)-1])
	// Few of them on a busy machine say little about a percentile.
	const enough, lenient = 20, 3
	if len(gaps) < enough {
		goal *= lenient
	}
	if last > goal {
		t.Errorf("99th percentile %v, the goal is %v", last, goal)
	}
}

// pauseGoal is how long a broker that hangs, or is cut off, may stop a partition.
const pauseGoal = 3 * time.Second

// TestClusterCuts cuts brokers off, one after the other, in every way there is.
func TestClusterCuts(t *testing.T) {
	links, c, l := startLinkedLoad(t, "cut")
	faults := cuts(links)
	gaps := suffer(t, c, l, rounds(t, len(faults)), faults)
	alone := clientCuts(links)
	suffer(t, c, l, rounds(t, len(alone)), alone)
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c)
	judge(t, "a broker was cut off", gaps, pauseGoal)
}

// TestClusterLinkCut cuts the link between a leader and a follower both of whom the active
// controller hears, so that it fences neither.
func TestClusterLinkCut(t *testing.T) {
	links, c, l := startLinkedLoad(t, "link")
	l.slow(100 * time.Microsecond)
	gaps := suffer(t, c, l, rounds(t, 1), []fault{{
		name: "the controller, and the link between the others cut", onlyController: true,
		begin: func(node int) {
			leader, follower := 1+node%3, 1+(node+1)%3
			leadAll(t, c, l.topic, int32(leader))
			links.Cut(leader, follower)
		},
		end: func(int) { links.Heal() },
	}})
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c)
	if slices.Min(gaps) < time.Second {
		t.Error("nobody waited for who was cut off")
	}
	judge(t, "a link was cut", gaps, pauseGoal)
}

// TestClusterPause stops brokers with SIGSTOP for longer than their sessions last, and
// lets them go on: what they then believe is of an old leader epoch, and requests wait
// in their sockets.
func TestClusterPause(t *testing.T) {
	c, l := startClusterLoad(t, "pause")
	signal := func(s syscall.Signal) func(int) {
		return func(node int) {
			if err := syscall.Kill(c.Brokers[node-1].Pid(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	gaps := suffer(t, c, l, rounds(t, 3), []fault{
		{name: "stopped by SIGSTOP", begin: signal(syscall.SIGSTOP), end: signal(syscall.SIGCONT)},
	})
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c)
	judge(t, "a broker was stopped", gaps, pauseGoal)
}
