package strandline_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// httpTransaction is a transaction over HTTP.
type httpTransaction struct {
	Transaction     string
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int64  `json:"timeout_ms"`
}

// path is where the transaction is, or what of it.
func (x httpTransaction) path(what string) string {
	return strings.TrimSuffix("/v1/transactions/"+x.Transaction+"/"+what, "/")
}

func (c httpClient) begin(body string) (x httpTransaction) {
	c.t.Helper()
	text := c.want(200, "transactional_id", "POST", "/v1/transactions", body)
	if err := json.Unmarshal([]byte(text), &x); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	return x
}

// valuesOf returns the values of the answer to a read of a partition from its beginning.
func (c httpClient) valuesOf(topic, isolation string) []string {
	c.t.Helper()
	return c.consume(topic, "partition=0&offset=0&isolation="+isolation).values()
}

// awaitCommitted reads a partition until so many committed records are there.
func (c httpClient) awaitCommitted(topic string, count int) []string {
	c.t.Helper()
	var all []string
	for at := int64(0); len(all) < count; {
		got := c.consume(topic, fmt.Sprintf("partition=0&offset=%d&isolation=read_committed&wait_ms=20000", at))
		if len(got.Records) == 0 {
			c.t.Fatalf("there are %q, want %d", all, count)
		}
		all, at = append(all, got.values()...), got.NextOffsets["0"]
	}
	return all
}

// TestHTTPTransactions is the life of transactions over HTTP: what is part of one counts
// when it is committed, never if it is aborted, and a retry of any request does no harm.
func TestHTTPTransactions(t *testing.T) {
	srv, c := startHTTP(t)
	c.createTopic("t", 1)
	x := c.begin(`{"transactional_id":"billing-1","timeout_ms":30000}`)
	if x.TransactionalID != "billing-1" || x.TimeoutMs != 30000 {
		t.Errorf("begun: %+v", x)
	}
	c.want(200, `"state":"open","timeout_ms":30000,"partitions":\[\]}`, "GET", x.path(""), "")
	first := `{"topic":"t","request":0,"key":"k","value_text":"a","headers":[{"key":"h","value_text":"x"}]}`
	text := c.want(200, `{"partition":0,"offset":0,`, "POST", x.path("produce"), first)
	if again := c.want(200, "", "POST", x.path("produce"), first); again != text {
		t.Errorf("the retry got %s, the first %s", again, text)
	}
	list := `{"topic":"t","request":7,"records":[{"value_text":"b"},{"value":null,"timestamp_ms":5}]}`
	text = c.want(200, `{"failed":0,"results":\[{"partition":0,"offset":1,.*"offset":2,"timestamp":0,"timestamp_ms":5}\]}`, "POST", x.path("produce"), list)
	for _, retry := range []string{list, first, list} {
		again := c.want(200, "", "POST", x.path("produce"), retry)
		if retry == list && again != text {
			t.Errorf("the retry got %s, the first %s", again, text)
		}
	}
	same(t, c.valuesOf("t", "read_uncommitted"), "0:0=a", "0:1=b", "0:2=")
	same(t, c.valuesOf("t", "read_committed"))
	c.want(200, `"state":"open".*"started_ms":\d+,"partitions":\[{"topic":"t","partition":0}\]}`, "GET", x.path(""), "")
	for range 3 {
		c.want(200, `"transactional_id":"billing-1","state":"committed"}`, "POST", x.path("commit"), "")
	}
	same(t, c.awaitCommitted("t", 3), "0:0=a", "0:1=b", "0:2=")
	c.want(200, `"state":"committed"`, "GET", x.path(""), "")
	c.want(409, `INVALID_TXN_STATE.*"retriable":false`, "POST", x.path("abort"), "")
	c.want(409, `PRODUCER_FENCED.*"retriable":false`, "POST", x.path("produce"), first)

	y := c.begin(`{"transactional_id":"billing-1"}`)
	if y.Transaction == x.Transaction || y.TimeoutMs != 60000 {
		t.Errorf("begun: %+v after %+v", y, x)
	}
	c.want(200, `"offset":4,`, "POST", y.path("produce"), `{"topic":"t","request":0,"value_text":"never"}`)
	for range 2 {
		c.want(200, `"state":"aborted"`, "POST", y.path("abort"), "")
	}
	c.want(409, "INVALID_TXN_STATE", "POST", y.path("commit"), "")
	c.want(409, "PRODUCER_FENCED", "POST", x.path("commit"), "") // Nobody knows any more.
	c.want(200, `"state":"fenced","partitions":\[\]}`, "GET", x.path(""), "")

	// A transaction that had nothing to do, and one of Kafka's that comes after.
	z := c.begin(`{}`)
	if !strings.HasPrefix(z.TransactionalID, "strandline-once-") {
		t.Errorf("begun: %+v", z)
	}
	for range 2 {
		c.want(200, `"state":"committed"`, "POST", z.path("commit"), "")
	}
	c.want(409, "INVALID_TXN_STATE", "POST", z.path("abort"), "")
	c.want(409, "PRODUCER_FENCED", "POST", z.path("produce"), first)
	p := newTransactional(t, []string{srv.Addr()}, "billing-1")
	p.produce("t", "kafka")
	p.end(kgo.TryCommit)
	same(t, c.awaitCommitted("t", 4)[3:], "0:6=kafka")
	c.want(409, "PRODUCER_FENCED", "POST", y.path("abort"), "")
}

