package strandline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// eachTwice asks for the same at two nodes, as who has lost the first answer does, and
// returns the answer, which must be the same.
func (c *webCluster) eachTwice(pattern, path, body string) string {
	c.t.Helper()
	first := c.any().want(200, pattern, "POST", path, body)
	if again := c.any().want(200, pattern, "POST", path, body); again != first {
		c.t.Errorf("%s %s: first %s, then %s", path, body, first, again)
	}
	return first
}

// committedValues reads all committed records of a topic by Kafka's protocol, with an end
// to each of its partitions that is written now.
func committedValues(t *testing.T, addrs []string, topic string, partitions int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const end = "the end"
	for i := range partitions {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(i), Value: []byte(end)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for ends := 0; ends < partitions; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d ends of %d, and %q", ends, partitions, all)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == end {
				ends++
				return
			}
			all = append(all, string(r.Value))
		})
	}
	slices.Sort(all)
	return all
}

// TestHTTPTransactionsOnAnyNode: each request of a transaction may go to another node,
// and each may be sent twice, whoever leads what it is about.
func TestHTTPTransactionsOnAnyNode(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("in", 6, 3)
	c.createTopic("out", 6, 3)
	for n := range 30 {
		c.any().produce("in", fmt.Sprintf(`{"key":"k%d","value_text":"in %d"}`, n, n))
	}
	var want []string
	for n := range 9 {
		x := c.any().begin(fmt.Sprintf(`{"transactional_id":"worker-%d"}`, n%2))
		values, records := []string{}, []string{}
		for i := range 20 {
			values = append(values, fmt.Sprintf("%d-%d", n, i))
			records = append(records, fmt.Sprintf(`{"key":"k%d","value_text":%q}`, i, values[i]))
		}
		c.eachTwice(`"failed":0`, x.path("produce"), `{"topic":"out","request":0,"records":[`+strings.Join(records, ",")+`]}`)
		for i := range 7 { // Without a key, at any partition: the same each time.
			values = append(values, fmt.Sprintf("%d-keyless-%d", n, i))
			c.eachTwice(`"offset":`, x.path("produce"), fmt.Sprintf(`{"topic":"out","request":%d,"value_text":%q}`, i+1, values[20+i]))
		}
		c.eachTwice("offsets", x.path("offsets"), fmt.Sprintf(`{"group":"g%d","offsets":{"in":{"0":%d},"out":{"0":0}}}`, n, n%3))
		c.any().want(200, `"state":"open".*"topic":"__consumer_offsets".*"topic":"out"`, "GET", x.path(""), "")
		if n%3 == 2 {
			c.eachTwice(`"state":"aborted"`, x.path("abort"), "")
			c.any().want(409, "INVALID_TXN_STATE", "POST", x.path("commit"), "")
			continue
		}
		c.eachTwice(`"state":"committed"`, x.path("commit"), "")
		c.any().want(409, "PRODUCER_FENCED|OUT_OF_ORDER", "POST", x.path("produce"), `{"topic":"out","request":0,"value_text":"late"}`)
		c.any().want(200, `"state":"committed"`, "GET", x.path(""), "")
		want = append(want, values...)
	}
	slices.Sort(want)
	same(t, committedValues(t, c.Addrs(), "out", 6), want...)
	x := c.any().begin(`{"transactional_id":"at-once"}`)
	var tries sync.WaitGroup
	answers := make([]string, 12) // The same request at the same time, at all nodes.
	for i := range answers {
		node := c.any()
		tries.Go(func() {
			_, answers[i] = node.ask("POST", x.path("produce"), `{"topic":"out","request":0,"records":[{"key":"a","value_text":"1"},{"key":"b","value_text":"2"},{"key":"c","value_text":"3"}]}`)
		})
	}
	tries.Wait()
	if slices.Sort(answers); answers[0] != answers[len(answers)-1] || !strings.HasPrefix(answers[0], `{"failed":0,`) {
		t.Errorf("the same request at the same time got %q", slices.Compact(answers))
	}
	c.any().want(200, "aborted", "POST", x.path("abort"), "")
	x = c.any().begin(`{}`)
	c.any().want(200, "offset", "POST", x.path("produce"), `{"topic":"made-just-now","request":0,"value_text":"x"}`)
	c.any().want(200, "committed", "POST", x.path("commit"), "")
	// The group's session is found from any node too.
	seen := map[string]bool{}
	for end := time.Now().Add(30 * time.Second); len(seen) < 30 && time.Now().Before(end); {
		got := c.any().consume("in", "group=sessions&member=a&text=true&isolation=read_committed&wait_ms=500")
		if len(got.Records) == 0 {
			continue
		}
		for _, r := range got.Records {
			if seen[r.ValueText] {
				t.Errorf("%s was read twice", r.ValueText)
			}
			seen[r.ValueText] = true
		}
		x := c.any().begin(`{"transactional_id":"sessions"}`)
		c.eachTwice("offsets", x.path("offsets"), fmt.Sprintf(`{"group":"sessions","member":"a","offsets":{"in":%s}}`, offsetsText(got.NextOffsets)))
		c.any().want(409, "NON_EMPTY_GROUP", "POST", x.path("offsets"), fmt.Sprintf(`{"group":"sessions","member":"b","offsets":{"in":%s}}`, offsetsText(got.NextOffsets)))
		c.eachTwice("committed", x.path("commit"), "")
	}
	if len(seen) != 30 {
		t.Errorf("%d records of 30: %q", len(seen), slices.Sorted(maps.Keys(seen)))
	}
}

