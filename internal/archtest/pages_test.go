package archtest_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/metrics"
)

var rewrite = flag.Bool("rewrite", false, "write the pages in docs that are made from tables anew")

// The pages in docs that tables make are what the tables say.
func TestPagesAreUpToDate(t *testing.T) {
	for path, page := range map[string]func() string{
		"../../docs/configuration.md": config.Page,
		"../../docs/metrics.md":       metrics.Page,
	} {
		want := page()
		if *rewrite {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(have)); diff != "" {
			t.Errorf("%s: run go test ./internal/archtest -rewrite; it differs (-table +page):\n%s", path, diff)
		}
	}
}
