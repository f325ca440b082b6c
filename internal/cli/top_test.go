package cli_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/cli"
)

var rewriteGolden = flag.Bool("rewrite", false, "write the golden files anew")

// topText is a broker's answer at a moment.
func topText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "top", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Views of the same two answers, two seconds apart.
func TestTopScreens(t *testing.T) {
	view, err := cli.TopBetween(topText(t, "before.txt"), topText(t, "after.txt"), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for name, screen := range map[string]cli.TopScreen{
		"printed":   {},
		"live":      {Width: 100, Height: 30, Live: true},
		"small":     {Width: 60, Height: 16, Live: true},
		"color":     {Width: 70, Height: 40, Live: true, Color: true},
		"by-size":   {Width: 100, Height: 30, Live: true, Keys: "ss"},
		"filtering": {Width: 100, Height: 30, Live: true, Keys: "/payx\x7fm"},
		"filtered":  {Width: 100, Height: 30, Live: true, Keys: "/paym\r"},
		"paused":    {Width: 100, Height: 30, Live: true, Keys: "/zzz\x1bp"},
		"trouble":   {Width: 100, Height: 30, Live: true, Trouble: "no metrics from 127.0.0.1:8080: connection refused"},
		"tiny":      {Width: 20, Height: 3, Live: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, quit := view.Render(screen)
			if quit {
				t.Error("it ended")
			}
			if screen.Height > 5 {
				if n := strings.Count(got, "\n"); n != screen.Height {
					t.Errorf("%d lines, the terminal has %d", n, screen.Height)
				}
			}
			path := filepath.Join("testdata", "top", name+".golden")
			if *rewriteGolden {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want := topText(t, name+".golden"); want != got {
				t.Errorf("run go test ./internal/cli -run Top -rewrite (-golden +got):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// A broker that was started again between two looks, and one that has just
// begun, have no rates below zero.
func TestTopAfterARestart(t *testing.T) {
	view, err := cli.TopBetween(topText(t, "after.txt"), topText(t, "before.txt"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := view.Render(cli.TopScreen{}); strings.Contains(got, " -1") || strings.Contains(got, "-2") {
		t.Errorf("a rate is below zero:\n%s", got)
	}
}

func TestTopKeysThatEnd(t *testing.T) {
	for keys, want := range map[string]bool{"q": true, "\x03": true, "/q": false, "/q\rq": true, "sp": false, "/\x03": true} {
		if _, quit := (cli.TopView{}).Render(cli.TopScreen{Keys: keys}); quit != want {
			t.Errorf("keys %q: ends %v, want %v", keys, quit, want)
		}
	}
}