// TestHTTPTransactionRefusals: what is refused is not appended, not even in part, says
// why, and may be put right under the same number.
func TestHTTPTransactionRefusals(t *testing.T) {
	_, c := startHTTP(t, strandlinetest.WithSetting("message.max.bytes", "1000"))
	c.createTopic("t", 2)
	for _, r := range []struct {
		status     int
		want, body string
	}{
		{400, "timeout_ms is 0", `{"timeout_ms":0}`},
		{400, "INVALID_TRANSACTION_TIMEOUT.*transaction.max.timeout.ms", `{"timeout_ms":900001}`},
		{400, "transactional_id is empty", `{"transactional_id":""}`},
		{400, "transactional_id has 513 bytes", fmt.Sprintf(`{"transactional_id":%q}`, strings.Repeat("x", 513))},
		{400, "strandline-once-", `{"transactional_id":"strandline-once-1"}`},
		{400, `unknown field \\"id\\"`, `{"id":"x"}`},
		{400, "no body", ``},
	} {
		c.want(r.status, r.want, "POST", "/v1/transactions", r.body)
	}
	x := c.begin(`{"transactional_id":"x"}`)
	large := strings.Repeat("l", 600)
	for _, r := range []struct {
		status     int
		want, body string
	}{
		{400, "topic is missing", `{"request":0,"value_text":"a"}`},
		{400, "request is missing", `{"topic":"t","value_text":"a"}`},
		{400, "request", `{"topic":"t","request":-1,"value_text":"a"}`},
		{400, "request", `{"topic":"t","request":131072,"value_text":"a"}`},
		{400, `unknown field \\"acks\\"`, `{"topic":"t","request":0,"value_text":"a","acks":"all"}`},
		{400, "no idempotency keys in a transaction", `{"topic":"t","request":0,"value_text":"a","idempotency_key":"i"}`},
		{400, "value is missing", `{"topic":"t","request":0}`},
		{404, "there is no partition 2", `{"topic":"t","request":0,"value_text":"a","partition":2}`},
		{404, `records\[1\]: .*there is no partition 9`, `{"topic":"t","request":0,"records":[{"value_text":"a","partition":0},{"value_text":"b","partition":9}]}`},
		{400, `records\[1\]: .*timestamp`, `{"topic":"t","request":0,"records":[{"value_text":"a","partition":0},{"value_text":"b","partition":0,"timestamp_ms":4102444800000}]}`},
		{413, `records\[1\]: .*MESSAGE_TOO_LARGE|MESSAGE_TOO_LARGE.*records\[1\]`, `{"topic":"t","request":0,"records":[{"value_text":"a"},{"value_text":"` + large + large + `"}]}`},
		{413, "RECORD_LIST_TOO_LARGE.*fewer at a time", `{"topic":"t","request":0,"records":[` +
			strings.Repeat(`{"partition":1,"value_text":"`+large+`"},`, 5) + `{"partition":1,"value_text":"` + large + `"}]}`},
		{400, "internal", `{"topic":"__consumer_offsets","request":0,"value_text":"a"}`},
	} {
		c.want(r.status, r.want, "POST", x.path("produce"), r.body)
	}
	c.want(400, "Idempotency-Key", "POST", x.path("produce"), `{"topic":"t","request":0,"value_text":"a"}`, "Idempotency-Key: i")
	raw := "Content-Type: application/octet-stream"
	for _, r := range []struct{ want, query string }{
		{"topic is missing", "request=0"},
		{"request is missing", "topic=t"},
		{"request: want a whole number from 0 to 131071", "topic=t&request=131072"},
		{"request: want a whole number", "topic=t&request=-1"},
		{"request: want a whole number", "topic=t&request="},
		{"no idempotency keys in a transaction", "topic=t&request=0&idempotency_key=i"},
		{`unknown query parameter \\"acks\\"`, "topic=t&request=0&acks=all"},
		{"did you mean request", "topic=t&requests=0"},
		{"request is given 2 times", "topic=t&request=0&request=0"},
		{"a header may not be called", "topic=t&request=0&header.strandline.idempotency-key=x"},
	} {
		c.want(400, r.want, "POST", x.path("produce")+"?"+r.query, "raw", raw)
	}
	c.want(400, "no idempotency keys", "POST", x.path("produce")+"?topic=t&request=0", "raw", raw, "Idempotency-Key: i")
	c.want(400, "topic is given twice", "POST", x.path("produce")+"?topic=t&request=0", "raw", raw, "Strandline-Topic: t")
	c.want(400, "unknown header field Strandline-Acks", "POST", x.path("produce")+"?topic=t&request=0", "raw", raw, "Strandline-Acks: all")
	c.want(404, "there is no partition 2", "POST", x.path("produce")+"?topic=t&request=0&partition=2", "raw", raw)
	c.want(413, "MESSAGE_TOO_LARGE", "POST", x.path("produce")+"?topic=t&request=0", large+large, raw)
	c.want(400, "internal", "POST", x.path("produce")+"?topic=__consumer_offsets&request=0", "raw", raw)
	c.want(415, "application/json.*application/octet-stream", "POST", x.path("produce"), "x", "Content-Type: text/plain")
	c.want(200, `"partitions":\[\]`, "GET", x.path(""), "")
	five := `{"topic":"t","request":0,"records":[` + strings.Repeat(`{"partition":1,"value_text":"`+large+`"},`, 4) + `{"partition":1,"value_text":"` + large + `"}]}`
	text := c.want(200, `"offset":4,`, "POST", x.path("produce"), five)
	if again := c.want(200, "", "POST", x.path("produce"), five); again != text {
		t.Errorf("the retry got %s, the first %s", again, text)
	}
	// Where the log gives the time, that of the first try is the answer to the second too.
	c.want(201, "", "POST", "/v1/topics", `{"name":"log-time","partitions":1,"configs":{"message.timestamp.type":"LogAppendTime"}}`)
	timed := `{"topic":"log-time","request":3,"records":[{"value_text":"a","timestamp_ms":5},{"value_text":"b"}]}`
	text = c.want(200, `"timestamp_ms":\d{13}.*"timestamp_ms":\d{13}`, "POST", x.path("produce"), timed)
	if again := c.want(200, "", "POST", x.path("produce"), timed); again != text {
		t.Errorf("the retry got %s, the first %s", again, text)
	}
	// The same number for something else, and one that comes too late.
	c.want(409, `DUPLICATE_RESOURCE.*t-1 has them at offset 0`, "POST", x.path("produce"), strings.Replace(five, "lll", "mmm", 1))
	c.want(409, `OUT_OF_ORDER_SEQUENCE_NUMBER.*records\[0\]: request 0 was sent before with other records`, "POST", x.path("produce"),
		`{"topic":"t","request":0,"records":[{"partition":1,"value_text":"a"},{"partition":1,"value_text":"b"}]}`)
	c.want(200, `"offset":5,`, "POST", x.path("produce"), `{"topic":"t","request":2,"partition":1,"value_text":"two"}`)
	c.want(409, `OUT_OF_ORDER_SEQUENCE_NUMBER.*request 1 was sent`, "POST", x.path("produce"), `{"topic":"t","request":1,"partition":1,"value_text":"one"}`)
	c.want(200, `"offset":0,`, "POST", x.path("produce"), `{"topic":"t","request":1,"partition":0,"value_text":"one"}`)

	for _, path := range []string{"nonsense", x.Transaction + "A", "AQ"} {
		c.want(404, "TRANSACTIONAL_ID_NOT_FOUND", "GET", "/v1/transactions/"+path, "")
		c.want(404, "TRANSACTIONAL_ID_NOT_FOUND", "POST", "/v1/transactions/"+path+"/commit", "")
	}
	// Of a cluster that was another one.
	c.want(404, "TRANSACTIONAL_ID_NOT_FOUND", "GET", "/v1/transactions/AQAAAAAAAAAJAABnaG9zdA", "")
	c.want(409, "INVALID_PRODUCER_ID_MAPPING", "POST", "/v1/transactions/AQAAAAAAAAAJAABnaG9zdA/commit", "")
	c.want(409, "INVALID_PRODUCER_ID_MAPPING", "POST", "/v1/transactions/AQAAAAAAAAAJAABnaG9zdA/produce", `{"topic":"t","request":1,"value_text":"x"}`)
	c.want(400, "unknown query parameter", "POST", x.path("commit")+"?force=true", "")
	c.want(405, "use GET", "DELETE", x.path(""), "")
}

