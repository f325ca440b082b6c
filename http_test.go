package strandline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

// httpClient asks a broker over HTTP as curl would.
type httpClient struct {
	t        testing.TB
	base     string
	document *openAPI
}

func newHTTPClient(t testing.TB, addr string) httpClient {
	t.Helper()
	return httpClient{t, "http://" + addr, readOpenAPI(t)}
}

func startHTTP(t testing.TB, options ...strandlinetest.Option) (*strandline.Server, httpClient) {
	t.Helper()
	srv := strandlinetest.Start(t, append(options, strandlinetest.WithHTTP())...)
	return srv, newHTTPClient(t, srv.HTTPAddr())
}

// ask sends a request, with a body of JSON unless a header says otherwise, and
// returns the status and the body of the answer.
func (c httpClient) ask(method, path, body string, headers ...string) (int, string) {
	c.t.Helper()
	resp := c.do(method, path, body, headers...)
	return resp.StatusCode, resp.body
}

type httpAnswer struct {
	*http.Response
	body string
}

func (c httpClient) do(method, path, body string, headers ...string) httpAnswer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.document.check(method, path, resp.StatusCode, resp.Header.Get("Content-Type"), string(text)); err != nil {
		c.t.Errorf("%s %s: %v", method, path, err)
	}
	return httpAnswer{resp, string(text)}
}

// want asks and compares: the wanted body is a regular expression, of the message
// where the answer is an error.
func (c httpClient) want(status int, pattern, method, path, body string, headers ...string) string {
	c.t.Helper()
	got, text := c.ask(method, path, body, headers...)
	if got != status || !regexp.MustCompile(pattern).MatchString(text) {
		c.t.Errorf("%s %s %.200s: %d %s\nwant %d %s", method, path, body, got, text, status, pattern)
	}
	return text
}

// produced is the answer to one record.
type produced struct {
	Partition   int32
	Offset      int64
	Timestamp   int64
	TimestampMs int64 `json:"timestamp_ms"`
}

func (c httpClient) produce(topic, body string, headers ...string) produced {
	c.t.Helper()
	text := c.want(200, "partition", "POST", "/v1/topics/"+topic+"/produce", body, headers...)
	var p produced
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return p
}

// records reads a topic to its end.
func records(t testing.TB, addr, topic string, count int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var all []*kgo.Record
	for len(all) < count {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(all), count, err)
		}
		all = append(all, fs.Records()...)
	}
	return all
}

func TestHTTPProduce(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("num.partitions", "4"))
	before := time.Now().UnixMilli()
	p := c.produce("orders", `{"key":"user-8841","value":"aGVsbG8=","acks":"all",
		"headers":[{"key":"a","value":"AQI="},{"key":"a","value_text":"x"},{"key":"n","value":null}]}`)
	if p.Offset != 0 || p.TimestampMs < before || p.Timestamp != p.TimestampMs/1000 {
		t.Errorf("got %+v", p)
	}
	// The same place as a Kafka client's.
	kafkas := &kgo.Record{Topic: "orders", Key: []byte("user-8841"), Value: []byte("again")}
	if err := client(t, srv.Addr()).ProduceSync(t.Context(), kafkas).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if kafkas.Partition != p.Partition || kafkas.Offset != 1 {
		t.Errorf("over HTTP partition %d, a Kafka client's %d offset %d", p.Partition, kafkas.Partition, kafkas.Offset)
	}
	if p := c.produce("orders", `{"key_base64":"/w==","value":null,"partition":3,"timestamp_ms":1730600000123,"acks":"1"}`); p.Partition != 3 ||
		p.TimestampMs != 1730600000123 || p.Timestamp != 1730600000 {
		t.Errorf("got %+v", p)
	}
	raw := "application/octet-stream"
	c.produce("orders", "raw \x00 bytes", "Content-Type: "+raw, "Strandline-Key: k", "Strandline-Header-Trace: t1", "Strandline-Acks: 0")
	got := map[string]*kgo.Record{}
	for _, r := range records(t, srv.Addr(), "orders", 4) {
		got[string(r.Key)+"="+string(r.Value)] = r
	}
	first := got["user-8841=hello"]
	if first == nil || fmt.Sprint(first.Headers) != "[{a [1 2]} {a [120]} {n []}]" || first.Timestamp.UnixMilli() != p.TimestampMs {
		t.Errorf("got %+v", first)
	}
	if r := got["\xff="]; r == nil || r.Value != nil || r.Partition != 3 {
		t.Errorf("the tombstone is %+v", r)
	}
	if r := got["k=raw \x00 bytes"]; r == nil || fmt.Sprint(r.Headers) != "[{trace [116 49]}]" {
		t.Errorf("the raw one is %+v", r)
	}
	// Without a key, round robin.
	seen := map[int32]bool{}
	for range 4 {
		seen[c.produce("orders", `{"value_text":"x"}`).Partition] = true
	}
	if len(seen) != 4 {
		t.Errorf("4 records without a key came to partitions %v", seen)
	}
}

