package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Broker is one queue: a single node, or several as a cluster.
type Broker struct {
	launcher  Launcher
	nodes     []Node
	processes []*Process
}

// NewBroker prepares data directories under dir and picks free ports. It starts nothing.
func NewBroker(ctx context.Context, launcher Launcher, dir string, nodes int) (*Broker, error) {
	b := &Broker{launcher: launcher}
	for id := 1; id <= nodes; id++ {
		n := Node{ID: id, Dir: filepath.Join(dir, fmt.Sprintf("node-%d", id))}
		var err, peerErr error
		n.Addr, err = freeAddr()
		n.Peer, peerErr = freeAddr()
		if err := errors.Join(err, peerErr, os.MkdirAll(n.Dir, 0o755)); err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, n)
	}
	if err := launcher.Prepare(ctx, b.nodes); err != nil {
		return nil, err
	}
	for _, n := range b.nodes {
		b.processes = append(b.processes, &Process{node: n})
	}
	return b, nil
}

// Addrs returns where clients reach the nodes.
func (b *Broker) Addrs() []string {
	addrs := make([]string, len(b.nodes))
	for i, n := range b.nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Start starts all nodes and returns at once; Await waits for their ports.
func (b *Broker) Start() error {
	for i, p := range b.processes {
		if err := p.start(b.launcher.Command(b.nodes, i)); err != nil {
			return err
		}
	}
	return nil
}

// Await returns when every node accepts connections.
func (b *Broker) Await(ctx context.Context) error {
	for _, p := range b.processes {
		if err := p.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends all nodes with SIGKILL. It does nothing to those that do not run.
func (b *Broker) Kill() {
	for _, p := range b.processes {
		p.kill()
	}
}

// CPU returns the CPU time that all nodes have used in user and kernel mode.
func (b *Broker) CPU() (time.Duration, error) {
	var sum time.Duration
	for _, p := range b.processes {
		cpu, err := p.usedCPU()
		if err != nil {
			return 0, err
		}
		sum += cpu
	}
	return sum, nil
}

// ResidentMB returns the resident memory of all nodes in MB (10^6 bytes).
func (b *Broker) ResidentMB() (float64, error) {
	var sum float64
	for _, p := range b.processes {
		mb, err := p.residentMB()
		if err != nil {
			return 0, err
		}
		sum += mb
	}
	return sum, nil
}

// strandlineLauncher starts our binary.
type strandlineLauncher struct{ binary string }

// Prepare does nothing: a node makes its directory itself.
func (strandlineLauncher) Prepare(context.Context, []Node) error { return nil }

// Command returns the command line with every default but addresses, directory and voters.
func (l strandlineLauncher) Command(nodes []Node, i int) *exec.Cmd {
	n := nodes[i]
	args := []string{
		"start", "--listen", n.Addr, "--http-listen", "127.0.0.1:0", "--cluster-listen", n.Peer,
		"--data-dir", filepath.Join(n.Dir, "data"),
	}
	if len(nodes) > 1 {
		args = append(args, "--node-id", fmt.Sprint(n.ID), "--voters", voters(nodes))
	}
	return exec.Command(l.binary, args...)
}

// voters returns the nodes as both brokers write a quorum: id@host:port, comma separated.
func voters(nodes []Node) string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = fmt.Sprintf("%d@%s", n.ID, n.Peer)
	}
	return strings.Join(list, ",")
}