// TestHTTPTransactionTakesBytes: a record whose value is the body as it is, as part of a
// transaction, and again.
func TestHTTPTransactionTakesBytes(t *testing.T) {
	srv, c := startHTTP(t)
	c.createTopic("t", 2)
	x := c.begin(`{"transactional_id":"x"}`)
	const raw = "Content-Type: application/octet-stream"
	in := x.path("produce")
	text := c.want(200, `{"partition":1,"offset":0,"timestamp":0,"timestamp_ms":7}`, "POST",
		in+"?topic=t&request=0&partition=1&timestamp_ms=7&key=k&header.Source=s", "raw \x00 bytes", raw)
	if again := c.want(200, "", "POST", in+"?topic=t&request=0&partition=1&timestamp_ms=8&key=k&header.Source=s", "raw \x00 bytes", raw); again != text {
		t.Errorf("the retry got %s, the first %s", again, text)
	}
	c.want(409, "DUPLICATE_RESOURCE", "POST", in+"?topic=t&request=0&partition=1&key=k&header.Source=s", "other bytes", raw)
	c.want(200, `"offset":1,`, "POST", in, "", raw, "Strandline-Topic: t", "Strandline-Request: 1", "Strandline-Partition: 1",
		"Strandline-Key-Base64: /w==", "Strandline-Header-Trace: t1")
	// In JSON the same record is the same request.
	c.want(200, `"offset":1,`, "POST", in,
		`{"topic":"t","request":1,"partition":1,"key_base64":"/w==","value":"","headers":[{"key":"trace","value_text":"t1"}]}`)
	c.want(200, "committed", "POST", x.path("commit"), "")
	var got []string
	for _, r := range records(t, srv.Addr(), "t", 2) {
		got = append(got, fmt.Sprintf("%d %q=%q %s", r.Offset, r.Key, r.Value, r.Headers))
	}
	same(t, got, `0 "k"="raw \x00 bytes" [{Source s}]`, `1 "\xff"="" [{trace t1}]`)
}

