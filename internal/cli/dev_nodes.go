package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// devCluster is the processes of dev. One goroutine uses it.
type devCluster struct {
	nodes []*devNode
	// ended has each process that ended.
	ended chan devEnd
	vars  []string // Their environment.
}

// devNode is one process, or where one was.
type devNode struct {
	spec   devSpec
	owner  *devCluster
	cmd    *exec.Cmd // Nil while none runs.
	frozen bool
	// wished says that it was asked to end.
	wished bool
	endAt  time.Time
}

// devEnd is the end of a process.
type devEnd struct {
	node *devNode
	cmd  *exec.Cmd
	why  string
	// failed says that it ended by itself, and not well.
	failed bool
}

// newDevCluster makes the directories; nothing runs yet.
func newDevCluster(root string, specs []devSpec, vars map[string]string) (*devCluster, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, failf("--data-dir: %w", err)
	}
	c := &devCluster{ended: make(chan devEnd, len(specs))}
	for name, value := range vars {
		if !strings.HasPrefix(name, envPrefix) { // Those are meant for one broker.
			c.vars = append(c.vars, name+"="+value)
		}
	}
	for _, s := range specs {
		c.nodes = append(c.nodes, &devNode{spec: s, owner: c})
	}
	return c, nil
}

// start runs the process. Its output is added to the node's log.
func (n *devNode) start() error {
	if n.cmd != nil {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	logs, err := os.OpenFile(n.spec.logs, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer logs.Close() //nolint:errcheck // The process has its own copy.
	cmd := exec.Command(program, n.spec.args...)
	cmd.Args[0] = "strandline"
	cmd.Env, cmd.Stdout, cmd.Stderr = n.owner.vars, logs, logs
	// A group of its own, so that Ctrl-C reaches dev alone; and no node outlives it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.frozen, n.wished = cmd, false, false
	go func() { // Ends with the process, which stopAll sees to.
		err := cmd.Wait()
		why, failed := endOf(cmd, err)
		n.owner.ended <- devEnd{n, cmd, why, failed}
	}()
	return nil
}

// endOf says how a process ended.
func endOf(cmd *exec.Cmd, err error) (why string, failed bool) {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return fmt.Sprintf("was killed (%v)", status.Signal()), false
	case cmd.ProcessState.Success():
		return "stopped", false
	case err != nil && !ok:
		return err.Error(), true
	}
	return fmt.Sprintf("failed with exit code %d", cmd.ProcessState.ExitCode()), true
}

// took notes the end of a process.
func (c *devCluster) took(e devEnd, now time.Time) {
	if e.node.cmd == e.cmd {
		e.node.cmd, e.node.frozen, e.node.endAt = nil, false, now
	}
}

func (n *devNode) pid() int {
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// signal reaches a process that may have ended meanwhile.
func (n *devNode) signal(s syscall.Signal) {
	if n.cmd != nil {
		_ = n.cmd.Process.Signal(s) // Of one that has ended the end will be heard.
	}
}

// thaw lets a node go on, or freezes it.
func (n *devNode) thaw() {
	if n.cmd == nil {
		return
	}
	if n.frozen {
		n.signal(syscall.SIGCONT)
	} else {
		n.signal(syscall.SIGSTOP)
	}
	n.frozen = !n.frozen
}

// devPatience is how long nodes may take to stop.
const devPatience = 15 * time.Second

// stopAll stops what runs: cleanly, and after a while by force.
func (c *devCluster) stopAll() {
	running := 0
	for _, n := range c.nodes {
		if n.cmd == nil {
			continue
		}
		running++
		n.signal(syscall.SIGTERM)
		n.signal(syscall.SIGCONT)
	}
	late := time.AfterFunc(devPatience, func() {
		for _, n := range c.nodes {
			n.signal(syscall.SIGKILL)
		}
	})
	defer late.Stop()
	for ; running > 0; running-- {
		<-c.ended
	}
}

// lastWords returns the end of a node's log that says why it failed.
func (n *devNode) lastWords() string {
	f, err := os.Open(n.spec.logs)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // It was read.
	const most = 2000
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-most), io.SeekStart) // Else there is nothing to read.
	}
	tail, _ := io.ReadAll(f) // What there is, is shown.
	if at := bytes.LastIndex(tail, []byte("error: ")); at >= 0 {
		tail = tail[at+len("error: "):]
	}
	return strings.TrimSpace(string(tail))
}