func TestHTTPProduceBatch(t *testing.T) {
	srv, c := startHTTP(t)
	text := c.want(207, `"failed":2`, "POST", "/v1/topics/t/produce", `{"acks":"all","records":[
		{"value_text":"a"},{"value_text":"b","partition":1},{"value_text":"c"},{"value_text":"d","timestamp_ms":4102444800000}]}`)
	want := regexp.MustCompile(`^{"failed":2,"results":\[{"partition":0,"offset":0,"timestamp":\d+,"timestamp_ms":\d+},` +
		`{"error":{"code":"UNKNOWN_TOPIC_OR_PARTITION","message":"topic t has one partition[^}]*","retriable":false}},` +
		`{"partition":0,"offset":1,[^}]*},{"error":{"code":"INVALID_TIMESTAMP","message":"invalid timestamp: its timestamp[^}]*}}\]}\n$`)
	if !want.MatchString(text) {
		t.Errorf("got %s", text)
	}
	// One batch, whatever the size, and several when the topic's limit asks for it.
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `,{"value_text":"%d %s"}`, i, strings.Repeat("x", 8000))
	}
	c.want(200, `"failed":0.*"offset":501,`, "POST", "/v1/topics/t/produce", `{"records":[`+b.String()[1:]+`]}`)
	for i, r := range records(t, srv.Addr(), "t", 502)[2:] {
		if !bytes.HasPrefix(r.Value, fmt.Append(nil, i, " ")) {
			t.Fatalf("record %d is %.10s", i, r.Value)
		}
	}
}

