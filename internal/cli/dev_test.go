package cli_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/cli"
)

// freePorts returns a port that was free a moment ago, with those that further nodes
// get free too.
func freePorts(t *testing.T, nodes int) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close() // It is only asked for a port.
		port := l.Addr().(*net.TCPAddr).Port
		free := port+100*nodes < 65536
		for i := range nodes {
			for j := range 2 {
				other, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+100*i+j)))
				if err != nil {
					free = false
					continue
				}
				_ = other.Close()
			}
		}
		if free {
			return port
		}
	}
	t.Fatal("no ports are free")
	return 0
}

// devRun is dev as a process of its own.
type devRun struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
	pids  map[string]int
}

// startDev starts three nodes, which are processes of this test's binary.
func startDev(t *testing.T, port int, args ...string) *devRun {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, append([]string{
		"dev", "--data-dir", t.TempDir(), "--port", strconv.Itoa(port), "--http-port", "0", "--output", "plain",
	}, args...)...)
	cmd.Args[0] = "strandline" // What the binary acts as, see TestMain.
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &devRun{t, cmd, bufio.NewScanner(out), map[string]int{}}
}

// until reads lines until one has all parts.
func (d *devRun) until(parts ...string) string {
	d.t.Helper()
	for d.lines.Scan() {
		fields := strings.Split(d.lines.Text(), "\t")
		if len(fields) != 4 {
			d.t.Fatalf("%q has %d columns", d.lines.Text(), len(fields))
		}
		if _, rest, ok := strings.Cut(fields[3], "pid "); ok {
			digits, _, _ := strings.Cut(rest, ",")
			d.pids[fields[2]], _ = strconv.Atoi(digits)
		}
		found := true
		for _, p := range parts {
			found = found && strings.Contains(d.lines.Text(), p)
		}
		if found {
			return d.lines.Text()
		}
	}
	d.t.Fatalf("no line has %q", parts)
	return ""
}

// A node is killed from outside: others lead what it led, and it comes back.
func TestDev(t *testing.T) {
	port := freePorts(t, 3)
	d := startDev(t, port, "--restart", "200ms")
	d.until("ready", "3 nodes up")
	c := commands{t, []string{local(port), local(port + 100), local(port + 200)}}
	c.run(0, "topic", "create", "events", "--partitions", "6", "--durability", "strict")
	d.until("leaders", "events ")
	c.fill("events")
	if err := syscall.Kill(d.pids["2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.until("ended\t2\twas killed (killed)")
	d.until("led by others", "after node 2 was lost")
	c.fill("events")
	d.until("started\t2\t")
	d.until("back\t2\t")
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for d.lines.Scan() {
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for id, pid := range d.pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("node %s outlives dev", id)
		}
	}
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// A port that is taken ends it, with the reason.
func TestDevWithATakenPort(t *testing.T) {
	port := freePorts(t, 3)
	l, err := net.Listen("tcp", local(port+100))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := startDev(t, port)
	for d.lines.Scan() {
	}
	if err := d.cmd.Wait(); d.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
}

func TestDevUsage(t *testing.T) {
	for _, args := range []string{"--nodes 0", "--nodes 10", "--port 70000", "--http-port 65500", "--restart -1s", "--set x"} {
		code := cli.Run(t.Context(), cli.Env{
			Args: append([]string{"dev", "--data-dir", t.TempDir()}, strings.Fields(args)...), Stdin: strings.NewReader(""),
			Stdout: new(strings.Builder), Stderr: new(strings.Builder),
		})
		if code != 2 {
			t.Errorf("dev %s: exit code %d", args, code)
		}
	}
}

// What is drawn, from what is known.
func TestDevScreen(t *testing.T) {
	want := strings.Split(`Strandline dev  3 nodes  --brokers a:1,b:2,c:3

NODE  STATE   PID  KAFKA  HTTP  LEADS  
1     up       11  a:1    -         3  controller
2     down      -  b:2    -         0  
3     frozen   33  c:3    h:3       2  

events  led by  1 3 1 3 1 -  2 replicas not in sync

12:00:00.000  node 2 is killed (kill -9)
12:00:00.200  leaders: events 1 3 1 3 1 -


1-3 kill -9 (or start again)   s stop   p freeze   k kill   q quit`, "\n")
	got := cli.DevScreen()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// On a terminal keys kill, start and freeze nodes, and the screen is left as it was.
func TestDevOnATerminal(t *testing.T) {
	person, program := openTerminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, cli.Env{
			Args: []string{
				"dev", "--data-dir", t.TempDir(), "--port", strconv.Itoa(freePorts(t, 3)), "--http-port", "0",
			},
			Stdin: program, Stdout: program, Stderr: program, Environ: []string{"TERM=xterm"},
		})
	}()
	readUntil(t, person, "q quit")
	readUntil(t, person, "3 nodes up in")
	for _, step := range []struct{ keys, want string }{
		{"2", "node 2 was killed (killed)"},
		{"2", "node 2 starts again"},
		{"", "node 2 serves again"},
		{"p3", "node 3 is frozen"},
		{"p3", "node 3 goes on"},
		{"s1", "node 1 stopped"},
		{"q", "\x1b[?1049l"},
	} {
		if _, err := person.WriteString(step.keys); err != nil {
			t.Fatal(err)
		}
		readUntil(t, person, step.want)
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d", c)
	}
}
