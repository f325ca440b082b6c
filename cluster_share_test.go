package strandline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/certs/certstest"
	"github.com/strandline/strandline/strandlinetest"
)

// Members over HTTP, whose requests go round and round the nodes, and members with
// Kafka clients share a group: no two are given records of one partition in one
// generation, and none is missed.
func TestHTTPAndKafkaShareAGroupInACluster(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("orders", 6, 2)
	l := &ledger{t: t, owners: map[[2]int32]string{}, seen: map[[2]int64][]int32{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const count = 1200
	var all sync.WaitGroup
	all.Go(func() {
		for range count / 20 {
			var b []string
			for i := range 20 {
				b = append(b, fmt.Sprintf(`{"partition":%d,"value_text":"x"}`, i%6))
			}
			c.any().want(200, `"failed":0`, "POST", "/v1/topics/orders/produce", `{"records":[`+strings.Join(b, ",")+`]}`)
			<-time.After(time.Millisecond)
		}
	})
	consuming, stop := context.WithCancel(ctx)
	all.Go(func() { l.consumeByHTTP(consuming, func() string { return c.any().base }, "one") })
	all.Go(func() { l.consumeByKafka(consuming, c.Addrs()[1], kgo.CooperativeStickyBalancer()) })
	all.Go(func() { l.consumeByHTTP(consuming, func() string { return c.any().base }, "two") })
	for l.count() < count {
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d records were given to somebody", l.count(), count)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	all.Wait()
	t.Logf("%d records, %d owners by generation", l.count(), len(l.owners))
}

// A group goes on when the broker that coordinates it stops: its callers wait for the
// next one, and miss nothing.
func TestHTTPGroupThroughFailover(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 3, 3)
	c.any().consume("t", "group=g&member=m") // The group is there.
	coordinator := c.coordinatorOf("g")
	seen := map[string]bool{}
	for n := range 200 {
		if n == 100 {
			c.stop(coordinator)
		}
		c.any().produce("t", fmt.Sprintf(`{"value_text":"v%d","idempotency_key":"k%d"}`, n, n))
		got := c.any().consume("t", "group=g&member=m&text=true&wait_ms=100")
		for _, r := range got.Records {
			seen[r.ValueText] = true
		}
		if len(got.Records) > 0 {
			c.any().want(200, "", "POST", "/v1/topics/t/commit",
				fmt.Sprintf(`{"group":"g","member":"m","offsets":%s}`, offsetsText(got.NextOffsets)))
		}
	}
	for end := time.Now().Add(20 * time.Second); len(seen) < 200; {
		if time.Now().After(end) {
			t.Fatalf("%d records of 200", len(seen))
		}
		for _, r := range c.any().consume("t", "group=g&member=m&text=true&wait_ms=100").Records {
			seen[r.ValueText] = true
		}
	}
}

// coordinatorOf returns the node that a group's requests end at.
func (c *webCluster) coordinatorOf(group string) int {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF())
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	return int(findCoordinator(c.t, cl, group))
}

// What a client says of itself gives it nothing: fields of brokers are dropped, and
// a forwarded request goes no further only if a broker sends it.
func TestHTTPForgedFields(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 6, 1)
	forged := []string{"Strandline-Relay-Client: 10.0.0.1:1", "Strandline-Relay-Undone: 1", "Strandline-Relay-Stale: 1"}
	for id, node := range c.nodes {
		for p := range 6 {
			got := node.produce("t", fmt.Sprintf(`{"value_text":"x","partition":%d}`, p), forged...)
			resp := node.do("GET", fmt.Sprintf("/v1/topics/t/consume?partition=%d&offset=%d", p, got.Offset), "", forged...)
			if resp.StatusCode != http.StatusOK || resp.Header.Get("Strandline-Stale") != "" || strings.Contains(resp.body, "stale") {
				t.Errorf("node %d, partition %d: %s %v %s", id, p, resp.Status, resp.Header, resp.body)
			}
		}
		node.want(404, "RESOURCE_NOT_FOUND", "POST", "/internal/keys", "{}")
		node.want(404, "RESOURCE_NOT_FOUND", "POST", "/internal/sequences", "{}")
		node.want(404, "RESOURCE_NOT_FOUND", "POST", "/internal/sessions", "{}")
	}
}

