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

// Launcher knows how to start one kind of broker on data directories. Prepare
// does what must happen once before the first start (Kafka formats its
// directory) and is never part of a measured time.
type Launcher interface {
	Prepare(ctx context.Context, nodes []Node) error
	// Command starts the node of that index, together with the others one queue.
	Command(nodes []Node, i int) *exec.Cmd
}

// Node is where one process listens and where its data lies.
type Node struct {
	ID   int
	Dir  string
	Addr string // For clients.
	Peer string // For the other nodes: of the controllers' quorum, too.
}

// Process is a node that runs or did.
type Process struct {
	node  Node
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

// start starts the process and returns at once; await waits for the port.
func (b *Process) start(cmd *exec.Cmd) error {
	log, err := os.OpenFile(filepath.Join(b.node.Dir, "broker.out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	b.log = log
	b.cmd = cmd
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

// await returns when the node accepts connections.
func (b *Process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", b.node.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-b.ended:
			return fmt.Errorf("the broker ended before it listened; its last lines:\n%s", b.lastLines())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last lines:\n%s", b.node.Addr, ctx.Err(), b.lastLines())
		case <-time.After(time.Millisecond):
		}
	}
}

// kill ends the process with SIGKILL and waits for its end. It does nothing to
// one that does not run.
func (b *Process) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.ended
	_ = b.log.Close()
	b.cmd = nil
}

// lastLines returns the end of what the process printed.
func (b *Process) lastLines() string {
	out, err := os.ReadFile(b.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// usedCPU returns the CPU time that the process has used in user and kernel mode.
func (b *Process) usedCPU() (time.Duration, error) {
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

// residentMB returns the resident memory of the process in MB (10^6 bytes).
func (b *Process) residentMB() (float64, error) {
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
