package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/strandlinetest"
)

// openTerminal returns both ends of a terminal: the person's and the program's.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	size := &unix.Winsize{Row: 20, Col: 90}
	if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, size); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// readUntil reads what is drawn until a text was.
func readUntil(t *testing.T, from *os.File, want string) string {
	t.Helper()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), want) {
		n, err := from.Read(buf)
		if err != nil {
			t.Fatalf("no %q in %q: %v", want, &seen, err)
		}
		seen.Write(buf[:n])
	}
	return seen.String()
}

// On a terminal top redraws itself, hears keys, and leaves the screen as it was.
func TestTopOnATerminal(t *testing.T) {
	srv := strandlinetest.Start(t, func(c *strandline.Config) { c.HTTPListen = "127.0.0.1:0" })
	person, program := openTerminal(t)
	before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, cli.Env{
			Args:  []string{"top", "--http", srv.HTTPAddr(), "--interval", "100ms"},
			Stdin: program, Stdout: program, Stderr: program, Environ: []string{"TERM=xterm"},
		})
	}()
	first := readUntil(t, person, "s sort: in")
	if !strings.Contains(first, "\x1b[?1049h") || !strings.Contains(first, "Strandline") {
		t.Errorf("it began with %q", first)
	}
	for _, step := range []struct{ keys, want string }{
		{"s", "s sort: out"}, {"/ord", "filter: ord_"}, {"\r", "/ filter: ord"}, {"p", "(paused)"}, {"p", "p pause"},
	} {
		if _, err := person.WriteString(step.keys); err != nil {
			t.Fatal(err)
		}
		readUntil(t, person, step.want)
	}
	if _, err := person.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, person, "\x1b[?1049l")
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, was %+v; %v", after, before, err)
	}
}
