package cli_test

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// TestProduceCutShort: a script that deletes its input after success must not
// take an interrupted produce for one.
func TestProduceCutShort(t *testing.T) {
	srv := strandlinetest.Start(t)
	stdin, feed := io.Pipe()
	defer feed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		_, _ = io.WriteString(feed, "one\n")
		interrupt()
	}()
	var stderr bytes.Buffer
	code := cli.Run(ctx, cli.Env{
		Args:  []string{"produce", "cut", "--brokers", srv.Addr()},
		Stdin: stdin, Stdout: io.Discard, Stderr: &stderr,
	})
	if code != 130 || !strings.Contains(stderr.String(), "interrupted: what had been read was sent") {
		t.Errorf("code %d, want 130\n%s", code, &stderr)
	}
}