// TestHTTPTransactionTimesOut: a transaction that its client forgot is aborted, and the
// client hears of it whatever it asks.
func TestHTTPTransactionTimesOut(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("t", 1)
	x := c.begin(`{"transactional_id":"x","timeout_ms":150}`)
	record := `{"topic":"t","request":0,"value_text":"a"}`
	c.want(200, "offset", "POST", x.path("produce"), record)
	c.produce("t", `{"value_text":"plain"}`)
	same(t, c.awaitCommitted("t", 1), "0:1=plain") // Once nothing is open before it.
	c.want(200, `"state":"aborted"`, "GET", x.path(""), "")
	c.want(409, "PRODUCER_FENCED", "POST", x.path("produce"), record)
	c.want(409, "PRODUCER_FENCED", "POST", x.path("produce"), `{"topic":"t","request":1,"value_text":"b"}`)
	c.want(409, "INVALID_TXN_STATE.*timeout_ms", "POST", x.path("commit"), "")
	c.want(200, `"state":"aborted"`, "POST", x.path("abort"), "")
	y := c.begin(`{"transactional_id":"x"}`)
	c.want(409, "PRODUCER_FENCED", "POST", x.path("abort"), "")
	c.want(200, "offset", "POST", y.path("produce"), record)
	c.want(200, "committed", "POST", y.path("commit"), "")
	same(t, c.awaitCommitted("t", 2), "0:1=plain", "0:3=a")
}

