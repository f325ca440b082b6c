// Command strandline is the broker and its command line in one binary: see
// package cli for what it prints and how it exits, and the root package for what
// start runs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
)

func main() { os.Exit(run()) }

// run ends with the first signal that asks for it, cleanly. After that the
// signals have their usual effect again, so a second one ends the process at
// once.
func run() int {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // Nohup has its way.
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop)
	return cli.Run(ctx, cli.Env{
		Args:    os.Args[1:],
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Environ: os.Environ(),
		Start:   start,
	})
}

// start runs a broker in this process.
func start(ctx context.Context, o cli.BrokerOptions) (cli.Broker, error) {
	return strandline.Start(ctx, strandline.Config{
		DataDir: o.DataDir, Listen: o.Listen, Advertise: o.Advertise,
		HTTPListen: o.HTTPListen, DebugListen: o.DebugListen,
		NodeID: o.NodeID, Rack: o.Rack, Settings: o.Settings, Logger: o.Logger,
		ClusterListen: o.ClusterListen, ClusterAdvertise: o.ClusterAdvertise, Voters: voters(o.Voters),
		TLS: strandline.TLSFiles(o.TLS), ClusterTLS: strandline.TLSFiles(o.ClusterTLS),
	})
}

func voters(told []cli.Voter) []strandline.Voter {
	var voters []strandline.Voter
	for _, v := range told {
		voters = append(voters, strandline.Voter{NodeID: v.NodeID, Address: v.Address})
	}
	return voters
}