func TestHTTPBadProduce(t *testing.T) {
	_, c := startHTTP(t, strandlinetest.WithSetting("socket.request.max.bytes", "100000"),
		strandlinetest.WithSetting("auto.create.topics.enable", "false"))
	c.want(201, `"name":"orders"`, "POST", "/v1/topics", `{"name":"orders","configs":{"max.message.bytes":"2000"}}`)
	c.want(201, ``, "POST", "/v1/topics", `{"name":"keyed","configs":{"cleanup.policy":"compact"}}`)
	bad := func(status int, code, message, body string, headers ...string) {
		t.Helper()
		c.want(status, `^{"error":{"code":"`+code+`","message":".*`+message+`.*","retriable":(true|false)}}\n$`,
			"POST", "/v1/topics/orders/produce", body, headers...)
	}
	const invalid = "INVALID_REQUEST"
	bad(400, invalid, `the request has no body`, ``, "Content-Type: application/json")
	bad(400, invalid, `want an object, not an array`, `[]`)
	bad(400, invalid, `the JSON ends after 9 bytes, where a string in base64 should be`, `{"value":`)
	bad(400, invalid, `malformed at byte 16: there is '=' where ',' or '}' should be`, `{"value":"QQ==" ="}`)
	bad(400, invalid, `unknown field ."valeu.*did you mean ."value`, `{"valeu":"QQ=="}`)
	bad(400, invalid, `unknown field`, `{"Value":"QQ=="}`)
	bad(400, invalid, `field ."value." is given twice`, `{"value":"QQ==","value":"QQ=="}`)
	bad(400, invalid, `value: want a string in base64, not a number`, `{"value":1}`)
	bad(400, invalid, `partition: want a whole number, not a string`, `{"value":"QQ==","partition":"1"}`)
	bad(400, invalid, `partition: want a whole number, not 1.5`, `{"value":"QQ==","partition":1.5}`)
	bad(400, invalid, `partition: -1 is out of range`, `{"value":"QQ==","partition":-1}`)
	bad(400, invalid, `there is more after the end of the JSON value, at byte 16`, `{"value":"QQ=="}{}`)
	bad(400, invalid, `records.1..value: not valid base64: '!' at position 1`, `{"records":[{"value":"QQ=="},{"value":"Q!=="}]}`)
	bad(400, invalid, `records.0..headers.0..value: not valid base64`, `{"records":[{"value":"QQ==","headers":[{"key":"a","value":"x"}]}]}`)
	bad(400, invalid, `its padding \(=\) is missing`, `{"value":"QQ"}`)
	bad(400, invalid, `URL-safe`, `{"value":"Q_A="}`)
	bad(400, invalid, `not valid UTF-8`, "{\"value_text\":\"\xff\"}")
	bad(400, invalid, `the value is missing`, `{"key":"a"}`)
	bad(400, invalid, `the key is given twice`, `{"key":"a","key_base64":"QQ==","value":"QQ=="}`)
	bad(400, invalid, `records is empty`, `{"records":[]}`)
	bad(400, invalid, `key stands beside records`, `{"key":"k","records":[{"value":"QQ=="}]}`)
	bad(400, invalid, `acks: want`, `{"value":"QQ==","acks":"-1"}`)
	bad(400, invalid, `acks: want a string, not a number`, `{"value":"QQ==","acks":1}`)
	bad(400, invalid, `the idempotency key is empty`, `{"value":"QQ==","idempotency_key":""}`)
	bad(400, invalid, `a header may not be called`, `{"value":"QQ==","headers":[{"key":"strandline.idempotency-key","value":"QQ=="}]}`)
	bad(415, invalid, `curl sends that type`, `{"value":"QQ=="}`, "Content-Type: application/x-www-form-urlencoded")
	bad(415, invalid, `Content-Encoding gzip`, `{"value":"QQ=="}`, "Content-Encoding: gzip")
	bad(404, "UNKNOWN_TOPIC_OR_PARTITION", `there is no partition 1`, `{"value":"QQ==","partition":1}`)
	bad(413, "MESSAGE_TOO_LARGE", `larger than 100000 bytes`, `{"value_text":"`+strings.Repeat("x", 100000)+`"}`)
	bad(413, "MESSAGE_TOO_LARGE", `max.message.bytes of the topic is 2000`, `{"value_text":"`+strings.Repeat("x", 3000)+`"}`)
	c.want(404, `there is no topic order: create it first; did you mean orders\?","retriable":false`,
		"POST", "/v1/topics/order/produce", `{"value":"QQ=="}`)
	c.want(400, `INVALID_TOPIC_EXCEPTION`, "POST", "/v1/topics/a%20b/produce", `{"value":"QQ=="}`)
	c.want(400, `INVALID_RECORD.*it has no key`, "POST", "/v1/topics/keyed/produce", `{"value":"QQ=="}`)
	c.want(400, `unknown query parameter .*did you mean acks`, "POST", "/v1/topics/orders/produce?ack=1", `x`,
		"Content-Type: application/octet-stream")
	c.want(400, `partition: want a whole number`, "POST", "/v1/topics/orders/produce?partition=x", `x`,
		"Content-Type: application/octet-stream")
	c.want(400, `unknown header field Strandline-Partiton: did you mean Strandline-Partition\?`, "POST", "/v1/topics/orders/produce", `x`,
		"Content-Type: application/octet-stream", "Strandline-Partiton: 0")
	for _, field := range []string{"Strandline-Key: k", "Strandline-Header-Trace: t", "Strandline-Acks: 0"} {
		c.want(400, `the header field Strandline-.* is for a body that is the value`, "POST", "/v1/topics/orders/produce",
			`{"value":"QQ=="}`, field)
	}
	c.want(400, `unknown header field Strandline-Request`, "POST", "/v1/topics/orders/produce", `x`,
		"Content-Type: application/octet-stream", "Strandline-Request: 0")
	if resp := c.do("GET", "/v1/topics/orders/produce", ""); resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
	// Nothing of all that was appended.
	c.want(200, `"log_end_offset":0,`, "GET", "/v1/topics/orders", "")
}

// A query parameter that is not known is refused by every route: somebody counts on it.
func TestHTTPUnknownParameters(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("t", 1)
	x := c.begin(`{"transactional_id":"x"}`)
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/v1/topics/t/produce", `{"value_text":"a"}`},
		{"GET", "/v1/topics/t/consume", ""},
		{"POST", "/v1/topics/t/commit", `{"group":"g","offsets":{"0":0}}`},
		{"POST", "/v1/topics/t/seek", `{"group":"g","earliest":true}`},
		{"GET", "/v1/topics", ""},
		{"POST", "/v1/topics", `{"name":"u"}`},
		{"GET", "/v1/topics/t", ""},
		{"PATCH", "/v1/topics/t", `{"partitions":2}`},
		{"DELETE", "/v1/topics/t", ""},
		{"GET", "/v1/groups", ""},
		{"GET", "/v1/groups/g", ""},
		{"DELETE", "/v1/groups/g", ""},
		{"POST", "/v1/transactions", `{}`},
		{"POST", x.path("produce"), `{"topic":"t","request":0,"value_text":"a"}`},
		{"POST", x.path("offsets"), `{"group":"g","offsets":{"t":{"0":0}}}`},
		{"POST", x.path("commit"), ""},
		{"POST", x.path("abort"), ""},
		{"GET", x.path(""), ""},
		{"GET", "/v1/doctor", ""},
		{"GET", "/v1/openapi.json", ""},
	} {
		c.want(400, `unknown query parameter ."dry_run."`, r.method, r.path+"?dry_run=true", r.body)
	}
	c.want(200, `"log_end_offset":0,`, "GET", "/v1/topics/t", "")
}