// Streams come through another node as they are written.
func TestHTTPStreamsOnAnyNode(t *testing.T) {
	c := startWebCluster(t)
	c.createTopic("t", 3, 1)
	for _, query := range []string{"partition=0&offset=earliest", "partition=1&offset=earliest", "partition=2&offset=earliest", "group=g"} {
		for id, node := range c.nodes {
			if strings.HasPrefix(query, "group=") {
				// Of its own: a stream that was just left may still take a record of its member.
				query = fmt.Sprintf("group=g%d", id)
			}
			func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, node.base+"/v1/topics/t/consume?text=true&wait_ms=10000&"+query, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", "application/x-ndjson")
				value := fmt.Sprintf("%s at %d", query, id)
				read := make(chan string)
				go func() {
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						read <- err.Error()
						return
					}
					defer resp.Body.Close()
					d := json.NewDecoder(resp.Body)
					for {
						var r struct {
							ValueText string `json:"value_text"`
						}
						if err := d.Decode(&r); err != nil || r.ValueText == value {
							read <- r.ValueText
							return
						}
					}
				}()
				partition := 0
				_, _ = fmt.Sscanf(query, "partition=%d", &partition)
				c.any().produce("t", fmt.Sprintf(`{"value_text":%q,"partition":%d}`, value, partition))
				if got := <-read; got != value {
					t.Errorf("%s: %q", value, got)
				}
			}()
		}
	}
}

// Limits count where the client is: one that is turned away at one node is so
// whatever that node would have passed on, and a body is bounded at the door.
func TestHTTPLimitsOnAnyNode(t *testing.T) {
	c := startWebCluster(t, strandlinetest.WithSetting("socket.request.max.bytes", "20000"))
	c.createTopic("t", 3, 1)
	for p := range 3 {
		body := fmt.Sprintf(`{"partition":%d,"value_text":%q}`, p, strings.Repeat("x", 25_000))
		c.nodes[1].want(413, "socket.request.max.bytes", "POST", "/v1/topics/t/produce", body)
	}
}

// Nor is a body that was let in turned away where it is passed on in another form, which is
// longer: in a transaction, or where its records go to several leaders.
func TestHTTPLargeBodiesOnAnyNode(t *testing.T) {
	const limit = 8 << 20
	c := startWebCluster(t, strandlinetest.WithSetting("socket.request.max.bytes", fmt.Sprint(limit)),
		strandlinetest.WithSetting("message.max.bytes", fmt.Sprint(2*limit)))
	c.createTopic("t", 3, 1)
	raw, large := "Content-Type: application/octet-stream", strings.Repeat("x", limit-1000)
	x := c.any().begin(`{}`)
	for p := range 3 {
		c.nodes[1].want(200, `"offset":`, "POST", fmt.Sprintf("/v1/topics/t/produce?partition=%d", p), large, raw)
		c.nodes[1].want(200, `"offset":`, "POST", fmt.Sprintf("%s?topic=t&request=%d&partition=%d", x.path("produce"), p, p), large, raw)
		c.nodes[1].want(200, `"failed":0`, "POST", "/v1/topics/t/produce", fmt.Sprintf(
			`{"records":[{"partition":%d,"value_text":""},{"partition":%d,"value_text":%q}]}`, p, (p+1)%3, large[:limit-2000]))
	}
	c.any().want(200, `"state":"committed"`, "POST", x.path("commit"), "")
}

func findCoordinator(t *testing.T, cl *kgo.Client, group string) int32 {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Coordinators) == 1 {
		return resp.Coordinators[0].NodeID
	}
	return resp.NodeID
}

// With TLS between brokers, what goes on over HTTP goes through it.
func TestHTTPOnAnyNodeOverTLS(t *testing.T) {
	c := startWebCluster(t, withClusterTLS(certstest.New(t).Issue([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})))
	c.createTopic("t", 3, 1)
	for id, node := range c.nodes {
		for round := range 3 {
			for p := range 3 {
				value := fmt.Sprintf("%d at %d, %d", p, id, round)
				at := node.produce("t", fmt.Sprintf(`{"value_text":%q,"partition":%d}`, value, p))
				got := node.consume("t", fmt.Sprintf("partition=%d&offset=%d&text=true", p, at.Offset))
				if len(got.Records) != 1 || got.Records[0].ValueText != value {
					t.Errorf("%s: %+v", value, got)
				}
			}
		}
	}
}