// TestHTTPTransactionFences: whoever begins under a transactional id ends what was open
// under it, between two requests of the one before or at the same time as its commit.
func TestHTTPTransactionFences(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("t", 1)
	x := c.begin(`{"transactional_id":"x"}`)
	c.want(200, "offset", "POST", x.path("produce"), `{"topic":"t","request":0,"value_text":"old"}`)
	y := c.begin(`{"transactional_id":"x"}`)
	c.want(409, "PRODUCER_FENCED", "POST", x.path("produce"), `{"topic":"t","request":1,"value_text":"old"}`)
	c.want(409, "PRODUCER_FENCED", "POST", x.path("offsets"), `{"group":"g","offsets":{"t":{"0":0}}}`)
	c.want(409, "PRODUCER_FENCED", "POST", x.path("commit"), "")
	c.want(200, "offset", "POST", y.path("produce"), `{"topic":"t","request":0,"value_text":"new"}`)
	c.want(200, "committed", "POST", y.path("commit"), "")
	same(t, c.awaitCommitted("t", 1), "0:2=new")

	// At the same time: of many that begin and go on, each commit that succeeds is whole.
	var (
		all sync.WaitGroup
		mu  sync.Mutex
		won []string
	)
	for who := range 6 {
		all.Go(func() {
			x := c.begin(`{"transactional_id":"contended"}`)
			for n := range 2 {
				status, _ := c.ask("POST", x.path("produce"), fmt.Sprintf(`{"topic":"t","request":%d,"value_text":"%d-%d"}`, n, who, n))
				if status != 200 {
					return
				}
			}
			if status, _ := c.ask("POST", x.path("commit"), ""); status == 200 {
				mu.Lock()
				defer mu.Unlock()
				won = append(won, fmt.Sprintf("%d-0", who), fmt.Sprintf("%d-1", who))
			}
		})
	}
	all.Wait()
	var got []string
	for _, v := range c.awaitCommitted("t", 1+len(won))[1:] {
		got = append(got, v[strings.Index(v, "=")+1:])
	}
	slices.Sort(got)
	slices.Sort(won)
	same(t, got, won...)
}

// TestHTTPTransactionWhilePartitionsAreAdded: a retry whose records belong to other
// partitions than the first try's is not answered as if nothing had been there.
func TestHTTPTransactionWhilePartitionsAreAdded(t *testing.T) {
	_, c := startHTTP(t)
	addPartitionsInTransaction(t, c, func() httpClient { return c })
}

func addPartitionsInTransaction(t *testing.T, c httpClient, any func() httpClient) {
	t.Helper()
	c.want(201, "", "POST", "/v1/topics", `{"name":"grows","partitions":2}`)
	x := any().begin(`{"transactional_id":"grows"}`)
	var keyed, keyless, explicit []string
	for n := range 8 {
		keyed = append(keyed, fmt.Sprintf(`{"topic":"grows","request":%d,"key":"k%d","value_text":"%d"}`, 3*n, n, n))
		keyless = append(keyless, fmt.Sprintf(`{"topic":"grows","request":%d,"value_text":"%d"}`, 3*n+1, n))
		explicit = append(explicit, fmt.Sprintf(`{"topic":"grows","request":%d,"value_text":"%d","partition":%d}`, 3*n+2, n, n%2))
	}
	for n := range 8 { // Without growth all of them may be sent again.
		for _, body := range []string{keyed[n], keyless[n], explicit[n]} {
			first := any().want(200, "offset", "POST", x.path("produce"), body)
			if again := any().want(200, "offset", "POST", x.path("produce"), body); again != first {
				t.Errorf("%s: first %s, then %s", body, first, again)
			}
		}
	}
	moved := 0
	for n, key := range []string{"k0", "k1", "k2", "k3", "k4", "k5"} {
		y := any().begin(fmt.Sprintf(`{"transactional_id":"y%d"}`, n))
		body := fmt.Sprintf(`{"topic":"grows","request":0,"key":%q,"value_text":"y"}`, key)
		first := any().want(200, "offset", "POST", y.path("produce"), body)
		any().want(200, "", "PATCH", "/v1/topics/grows", fmt.Sprintf(`{"partitions":%d}`, 3+n))
		status, again := any().ask("POST", y.path("produce"), body)
		switch {
		case status == 200 && again == first: // The key's partition is the same one.
		case status == 409 && strings.Contains(again, "OUT_OF_ORDER_SEQUENCE_NUMBER") && strings.Contains(again, "Abort the transaction"):
			moved++
		default:
			t.Errorf("with %d partitions: %d %s, the first try %s", 3+n, status, again, first)
		}
		any().want(200, "aborted", "POST", y.path("abort"), "")
	}
	if moved == 0 {
		t.Error("no key belongs elsewhere with more partitions: the test shows nothing")
	}
	any().want(200, "committed", "POST", x.path("commit"), "")
}

