package express_test

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/express"
)

// FuzzReading: what the lane takes as a request, net/http reads as the same one,
// with the same bytes behind it.
func FuzzReading(f *testing.F) {
	for _, request := range []string{
		post("orders", "User-Agent: curl/8\r\nAccept: */*\r\nContent-Type: application/json\r\n", `{"value":"eA=="}`),
		post("a.b-c_1", "Connection: keep-alive\r\nX-A: 1\r\nx-a: 2\r\nIdempotency-Key: k\r\n", "") + "POST",
		post("a", "Content-Length: 1\r\n", "x"), post("..", "", "x"), post("a", "Transfer-Encoding: chunked\r\n", ""),
		post("a", "X: \t y \t\r\n: z\r\n", "x"), post("a", "Host : b\r\n", "x"), "POST /v1/topics/a/produce HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { sameReading(t, raw) })
}

// sameReading checks that net/http reads a request as the lane does, and reports
// whether the lane takes it.
func sameReading(t *testing.T, raw []byte) (taken bool) {
	t.Helper()
	got, size, ok := express.ReadHead(raw, routes(nil))
	if !ok {
		return false
	}
	in := bufio.NewReader(bytes.NewReader(raw))
	want, err := http.ReadRequest(in)
	if err != nil {
		t.Fatalf("net/http refuses what the lane takes: %v\n%q", err, raw)
	}
	for _, pair := range [][2]any{
		{want.Method, got.Method},
		{want.URL.String(), got.URL.String()},
		{want.Host, got.Host},
		{want.ContentLength, got.ContentLength},
		{want.Close, false},
		{want.RequestURI, got.RequestURI},
		{len(want.TransferEncoding), 0},
		{len(want.Trailer), 0},
	} {
		if pair[0] != pair[1] {
			t.Errorf("net/http reads %v, the lane %v\n%q", pair[0], pair[1], raw)
		}
	}
	if diff := cmp.Diff(want.Header, got.Header); diff != "" {
		t.Errorf("fields (-net/http +lane): %s\n%q", diff, raw)
	}
	behind, err := io.ReadAll(io.MultiReader(want.Body, in))
	if len(raw)-size < int(want.ContentLength) { // The rest of the body is yet to come.
		return true
	}
	if err != nil || !bytes.Equal(behind, raw[size:]) {
		t.Errorf("behind the head net/http has %q, %v\n%q", behind, err, raw)
	}
	return true
}

// Requests put together from what is plain and what is odd are read alike.
func TestReadingOfOddRequests(t *testing.T) {
	lines := []string{
		"POST /v1/topics/a/produce HTTP/1.1", "POST /v1/topics/a.b_c-1/produce HTTP/1.1", "POST /v1/topics/../produce HTTP/1.1",
		"POST /v1/topics//produce HTTP/1.1", "POST  /v1/topics/a/produce HTTP/1.1", "POST /v1/topics/a/produce HTTP/1.1 ",
		"POST /v1/topics/a/produce/produce HTTP/1.1", "POST /v1/topics/a/produce HTTP/1.10", "post /v1/topics/a/produce HTTP/1.1",
	}
	fields := []string{
		"Host: a", "Host: a:80", "Host: [::1]:80", "Host: [", "host:a", "Host: a b", "Host: a, b", "Host:", "HOST: x.y-z", "Host: ::",
		"Content-Length: 3", "Content-Length: 0", "Content-Length: 03", "Content-Length: -1", "Content-Length: 3, 3", "Content-Length:",
		"content-length: 1", "Content-Length: 0x1", "Content-Length : 3", "Content-Length: 99999999999",
		"Transfer-Encoding: chunked", "Transfer-Encoding: identity", "transfer-encoding:chunked", "Connection: keep-alive",
		"Connection: close", "Connection: keep-alive, close", "Connection: Content-Length", "Keep-Alive: timeout=5", "Trailer: X",
		"Expect: 100-continue", "Upgrade: h2c", "X: y", "x: z", "X:", "X: \t", "X:\ty z \t", "X-\u00fc: y", "X: \u00fc", "X\x00: y",
		"X: a\rb", "X: a\nb", " folded", "\tfolded", "no colon", ": empty", "Idempotency-Key: k", "a_b: 1", "A!#$%&'*+-.^`|~: 1",
		"Cookie: a=b; c=d", "Pragma: no-cache", "Cache-Control: no-store", "Content-Type: application/json", "Te: trailers",
	}
	ends := []string{"\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n"}
	takenCount := 0
	for seed := range uint64(60_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		pick := func(from []string, oddly int) string {
			if random.IntN(oddly) > 0 {
				return from[0]
			}
			return from[random.IntN(len(from))]
		}
		parts := []string{pick(lines, 4), pick(fields, 3), pick(fields[10:], 3)}
		for range random.IntN(4) {
			parts = append(parts, fields[random.IntN(len(fields))])
		}
		random.Shuffle(len(parts)-1, func(i, j int) { parts[i+1], parts[j+1] = parts[j+1], parts[i+1] })
		var raw []byte
		for _, p := range append(parts, "") {
			raw = append(append(raw, p...), pick(ends, 6)...)
		}
		raw = append(raw, "abcPOST / HTTP/1.1\r\n"[:random.IntN(20)]...)
		if sameReading(t, raw) {
			takenCount++
		}
	}
	if takenCount < 1000 {
		t.Errorf("%d of the requests were taken", takenCount)
	}
	t.Logf("%d taken", takenCount)
}
