package strandline_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/strandlinetest"
)

// consumed is the answer to a consume request.
type consumed struct {
	Records []struct {
		Partition   int32
		Offset      int64
		Timestamp   int64
		TimestampMs int64   `json:"timestamp_ms"`
		Key         *string `json:"key"`
		KeyBase64   []byte  `json:"key_base64"`
		Value       []byte
		ValueText   string `json:"value_text"`
		Headers     []struct {
			Key   string
			Value []byte
		}
	}
	NextOffsets map[string]int64 `json:"next_offsets"`
	Member      string
	Generation  int32
}

// values are the values with where they are, as partition:offset=value.
func (c consumed) values() []string {
	var all []string
	for _, r := range c.Records {
		all = append(all, fmt.Sprintf("%d:%d=%s", r.Partition, r.Offset, r.Value))
	}
	return all
}

func (c httpClient) consume(topic, query string, headers ...string) consumed {
	c.t.Helper()
	text := c.want(200, "records", "GET", "/v1/topics/"+topic+"/consume?"+query, "", headers...)
	var got consumed
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return got
}

func (c httpClient) createTopic(name string, partitions int) {
	c.t.Helper()
	c.want(201, "", "POST", "/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, partitions))
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHTTPConsume is the life of a consumer that is a shell script.
func TestHTTPConsume(t *testing.T) {
	_, c := startHTTP(t)
	c.want(201, "", "POST", "/v1/topics", `{"name":"orders","partitions":1,"configs":{"retention.ms":"-1"}}`)
	c.produce("orders", `{"key":"user-8841","value":"b25l","timestamp_ms":1730600000123,"headers":[{"key":"h","value_text":"x"}]}`)
	c.produce("orders", `{"key_base64":"/w==","value_text":"two","idempotency_key":"req-1"}`)
	c.produce("orders", `{"value":null}`)

	text := c.want(200, "", "GET", "/v1/topics/orders/consume?group=billing", "")
	form := `{"records":[{"partition":0,"offset":0,"timestamp":1730600000,"timestamp_ms":1730600000123,"key":"user-8841",` +
		`"value":"b25l","headers":[{"key":"h","value":"eA=="}]},{"partition":0,"offset":1,"timestamp":N,"timestamp_ms":N,` +
		`"key_base64":"/w==","value":"dHdv"},{"partition":0,"offset":2,"timestamp":N,"timestamp_ms":N,"value":null}],` +
		`"next_offsets":{"0":3},"member":"shared","generation":1}` + "\n"
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(form), "N", "[0-9]+") + "$"
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("got  %s\nwant %s", text, form)
	}
	if got := c.consume("orders", "group=billing"); len(got.Records) != 0 || got.Member != "shared" || len(got.NextOffsets) != 0 {
		t.Errorf("at the end: %+v", got)
	}
	c.want(200, `^{"offsets":{"0":2}}\n$`, "POST", "/v1/topics/orders/commit", `{"group":"billing","offsets":{"0":2}}`)
	same(t, c.consume("orders", "group=billing&rewind=true").values(), "0:2=")
	c.want(200, `^{"offsets":{"0":0}}\n$`, "POST", "/v1/topics/orders/seek", `{"group":"billing","partition":0,"earliest":true}`)
	same(t, c.consume("orders", "group=billing&max_bytes=1").values(), "0:0=one")
	c.want(200, `^{"offsets":{"0":1}}\n$`, "POST", "/v1/topics/orders/seek", `{"group":"billing","timestamp":1730600001}`)
	got := c.consume("orders", "group=billing&text=true&max_bytes=1")
	if len(got.Records) != 1 || got.Records[0].ValueText != "two" {
		t.Errorf("text: %+v", got)
	}
	begun := time.Now()
	c.consume("orders", "group=billing")
	produced := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(produced)
		c.produce("orders", `{"value_text":"late"}`)
	})
	same(t, c.consume("orders", "group=billing&wait_ms=20000").values(), "0:3=late")
	<-produced
	if waited := time.Since(begun); waited < 100*time.Millisecond || waited > 10*time.Second {
		t.Errorf("waited %v", waited)
	}
}

// TestHTTPConsumeWithoutGroup reads a partition as nobody's member.
func TestHTTPConsumeWithoutGroup(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("orders", 2)
	for i := range 3 {
		c.produce("orders", fmt.Sprintf(`{"partition":1,"value_text":"%d","timestamp_ms":%d}`, i, 1730600000000+i*1000))
	}
	for _, q := range []struct {
		query string
		next  int64
		want  []string
	}{
		{"partition=1&offset=1", 3, []string{"1:1=1", "1:2=2"}},
		{"partition=1&offset=1&max_bytes=1", 2, []string{"1:1=1"}},
		{"partition=1&offset=earliest", 3, []string{"1:0=0", "1:1=1", "1:2=2"}},
		{"partition=1&offset=latest", 3, nil},
		{"partition=1&offset=latest&wait_ms=50", 3, nil},
		{"partition=1&timestamp=1730600002", 3, []string{"1:2=2"}},
		{"partition=1&timestamp=1730600001000", 3, []string{"1:1=1", "1:2=2"}},
		{"partition=1&timestamp_ms=1730600001001", 3, []string{"1:2=2"}},
		{"partition=0&offset=0", 0, nil},
	} {
		got := c.consume("orders", q.query)
		same(t, got.values(), q.want...)
		if got.NextOffsets[q.query[10:11]] != q.next || got.Member != "" {
			t.Errorf("%s: %+v", q.query, got)
		}
	}
}