// TestHTTPOffsetsInTransactions: offsets count with the records, or not at all, and only
// of who owns the partition.
func TestHTTPOffsetsInTransactions(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("in", 2)
	c.createTopic("out", 1)
	for n := range 4 {
		c.produce("in", fmt.Sprintf(`{"value_text":"%d","partition":%d}`, n, n%2))
	}
	committed := func(offset string) {
		t.Helper()
		c.want(200, `"partition":0,"committed_offset":`+offset+`,`, "GET", "/v1/groups/g", "")
	}
	if got := c.consume("in", "group=g&member=a&isolation=read_committed"); len(got.Records) != 4 {
		t.Fatalf("read %+v", got)
	}
	x := c.begin(`{"transactional_id":"x"}`)
	c.want(400, "offsets are needed", "POST", x.path("offsets"), `{"group":"g"}`)
	c.want(400, "offsets are needed", "POST", x.path("offsets"), `{"group":"g","offsets":{"in":{}}}`)
	c.want(400, "no partition", "POST", x.path("offsets"), `{"group":"g","offsets":{"in":{"x":1}}}`)
	c.want(400, "not in the log", "POST", x.path("offsets"), `{"group":"g","member":"a","offsets":{"in":{"0":9}}}`)
	c.want(400, "group is missing", "POST", x.path("offsets"), `{"offsets":{"in":{"0":1}}}`)
	c.want(404, "no topic", "POST", x.path("offsets"), `{"group":"g","offsets":{"im":{"0":1}}}`)
	offsets := `{"group":"g","member":"a","offsets":{"in":{"0":1,"1":2}}}`
	for range 2 {
		c.want(200, `^{"offsets":{"in":{"0":1,"1":2}}}\n$`, "POST", x.path("offsets"), offsets)
	}
	c.want(200, "offset", "POST", x.path("produce"), `{"topic":"out","request":0,"value_text":"made of them"}`)
	c.want(200, `"partitions":\[{"topic":"__consumer_offsets","partition":\d+},{"topic":"out","partition":0}\]`, "GET", x.path(""), "")
	committed("null")
	c.want(200, "aborted", "POST", x.path("abort"), "")
	x = c.begin(`{"transactional_id":"x"}`)
	c.want(200, "offsets", "POST", x.path("offsets"), offsets)
	c.want(200, "offset", "POST", x.path("produce"), `{"topic":"out","request":0,"value_text":"made of them"}`)
	c.want(200, "committed", "POST", x.path("commit"), "")
	same(t, c.awaitCommitted("out", 1), "0:2=made of them")
	// The session goes back to what is committed only if asked to, and waits for it.
	same(t, c.consume("in", "group=g&member=a&rewind=true&wait_ms=20000").values(), "0:1=2")
	committed("1")

	// Others own nothing here, and a former owner neither.
	x = c.begin(`{"transactional_id":"x"}`)
	c.want(409, "NON_EMPTY_GROUP", "POST", x.path("offsets"), strings.Replace(offsets, `"a"`, `"b"`, 1))
	c.want(409, "NON_EMPTY_GROUP", "POST", x.path("offsets"), strings.Replace(offsets, `"member":"a",`, ``, 1))
	lost, kept := c.shareOut("g", "a", "b")
	c.want(409, "ILLEGAL_GENERATION.*not member", "POST", x.path("offsets"), fmt.Sprintf(`{"group":"g","member":"a","offsets":{"in":{"%d":2}}}`, lost))
	c.want(200, "offsets", "POST", x.path("offsets"), fmt.Sprintf(`{"group":"g","member":"a","offsets":{"in":{"%d":2}}}`, kept))
	c.want(200, "committed", "POST", x.path("commit"), "")

	// A group without members takes it from anybody.
	x = c.begin(`{"transactional_id":"x"}`)
	c.want(200, "offsets", "POST", x.path("offsets"), `{"group":"empty","offsets":{"in":{"0":2},"out":{"0":1}}}`)
	c.want(200, "committed", "POST", x.path("commit"), "")
	for end := time.Now().Add(20 * time.Second); ; {
		_, text := c.ask("GET", "/v1/groups/empty", "")
		if regexp.MustCompile(`"topic":"in","partition":0,"committed_offset":2,.*"topic":"out","partition":0,"committed_offset":1,`).MatchString(text) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the group is %s", text)
		}
	}
}

