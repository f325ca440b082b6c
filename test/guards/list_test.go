package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestListFits: each guard stands in its file as the list says, and its test is there. Who
// changes either is told at once, and not by the next run of the command, which takes long.
func TestListFits(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile("guards.txt")
	if err != nil {
		t.Fatal(err)
	}
	guards, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range guards {
		source, err := os.ReadFile(filepath.Join(root, g.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), g.with); n != 1 {
			t.Errorf("%s: it stands %d times in %s:\n%s", g.name, n, g.file, g.with)
		}
		name, _, _ := strings.Cut(g.test, "/")
		if !isThere(t, filepath.Join(root, g.pkg), name) {
			t.Errorf("%s: there is no test %s in %s", g.name, name, g.pkg)
		}
	}
}

func isThere(t *testing.T, dir, test string) bool {
	t.Helper()
	is := regexp.MustCompile(`(?m)^func (?:` + test + `)\(`)
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if is.Match(source) {
			return true
		}
	}
	return false
}