// TestHTTPConsumeRefusals: each wrong request gets its own clear answer.
func TestHTTPConsumeRefusals(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("orders", 2)
	const path = "/v1/topics/orders/"
	for _, q := range []struct {
		status       int
		query, words string
	}{
		{400, "", "give group, to read as a member of it, or partition and offset"},
		{400, "partition=0", "give one of offset"},
		{400, "partition=0&offset=1&timestamp=1", "give one of offset"},
		{400, "partition=0&offset=soon", `offset is .*soon.*: a whole number`},
		{400, "partition=0&offset=-1", "whole number from 0"},
		{400, "partition=0&offset=7", "there is no offset 7"},
		{404, "partition=2&offset=0", "2 partitions, numbered from 0"},
		{400, "partition=0&offset=0&member=x", "member is for members of a group"},
		{400, "group=g&partition=0", "partition stands beside group"},
		{400, "group=", "a group is needed"},
		{400, "group=g&member=a/b", "letters, digits"},
		{400, "group=g&max_bytes=0", "max_bytes is .*0.*: a whole number from 1"},
		{400, "group=g&wait_ms=300001", "wait_ms"},
		{400, "group=g&auto_commit=yes", "true or false"},
		{400, "group=g&auto_commit=true&rewind=true", "give one of them"},
		{400, "group=g&auto_offset_reset=none", "earliest or latest"},
		{400, "group=g&session_timeout_ms=10", "group.min.session.timeout.ms"},
		{400, "grup=g", "did you mean group"},
	} {
		c.want(q.status, q.words, "GET", path+"consume?"+q.query, "")
	}
	c.want(404, "did you mean orders", "GET", "/v1/topics/order/consume?group=g", "")
	c.want(400, "internal", "GET", "/v1/topics/__consumer_offsets/consume?group=g", "")
	c.want(405, "use GET", "POST", path+"consume?group=g", "{}")
	if got := c.do("HEAD", path+"consume?group=g", ""); got.StatusCode != 405 || got.Header.Get("Allow") != "GET" {
		t.Errorf("HEAD: %d %v", got.StatusCode, got.Header)
	}
	c.want(403, "another origin", "GET", path+"consume?group=g", "", "Sec-Fetch-Site: cross-site")
	c.want(200, "records", "GET", path+"consume?partition=0&offset=0", "", "Sec-Fetch-Site: cross-site")
	for _, q := range []struct {
		status            int
		what, body, words string
	}{
		{400, "commit", `{"group":"g"}`, "offsets are needed"},
		{400, "commit", `{"offsets":{"0":0}}`, "group is missing"},
		{400, "commit", `{"group":"g","offsets":{"x":0}}`, "no partition"},
		{400, "commit", `{"group":"g","offsets":{"0":1}}`, "not in the log"},
		{400, "commit", `{"group":"g","offsets":{"0":-1}}`, "not in the log"},
		{404, "commit", `{"group":"g","offsets":{"9":0}}`, "no partition 9"},
		{400, "commit", `{"group":"g","offset":{"0":1}}`, `did you mean .*offsets`},
		{400, "seek", `{"group":"g"}`, "give one of offset"},
		{400, "seek", `{"group":"g","offset":0,"latest":true}`, "give one of offset"},
		{400, "seek", `{"offset":0}`, "group is missing"},
		{400, "seek", `{"group":"g","offset":5}`, "no offset 5"},
		{404, "seek", `{"group":"g","partition":2,"offset":0}`, "no partition 2"},
		{400, "seek", `{"group":"g","partition":-1,"offset":0}`, "numbered from 0"},
	} {
		c.want(q.status, q.words, "POST", path+q.what, q.body)
	}
}

