package express_test

import (
	"bufio"
	"bytes"
	"io"
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
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, size, ok := express.ReadHead(raw, routes(nil))
		if !ok {
			return
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
			return
		}
		if err != nil || !bytes.Equal(behind, raw[size:]) {
			t.Errorf("behind the head net/http has %q, %v\n%q", behind, err, raw)
		}
	})
}
