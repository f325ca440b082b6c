package config_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/config"
)

var rewrite = flag.Bool("rewrite", false, "write docs/configuration.md and golden files anew")

// The page in docs is what the table says.
func TestPageIsUpToDate(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := config.Page()
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
		t.Errorf("run go test ./internal/config -rewrite; the page differs (-table +page):\n%s", diff)
	}
}
