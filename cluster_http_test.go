package strandline_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// webCluster is a cluster whose nodes all serve HTTP.
type webCluster struct {
	*strandlinetest.Cluster
	t     *testing.T
	nodes map[int]httpClient
	turn  atomic.Int64

	mu   sync.Mutex
	down map[int]bool
}

func startWebCluster(t *testing.T, options ...strandlinetest.Option) *webCluster {
	t.Helper()
	// A machine that is busy with other things must not look like a dead broker.
	options = append(options, strandlinetest.WithHTTP(), strandlinetest.WithSetting("broker.session.timeout.ms", "20000"))
	c := &webCluster{
		Cluster: strandlinetest.StartCluster(t, 3, options...), t: t,
		nodes: map[int]httpClient{}, down: map[int]bool{},
	}
	for id := 1; id <= 3; id++ {
		c.nodes[id] = newHTTPClient(t, c.Node(id).HTTPAddr())
	}
	return c
}

// stop stops a node; requests go to the others before it does.
func (c *webCluster) stop(id int) {
	c.t.Helper()
	c.mu.Lock()
	c.down[id] = true
	c.mu.Unlock()
	c.Stop(id)
}

// any returns one node after the other, as a load balancer does.
func (c *webCluster) any() httpClient {
	for {
		id := int(c.turn.Add(1)%3) + 1
		c.mu.Lock()
		down := c.down[id]
		c.mu.Unlock()
		if !down {
			return c.nodes[id]
		}
	}
}

func (c *webCluster) createTopic(name string, partitions, replicas int) {
	c.t.Helper()
	c.any().want(201, "", "POST", "/v1/topics", fmt.Sprintf(
		`{"name":%q,"partitions":%d,"replication_factor":%d,"configs":{"min.insync.replicas":"%d"}}`,
		name, partitions, replicas, min(2, replicas)))
}

// Any node takes any request: a record, a batch that belongs to several leaders,
// bytes as they are, reads of any partition, and retries of any of them.
func TestHTTPOnAnyNode(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 6, 3)
	placed := map[[2]int64]string{}
	note := func(p produced, value string) {
		t.Helper()
		at := [2]int64{int64(p.Partition), p.Offset}
		if before, ok := placed[at]; ok {
			t.Errorf("%s and %s are both at %v", before, value, at)
		}
		placed[at] = value
	}
	for n := range 60 {
		value := fmt.Sprintf("keyed %d", n)
		body := fmt.Sprintf(`{"key":"k%d","value_text":%q}`, n, value)
		note(c.any().produce("t", body), value)
		value = fmt.Sprintf("keyless %d", n)
		note(c.any().produce("t", fmt.Sprintf(`{"value_text":%q}`, value)), value)
		value = fmt.Sprintf("raw %d", n)
		note(c.any().produce("t", value, "Content-Type: application/octet-stream", fmt.Sprintf("Strandline-Key: %d", n)), value)
	}
	c.produceLists(note)
	c.readEverywhere(placed)
	// The same idempotency key anywhere, with another partition too, is the same record.
	first := c.nodes[1].produce("t", `{"value_text":"once","idempotency_key":"i"}`)
	for n := range 12 {
		body := `{"value_text":"once","idempotency_key":"i"}`
		if n >= 6 {
			body = fmt.Sprintf(`{"value_text":"once","idempotency_key":"i","partition":%d}`, n-6)
		}
		if again := c.any().produce("t", body); again != first {
			t.Errorf("try %d: %+v, the first was %+v", n, again, first)
		}
	}
	c.any().want(409, "DUPLICATE_RESOURCE", "POST", "/v1/topics/t/produce", `{"value_text":"else","idempotency_key":"i"}`)
	c.any().want(200, `"partitions":6`, "GET", "/v1/topics", "")
	c.describeEverywhere()
	for id, node := range c.nodes {
		if text := node.want(200, "", "GET", "/metrics", ""); strings.Contains(text, `passed_on_requests_total{outcome="answered"} 0`) {
			t.Errorf("node %d has passed nothing on", id)
		}
	}
}

// describeEverywhere has each node describe topics at once as their leaders know them, also
// one that has no replica.
func (c *webCluster) describeEverywhere() {
	c.t.Helper()
	c.createTopic("single", 3, 1)
	for p := range 3 {
		c.any().produce("single", fmt.Sprintf(`{"value_text":"x","partition":%d}`, p))
		for id, node := range c.nodes {
			var d struct {
				Partitions []struct {
					End *int64 `json:"log_end_offset"`
				}
			}
			text := node.want(200, "", "GET", "/v1/topics/single", "")
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				c.t.Fatal(err)
			}
			if end := d.Partitions[p].End; end == nil || *end != 1 {
				c.t.Errorf("node %d describes partition %d: %s", id, p, text)
			}
		}
	}
}

// produceLists sends lists whose records belong to all leaders.
func (c *webCluster) produceLists(note func(produced, string)) {
	for n := range 9 {
		var records []string
		for i := range 20 {
			records = append(records, fmt.Sprintf(`{"key":"%d-%d","value_text":"list %d %d","headers":[{"key":"h","value_text":"x"}]}`,
				n, i, n, i))
		}
		records = append(records, `{"value_text":"bad","partition":77}`)
		text := c.any().want(207, "", "POST", "/v1/topics/t/produce", `{"records":[`+strings.Join(records, ",")+`]}`)
		var got struct {
			Failed  int
			Results []struct {
				produced
				Error *struct{ Code string }
			}
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			c.t.Fatal(err)
		}
		if got.Failed != 1 || len(got.Results) != 21 || got.Results[20].Error == nil {
			c.t.Fatalf("%s", text)
		}
		for i := range 20 {
			note(got.Results[i].produced, fmt.Sprintf("list %d %d", n, i))
		}
	}
}

