package strandline_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writeTransactions leaves a topic of two partitions with a committed transaction, an
// aborted one and one that is open, each with a record in both, and returns the
// producer of the open one.
func writeTransactions(t *testing.T, addrs []string, topic string) *transactional {
	t.Helper()
	p := newTransactional(t, addrs, "writer")
	p.produce(topic, "committed", "committed")
	p.end(kgo.TryCommit)
	p.produce(topic, "aborted", "aborted")
	p.end(kgo.TryAbort)
	p.produce(topic, "open", "open")
	return p
}

// TestHTTPConsumeCommitted: a committed reader sees neither what was aborted nor what
// is open, waits for the end of the first open transaction, and is never shown a marker;
// without asking for that one sees all records.
func TestHTTPConsumeCommitted(t *testing.T) {
	b, c := startHTTP(t)
	c.createTopic("t", 2)
	p := writeTransactions(t, []string{b.Addr()}, "t")
	all := []string{"0:0=committed", "0:2=aborted", "0:4=open"}
	same(t, c.consume("t", "partition=0&offset=0").values(), all...)
	same(t, c.consume("t", "partition=0&offset=0&isolation=read_uncommitted").values(), all...)
	got := c.consume("t", "partition=0&offset=0&isolation=read_committed")
	same(t, got.values(), "0:0=committed")
	if got.NextOffsets["0"] != 4 {
		t.Errorf("reads on at %d, and the open transaction begins at 4", got.NextOffsets["0"])
	}
	if at := c.consume("t", "partition=0&offset=latest&isolation=read_committed").NextOffsets["0"]; at != 4 {
		t.Errorf("the last stable offset is %d, want 4", at)
	}
	same(t, c.consume("t", "partition=0&offset=4&isolation=read_committed&wait_ms=50").values())
	values := c.consume("t", "group=g&isolation=read_committed").values()
	slices.Sort(values)
	same(t, values, "0:0=committed", "1:0=committed")
	same(t, c.consume("t", "group=g&isolation=read_committed&wait_ms=50").values())
	c.want(400, "isolation", "GET", "/v1/topics/t/consume?partition=0&offset=0&isolation=serializable", "")

	ended := make(chan struct{})
	go func() { // Ends with the transaction.
		defer close(ended)
		p.end(kgo.TryCommit)
	}()
	same(t, c.consume("t", "partition=0&offset=4&isolation=read_committed&wait_ms=20000").values(), "0:4=open")
	<-ended
	var late []string
	for len(late) < 2 {
		late = append(late, c.consume("t", "group=g&isolation=read_committed&wait_ms=20000").values()...)
	}
	slices.Sort(late)
	same(t, late, "0:4=open", "1:4=open")
}

// TestHTTPConsumeCommittedInACluster: the same of any node, whoever leads the
// partition and coordinates the group.
func TestHTTPConsumeCommittedInACluster(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 2, 3)
	p := writeTransactions(t, c.Addrs(), "t")
	for id, node := range c.nodes {
		for i := range 2 {
			got := node.consume("t", fmt.Sprintf("partition=%d&offset=0&isolation=read_committed", i))
			same(t, got.values(), fmt.Sprintf("%d:0=committed", i))
		}
		var values []string
		for len(values) < 2 {
			values = append(values, node.consume("t", fmt.Sprintf("group=g%d&isolation=read_committed&wait_ms=20000", id)).values()...)
		}
		slices.Sort(values)
		same(t, values, "0:0=committed", "1:0=committed")
		same(t, node.consume("t", fmt.Sprintf("group=g%d&isolation=read_committed", id)).values())
	}
	p.end(kgo.TryCommit)
	for id := range c.nodes {
		var values []string
		for len(values) < 2 {
			values = append(values, c.any().consume("t", fmt.Sprintf("group=g%d&isolation=read_committed&wait_ms=20000", id)).values()...)
		}
		slices.Sort(values)
		same(t, values, "0:4=open", "1:4=open")
	}
}
