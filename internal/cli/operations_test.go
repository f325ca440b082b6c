package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/strandline/strandline/internal/cli"
)

// pages returns docs/operations by file name.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob("../../docs/operations/*.md")
	if err != nil || len(found) < 5 {
		t.Fatalf("found %v, %v", found, err)
	}
	all := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	return all
}

// Every command of ours in the pages exists, with its flags.
func TestCommandsOfPages(t *testing.T) {
	block := regexp.MustCompile("(?s)```sh\n(.*?)```")
	ours := regexp.MustCompile(`(?:^|\s)(?:\S*/)?strandline(?:-new)? ([a-z][^|<>]*)`)
	// Where strandline is a file, a user, a service or an image.
	others := regexp.MustCompile(`^\s*(install|useradd|systemctl|podman|rsync|mv|cp) `)
	seen := 0
	for path, text := range pages(t) {
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(b[1]) {
				if others.MatchString(line) {
					continue
				}
				for _, m := range ours.FindAllStringSubmatch(line, -1) {
					seen++
					checkCommandLine(t, path, strings.Fields(m[1]))
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d commands were found", seen)
	}
}

// checkCommandLine has a command line read, and not carried out.
func checkCommandLine(t *testing.T, path string, args []string) {
	t.Helper()
	if args[0] == "systemctl" {
		return
	}
	var out bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Args: append(args, "--help"), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
	})
	usage, _, _ := strings.Cut(out.String(), "\n\nFlags:")
	if code != 0 || !strings.Contains(usage, "strandline "+args[0]) {
		t.Errorf("%s: strandline %s: exit code %d: %s", path, strings.Join(args, " "), code, &out)
	}
}

// Every link to a file leads to one.
func TestLinksOfPages(t *testing.T) {
	for path, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		for _, m := range regexp.MustCompile(`\bdeploy/[\w./-]+\w`).FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join("..", "..", m)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// The page about monitoring has a line for each alert.
func TestEveryAlertHasAnAnswer(t *testing.T) {
	var alerts []string
	for _, rule := range yamlDocuments(t, "alerts.yaml")[0].list(t, "groups.0.rules") {
		alerts = append(alerts, rule.(map[string]any)["alert"].(string))
	}
	text := pages(t)["../../docs/operations/monitor.md"]
	var told []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(Strandline\\w+)`").FindAllStringSubmatch(text, -1) {
		told = append(told, m[1])
	}
	for _, a := range alerts {
		if !slices.Contains(told, a) && a != "StrandlineDiskFullSoon" { // It has the answer of StrandlineDiskFull.
			t.Errorf("nothing says what to do about %s", a)
		}
	}
	for _, a := range told {
		if !slices.Contains(alerts, a) {
			t.Errorf("there is no alert %s", a)
		}
	}
}
