package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// answered is what a client over HTTP was told of a record.
type answered struct {
	Partition   int32
	Offset      int64
	Timestamp   int64
	TimestampMs int64 `json:"timestamp_ms"`
}

// hammer is clients in teams. Those of a team all want the same records, each with
// an idempotency key of its own, and try until they are told where it is.
type hammer struct {
	t      *testing.T
	urls   []string // Of the topic at each node; any of them will do.
	client *http.Client

	mu      sync.Mutex
	answers map[string]answered
	acked   atomic.Int64
	retried atomic.Int64
}

// run sends records of a team until ctx ends.
func (h *hammer) run(ctx context.Context, team, member int) {
	for n := 0; ctx.Err() == nil; n++ {
		key := fmt.Sprintf("team-%d-%d", team, n)
		body := fmt.Sprintf(`{"idempotency_key":%q,"value_text":%q`, key, key)
		if n%2 == 0 { // The others go where their idempotency key says.
			body += fmt.Sprintf(`,"key":"record-%d"`, n)
		}
		h.try(ctx, key, body+"}", member)
	}
}

// try asks for a record until it is answered for good.
func (h *hammer) try(ctx context.Context, key, body string, member int) {
	for ctx.Err() == nil {
		status, text, err := h.ask(ctx, body)
		switch {
		case err != nil || status == 503 || status == 408 || status == 429:
			h.retried.Add(1)
			select {
			case <-time.After(time.Duration(1+member%10) * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		case status != 200:
			h.t.Errorf("%s: %d %s", key, status, text)
			return
		}
		var a answered
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			h.t.Errorf("%s: %s: %v", key, text, err)
			return
		}
		h.note(key, a)
		return
	}
}

func (h *hammer) ask(ctx context.Context, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.urls[rand.IntN(len(h.urls))], strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func (h *hammer) note(key string, a answered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if first, ok := h.answers[key]; ok && first != a {
		h.t.Errorf("%s was answered with %+v and with %+v", key, first, a)
	}
	h.answers[key] = a
	h.acked.Add(1)
}

// awaitMore waits for n more answers.
func (h *hammer) awaitMore(n int64) {
	h.t.Helper()
	want, end := h.acked.Load()+n, time.Now().Add(60*time.Second)
	for h.acked.Load() < want {
		if time.Now().After(end) {
			h.t.Fatalf("no %d more answers within a minute", n)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// The clients: teams of so many members each.
const teams, members = 16, 4

func newHammerClient() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: teams * members},
	}
}

// start starts all clients; the returned function ends them, and may be called again.
func (h *hammer) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range teams * members {
		clients.Go(func() { h.run(ctx, i%teams, i) })
	}
	return func() {
		cancel()
		clients.Wait()
	}
}

// askAgain asks for some of what was answered once more.
func (h *hammer) askAgain(most int) {
	keys := slices.Collect(maps.Keys(h.answers))
	for _, key := range keys[:min(most, len(keys))] {
		body := fmt.Sprintf(`{"idempotency_key":%q,"value_text":%q`, key, key)
		if n := key[strings.LastIndexByte(key, '-')+1:]; strings.ContainsAny(n[len(n)-1:], "02468") {
			body += fmt.Sprintf(`,"key":"record-%s"`, n)
		}
		h.try(context.Background(), key, body+"}", 0)
	}
}

// TestIdempotentRetriesAppendOnce kills the broker again and again under 64
// clients over HTTP that retry: whatever they were told, each idempotency key has
// one record, where all of them were told that it is.
func TestIdempotentRetriesAppendOnce(t *testing.T) {
	b := harness.StartHTTP(t, harness.Binary(t), t.TempDir(), "--set", "num.partitions=6")
	h := &hammer{
		t: t, urls: []string{"http://" + b.HTTP + "/v1/topics/once/produce"}, answers: map[string]answered{},
		client: newHammerClient(),
	}
	stop := h.start()
	defer stop()
	n := rounds(t, 6)
	for i := range n {
		h.awaitMore(int64(1000 + 137*i%700))
		b.Kill()
		b.Restart()
	}
	h.awaitMore(1000)
	stop()
	// Nobody remembers but the log: ask again for all that was answered.
	b.Kill()
	b.Restart()
	h.askAgain(500)
	h.verify(b.Addr)
	t.Logf("%d kills, %d keys, %d answers, %d tries without one", n+1, len(h.answers), h.acked.Load(), h.retried.Load())
}

// verify reads the topic and holds it against the answers.
func (h *hammer) verify(addr string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	found := map[string]*kgo.Record{}
	for _, r := range readRecords(ctx, h.t, []string{addr}, "once") {
		if first := found[string(r.Value)]; first != nil {
			h.t.Errorf("%s stands at %d/%d and at %d/%d", r.Value, first.Partition, first.Offset, r.Partition, r.Offset)
		}
		found[string(r.Value)] = r
	}
	for key, a := range h.answers {
		r := found[key]
		if r == nil || r.Partition != a.Partition || r.Offset != a.Offset || r.Timestamp.UnixMilli() != a.TimestampMs {
			h.t.Errorf("%s was answered with %+v, and there is %+v", key, a, r)
		}
	}
}
