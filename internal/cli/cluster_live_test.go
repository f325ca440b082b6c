package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// commands runs the command line against brokers.
type commands struct {
	t       *testing.T
	brokers []string
}

// run runs one command, which must exit with a code, and returns what it printed.
func (c commands) run(code int, args ...string) (stdout, stderr string) {
	c.t.Helper()
	out, errs, got := c.try(args...)
	if got != code {
		c.t.Fatalf("%v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
	}
	return out, errs
}

// try runs one command, and returns its exit code too.
func (c commands) try(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = cli.Run(c.t.Context(), cli.Env{
		Args:  append(args, "--brokers", strings.Join(c.brokers, ",")),
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	return out.String(), errs.String(), code
}

// want runs a command that must succeed and say something.
func (c commands) want(part string, args ...string) {
	c.t.Helper()
	c.wantCode(0, part, args...)
}

func (c commands) wantCode(code int, part string, args ...string) {
	c.t.Helper()
	out, errs := c.run(code, args...)
	if !strings.Contains(out+errs, part) {
		c.t.Errorf("%v does not say %q:\n%s%s", args, part, out, errs)
	}
}

// replicas returns the replicas of a topic's partitions, the leaders first.
func (c commands) replicas(topic string) (all [][]int32) {
	c.t.Helper()
	out, _ := c.run(0, "topic", "describe", topic, "--json")
	var topics []struct {
		Partitions []struct {
			Leader   int32
			Replicas []int32
			ISR      []int32
		}
	}
	if err := json.Unmarshal([]byte(out), &topics); err != nil {
		c.t.Fatal(err)
	}
	for _, p := range topics[0].Partitions {
		all = append(all, p.Replicas)
		if !slices.Contains(p.Replicas, p.Leader) {
			c.t.Errorf("%s: %d leads of %v", topic, p.Leader, p.Replicas)
		}
	}
	return all
}

// fill writes records to a topic and returns how many.
func (c commands) fill(topic string) int {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	const n = 300
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Key: fmt.Append(nil, i), Value: make([]byte, 1000)})
	}
	if err := cl.ProduceSync(c.t.Context(), records...).FirstErr(); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// count reads a topic from the start.
func (c commands) count(topic string) int {
	c.t.Helper()
	out, _ := c.run(0, "consume", topic, "--from", "start", "--until", "end", "--format", "%o ")
	return len(strings.Fields(out))
}

func TestDrainAndBalance(t *testing.T) {
	c := commands{t, strandlinetest.StartCluster(t, 4).Addrs()}
	c.want("orders\t8\t3\t", "topic", "create", "orders", "--partitions", "8", "--durability", "strict")
	c.wantCode(2, "want strict, balanced or relaxed", "topic", "create", "x", "--durability", "loose")
	c.wantCode(2, "sets min.insync.replicas=2", "topic", "create", "x", "--durability", "strict", "-c", "min.insync.replicas=1")
	c.wantCode(1, "replication factor 2 was asked for: ask for 3", "topic", "create", "x", "--durability", "balanced", "-r", "2")
	c.want(`"durability": "strict"`, "topic", "describe", "orders", "--json")
	n := c.fill("orders")

	// The plan comes first, and nothing is done without --yes.
	c.want("Nothing was done", "cluster", "drain", "4")
	out, _ := c.run(0, "cluster", "drain", "4", "--yes", "--json")
	var report struct {
		Moves  []any `json:"moves"`
		Done   bool  `json:"carried_out"`
		Copied int64 `json:"bytes_to_copy"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || !report.Done || len(report.Moves) == 0 || report.Copied == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, replicas := range c.replicas("orders") {
		if slices.Contains(replicas, 4) || len(replicas) != 3 {
			t.Errorf("orders-%d is at %v", i, replicas)
		}
	}
	c.want("no leaders and no replicas are left there", "cluster", "drain", "4", "--yes")
	if found, _ := c.run(0, "cluster", "doctor", "--watch", "0"); !strings.Contains(found, "note\tbrokers\tbroker 4 is drained") ||
		strings.Contains(found, "no partition at all") {
		t.Errorf("the doctor, of a broker that was drained:\n%s", found)
	}
	// It is as good as gone for what comes: no new partitions, no moves.
	c.run(0, "topic", "create", "later", "--partitions", "8")
	c.run(0, "topic", "alter", "orders", "--partitions", "12")
	for _, topic := range []string{"orders", "later"} {
		for i, replicas := range c.replicas(topic) {
			if slices.Contains(replicas, 4) {
				t.Errorf("%s-%d is placed on the broker that was drained: %v", topic, i, replicas)
			}
		}
	}
	c.want("Nothing has to move", "cluster", "balance", "--yes")
	c.run(0, "topic", "delete", "later", "--yes")
	// Nowhere to go: led elsewhere.
	c.wantCode(1, "12 replicas stay", "cluster", "drain", "3", "4", "--yes")
	for i, replicas := range c.replicas("orders") {
		if replicas[0] == 3 {
			t.Errorf("orders-%d prefers the broker that was drained: %v", i, replicas)
		}
	}
	c.want("Nothing was done", "cluster", "drain", "3", "4") // All is as it should be, but nobody said yes.
	c.want("Brokers 3, 4 take replicas again", "cluster", "drain", "3", "4", "--undo")
	// Everybody gets a share again.
	c.want("moves made", "cluster", "balance", "--yes")
	if got := c.count("orders"); got != n {
		t.Errorf("%d records of %d are read", got, n)
	}
	held := map[int32]int{}
	for _, replicas := range c.replicas("orders") {
		for _, id := range replicas {
			held[id]++
		}
	}
	if held[4] < 4 {
		t.Errorf("replicas by broker: %v", held)
	}
	c.want("Nothing has to move", "cluster", "balance", "--yes")
	c.wantCode(1, "there is no broker 9", "cluster", "drain", "9")
	c.wantCode(2, `"x" is no broker's id`, "cluster", "drain", "x")
	c.wantCode(2, "--throttle", "cluster", "balance", "--throttle", "fast")
}

func TestVoters(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	for id := 1; id <= 3; id++ {
		out, _ := c.run(0, "cluster", "describe")
		if !strings.Contains(out, fmt.Sprintf("%d\t127.0.0.1:", id)) || strings.Count(out, "\ttrue\tvoter\t") != 3 {
			t.Errorf("cluster describe: %s", out)
		}
	}
	c.want("1,2\t", "cluster", "remove-voter", "3", "--yes")
	c.wantCode(1, "broker 3 is no voter: voters are 1, 2", "cluster", "remove-voter", "3", "--yes")
	found, _ := c.run(0, "cluster", "doctor", "--watch", "0")
	if !strings.Contains(found, "an even number") || !strings.Contains(found, "\tstrandline cluster add 3\n") {
		t.Errorf("the doctor, of two voters and a broker without a vote:\n%s", found)
	}
	c.wantCode(1, "broker 1 is a voter", "cluster", "unregister", "1", "--yes")
	c.wantCode(1, "broker 3 is running", "cluster", "unregister", "3", "--yes")
	// It asks to be let in again, and catches up.
	c.want("", "cluster", "add", "3", "--yes")
	out, _ := c.run(0, "cluster", "describe")
	if strings.Count(out, "\ttrue\tvoter\t") != 3 {
		t.Errorf("cluster describe: %s", out)
	}
	c.wantCode(1, "broker 7 has not joined", "cluster", "add", "7", "--timeout", "1s")
}

// With the quorum lost, what the brokers know of one another is old, and is not told as if
// it were so.
func TestDoctorWithoutAQuorum(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	c.want("all 3 brokers are up", "cluster", "doctor", "--watch", "0")
	c.run(0, "topic", "create", "orders", "--partitions", "6", "--durability", "strict")
	// The broker that is left must have heard of the topic.
	c.brokers = c.brokers[2:]
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if _, _, code := c.try("topic", "describe", "orders"); code == 0 {
			break
		}
	}
	cluster.Kill(1, 2)
	described, _ := c.run(0, "cluster", "describe", "--timeout", "3s")
	for id := 1; id <= 3; id++ {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^%d\t.*\t(true|false)\t-\t-$`, id)).FindStringSubmatch(described)
		if len(row) != 2 || (row[1] == "true") != (id == 3) {
			t.Errorf("broker %d, with 1 and 2 gone: %q of\n%s", id, row, described)
		}
	}
	out, _ := c.run(4, "cluster", "doctor", "--watch", "0", "--timeout", "3s")
	_, errs, code := c.try("consume", "orders", "--from", "start", "--until", "end", "--timeout", "3s")
	if code != 1 || !strings.Contains(errs, "brokers that are needed for this cannot be reached") || strings.Contains(errs, "with --advertise") {
		t.Errorf("consume, with two of three brokers gone, exits with %d:\n%s", code, errs)
	}
	if strings.Contains(out, "brokers are up\t") || strings.Contains(out, "ok\ttopics") || strings.Contains(out, "are even") ||
		!strings.Contains(out, "which brokers are up is not known") || !strings.Contains(out, "who elects the controller is not known") {
		t.Errorf("two of three voters are gone:\n%s", out)
	}
}

// Where a broker is down, it is not said that all is even.
func TestDoctorWithABrokerDown(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	c := commands{t, cluster.Addrs()}
	c.want("orders\t6\t3\t", "topic", "create", "orders", "--partitions", "6", "--durability", "strict")
	// The broker that is asked may hear a moment later of what was decided.
	told := func(what string) (out string) {
		for end := time.Now().Add(20 * time.Second); !strings.Contains(out, what) && time.Now().Before(end); {
			out, _ = c.run(0, "cluster", "doctor", "--watch", "0")
		}
		return out
	}
	if out := told("ok\tleaders"); !strings.Contains(out, "ok\tleaders\tleaders are even: broker 1 has 2") {
		t.Errorf("with all brokers:\n%s", out)
	}
	cluster.Kill(3)
	out := told("\tleaders\tleaders are even among")
	if strings.Contains(out, "ok\tleaders") ||
		!strings.Contains(out, "note\tleaders\tleaders are even among the brokers that are up: broker 1 has 3, broker 2 has 3; nothing is led by broker 3, while down") {
		t.Errorf("with a broker down:\n%s", out)
	}
}

// TestNoController: a broker that is there and waits for a controller is not unreachable.
func TestNoController(t *testing.T) {
	cluster := strandlinetest.StartCluster(t, 3)
	// An active controller that is left would take the change, before it finds itself alone.
	left := 1 + cluster.Controller()%3
	cluster.Kill(1+left%3, 1+(left+1)%3)
	c := commands{t, cluster.Addrs()[left-1 : left]}
	// It may ask one of the others, which nobody can say are down.
	var missing, errs string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		var code int
		_, errs, code = c.try("topic", "create", "orders", "--timeout", "1s")
		missing = ""
		if code != 1 {
			missing = fmt.Sprintf("what exit code 1 says, but what %d does", code)
		}
		for _, part := range []string{"waits for an active controller", "cluster describe"} {
			if !strings.Contains(errs, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
	}
	t.Errorf("it does not say %q:\n%s", missing, errs)
}

// A single broker with records grows to three, and loses the first.
func TestGrow(t *testing.T) {
	start := func(config strandline.Config) *strandline.Server {
		t.Helper()
		config.Settings = map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
		srv, err := strandline.Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() }) // Some are closed before.
		return srv
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	dir := t.TempDir()
	first := start(strandline.Config{DataDir: dir})
	c := commands{t, []string{first.Addr()}}
	c.run(0, "topic", "create", "orders", "--partitions", "3")
	n := c.fill("orders")
	if out, _ := c.run(0, "consume", "orders", "--group", "g", "-n", "10", "--from", "start"); strings.Count(out, "\n") != 10 {
		t.Fatalf("consumed %q", out)
	}
	c.wantCode(1, "restart it with --cluster-listen", "cluster", "add", "2", "3", "--timeout", "500ms")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l := listen()
	voters := []strandline.Voter{{NodeID: 1, Address: l.Addr().String()}}
	first = start(strandline.Config{DataDir: dir, ClusterListener: l})
	second := start(strandline.Config{NodeID: 2, ClusterListener: listen(), Voters: voters})
	third := start(strandline.Config{NodeID: 3, ClusterListener: listen(), Voters: voters})
	c.brokers = []string{first.Addr()}
	c.wantCode(1, "there would be 2 voters", "cluster", "add", "2", "--yes")
	c.want("", "cluster", "add", "2", "3", "--replication-factor", "3", "--yes")
	leads := map[int32]int{}
	for _, topic := range []string{"orders", "__consumer_offsets"} {
		for i, replicas := range c.replicas(topic) {
			leads[replicas[0]]++
			if len(replicas) != 3 {
				t.Errorf("%s-%d is at %v", topic, i, replicas)
			}
		}
	}
	if len(leads) != 3 {
		t.Errorf("preferred leaders: %v", leads)
	}
	c.want("later\t1\t3\t", "topic", "create", "later")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.brokers = []string{second.Addr(), third.Addr()}
	if got := c.count("orders"); got != n {
		t.Errorf("%d records of %d are read", got, n)
	}
	out, _ := c.run(0, "group", "describe", "g", "--json")
	if !strings.Contains(out, `"committed": `) || strings.Count(out, `"committed": -1`) > 2 {
		t.Errorf("the group: %s", out)
	}
	c.fill("orders")
	c.want("broker 1 is down", "cluster", "doctor", "--watch", "0")
}

// The doctor finds the partition that takes more than its share, and the key.
func TestDoctorFindsAHotKey(t *testing.T) {
	c := commands{t, strandlinetest.StartCluster(t, 3).Addrs()}
	c.run(0, "topic", "create", "orders", "--partitions", "6", "--replication-factor", "3", "-c", "min.insync.replicas=3", "-c",
		"unclean.leader.election.enable=true")
	c.run(0, "topic", "create", "lonely", "--replication-factor", "1", "-c", "min.insync.replicas=1")
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // Ends with stop.
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := "hot"
			if i%10 == 0 {
				key = fmt.Sprint(i)
			}
			cl.Produce(t.Context(), &kgo.Record{Key: []byte(key), Value: make([]byte, 100)}, nil)
			if i%100 == 0 {
				_ = cl.Flush(t.Context()) // The doctor looks at what was taken.
			}
		}
	}()
	out, _ := c.run(0, "cluster", "doctor", "--watch", "1s")
	close(stop)
	<-done
	for _, part := range []string{
		"ok\tbrokers\tall 3 brokers are up", "ok\tvoters\t1, 2, 3 elect the controller",
		"warning\ttopics\tone replica only, though there are more brokers: lonely",
		"warning\ttopics\tmin.insync.replicas equals the number of replicas",
		"(unclean.leader.election.enable): orders", `key "hot" has 9`, "warning\ttraffic\torders-",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("the doctor does not say %q:\n%s", part, out)
		}
	}
}
