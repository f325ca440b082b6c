package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
	"github.com/strandline/strandline/test/strange"
)

// TestClusterStrangers sends requests of every kind and version to all three brokers, well
// formed and with odd values: no broker ends, answers decode, memory stays bounded, and
// clients that mind their own business go on, with nothing lost.
func TestClusterStrangers(t *testing.T) {
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3, "--set", "max.partitions.per.broker=1000")
	visitStrangers(t, c, c.Addrs())
}

// TestClusterStrangersBehind sends them to the listeners of the brokers, with what is no
// request at all.
func TestClusterStrangersBehind(t *testing.T) {
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3, "--set", "max.partitions.per.broker=1000")
	visitStrangers(t, c, slices.Concat(c.Addrs(), c.Doors))
}

func visitStrangers(t *testing.T, c *harness.Cluster, addrs []string) {
	t.Helper()
	l := startLoadOn(t, c.Addrs(), "minded", 3, 2, sturdy())
	l.awaitMore(1000)
	l.slow(time.Millisecond)
	l.takeGap()
	strangers{t: t, cluster: c, addrs: addrs, known: strange.NewWorld()}.visit(rounds(t, 1))
	t.Logf("longest time without an acknowledgement: %v", l.takeGap())
	l.awaitMore(1000)
	l.end()
	t.Logf("%d acknowledged records checked", l.verify())
	c.Stop()
	l.compareReplicas(c)
}

// sturdy are settings of a topic that no setting of a broker overrides.
func sturdy() map[string]*string {
	out := map[string]*string{}
	for name, value := range map[string]string{
		"min.insync.replicas": "2", "retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete",
		"unclean.leader.election.enable": "false", "max.message.bytes": "1048588", "flush.messages": "1",
		"message.timestamp.type": "CreateTime", "compression.type": "producer",
	} {
		out[name] = &value
	}
	return out
}

// strangers are clients that send whatever comes to their minds.
type strangers struct {
	t       *testing.T
	cluster *harness.Cluster
	addrs   []string
	known   *strange.World
}

// The limits of what strangers may do to a broker, and to others.
const (
	visit      = 10 * time.Second // Of each round.
	visitors   = 4                // For each broker.
	mostMemory = 700 << 20        // Resident, of one broker.
	mostLeft   = 100              // Goroutines of one broker, when they are gone.
)

// visit lets them loose.
func (s strangers) visit(rounds int) {
	before := s.goroutines()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(rounds)*visit)
	defer cancel()
	var visiting sync.WaitGroup
	seed := rand.Uint64()
	s.t.Logf("seed %d", seed)
	for i, addr := range s.addrs {
		visiting.Go(func() { strange.Frames(ctx, rand.New(rand.NewPCG(seed, uint64(1000+i))), addr) })
		for j := range visitors {
			visiting.Go(func() {
				v := strange.Visitor{Addr: addr, World: s.known, Rand: rand.New(rand.NewPCG(seed, uint64(i*visitors+j)))}
				for err := range v.Visit(ctx) {
					s.t.Errorf("%s: %v", addr, err)
				}
			})
		}
	}
	visiting.Go(func() { s.watch(ctx) })
	visiting.Wait()
	s.t.Logf("%d %v", s.known.Answered(), s.known)
	for i, n := range s.goroutines() {
		s.t.Logf("broker %d: %d goroutines before, %d after", i+1, before[i], n)
		if n > before[i]+mostLeft {
			s.t.Errorf("broker %d has %d goroutines, and had %d before", i+1, n, before[i])
		}
	}
}

// watch looks at the brokers' memory, and that they are there.
func (s strangers) watch(ctx context.Context) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	peak := make([]int64, len(s.cluster.Brokers))
	for ctx.Err() == nil {
		for i, b := range s.cluster.Brokers {
			if b.Ended() {
				s.t.Errorf("broker %d ended", i+1)
				return
			}
			peak[i] = max(peak[i], resident(b.Pid()))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	for i, bytes := range peak {
		s.t.Logf("broker %d: %d MiB at most", i+1, bytes>>20)
		if bytes > mostMemory {
			s.t.Errorf("broker %d had %d MiB resident", i+1, bytes>>20)
		}
	}
}

// resident returns how much memory a process has.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0 // It has ended.
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// goroutines returns how many each broker has.
func (s strangers) goroutines() (out []int) {
	for _, b := range s.cluster.Brokers {
		n, err := gauge(s.t.Context(), b.HTTP, "go_goroutines")
		if err != nil {
			s.t.Errorf("metrics: %v", err)
		}
		out = append(out, int(n))
	}
	return out
}

// gauge reads a metric without labels.
func gauge(ctx context.Context, addr, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no %s", name)
}
