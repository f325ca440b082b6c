package cli

import (
	"context"
	"crypto/tls"
	"io"
	"time"

	"github.com/strandline/strandline/internal/certs"
)

// Env is all that the command line touches of the world.
type Env struct {
	// Args are the arguments behind the program's name.
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ are the variables of the environment, as NAME=value.
	Environ []string
	// Start runs a broker. It returns once the broker serves.
	Start func(ctx context.Context, o BrokerOptions) (Broker, error)
}

// Broker is a running broker as the start command sees it.
type Broker interface {
	// Addr is the host:port that clients connect to.
	Addr() string
	// HTTPAddr is the host:port of the HTTP listener, or "".
	HTTPAddr() string
	// Wait returns when the broker has ended, and why.
	Wait() error
	// Close stops the broker cleanly.
	Close() error
}

// app is one run of the command line: what all commands share.
type app struct {
	env   Env
	vars  map[string]string // The environment.
	out   *output
	flags globalFlags
	dials *dialWatch
	// answered says that a broker has answered this command.
	answered bool
	tls      *tls.Config // Nil for plaintext.
	now      func() time.Time
	// look finds out what stands at an address, also after an interrupt.
	look func(address string) error
}

// globalFlags are the flags that every command has.
type globalFlags struct {
	brokers []string
	timeout time.Duration
	output  string
	json    bool
	color   string
	verbose bool
	tls     bool
	files   certs.Files
}

// Run runs one command and returns the exit code. It prints everything that
// there is to say, errors included.
func Run(ctx context.Context, env Env) int {
	a := &app{env: env, vars: parseEnviron(env.Environ), dials: newDialWatch(), now: time.Now}
	a.out = newOutput(env.Stdout, env.Stderr)
	a.dials.warn = a.out.warn
	a.look = func(address string) error {
		_, err := a.probe(context.WithoutCancel(ctx), address)
		return err
	}
	root := newRoot(a)
	root.SetArgs(env.Args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	return a.report(root.ExecuteContext(ctx))
}

// report prints what a command failed with and returns its exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	f := a.explain(err)
	if f.message != "" {
		a.out.failure(f)
	}
	return f.code
}