// shareOut has another member join a group that reads the two partitions of topic in, and
// returns which of them the first member has lost to it, and which it has kept.
func (c httpClient) shareOut(group, first, other string) (lost, kept int32) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		c.consume("in", "group="+group+"&member="+first)
		c.consume("in", "group="+group+"&member="+other)
		var d struct {
			State   string
			Members []struct {
				InstanceID string `json:"instance_id"`
				Partitions []struct{ Partition int32 }
			}
		}
		text := c.want(200, "members", "GET", "/v1/groups/"+group, "")
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
		of := map[string]int32{}
		for _, m := range d.Members {
			if len(m.Partitions) == 1 {
				of[m.InstanceID] = m.Partitions[0].Partition
			}
		}
		if d.State == "Stable" && len(of) == 2 {
			return of["http:in:"+other], of["http:in:"+first]
		}
	}
	c.t.Fatalf("group %s does not settle", group)
	return 0, 0
}

// TestHTTPStreamsCommitted: a stream gives what is committed, once it is, and nothing else.
func TestHTTPStreamsCommitted(t *testing.T) {
	_, c := startHTTP(t)
	c.createTopic("t", 1)
	produce := func(x httpTransaction, request int, value string) {
		t.Helper()
		c.want(200, "offset", "POST", x.path("produce"), fmt.Sprintf(`{"topic":"t","request":%d,"value_text":%q}`, request, value))
	}
	x := c.begin(`{"transactional_id":"x"}`)
	produce(x, 0, "aborted")
	c.want(200, "aborted", "POST", x.path("abort"), "")
	x = c.begin(`{"transactional_id":"x"}`)
	produce(x, 0, "one")
	c.want(200, "committed", "POST", x.path("commit"), "")
	x = c.begin(`{"transactional_id":"x"}`)
	produce(x, 0, "two")
	var streams []*bufio.Scanner
	for _, accept := range []string{"application/x-ndjson", "text/event-stream"} {
		for _, where := range []string{"partition=0&offset=0", "group=" + accept[:4]} {
			streams = append(streams, c.stream("/v1/topics/t/consume?isolation=read_committed&text=true&wait_ms=60000&"+where, accept))
		}
	}
	until := func(value string) {
		t.Helper()
		for i, stream := range streams {
			for stream.Scan() && !strings.Contains(stream.Text(), value) {
				if line := stream.Text(); strings.Contains(line, `"value_text"`) || strings.Contains(line, "error") {
					t.Errorf("stream %d has %s, want %s next", i, line, value)
				}
			}
			if err := stream.Err(); err != nil {
				t.Errorf("stream %d ends before %s: %v", i, value, err)
			}
		}
	}
	until(`"one"`)
	produce(x, 1, "three")
	y := c.begin(`{"transactional_id":"y"}`)
	produce(y, 0, "four")
	c.want(200, "committed", "POST", x.path("commit"), "")
	until(`"two"`)
	until(`"three"`)
	c.want(200, "committed", "POST", y.path("commit"), "")
	until(`"four"`)
}

// stream begins to read a stream, which ends with the test.
func (c httpClient) stream(path, accept string) *bufio.Scanner {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "GET", c.base+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	return bufio.NewScanner(resp.Body)
}
