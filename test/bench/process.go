package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ: the unit of the CPU times in /proc/PID/stat, 100 on
// every Linux that Go runs on.
const clockTicks = 100

// Launcher knows how to start one kind of broker on a data directory. Prepare
// does what must happen once before the first start (Kafka formats its
// directory) and is never part of a measured time.
type Launcher interface {
	Prepare(ctx context.Context, dir, addr string) error
	Command(dir, addr string) *exec.Cmd
}

// Broker is a broker process: where it listens, where its data lies.
type Broker struct {
	Addr string

	launcher Launcher
	dir      string
	cmd      *exec.Cmd
	log      *os.File
	ended    chan struct{}
}

// NewBroker prepares a data directory and picks a free port. It starts nothing.
func NewBroker(ctx context.Context, launcher Launcher, dir string) (*Broker, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	if err := launcher.Prepare(ctx, dir, addr); err != nil {
		return nil, err
	}
	return &Broker{Addr: addr, launcher: launcher, dir: dir}, nil
}

// Start starts the process and returns at once; Await waits for the port.
func (b *Broker) Start() error {
	log, err := os.OpenFile(filepath.Join(b.dir, "broker.out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	b.log = log
	b.cmd = b.launcher.Command(b.dir, b.Addr)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", b.cmd.Path, err), log.Close())
	}
	b.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { // Ends with the process.
		_ = cmd.Wait()
		close(ended)
	}(b.cmd, b.ended)
	return nil
}

// Await returns when the broker accepts connections.
func (b *Broker) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", b.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.ended:
			return fmt.Errorf("the broker ended before it listened; its last lines:\n%s", b.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last lines:\n%s", b.Addr, ctx.Err(), b.lastLines())
		case <-time.After(time.Millisecond):
		}
	}
}

// Kill ends the process with SIGKILL and waits for its end. It does nothing to
// a broker that does not run.
func (b *Broker) Kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.ended
	_ = b.log.Close()
	b.cmd = nil
}

// lastLines returns the end of what the process printed.
func (b *Broker) lastLines() string {
	out, err := os.ReadFile(b.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// CPU returns the CPU time that the process has used in user and kernel mode.
func (b *Broker) CPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(stat))
}

// parseCPU reads utime and stime, fields 14 and 15 of /proc/PID/stat. Field 2
// is the command in brackets and may hold spaces and brackets itself, so
// counting starts behind the last bracket.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("process statistics have %d fields after the command", len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("user time: %w", err)
	}
	kernel, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kernel time: %w", err)
	}
	return time.Duration(user+kernel) * (time.Second / clockTicks), nil
}

// ResidentMB returns the resident memory of the process in MB (10^6 bytes).
func (b *Broker) ResidentMB() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseResident(string(status))
}

// parseResident reads VmRSS of /proc/PID/status.
func parseResident(status string) (float64, error) {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, errors.New("process status has no VmRSS")
}

// freeAddr returns a loopback address whose port was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// strandlineLauncher starts our binary.
type strandlineLauncher struct{ binary string }

// Prepare does nothing: the broker makes its directory itself.
func (strandlineLauncher) Prepare(context.Context, string, string) error { return nil }

// Command returns the command line with every default but addresses and directory.
func (l strandlineLauncher) Command(dir, addr string) *exec.Cmd {
	return exec.Command(l.binary, "start", "--listen", addr,
		"--http-listen", "127.0.0.1:0", "--cluster-listen", "127.0.0.1:0",
		"--data-dir", filepath.Join(dir, "data"))
}
