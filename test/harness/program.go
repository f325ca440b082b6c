package harness

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/logtest"
)

// Program is a client's program that runs beside the brokers: it is told by lines what
// to do, and tells by lines what it has done.
type Program struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	input io.WriteCloser
	lines chan string
	noise logtest.Log // What it prints to standard error.

	once  sync.Once     // Of stopping to read.
	left  chan struct{} // Closed when nobody reads lines any more.
	ended chan struct{}
}

// StartProgram starts a program in a directory. The test's end kills it.
func StartProgram(t testing.TB, name, dir, command string, args ...string) *Program {
	t.Helper()
	p := &Program{
		t: t, name: name, cmd: exec.Command(command, args...),
		lines: make(chan string), left: make(chan struct{}), ended: make(chan struct{}),
	}
	p.cmd.Dir, p.cmd.Stderr = dir, &p.noise
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if noise := p.noise.String(); t.Failed() && noise != "" {
			t.Logf("%s printed:\n%s", name, noise[max(0, len(noise)-8000):])
		}
	})
	go p.follow(output) // Ends with the process.
	return p
}

// StartJava starts a main class as a program.
func StartJava(t testing.TB, classpath, class string, args ...string) *Program {
	t.Helper()
	// What a library unpacks goes with the test, also if the program is killed.
	args = append([]string{"-Djava.io.tmpdir=" + t.TempDir()}, javaArgs(classpath, class, args...)...)
	return StartProgram(t, class, ".", "java", args...)
}

func (p *Program) follow(output io.Reader) {
	defer close(p.ended)
	defer close(p.lines)
	for sc := bufio.NewScanner(output); sc.Scan(); {
		select {
		case p.lines <- sc.Text():
		case <-p.left:
		}
	}
	_ = p.cmd.Wait()
}

// Lines returns what the program prints, until it ends.
func (p *Program) Lines() <-chan string { return p.lines }

// Ended is closed when the program has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Next returns the next line that the program prints.
func (p *Program) Next(limit time.Duration) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, p.noise.String())
		}
		return line
	case <-time.After(limit):
		p.t.Fatalf("%s says nothing for %v", p.name, limit)
	}
	return ""
}

// Tell writes a line to the program.
func (p *Program) Tell(words ...string) {
	p.t.Helper()
	if _, err := io.WriteString(p.input, strings.Join(words, " ")+"\n"); err != nil {
		p.t.Fatalf("tell %s %v: %v", p.name, words, err)
	}
}

// EndInput closes the program's input, which it ends by.
func (p *Program) EndInput() { _ = p.input.Close() }

// Signal sends the program a signal, such as SIGSTOP.
func (p *Program) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("send %v to %s: %v", s, p.name, err)
	}
}

// Kill ends the program with SIGKILL and waits for it.
func (p *Program) Kill() {
	p.once.Do(func() { close(p.left) })
	_ = p.cmd.Process.Kill()
	<-p.ended
}
