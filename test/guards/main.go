// Command guards takes guards out of the product, one at a time, and runs the test that
// has to fail then: a test that passes without the guard shows nothing.
//
//	go run ./test/guards               all of them
//	go run ./test/guards -run epoch    those with a word in their names
//
// guards.txt lists them. The working tree is not touched: the compiler is given other
// contents for the file (-overlay). It exits with 1 if a test survives, or if a
// guard is not found as it is written in the list.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// guard is one entry of the list.
type guard struct {
	name          string
	file          string // Where it stands, from the root of the module.
	pkg, test     string
	args          []string // Of the test.
	with, without string
}

func main() {
	run := flag.String("run", "", "only guards whose names match this `regexp`")
	list := flag.String("list", "test/guards/guards.txt", "the list of guards")
	limit := flag.Duration("timeout", 3*time.Minute, "how long a test may take")
	flag.Parse()
	survived, err := takeOut(*list, *run, *limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "guards:", err)
		os.Exit(1)
	}
	if survived > 0 {
		fmt.Fprintf(os.Stderr, "guards: %d can be taken out and no test fails, or were not tried\n", survived)
		os.Exit(1)
	}
}

// takeOut takes the guards out that match, and returns how many no test misses.
func takeOut(list, run string, limit time.Duration) (survived int, err error) {
	match, err := regexp.Compile(run)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return 0, err
	}
	guards, err := parse(string(text))
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "guards")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, g := range guards {
		if !match.MatchString(g.name) {
			continue
		}
		began := time.Now()
		missed, err := g.isMissed(dir, limit)
		verdict := "fails without"
		switch {
		case err != nil:
			verdict = "NOT TRIED: " + err.Error()
			survived++
		case !missed:
			verdict = "PASSES WITHOUT"
			survived++
		}
		fmt.Printf("%-15s %s: %s (%s, %.0f s)\n", verdict, g.pkg, g.name, g.test, time.Since(began).Seconds())
	}
	return survived, nil
}

// isMissed reports whether the test fails without the guard.
func (g guard) isMissed(dir string, limit time.Duration) (bool, error) {
	source, err := os.ReadFile(g.file)
	if err != nil {
		return false, err
	}
	if n := bytes.Count(source, []byte(g.with)); n != 1 {
		return false, fmt.Errorf("it stands %d times in %s:\n%s", n, g.file, g.with)
	}
	changed := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(changed, bytes.Replace(source, []byte(g.with), []byte(g.without), 1), 0o600); err != nil {
		return false, err
	}
	original, err := filepath.Abs(g.file)
	if err != nil {
		return false, err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return false, err
	}
	at := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(at, overlay, 0o600); err != nil {
		return false, err
	}
	if out, err := goWith(at, "build", "./"+filepath.Dir(g.file)).CombinedOutput(); err != nil {
		return false, fmt.Errorf("without it, the code is none: %w\n%s", err, out)
	}
	args := append([]string{
		"test", "-count=1", "-timeout", limit.String(), "-run", "^" + g.test + "$", "./" + g.pkg,
	}, g.args...)
	out, err := goWith(at, args...).CombinedOutput()
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		return true, nil
	case err != nil:
		return false, err
	case bytes.Contains(out, []byte("no tests to run")):
		return false, fmt.Errorf("there is no test %s", g.test)
	}
	return false, nil
}

// goWith makes a command of go that takes files from an overlay. So does what it runs: tests
// of whole processes build the program themselves.
func goWith(overlay string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	return cmd
}

// parse reads the list: for each guard a line with its name after "==", then "file",
// "test" with a package, a test and its arguments, and lines with "-" of what stands there, and with
// "+" of what is put in its place.
func parse(text string) ([]guard, error) {
	var guards []guard
	for i, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		if kind == "" || kind == "#" {
			continue
		}
		if kind == "==" {
			guards = append(guards, guard{name: rest})
			continue
		}
		if len(guards) == 0 {
			return nil, fmt.Errorf("line %d comes before any guard", i+1)
		}
		g := &guards[len(guards)-1]
		switch kind {
		case "file":
			g.file = rest
		case "test":
			words := strings.Fields(rest)
			if len(words) < 2 {
				return nil, fmt.Errorf("line %d: want a package and a test", i+1)
			}
			g.pkg, g.test, g.args = words[0], words[1], words[2:]
		case "-":
			g.with += rest + "\n"
		case "+":
			g.without += rest + "\n"
		default:
			return nil, fmt.Errorf("line %d begins with %q", i+1, kind)
		}
	}
	for _, g := range guards {
		if g.file == "" || g.test == "" || g.with == "" {
			return nil, fmt.Errorf("%s: a file, a test, or what stands there is missing", g.name)
		}
	}
	return guards, nil
}