// readEverywhere reads all partitions at each node and compares.
func (c *webCluster) readEverywhere(placed map[[2]int64]string) {
	c.t.Helper()
	for id, node := range c.nodes {
		found := map[[2]int64]string{}
		for p := range 6 {
			got := node.consume("t", fmt.Sprintf("partition=%d&offset=earliest&text=true", p))
			for _, r := range got.Records {
				found[[2]int64{int64(r.Partition), r.Offset}] = r.ValueText
			}
		}
		if len(found) != len(placed) {
			c.t.Errorf("node %d has %d records, %d were acknowledged", id, len(found), len(placed))
		}
		for at, value := range placed {
			if found[at] != value {
				c.t.Errorf("node %d has %q at %v, want %q", id, found[at], at, value)
			}
		}
	}
}

// Sessions are found at whatever node: a load balancer that goes round and round
// gives every record to one caller, commits count, and a seek moves all.
func TestHTTPGroupOnAnyNode(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 6, 2)
	for n := range 120 {
		c.any().produce("t", fmt.Sprintf(`{"key":"k%d","value_text":"v%d"}`, n, n))
	}
	seen := map[string]int{}
	take := func(query string, count int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); len(seen) < count; {
			if time.Now().After(end) {
				t.Fatalf("%d records of %d", len(seen), count)
			}
			got := c.any().consume("t", "group=g&text=true&wait_ms=500&"+query)
			for _, r := range got.Records {
				seen[r.ValueText]++
			}
			if len(got.Records) > 0 {
				c.any().want(200, "offsets", "POST", "/v1/topics/t/commit", fmt.Sprintf(`{"group":"g","offsets":%s}`, offsetsText(got.NextOffsets)))
			}
		}
	}
	take("max_bytes=500", 120)
	for value, times := range seen {
		if times != 1 {
			t.Errorf("%s was given %d times", value, times)
		}
	}
	for id, node := range c.nodes {
		text := node.want(200, `"group":"g"`, "GET", "/v1/groups", "")
		if strings.Count(text, `"group":"g"`) != 1 {
			t.Errorf("node %d lists %s", id, text)
		}
		text = node.want(200, `"lag":0,`, "GET", "/v1/groups/g", "")
		if strings.Contains(text, "null,\"lag\"") || strings.Count(text, `"high_watermark":`) != 6 {
			t.Errorf("node %d describes %s", id, text)
		}
	}
	c.any().want(200, "offsets", "POST", "/v1/topics/t/seek", `{"group":"g","earliest":true}`)
	clear(seen)
	take("max_bytes=100000", 120)
	// A long poll at one node is woken by a record that comes in at another.
	woken := make(chan consumed)
	go func() { woken <- c.nodes[1].consume("t", "group=g&text=true&wait_ms=20000") }()
	began := time.Now()
	c.nodes[2].produce("t", `{"key":"late","value_text":"late"}`)
	if got := <-woken; len(got.Records) != 1 || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", got.Records, time.Since(began))
	}
}

func offsetsText(m map[string]int64) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// While nodes stop, requests to the others go through: with idempotency keys each
// record is there once.
func TestHTTPThroughFailovers(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 6, 3)
	var (
		mu      sync.Mutex
		answers = map[string]produced{}
		clients sync.WaitGroup
		over    atomic.Bool
	)
	for who := range 8 {
		clients.Go(func() {
			for n := 0; !over.Load(); n++ {
				key := fmt.Sprintf("%d-%d", who/2, n) // Two want the same.
				p, ok := c.produceOnce(key)
				if !ok {
					return
				}
				mu.Lock()
				if before, ok := answers[key]; ok && before != p {
					t.Errorf("%s is at %+v and at %+v", key, before, p)
				}
				answers[key] = p
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(answers)
	}
	await := func(n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); count() < n; {
			if time.Now().After(end) {
				t.Fatalf("%d answers, want %d", count(), n)
			}
			<-time.After(5 * time.Millisecond)
		}
	}
	await(200)
	c.stop(3)
	await(count() + 200)
	over.Store(true)
	clients.Wait()
	found := map[string]*kgo.Record{}
	for _, r := range records(t, c.Addrs()[0], "t", len(answers)) {
		if found[string(r.Value)] != nil {
			t.Errorf("%s is there twice", r.Value)
		}
		found[string(r.Value)] = r
	}
	for key, p := range answers {
		if r := found[key]; r == nil || r.Offset != p.Offset || r.Partition != p.Partition {
			t.Errorf("%s was acknowledged at %+v, and there is %+v", key, p, r)
		}
	}
}

// produceOnce sends a record until it is acknowledged. A node that stops may close a
// connection; all others must answer.
func (c *webCluster) produceOnce(key string) (p produced, ok bool) {
	body := fmt.Sprintf(`{"value_text":%q,"idempotency_key":%q}`, key, key)
	for {
		node := c.any()
		resp, err := http.Post(node.base+"/v1/topics/t/produce", "application/json", strings.NewReader(body))
		if err != nil {
			continue // It has stopped.
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusOK && err == nil:
			if err := json.Unmarshal(text, &p); err != nil {
				c.t.Errorf("%s: %s: %v", key, text, err)
			}
			return p, err == nil
		case resp.StatusCode == http.StatusServiceUnavailable && c.isStopping(node):
		default:
			c.t.Errorf("%s at %s: %d %s %v", key, node.base, resp.StatusCode, text, err)
			return p, false
		}
	}
}

func (c *webCluster) isStopping(node httpClient) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var stopped []string
	for id := range c.down {
		stopped = append(stopped, c.nodes[id].base)
	}
	return slices.Contains(stopped, node.base)
}