// TestHTTPTransactionWhilePartitionsAreAddedInACluster: the same where others lead them.
func TestHTTPTransactionWhilePartitionsAreAddedInACluster(t *testing.T) {
	c := startWebCluster(t)
	addPartitionsInTransaction(t, c.any(), c.any)
}

// insist sends a request to one node after the other until one of them answers it, as a
// client does that only knows what may be sent again. It returns the status and the body.
func (c *webCluster) insist(method, path, body string) (int, string) {
	c.t.Helper()
	last := ""
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		node := c.any()
		req, err := http.NewRequestWithContext(c.t.Context(), method, node.base+path, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			last = err.Error()
			<-time.After(10 * time.Millisecond)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		last = fmt.Sprint(resp.StatusCode, string(text), err)
		if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
			return resp.StatusCode, string(text)
		}
		<-time.After(10 * time.Millisecond)
	}
	c.t.Fatalf("%s %s is not answered: %s", method, path, last)
	return 0, ""
}

// TestHTTPTransactionsThroughFailovers: the coordinator of a transaction, or the leader
// of a partition that it writes to, is killed while each of its requests is on its way.
// Each request is sent again until it is answered, and all counts once.
func TestHTTPTransactionsThroughFailovers(t *testing.T) {
	c := &webCluster{
		Cluster: strandlinetest.StartCluster(t, 3, strandlinetest.WithHTTP(), strandlinetest.WithSetting("broker.session.timeout.ms", "2000"),
			strandlinetest.WithSetting("transaction.state.log.num.partitions", "1"), strandlinetest.WithSetting("offsets.topic.num.partitions", "1")),
		t: t, nodes: map[int]httpClient{}, down: map[int]bool{},
	}
	for id := 1; id <= 3; id++ {
		c.nodes[id] = newHTTPClient(t, c.Node(id).HTTPAddr())
	}
	// Batches are so small that a request has several of them in a partition.
	c.any().want(201, "", "POST", "/v1/topics",
		`{"name":"t","partitions":3,"replication_factor":3,"configs":{"min.insync.replicas":"2","max.message.bytes":"250"}}`)
	c.AwaitInSync()
	victims := 0
	// step sends a request, and kills a node at the same time.
	step := func(status int, method, path, body string) string {
		t.Helper()
		topic, partition := "t", int32(victims%3)
		if victims%2 == 0 {
			topic, partition = "__transaction_state", 0
		}
		victims++
		victim := c.Leader(topic, partition)
		killed := make(chan struct{})
		if victim != 0 { // There may be no such topic yet.
			go func() {
				defer close(killed)
				c.Kill(victim)
			}()
		} else {
			close(killed)
		}
		got, text := c.insist(method, path, body)
		<-killed
		if again, text2 := c.insist(method, path, body); path != "/v1/transactions" && (again != got || text2 != text) {
			t.Errorf("%s %s: first %d %s, then %d %s", method, path, got, text, again, text2)
		}
		if got != status {
			t.Fatalf("%s %s %s: %d %s", method, path, body, got, text)
		}
		if victim != 0 {
			c.Restart(victim)
			c.AwaitInSync()
		}
		return text
	}
	var want []string
	for n := range 2 {
		_, text := c.insist("POST", "/v1/transactions", `{"transactional_id":"x","timeout_ms":300000}`)
		var x httpTransaction
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for request := range 3 {
			var records []string
			for i := range 10 {
				value := fmt.Sprintf("%d-%d-%d", n, request, i)
				records = append(records, fmt.Sprintf(`{"key":"k%d","value_text":%q}`, i, value))
				want = append(want, value)
			}
			step(200, "POST", x.path("produce"), fmt.Sprintf(`{"topic":"t","request":%d,"records":[%s]}`, request, strings.Join(records, ",")))
		}
		step(200, "POST", x.path("offsets"), fmt.Sprintf(`{"group":"g","offsets":{"t":{"0":%d}}}`, n+1))
		// And of a member, whose session is lost with the group's coordinator.
		if status, text := c.insist("GET", "/v1/topics/t/consume?group=m&member=a&wait_ms=20000", ""); status != 200 || !strings.Contains(text, `"partition"`) {
			t.Fatalf("read %d %s", status, text)
		}
		step(200, "POST", x.path("offsets"), fmt.Sprintf(`{"group":"m","member":"a","offsets":{"t":{"0":%d}}}`, n+1))
		if n == 1 {
			c.LosePower(1, 2, 3)
			c.Restart(1, 2, 3)
			c.AwaitInSync()
		}
		step(200, "POST", x.path("commit"), "")
		step(409, "POST", x.path("abort"), "")
	}
	slices.Sort(want)
	same(t, committedValues(t, c.Addrs(), "t", 3), want...)
	for end := time.Now().Add(30 * time.Second); ; {
		_, g := c.insist("GET", "/v1/groups/g", "")
		_, m := c.insist("GET", "/v1/groups/m", "")
		if strings.Contains(g, `"committed_offset":2,`) && strings.Contains(m, `"committed_offset":2,`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the groups are %s and %s", g, m)
		}
	}
}
