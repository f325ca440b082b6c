package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/strandline/strandline/internal/cli"
)

// TestReadyWaits: a script that has just started a broker can wait for it, and does not wait for ever.
func TestReadyWaits(t *testing.T) {
	var asked atomic.Int64
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer broker.Close()
	for _, c := range []struct {
		args []string
		code int
	}{
		{nil, 1},
		{[]string{"--wait", "1ms"}, 1},
		{[]string{"--wait", "1m"}, 0},
	} {
		asked.Store(0)
		var stderr bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			Args:  append([]string{"ready", "--http", broker.URL}, c.args...),
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr,
		})
		if code != c.code {
			t.Errorf("ready %q: code %d, want %d\n%s", c.args, code, c.code, &stderr)
		}
	}
}
