package cli_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline"
)

// until runs a command until what it prints has something often enough.
func (c commands) until(n int, part string, args ...string) {
	c.t.Helper()
	out := ""
	for end := time.Now().Add(20 * time.Second); strings.Count(out, part) < n; {
		if time.Now().After(end) {
			c.t.Fatalf("%v says for 20 s:\n%s", args, out)
		}
		out, _ = c.run(0, args...)
	}
}

// Two of three voters are lost with their disks: nothing is decided any more, until the third
// is told to go on alone. Then new brokers take the place of those that are lost, and no
// record of a topic with three replicas is.
func TestRecover(t *testing.T) {
	var listeners []net.Listener
	var voters []strandline.Voter
	listen := func(address string) net.Listener {
		t.Helper()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for id := range int32(3) {
		l := listen("127.0.0.1:0")
		listeners = append(listeners, l)
		voters = append(voters, strandline.Voter{NodeID: id + 1, Address: l.Addr().String()})
	}
	root := t.TempDir()
	dir := func(id int32) string { return filepath.Join(root, fmt.Sprint(id)) }
	started := make(chan *strandline.Server, 3)
	start := func(id int32, l net.Listener, voters []strandline.Voter) {
		srv, err := strandline.Start(t.Context(), strandline.Config{
			NodeID: id, DataDir: dir(id), ClusterListener: l, Voters: voters,
			Settings: map[string]string{"offsets.topic.num.partitions": "2", "default.replication.factor": "3"},
		})
		if err != nil {
			t.Error(err)
		} else {
			t.Cleanup(func() { _ = srv.Close() }) // Some are closed before.
		}
		started <- srv
	}
	for id := range int32(3) {
		go start(id+1, listeners[id], voters) // Ends when it has started; all of them are waited for.
	}
	var first *strandline.Server
	var others []*strandline.Server
	c := commands{t: t}
	for range 3 {
		srv := <-started
		if srv == nil {
			t.Fatal("a broker did not start")
		}
		c.brokers = append(c.brokers, srv.Addr())
		others = append(others, srv)
	}
	c.until(3, "\ttrue\tvoter\t", "cluster", "describe")
	c.run(0, "topic", "create", "orders", "--partitions", "3", "--durability", "strict")
	n := c.fill("orders")
	alone := commands{t: t, brokers: []string{"127.0.0.1:1"}} // It asks no broker.
	alone.wantCode(1, "a broker runs on", "cluster", "recover", dir(1))
	for _, srv := range others {
		srv.Kill()
	}
	// While another broker answers, a majority may be there.
	there := listen(voters[1].Address)
	alone.wantCode(1, "broker 2 answers at "+voters[1].Address, "cluster", "recover", dir(1), "--yes")
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	for id := int32(2); id <= 3; id++ {
		if err := os.RemoveAll(dir(id)); err != nil {
			t.Fatal(err)
		}
	}
	alone.wantCode(1, "there is no data directory", "cluster", "recover", dir(2))
	alone.wantCode(4, "Nothing was changed", "cluster", "recover", dir(1))
	alone.wantCode(4, "1,2,3", "cluster", "recover", dir(1))
	alone.want("\ttrue", "cluster", "recover", dir(1), "--yes")
	alone.wantCode(1, "it decides alone", "cluster", "recover", dir(1), "--yes")

	start(1, listen(voters[0].Address), voters)
	if first = <-started; first == nil {
		t.Fatal("it does not go on")
	}
	c.brokers = []string{first.Addr()}
	c.until(2, "\tfalse\t-\t-\n", "cluster", "describe") // Then it leads what they led.
	if got := c.count("orders"); got != n {
		t.Errorf("%d records of %d are read", got, n)
	}
	c.run(0, "topic", "create", "later", "-r", "1")
	for id := int32(2); id <= 3; id++ {
		start(id, listen(voters[id-1].Address), voters[:1])
		if srv := <-started; srv == nil {
			t.Fatal("a new broker does not join")
		}
	}
	c.want("then 1, 2, 3", "cluster", "add", "2", "3", "--yes")
	c.fill("orders")
	if got := c.count("orders"); got != 2*n {
		t.Errorf("%d records of %d are read", got, 2*n)
	}
	out, _ := c.run(0, "cluster", "describe")
	if strings.Count(out, "\ttrue\tvoter\t") != 3 {
		t.Errorf("cluster describe: %s", out)
	}
}