// A body that comes too slowly is answered, and holds up nobody.
func TestHTTPSlowBody(t *testing.T) {
	srv, _ := startHTTP(t, strandlinetest.WithSetting("http.body.timeout.ms", "50"))
	conn, err := net.Dial("tcp", srv.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/topics/t/produce HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	answer, err := io.ReadAll(conn) // To the end of the connection.
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) || !bytes.Contains(answer, []byte(
		`{"error":{"code":"REQUEST_TIMED_OUT","message":"the body took longer than 50ms (http.body.timeout.ms)`)) {
		t.Errorf("%s, %v", answer, err)
	}
}

// Half a request is answered, if its client still listens.
func TestHTTPHalfRequests(t *testing.T) {
	srv, c := startHTTP(t)
	c.createTopic("t", 1)
	for _, what := range []string{"produce", "commit"} {
		conn, err := net.Dial("tcp", srv.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /v1/topics/t/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", what)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn) // To the end of the connection.
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) || !bytes.Contains(answer,
			[]byte(`{"error":{"code":"INVALID_REQUEST","message":"the body broke off after 1 bytes`)) {
			t.Errorf("half of a %s is answered %s, %v", what, answer, err)
		}
		_ = conn.Close()
	}
}

func TestHTTPTooManyRequests(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("http.max.requests", "1"))
	conn, err := net.Dial("tcp", srv.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/topics/t/produce HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
	if line, err := io.ReadAll(io.LimitReader(conn, 12)); err != nil || string(line) != "HTTP/1.1 100" {
		t.Fatalf("%s, %v", line, err)
	}
	resp := c.do("GET", "/v1/topics", "")
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" ||
		!strings.Contains(resp.body, `"code":"THROTTLING_QUOTA_EXCEEDED"`) || !strings.Contains(resp.body, `"retriable":true`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, resp.body)
	}
	c.want(200, "ok", "GET", "/healthz", "") // Never refused.
}

// What cannot be made safe is refused, and may be tried again.
func TestHTTPNotEnoughReplicas(t *testing.T) {
	_, c := startHTTP(t)
	c.want(201, ``, "POST", "/v1/topics", `{"name":"t","configs":{"min.insync.replicas":"2"}}`)
	resp := c.do("POST", "/v1/topics/t/produce", `{"value_text":"x"}`)
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(resp.body,
		`{"error":{"code":"NOT_ENOUGH_REPLICAS","message":"1 replicas are in sync and min.insync.replicas is 2`) ||
		!strings.Contains(resp.body, `"retriable":true`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, resp.body)
	}
	c.produce("t", `{"value_text":"x","acks":"1"}`)
}

// A page of another origin is kept out, whatever it pretends to send.
func TestHTTPOtherOrigins(t *testing.T) {
	_, c := startHTTP(t)
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Origin: http://evil.example"} {
		c.want(403, `CLUSTER_AUTHORIZATION_FAILED`, "POST", "/v1/topics/t/produce", `{"value_text":"x"}`, header)
	}
	c.want(200, ``, "POST", "/v1/topics/t/produce", `{"value_text":"x"}`, "Sec-Fetch-Site: same-origin")
	c.want(404, `TOPIC`, "GET", "/v1/topics/u", "", "Sec-Fetch-Site: cross-site")
}

// Small records that many fit into a body take their share of the budget.
func TestHTTPMemory(t *testing.T) {
	_, c := startHTTP(t, strandlinetest.WithSetting("queued.max.request.bytes", "1048576"),
		strandlinetest.WithSetting("socket.request.max.bytes", "1048576"))
	body := func(n int) string {
		return `{"records":[` + strings.Repeat(`{"value":""},`, n-1) + `{"value":""}]}`
	}
	c.want(429, `THROTTLING_QUOTA_EXCEEDED.*queued.max.request.bytes`, "POST", "/v1/topics/t/produce", body(10_000))
	for range 3 { // What was taken was given back.
		c.want(200, `"failed":0`, "POST", "/v1/topics/t/produce", body(2_000))
	}
	c.want(400, `there are more than 10000 records`, "POST", "/v1/topics/t/produce", body(10_001))
}

// Requests that come while the topic is being created wait for it.
func TestHTTPCreationUnderLoad(t *testing.T) {
	_, c := startHTTP(t, strandlinetest.WithSetting("num.partitions", "50"))
	for i := range 10 {
		var clients sync.WaitGroup
		for range 16 {
			clients.Go(func() { c.produce(fmt.Sprint("topic-", i), `{"value_text":"x"}`) })
		}
		clients.Wait()
	}
}
