package strandline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

func TestHTTPTopics(t *testing.T) {
	_, c := startHTTP(t)
	c.want(200, `^{"topics":\[\]}\n$`, "GET", "/v1/topics", "")
	resp := c.do("POST", "/v1/topics", `{"name":"a.b","partitions":2,"configs":{"retention.ms":"1000"}}`)
	if resp.StatusCode != 201 || resp.Header.Get("Location") != "/v1/topics/a.b" {
		t.Errorf("%d, Location %q: %s", resp.StatusCode, resp.Header.Get("Location"), resp.body)
	}
	c.want(409, `TOPIC_ALREADY_EXISTS`, "POST", "/v1/topics", `{"name":"a.b"}`)
	c.want(400, `INVALID_TOPIC_EXCEPTION.*collides with`, "POST", "/v1/topics", `{"name":"a_b"}`)
	c.want(400, `INVALID_TOPIC_EXCEPTION`, "POST", "/v1/topics", `{"name":"a/b"}`)
	c.want(400, `name: the topic's name is missing`, "POST", "/v1/topics", `{}`)
	c.want(400, `partitions: want at least 1`, "POST", "/v1/topics", `{"name":"x","partitions":0}`)
	c.want(400, `INVALID_REPLICATION_FACTOR`, "POST", "/v1/topics", `{"name":"x","replication_factor":3}`)
	c.want(400, `INVALID_REPLICATION_FACTOR.*durability strict keeps three replicas on three brokers, and there is one`,
		"POST", "/v1/topics", `{"name":"x","durability":"strict"}`)
	c.want(400, `durability: want strict, balanced or relaxed`, "POST", "/v1/topics", `{"name":"x","durability":"loose"}`)
	c.want(400, `configs: durability relaxed sets min.insync.replicas=1`, "POST", "/v1/topics",
		`{"name":"x","durability":"relaxed","configs":{"min.insync.replicas":"2"}}`)
	c.want(201, `"durability":"relaxed".*"flush.messages":{"value":"9223372036854775807","source":"topic"}`, "POST", "/v1/topics",
		`{"name":"telemetry","durability":"relaxed","configs":{"retention.ms":"5"}}`)
	c.want(200, `"durability":"relaxed"`, "GET", "/v1/topics/telemetry", "")
	c.want(204, `^$`, "DELETE", "/v1/topics/telemetry", "")
	c.want(400, `INVALID_CONFIG.*did you mean retention.ms`, "POST", "/v1/topics", `{"name":"x","configs":{"retention.sm":"1"}}`)
	c.want(400, `configs.retention.ms: want a string, not a number`, "POST", "/v1/topics", `{"name":"x","configs":{"retention.ms":1}}`)
	c.want(400, `partitions: .*is out of range`, "POST", "/v1/topics", `{"name":"x","partitions":3000000000}`)
	c.want(200, `^{"topics":\[{"name":"a.b","id":"[\w-]+","partitions":2,"replication_factor":1,"internal":false}\]}\n$`,
		"GET", "/v1/topics", "")
	c.produce("a.b", `{"value_text":"x","partition":1}`)
	text := c.want(200, `"partitions":\[{"partition":0,"leader":1,"leader_epoch":\d+,"replicas":\[1\],"isr":\[1\],"log_start_offset":0,`+
		`"high_watermark":0,"log_end_offset":0,"size_bytes":0},{"partition":1,.*"high_watermark":1,"log_end_offset":1,"size_bytes":\d+}`,
		"GET", "/v1/topics/a.b", "")
	for _, part := range []string{
		`"retention.ms":{"value":"1000","source":"topic"}`, `"segment.bytes":{"value":"1073741824","source":"default"}`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	c.want(404, `there is no topic a.c: create it first; did you mean a.b\?`, "GET", "/v1/topics/a.c", "")

	c.want(400, `there is nothing to change`, "PATCH", "/v1/topics/a.b", `{}`)
	c.want(400, `unknown field ."partition.": did you mean ."partitions`, "PATCH", "/v1/topics/a.b", `{"partition":1}`)
	// All or nothing.
	c.want(400, `INVALID_PARTITIONS.*cannot shrink`, "PATCH", "/v1/topics/a.b", `{"partitions":1,"configs":{"set":{"segment.ms":"5000"}}}`)
	c.want(200, `"segment.ms":{"value":"604800000","source":"default"}`, "GET", "/v1/topics/a.b", "")
	text = c.want(200, `"warnings":\["from now on most keys map to other partitions`, "PATCH", "/v1/topics/a.b",
		`{"partitions":3,"configs":{"set":{"segment.ms":"5000"},"delete":["retention.ms"]}}`)
	for _, part := range []string{
		`"retention.ms":{"value":"604800000","source":"default"}`, `"segment.ms":{"value":"5000","source":"topic"}`, `{"partition":2,`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s", part, text)
		}
	}
	c.want(404, `UNKNOWN_TOPIC_OR_PARTITION`, "PATCH", "/v1/topics/nope", `{"partitions":3}`)
	c.want(204, `^$`, "DELETE", "/v1/topics/a.b", "")
	c.want(404, `UNKNOWN_TOPIC_OR_PARTITION`, "DELETE", "/v1/topics/a.b", "")
}

