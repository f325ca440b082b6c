package chaos_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// ask sends a request to a broker's HTTP listener.
func ask(t *testing.T, b *harness.Broker, method, path, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+b.HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// createOn creates a topic, as soon as that can be.
func createOn(t *testing.T, b *harness.Broker, body string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		resp, text := ask(t, b, "POST", "/v1/topics", body)
		switch {
		case resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusConflict:
			return
		case time.Now().After(end):
			t.Fatalf("%s: %s", resp.Status, text)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// TestIdempotentRetriesInACluster kills each broker of three in turn under 64 clients
// over HTTP that retry at whatever node, and adds partitions meanwhile: each
// idempotency key has one record, where all of them were told that it is.
func TestIdempotentRetriesInACluster(t *testing.T) {
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3)
	createOn(t, c.Brokers[0],
		`{"name":"once","partitions":6,"replication_factor":3,"configs":{"min.insync.replicas":"2"}}`)
	h := &hammer{t: t, answers: map[string]answered{}, client: newHammerClient()}
	for _, b := range c.Brokers {
		h.urls = append(h.urls, "http://"+b.HTTP+"/v1/topics/once/produce")
	}
	stop := h.start()
	defer stop()
	n := rounds(t, 6)
	for i := range n {
		h.awaitMore(int64(500 + 137*i%700))
		b := c.Brokers[i%3]
		b.Kill()
		h.awaitMore(500)
		if i == n/2 {
			resp, text := ask(t, c.Brokers[(i+1)%3], "PATCH", "/v1/topics/once", `{"partitions":9}`)
			t.Logf("three partitions more: %s %.100s", resp.Status, text)
		}
		b.Restart()
	}
	h.awaitMore(500)
	stop()
	h.askAgain(500)
	h.verify(c.Brokers[0].Addr)
	t.Logf("%d kills, %d keys, %d answers, %d tries without one", n, len(h.answers), h.acked.Load(), h.retried.Load())
}

// TestStaleReads takes a partition its last replica in sync while another one is
// there that is behind: HTTP reads what that one knew, and says so.
func TestStaleReads(t *testing.T) {
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3)
	createOn(t, c.Brokers[0], `{"name":"t","partitions":1,"replication_factor":2,"configs":{"min.insync.replicas":"1"}}`)
	put := func(value string) {
		t.Helper()
		if resp, text := ask(t, c.Brokers[0], "POST", "/v1/topics/t/produce", fmt.Sprintf(`{"value_text":%q}`, value)); resp.StatusCode != 200 {
			t.Fatalf("%s: %s", resp.Status, text)
		}
	}
	leader, follower, other := placesOf(t, c)
	put("a")
	put("b")
	for { // Until the follower has heard that they are acknowledged.
		_, text := ask(t, follower, "GET", "/v1/topics/t", "")
		if partitionOf(t, text).HighWatermark == 2 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	if err := syscall.Kill(follower.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for {
		_, text := ask(t, other, "GET", "/v1/topics/t", "")
		if len(partitionOf(t, text).ISR) == 1 {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	if resp, text := ask(t, leader, "POST", "/v1/topics/t/produce", `{"value_text":"c"}`); resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	leader.Kill()
	if err := syscall.Kill(follower.Pid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*harness.Broker{other, follower} {
		readsStale(t, b)
	}
	resp, text := ask(t, other, "POST", "/v1/topics/t/produce", `{"value_text":"d","timeout_ms":500}`)
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a write without a leader: %s %s", resp.Status, text)
	}
	leader.Restart()
	for end := time.Now().Add(30 * time.Second); ; {
		resp, text := ask(t, other, "GET", "/v1/topics/t/consume?partition=0&offset=earliest&text=true", "")
		if resp.StatusCode == 200 && resp.Header.Get("Strandline-Stale") == "" && strings.Contains(text, `"value_text":"c"`) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("with its leader back: %s %s", resp.Status, text)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// readsStale wants the records that the replica left knew, in every form.
func readsStale(t *testing.T, b *harness.Broker) {
	t.Helper()
	const path = "/v1/topics/t/consume?partition=0&offset=earliest&text=true"
	var resp *http.Response
	var text string
	for end := time.Now().Add(30 * time.Second); ; {
		if resp, text = ask(t, b, "GET", path, ""); resp.StatusCode == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %s", resp.Status, text)
		}
		<-time.After(50 * time.Millisecond)
	}
	if resp.Header.Get("Strandline-Stale") != "true" || !strings.HasSuffix(text, `"next_offsets":{"0":2},"stale":true}`+"\n") ||
		!strings.Contains(text, `"value_text":"a"`) || !strings.Contains(text, `"value_text":"b"`) {
		t.Errorf("%v %s", resp.Header, text)
	}
	for accept, marked := range map[string]int{"application/x-ndjson": 3, "text/event-stream": 3} {
		req, err := http.NewRequest("GET", "http://"+b.HTTP+path+"&wait_ms=300", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n := strings.Count(string(text), `"stale":true`); err != nil || n != marked || resp.Header.Get("Strandline-Stale") != "true" {
			t.Errorf("%s: %d marks, %v: %s", accept, n, err, text)
		}
	}
}

// described is what is asked of a partition.
type described struct {
	Leader        int
	Replicas, ISR []int
	HighWatermark int `json:"high_watermark"` // As this broker's replica knows it.
}

func partitionOf(t *testing.T, text string) described {
	t.Helper()
	var topic struct{ Partitions []described }
	if err := json.Unmarshal([]byte(text), &topic); err != nil || len(topic.Partitions) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	return topic.Partitions[0]
}

// placesOf returns the broker that leads the partition, the one that follows, and the
// one that has nothing of it.
func placesOf(t *testing.T, c *harness.Cluster) (leader, follower, other *harness.Broker) {
	t.Helper()
	_, text := ask(t, c.Brokers[0], "GET", "/v1/topics/t", "")
	d := partitionOf(t, text)
	for i, b := range c.Brokers {
		switch id := i + 1; {
		case id == d.Leader:
			leader = b
		case id == d.Replicas[0] || id == d.Replicas[1]:
			follower = b
		default:
			other = b
		}
	}
	return leader, follower, other
}
