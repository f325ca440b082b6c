// Package harness runs the real binary for tests: it builds it once a test
// process, starts brokers on ports of the kernel's choosing, and stops or kills
// them.
//
// It assumes a checkout: the binary is built from the module it is compiled in.
package harness

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/logtest"
)

// Root returns the root of the checkout.
func Root(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// Binary builds the binary into a directory that lives as long as the test and
// returns its path. Extra arguments go to go build.
func Binary(t testing.TB, extra ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "strandline")
	args := append([]string{"build", "-o", path}, extra...)
	cmd := exec.Command("go", append(args, "./cmd/strandline")...)
	cmd.Dir = Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// FreeAddr returns a loopback address whose port was free a moment ago, for a
// broker that must come back at the same address. It is none of those that the system
// gives to whoever asks for any, which may be taken while the broker is down.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const least, ports, tries = 10_000, 20_000, 100
	for range tries {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", least+rand.IntN(ports)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatalf("none of %d ports is free", tries)
	return ""
}

// Broker is a broker process.
type Broker struct {
	Addr    string
	HTTP    string // The address of HTTP, with StartHTTP.
	DataDir string

	t         testing.TB
	binary    string
	namespace string // Of the network; "" for the test's own.
	args      []string
	cmd       *exec.Cmd
	done      chan struct{}
	log       logtest.Log
}

// Start starts a broker and waits until it accepts connections. The test's end
// kills it.
func Start(t testing.TB, binary, dataDir string, args ...string) *Broker {
	t.Helper()
	b := Prepare(t, binary, dataDir, args...)
	b.Restart()
	return b
}

// Prepare is Start for a broker that is to be started with TryRestart: it may
// refuse.
func Prepare(t testing.TB, binary, dataDir string, args ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, binary: binary, DataDir: dataDir, Addr: FreeAddr(t), args: args}
	t.Cleanup(func() {
		b.Kill()
		if t.Failed() {
			t.Logf("broker's log:\n%s", b.Log())
		}
	})
	return b
}

// StartHTTP is Start for a broker whose HTTP address stays the same as well.
func StartHTTP(t testing.TB, binary, dataDir string, args ...string) *Broker {
	t.Helper()
	b := PrepareHTTP(t, binary, dataDir, args...)
	b.Restart()
	return b
}

// PrepareHTTP is Prepare for a broker whose HTTP address stays the same as well.
func PrepareHTTP(t testing.TB, binary, dataDir string, args ...string) *Broker {
	t.Helper()
	address := FreeAddr(t)
	b := Prepare(t, binary, dataDir, append([]string{"--http-listen", address}, args...)...)
	b.HTTP = address
	return b
}

// Restart starts the process again at the same address and data directory.
func (b *Broker) Restart() {
	b.t.Helper()
	if err := b.TryRestart(); err != nil {
		b.t.Fatalf("start broker: %v\n%s", err, b.Log())
	}
}

// RestartWith is Restart with more arguments, which stay.
func (b *Broker) RestartWith(args ...string) {
	b.t.Helper()
	b.args = append(b.args, args...)
	b.Restart()
}

// TryRestart is Restart for a start that may fail.
func (b *Broker) TryRestart() error {
	args := []string{"start", "--listen", b.Addr, "--data-dir", b.DataDir}
	if !slices.Contains(b.args, "--http-listen") { // A flag counts once.
		args = append(args, "--http-listen", "127.0.0.1:0")
	}
	args = append(args, b.args...)
	b.cmd = exec.Command(b.binary, args...)
	if b.namespace != "" { // The ip command becomes the broker: the process stays the same.
		b.cmd = exec.Command("ip", append([]string{"netns", "exec", b.namespace, b.binary}, args...)...)
	}
	b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.done = make(chan struct{})
	go func() { // Ends with the process.
		_ = b.cmd.Wait()
		close(b.done)
	}()
	return b.await(30 * time.Second)
}

func (b *Broker) await(limit time.Duration) error {
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		if c, err := net.DialTimeout("tcp", b.Addr, time.Second); err == nil {
			_ = c.Close()
			return nil
		}
		select {
		case <-b.done:
			return fmt.Errorf("the broker ended: %v", b.cmd.ProcessState)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return fmt.Errorf("no connection to %s within %v", b.Addr, limit)
}

// Kill ends the process with SIGKILL and waits for it.
func (b *Broker) Kill() { b.signal(syscall.SIGKILL) }

// Freeze stops all threads of the process where they are, as a loss of power does:
// what they have in the kernel goes on, and its outcome reaches nobody. Only Kill ends
// it.
func (b *Broker) Freeze() {
	b.t.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		b.t.Fatalf("stop broker: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); !b.frozen(); {
		if time.Now().After(end) {
			b.t.Fatal("the broker's threads do not stop")
		}
	}
}

// frozen reports whether every thread is stopped, or waits in the kernel for a disk.
func (b *Broker) frozen() bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", b.Pid()))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		_, state, ok := strings.Cut(string(text), ") ")
		if err != nil || !ok || !strings.Contains("TtD", state[:1]) {
			return false
		}
	}
	return true
}

// Stop ends the process with SIGTERM and waits for it.
func (b *Broker) Stop() { b.signal(syscall.SIGTERM) }

func (b *Broker) signal(s syscall.Signal) {
	if b.cmd == nil || b.cmd.Process == nil {
		return
	}
	_ = b.cmd.Process.Signal(s)
	select {
	case <-b.done:
	case <-time.After(20 * time.Second):
		_ = b.cmd.Process.Kill()
		b.t.Errorf("the broker did not end within 20 s of %v", s)
	}
}

// Pid returns the process id.
func (b *Broker) Pid() int { return b.cmd.Process.Pid }

// Ended reports whether the process has ended.
func (b *Broker) Ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// Log returns all that the processes have printed.
func (b *Broker) Log() string { return b.log.String() }

// Run runs a command with a time limit and fails the test if it fails. Its
// output goes to the test's log line by line.
func Run(t testing.TB, limit time.Duration, dir, name string, args ...string) string {
	t.Helper()
	out, err := TryRun(limit, dir, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	sc := bufio.NewScanner(strings.NewReader(out))
	for sc.Scan() {
		t.Log(sc.Text())
	}
	return out
}

// TryRun is Run for a command that may fail.
func TryRun(limit time.Duration, dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	var out logtest.Log
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done within %v", limit)
	}
	return out.String(), err
}

// Needs ends the test unless the tools are there: with a skip on a user's
// machine, with a failure in CI, where a suite that does not run is a lie.
func Needs(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed, and in CI nothing is skipped", tool)
		}
		t.Skipf("%s is not installed: this suite needs it", tool)
	}
}
