package clients_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/test/harness"
)

// example is a command of a page, and what it is said to print.
type example struct {
	command, output string
}

// examplesIn returns the commands of a page's console blocks: a line that begins
// with "$ ", those that it continues on, and the output that follows.
func examplesIn(page string) []example {
	var all []example
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		continues := false
		for line := range strings.Lines(block[1]) {
			switch command, ok := strings.CutPrefix(line, "$ "); {
			case ok:
				all = append(all, example{command: command})
			case continues:
				all[len(all)-1].command += line
			default:
				all[len(all)-1].output += line
				continue
			}
			continues = strings.HasSuffix(line, "\\\n")
		}
	}
	return all
}

// settle writes the same for what differs from run to run: times and ids.
func settle(output string) string {
	output = regexp.MustCompile(`\d{10,}`).ReplaceAllString(output, "TIME")
	return regexp.MustCompile(`"id":"[\w-]+"`).ReplaceAllString(output, `"id":"ID"`)
}

// TestHTTPPage runs the examples of docs/http-api.md as they stand there.
func TestHTTPPage(t *testing.T) {
	harness.Needs(t, "curl", "sh", "grep")
	page, err := os.ReadFile(filepath.Join(harness.Root(t), "docs", "http-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := harness.StartHTTP(t, harness.Binary(t), t.TempDir())
	examples := examplesIn(string(page))
	for _, e := range examples {
		command := strings.ReplaceAll(e.command, "127.0.0.1:8080", b.HTTP)
		got, err := harness.TryRun(30*time.Second, t.TempDir(), "sh", "-c", command)
		if err != nil || settle(got) != settle(e.output) {
			t.Errorf("$ %s\n got %s%v\nwant %s", e.command, got, err, e.output)
		}
	}
	if len(examples) < 10 {
		t.Errorf("the page has %d examples", len(examples))
	}
	t.Logf("%d examples", len(examples))
}