func TestHTTPOpenAPI(t *testing.T) {
	_, c := startHTTP(t)
	c.want(200, `"openapi": "3.1.0"`, "GET", "/v1/openapi.json", "")
	c.want(200, `"unreached_clients":\[\]`, "GET", "/v1/doctor", "")
}

func TestHTTPGroups(t *testing.T) {
	srv, c := startHTTP(t)
	c.want(200, `^{"groups":\[\]}\n$`, "GET", "/v1/groups", "")
	c.want(404, `GROUP_ID_NOT_FOUND`, "GET", "/v1/groups/g", "")
	for range 5 {
		c.produce("events", `{"value_text":"x"}`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	adm := kadm.NewClient(client(t, srv.Addr()))
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "events", Partition: 0, At: 3, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(ctx, "idle", offsets); err != nil {
		t.Fatal(err)
	}
	cl := client(t, srv.Addr(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events"), kgo.ClientID("me"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err := cl.PollFetches(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	c.want(200, `^{"groups":\[{"group":"g","state":"Stable","protocol_type":"consumer","members":1},`+
		`{"group":"idle","state":"Empty","protocol_type":"","members":0}\]}\n$`, "GET", "/v1/groups", "")
	c.want(200, `^{"group":"idle","state":"Empty","protocol_type":"","protocol":"","generation":0,"lag":2,"members":\[\],`+
		`"partitions":\[{"topic":"events","partition":0,"committed_offset":3,"high_watermark":5,"lag":2,"member_id":null}\]}\n$`,
		"GET", "/v1/groups/idle", "")
	c.want(200, `"members":\[{"member_id":"me-[^"]+","instance_id":null,"client_id":"me","client_host":"/127.0.0.1",`+
		`"partitions":\[{"topic":"events","partition":0}\]}\],"partitions":\[{"topic":"events","partition":0,`+
		`"committed_offset":null,"high_watermark":5,"lag":null,"member_id":"me-[^"]+"}\]}\n$`, "GET", "/v1/groups/g", "")
	c.want(409, `NON_EMPTY_GROUP.*has 1 members: stop them`, "DELETE", "/v1/groups/g", "")
	c.want(204, `^$`, "DELETE", "/v1/groups/idle", "")
	c.want(404, `GROUP_ID_NOT_FOUND`, "DELETE", "/v1/groups/idle", "")
}

// idempotent is a record with an idempotency key.
func idempotent(key, idempotencyKey, value string) string {
	b, _ := json.Marshal(map[string]string{"key": key, "idempotency_key": idempotencyKey, "value_text": value})
	return string(b)
}

func TestHTTPIdempotency(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("num.partitions", "4"))
	first := c.produce("t", idempotent("k", "1", "v"))
	c.produce("t", `{"value_text":"between"}`)
	if again := c.produce("t", idempotent("k", "1", "v")); again != first {
		t.Errorf("the retry got %+v, the first %+v", again, first)
	}
	path := "/v1/topics/t/produce"
	for name, body := range map[string]string{
		"value":   idempotent("k", "1", "w"),
		"key":     idempotent("l", "1", "v"), // Of another partition, even.
		"null":    `{"key":"k","idempotency_key":"1","value":null}`,
		"headers": `{"key":"k","idempotency_key":"1","value_text":"v","headers":[{"key":"a","value":null}]}`,
	} {
		if status, text := c.ask("POST", path, body); status != 409 || !strings.Contains(text, `"retriable":false`) {
			t.Errorf("another %s: %d %s", name, status, text)
		}
	}
	// The field of HTTP means the same, and of a raw body as well.
	if again := c.produce("t", `{"key":"k","value":"dg=="}`, "Idempotency-Key: 1"); again != first {
		t.Errorf("with the field %+v, the first %+v", again, first)
	}
	if again := c.produce("t", `v`, "Content-Type: application/octet-stream", "Strandline-Key: k", "Idempotency-Key: 1"); again != first {
		t.Errorf("raw %+v, the first %+v", again, first)
	}
	c.want(400, `is given twice`, "POST", path, idempotent("k", "1", "v"), "Idempotency-Key: 1")
	// Without a key it picks the partition.
	one := c.produce("t", `{"idempotency_key":"2","value_text":"v"}`)
	if again := c.produce("t", `{"idempotency_key":"2","value_text":"v"}`); again != one {
		t.Errorf("without a key %+v, the first %+v", again, one)
	}
	// After the topic has grown, keys map elsewhere; retries do not.
	c.want(200, ``, "PATCH", "/v1/topics/t", `{"partitions":64}`)
	if again := c.produce("t", idempotent("k", "1", "v")); again != first {
		t.Errorf("after growth %+v, the first %+v", again, first)
	}
	c.want(207, `"failed":1,"results":\[{"partition":\d+,"offset":0,("timestamp":\d+,"timestamp_ms":\d+)},`+
		`{"partition":\d+,"offset":0,("timestamp":\d+,"timestamp_ms":\d+)},{"error":{"code":"DUPLICATE_RESOURCE".*records\[0\]`,
		"POST", path, `{"records":[{"idempotency_key":"3","value_text":"v","key":"q"},{"idempotency_key":"3","value_text":"v","key":"q"},
		{"idempotency_key":"3","value_text":"w","key":"q"}]}`)
	count := 0
	for _, r := range records(t, srv.Addr(), "t", 4) {
		if string(r.Value) == "v" {
			count++
			if n := len(r.Headers); r.Headers[n-2].Key != "strandline.idempotency-key" || r.Headers[n-1].Key != "strandline.idempotency-hash" {
				t.Errorf("headers %v", r.Headers)
			}
		}
	}
	if count != 3 {
		t.Errorf("%d records with value v, want 3", count)
	}
}

// TestHTTPIdempotencyAcrossRestart: the log itself is the memory.
func TestHTTPIdempotencyAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	run := func(fn func(c httpClient)) {
		t.Helper()
		srv, err := strandline.Start(t.Context(), strandline.Config{DataDir: dir, HTTPListen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		fn(newHTTPClient(t, srv.HTTPAddr()))
		if err := srv.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var first, second produced
	run(func(c httpClient) {
		c.want(201, ``, "POST", "/v1/topics", `{"name":"t","partitions":3,"configs":{"message.timestamp.type":"LogAppendTime"}}`)
		first = c.produce("t", idempotent("k", "1", "v"))
		second = c.produce("t", `{"idempotency_key":"2","value":null,"headers":[{"key":"a","value":null},{"key":"","value":""}]}`)
	})
	run(func(c httpClient) {
		if again := c.produce("t", idempotent("k", "1", "v")); again != first {
			t.Errorf("the retry got %+v, the first %+v", again, first)
		}
		if again := c.produce("t", `{"idempotency_key":"2","value":null,"headers":[{"key":"a","value":null},{"key":"","value":""}]}`); again != second {
			t.Errorf("the retry got %+v, the first %+v", again, second)
		}
		c.want(409, `DUPLICATE_RESOURCE`, "POST", "/v1/topics/t/produce", idempotent("z", "1", "v"))
		if n := c.logEnds("t"); n != 2 {
			t.Errorf("%d records, want 2", n)
		}
	})
}

// logEnds returns how many records a topic has ever had.
func (c httpClient) logEnds(topic string) int64 {
	c.t.Helper()
	var d struct {
		Partitions []struct {
			LogEndOffset int64 `json:"log_end_offset"`
		}
	}
	text := c.want(200, "", "GET", "/v1/topics/"+topic, "")
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		c.t.Fatal(err)
	}
	sum := int64(0)
	for _, p := range d.Partitions {
		sum += p.LogEndOffset
	}
	return sum
}

func TestHTTPIdempotencyBounds(t *testing.T) {
	_, c := startHTTP(t)
	c.want(201, ``, "POST", "/v1/topics", `{"name":"few","configs":{"idempotency.max.keys":"2"}}`)
	first := c.produce("few", idempotent("", "1", "v"))
	c.produce("few", idempotent("", "2", "v"))
	if again := c.produce("few", idempotent("", "1", "v")); again != first {
		t.Errorf("got %+v, the first %+v", again, first)
	}
	c.produce("few", idempotent("", "3", "v"))
	if again := c.produce("few", idempotent("", "1", "v")); again == first {
		t.Errorf("two keys are kept, and the third oldest was still there")
	}
	c.want(201, ``, "POST", "/v1/topics", `{"name":"none","configs":{"idempotency.window.ms":"0"}}`)
	c.want(400, `idempotency.window.ms is 0`, "POST", "/v1/topics/none/produce", idempotent("", "1", "v"))
	c.want(400, `INVALID_TIMESTAMP.*a retry could not be told`, "POST", "/v1/topics/few/produce",
		`{"idempotency_key":"9","value":null,"timestamp_ms":1000}`)
	c.want(400, `idempotency_key: the idempotency key has 300 bytes: use at most 255`, "POST", "/v1/topics/few/produce",
		idempotent("", strings.Repeat("k", 300), "v"))
}

// Tries at the same time share one record, and the answer.
func TestHTTPIdempotencyAtTheSameTime(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("num.partitions", "2"))
	const keys, tries = 50, 8
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		got = map[string]map[produced]int{}
	)
	for range tries {
		wg.Go(func() {
			for i := range keys {
				key := fmt.Sprint("key-", i)
				p := c.produce("t", idempotent("", key, "v"))
				mu.Lock()
				if got[key] == nil {
					got[key] = map[produced]int{}
				}
				got[key][p]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, answers := range got {
		if len(answers) != 1 {
			t.Errorf("%s has the answers %v", key, answers)
		}
	}
	if n := len(records(t, srv.Addr(), "t", keys)); n != keys {
		t.Errorf("%d records, want %d", n, keys)
	}
}