// TestHTTPConsumeIsPaidFor: while the bodies of others take all the memory there
// is, records are refused, and are there afterwards.
func TestHTTPConsumeIsPaidFor(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("queued.max.request.bytes", "1048576"),
		strandlinetest.WithSetting("socket.request.max.bytes", "1048576"))
	c.createTopic("t", 1)
	raw := "Content-Type: application/octet-stream"
	c.want(200, "", "POST", "/v1/topics/t/produce", strings.Repeat("x", 300_000), raw)
	var slow []net.Conn
	begin := func() { // A body that holds half a MiB, or is refused because there is none left just now.
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
		fmt.Fprintf(conn, "POST /v1/topics/t/produce HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 500000\r\n\r\n%s",
			raw, strings.Repeat("x", 300_000))
	}
	until := func(status int, query string, before func()) string {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			before()
			got, text := c.ask("GET", "/v1/topics/t/consume?"+query, "")
			if got == status {
				return text
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d %.200s", got, text)
			}
		}
	}
	until(429, "partition=0&offset=0", begin)
	c.want(429, `THROTTLING_QUOTA_EXCEEDED.*queued.max.request.bytes`, "GET", "/v1/topics/t/consume?group=g", "")
	for _, conn := range slow {
		_ = conn.Close()
	}
	if text := until(200, "group=g", func() {}); !strings.Contains(text, `"offset":0,`) {
		t.Errorf("the refused record is gone: %.200s", text)
	}
}

// TestHTTPStreams: records arrive as they are produced, and the stream says
// where to go on when its time is over.
func TestHTTPStreams(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("orders", 1)
	c.produce("orders", `{"value_text":"a"}`)
	open := func(query, accept string, headers ...string) (*http.Response, *bufio.Scanner) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", c.base+"/v1/topics/orders/consume?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp, bufio.NewScanner(resp.Body)
	}
	line := func(s *bufio.Scanner, pattern string) {
		t.Helper()
		for s.Scan() {
			if text := s.Text(); text != "" && !strings.HasPrefix(text, ":") {
				if !regexp.MustCompile(pattern).MatchString(text) {
					t.Errorf("%s, want %s", text, pattern)
				}
				return
			}
		}
		t.Errorf("ended before %s: %v", pattern, s.Err())
	}
	resp, s := open("group=g&wait_ms=700", "application/x-ndjson")
	if got := resp.Header.Get("Content-Type") + resp.Header.Get("Strandline-Member"); got != "application/x-ndjsonshared" {
		t.Error(got)
	}
	line(s, `^{"partition":0,"offset":0,.*"value":"YQ=="}$`)
	c.produce("orders", `{"value_text":"b"}`)
	line(s, `"offset":1`)
	line(s, `^{"next_offsets":{"0":2},"member":"shared","generation":1}$`)
	if s.Scan() {
		t.Errorf("after the end: %s", s.Text())
	}
	_, s = open("partition=0&offset=0&wait_ms=300", "text/event-stream")
	for _, l := range []string{"^id: 0:0$", `^data: {"partition":0,"offset":0`, "^id: 0:1$", `^data: `, "^event: end$", `^data: {"next_offsets":{"0":2}}$`} {
		line(s, l)
	}
	_, s = open("partition=0&offset=0&wait_ms=0", "text/event-stream", "Last-Event-ID: 0:0")
	line(s, "^id: 0:1$")
	// What is wrong before the stream begins has a status.
	c.want(400, "give group", "GET", "/v1/topics/orders/consume", "", "Accept: text/event-stream")
}

// TestHTTPConsumeWhileStopping: a broker that stops answers those who wait for
// records, and does not wait for them.
func TestHTTPConsumeWhileStopping(t *testing.T) {
	srv, c := startHTTP(t)
	c.createTopic("orders", 1)
	c.consume("orders", "group=g")
	statuses := make(chan string, 2)
	for _, query := range []string{"group=g&wait_ms=60000", "partition=0&offset=0&wait_ms=60000"} {
		go func() {
			resp, err := http.Get(c.base + "/v1/topics/orders/consume?" + query)
			if err != nil {
				statuses <- err.Error()
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.Status
		}()
	}
	// They wait, most likely; else they are refused as they come.
	c.consume("orders", "group=other&wait_ms=300")
	begun := time.Now()
	if err := srv.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for range 2 {
		if got := <-statuses; !strings.HasPrefix(got, "503") && !strings.Contains(got, "connection refused") {
			t.Errorf("a caller that waited got %s", got)
		}
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

// Streams that nobody reads hold what they may, and keep nobody from writing.
func TestHTTPStalledReaders(t *testing.T) {
	srv, c := startHTTP(t, strandlinetest.WithSetting("socket.request.max.bytes", "2000000"),
		strandlinetest.WithSetting("queued.max.request.bytes", "8000000"))
	c.createTopic("t", 1)
	large := strings.Repeat("l", 900_000)
	for range 20 { // More than a connection's buffers take.
		c.produce("t", large, "Content-Type: application/octet-stream")
	}
	// One that finds no memory left ends, so there are more until those that stay hold all
	// that answers may.
	for end := time.Now().Add(25 * time.Second); ; {
		stall(t, srv.HTTPAddr(), "/v1/topics/t/consume?partition=0&offset=0&wait_ms=300000")
		if status, _ := c.ask("GET", "/v1/topics/t/consume?partition=0&offset=0", ""); status == 429 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("answers never take all that they may")
		}
	}
	c.produce("t", `{"value_text":"small"}`)
	c.produce("t", large, "Content-Type: application/octet-stream")
}

// stall asks for a stream and reads nothing of it.
func stall(t *testing.T, addr, path string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n", path)
}
