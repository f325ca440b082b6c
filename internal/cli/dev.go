package cli

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const devLong = `Run several brokers on this machine, as one queue, and show who leads what. It is
for trying out and for breaking: each broker is a process of its own, which can be killed
while clients run.

  strandline dev --nodes 3
  strandline topic create events --partitions 6 --durability strict
  strandline bench latency --topic events --rate 500 --duration 5m

Node 1 serves clients at port 9092 and HTTP at 8080, each further node 100 above the one
before; --port and --http-port move them. Each has a directory below --data-dir, and a log
beside it. Topics have three replicas and min.insync.replicas=2 unless they or --set say
otherwise.

On a terminal it redraws itself: a digit kills that node (kill -9) or starts it again; s and
then a digit stops it cleanly, and p freezes it (SIGSTOP) or lets it go on; q ends them all.
Elsewhere it prints a line for whatever happens, with the pids to kill; SIGINT or SIGTERM
ends it. With --restart a node that was killed starts again by itself.

`

// dev is the command.
type dev struct {
	*app
	nodes    int
	dataDir  string
	port     int
	httpPort int
	sets     []string
	restart  time.Duration

	cluster *devCluster
	watch   *devWatch
}

func newDev(a *app) *cobra.Command {
	d := &dev{app: a}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run several brokers here, to try out and to break",
		Long: devLong + columnsHelp("time", "event (node, leaders, or a word about a node)", "node (0 for all)",
			"what happened") + "\n" + jsonHelp[devEvent]() + " It is one object a line.",
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.IntVarP(&d.nodes, "nodes", "n", 3, "`number` of brokers")
	f.StringVarP(&d.dataDir, "data-dir", "d", "./strandline-dev", "`directory` to keep everything in")
	f.IntVar(&d.port, "port", 9092, "`port` of node 1 for Kafka clients")
	f.IntVar(&d.httpPort, "http-port", 8080, "`port` of node 1 for HTTP; 0 for none")
	f.StringArrayVar(&d.sets, "set", nil, "a Kafka broker setting for all nodes, `KEY=VALUE`; may be repeated")
	f.DurationVar(&d.restart, "restart", 0, "start a node again so long after it was killed (default not)")
	return cmd
}

// devStep is between the ports of two nodes.
const devStep = 100

func (d *dev) check() error {
	last := (d.nodes - 1) * devStep
	switch {
	case d.nodes < 1 || d.nodes > 9:
		return usagef("--nodes %d: want 1 to 9", d.nodes)
	case d.port < 1 || d.port+1+last > 65535:
		return usagef("--port %d: want a port with room above it", d.port)
	case d.httpPort < 0 || d.httpPort+last > 65535:
		return usagef("--http-port %d: want a port with room above it", d.httpPort)
	case d.restart < 0:
		return usagef("--restart %v: want a time, such as 3s", d.restart)
	}
	_, err := parseConfigs("set", d.sets)
	return err
}

func (d *dev) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	specs, err := d.specs()
	if err != nil {
		return err
	}
	c, err := newDevCluster(d.dataDir, specs, d.vars)
	if err != nil {
		return err
	}
	d.cluster = c
	d.watch = newDevWatch(specs)
	began := d.now()
	defer d.end()
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return failf("start node %d: %w", n.spec.id, err)
		}
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	looks := make(chan devLook)
	go d.watch.run(watching, looks) // Ends with watching.
	s := newDevState(specs, began)
	if d.out.terminal && d.out.form == formTable {
		return d.live(ctx, s, looks)
	}
	return d.plain(ctx, s, looks)
}

// end stops all nodes.
func (d *dev) end() {
	d.out.note("Stopping %s.", plural(len(d.cluster.nodes), "node"))
	d.cluster.stopAll()
	d.out.note("Data stays in %s.", d.dataDir)
}

// devSpec is how a node is run.
type devSpec struct {
	id              int
	address, http   string // For clients.
	directory, logs string
	args            []string
}

// specs says how the nodes are run.
func (d *dev) specs() ([]devSpec, error) {
	settings := []string{"default.replication.factor=" + strconv.Itoa(min(d.nodes, 3)), "num.partitions=3"}
	if d.nodes >= 3 {
		settings = append(settings, "min.insync.replicas=2")
	}
	settings = overlaid(settings, d.sets)
	root, err := filepath.Abs(d.dataDir)
	if err != nil {
		return nil, usagef("--data-dir: %w", err)
	}
	var specs []devSpec
	var voters []string
	for i := range d.nodes {
		s := devSpec{
			id: i + 1, address: local(d.port + i*devStep),
			directory: filepath.Join(root, strconv.Itoa(i+1)), logs: filepath.Join(root, fmt.Sprintf("%d.log", i+1)),
		}
		if d.httpPort > 0 {
			s.http = local(d.httpPort + i*devStep)
		}
		specs = append(specs, s)
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, local(d.port+1+i*devStep)))
	}
	// Of an even number one has no vote, of more than five all others.
	elect := min(5, d.nodes-1+d.nodes%2)
	for i := range specs {
		s := &specs[i]
		s.args = []string{"start", "--node-id", strconv.Itoa(s.id), "--data-dir", s.directory, "--listen", s.address, "--http-listen", "none"}
		if s.http != "" {
			s.args[len(s.args)-1] = s.http
		}
		if d.nodes > 1 {
			_, listen, _ := strings.Cut(voters[i], "@")
			s.args = append(s.args, "--cluster-listen", listen, "--voters", strings.Join(voters[:elect], ","))
		}
		for _, set := range settings {
			s.args = append(s.args, "--set", set)
		}
	}
	return specs, nil
}

// overlaid returns settings with those of more in their place.
func overlaid(settings, more []string) []string {
	var out []string
	for _, s := range settings {
		name, _, _ := strings.Cut(s, "=")
		taken := false
		for _, m := range more {
			other, _, _ := strings.Cut(m, "=")
			taken = taken || other == name
		}
		if !taken {
			out = append(out, s)
		}
	}
	return append(out, more...)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
