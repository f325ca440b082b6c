package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// reader is a consumer over HTTP: a loop that any shell script could be. It
// commits what it was given, and holds what it is given against what it has
// committed.
type reader struct {
	t      *testing.T
	base   string
	member string
	client *http.Client

	mu        *sync.Mutex
	seen      map[string]int  // How often each record was given.
	committed map[int32]int64 // Of the group, by partition.
	again     *int            // Records given more than once.
	troubles  *int            // Answers other than records, and none at all.
}

func (r *reader) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.step(ctx); err != nil {
			r.mu.Lock()
			*r.troubles++
			r.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// ask returns the body of an answer of status 200, or one of 409 that is told.
func (r *reader) ask(req *http.Request) ([]byte, int, error) {
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch s := resp.StatusCode; {
	case err != nil:
		return nil, 0, err
	case s == 503:
		return nil, s, fmt.Errorf("not now: %s", body)
	case s != 200 && s != 409:
		r.t.Errorf("%s %s: %d %s", req.Method, req.URL, s, body)
		return nil, s, fmt.Errorf("status %d", s)
	}
	return body, resp.StatusCode, nil
}

// step reads once and commits.
func (r *reader) step(ctx context.Context) error {
	url := r.base + "/v1/topics/orders/consume?group=billing&text=true&max_bytes=3000&wait_ms=500&member=" + r.member
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.mu.Lock()
	before := map[int32]int64{} // Commits that were answered before we ask.
	for p, o := range r.committed {
		before[p] = o
	}
	r.mu.Unlock()
	body, status, err := r.ask(req)
	if err != nil {
		return err
	}
	var got struct {
		Records []struct {
			Partition int32
			Offset    int64
			ValueText string `json:"value_text"`
		}
		NextOffsets map[int32]int64 `json:"next_offsets"`
	}
	if err := json.Unmarshal(body, &got); err != nil || status != 200 {
		r.t.Errorf("consume: %d %s", status, body)
		return err
	}
	r.mu.Lock()
	for _, x := range got.Records {
		if x.Offset < before[x.Partition] {
			r.t.Errorf("record %d of partition %d was given after %d was committed", x.Offset, x.Partition, before[x.Partition])
		}
		if r.seen[x.ValueText]++; r.seen[x.ValueText] > 1 {
			*r.again++
		}
	}
	r.mu.Unlock()
	if len(got.Records) == 0 {
		return nil
	}
	offsets, err := json.Marshal(got.NextOffsets)
	if err != nil {
		return err
	}
	req, err = http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/v1/topics/orders/commit", strings.NewReader(
		fmt.Sprintf(`{"group":"billing","member":%q,"offsets":%s}`, r.member, offsets)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if _, status, err = r.ask(req); err != nil || status != 200 {
		return err // What came of it is not known, or another member reads it again.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, o := range got.NextOffsets {
		r.committed[p] = max(r.committed[p], o)
	}
	return nil
}

// TestConsumersOverHTTPSurviveKills: members over HTTP notice nothing of a broker
// that is killed and started again but a refusal or two. Every record that was
// acknowledged is given, and none again after it was committed.
func TestConsumersOverHTTPSurviveKills(t *testing.T) {
	b := harness.StartHTTP(t, harness.Binary(t), t.TempDir())
	base := "http://" + b.HTTP
	client := &http.Client{Timeout: 15 * time.Second}
	post := func(path, body string) bool {
		resp, err := client.Post(base+path, "application/json", strings.NewReader(body))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode/100 == 2
	}
	if !post("/v1/topics", `{"name":"orders","partitions":4}`) {
		t.Fatal("the topic was not created")
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var (
		mu              sync.Mutex
		again, troubles int
		all             sync.WaitGroup
	)
	seen, committed := map[string]int{}, map[int32]int64{}
	for _, member := range []string{"one", "two", "three"} {
		r := &reader{t, base, member, client, &mu, seen, committed, &again, &troubles}
		all.Go(func() { r.run(ctx) })
	}
	const rounds, perRound = 5, 200
	acked := 0
	for round := range rounds {
		for i := 0; i < perRound; {
			value := fmt.Sprintf("record-%d-%d", round, i)
			body := fmt.Sprintf(`{"key":%q,"value_text":%q,"idempotency_key":%q}`, value, value, value)
			if ctx.Err() != nil {
				t.Fatal("no record is taken any more")
			}
			if post("/v1/topics/orders/produce", body) {
				acked++
				i++
			}
		}
		b.Kill()
		b.Restart()
	}
	for {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n == acked {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d acknowledged records were given", n, acked)
		case <-time.After(10 * time.Millisecond):
		}
	}
	stop()
	all.Wait()
	t.Logf("%d records through %d kills, %d of them given again, %d refusals", acked, rounds, again, troubles)
}
