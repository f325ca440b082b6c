package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/certs"
	"github.com/strandline/strandline/internal/config"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs"
)

// BrokerOptions say how to run a broker.
type BrokerOptions struct {
	// DataDir is where everything is kept; "" keeps it in memory.
	DataDir string
	// Listen, Advertise, HTTPListen and DebugListen are addresses, HOST:PORT.
	// The last three may be "".
	Listen, Advertise, HTTPListen, DebugListen string
	NodeID                                     int32
	Rack                                       string
	// ClusterListen is the address for the other brokers of a cluster, "" for a broker
	// that is alone; ClusterAdvertise is what they are told, "" for the same.
	ClusterListen, ClusterAdvertise string
	Voters                          []Voter
	// TLS is for clients and HTTP, ClusterTLS for the other brokers; none for plaintext.
	TLS, ClusterTLS certs.Files
	// Settings are Kafka's broker settings by name.
	Settings map[string]string
	Logger   *slog.Logger
}

const startLong = `Run a broker. With no flags it is a complete single-node queue: it keeps its data
in ./strandline-data and serves Kafka clients at 127.0.0.1:9092.

To serve other machines, listen on every interface and say which address clients use:
  strandline start --listen 0.0.0.0:9092 --advertise queue.example.com

Every flag can be given as a variable, --data-dir as STRANDLINE_DATA_DIR, or in a YAML
file by its name, next to the Kafka broker settings:
  data-dir: /var/lib/strandline
  listen: 0.0.0.0:9092
  advertise: queue.example.com
  settings:
    num.partitions: 6
    log.retention.hours: 48
A setting can also come from --set, from STRANDLINE_SET (separated by semicolons or line
ends) or from a variable of its own, num.partitions as STRANDLINE_SET_NUM_PARTITIONS.
Flags win over variables, and variables over the file.

Ctrl-C stops it cleanly, a second one at once.`

// startFlags are the flags of start, which doctor --config takes too.
type startFlags struct {
	broker      BrokerOptions
	inMemory    bool
	cluster     string
	voters      []string
	configFile  string
	sets        []string
	logFormat   string
	logLevel    string
	settingFrom map[string]string // Where each setting was given, for errors.
}

func (s *startFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&s.broker.DataDir, "data-dir", "d", "./strandline-data",
		"`directory` to keep everything in")
	f.BoolVar(&s.inMemory, "in-memory", false,
		"keep everything in memory instead: it is gone when the broker stops")
	f.StringVarP(&s.broker.Listen, "listen", "l", defaultBroker,
		"`address` to listen on for Kafka clients")
	f.StringVar(&s.broker.Advertise, "advertise", "",
		"`HOST[:PORT]` that clients are told to connect to (default the address listened on)")
	f.StringVar(&s.broker.HTTPListen, "http-listen", "127.0.0.1:8080",
		"`address` to listen on for HTTP; none for not at all")
	f.StringVar(&s.broker.DebugListen, "debug-listen", "",
		"`address` to serve pprof on, which should be a private one (default none)")
	f.Int32Var(&s.broker.NodeID, "node-id", 1, "`number` of this broker in its cluster (node.id)")
	f.StringVar(&s.cluster, "cluster-listen", "",
		"`address` for the other brokers of a cluster (default "+defaultCluster+" with --voters, else no such port)")
	f.StringSliceVar(&s.voters, "voters", nil, "the brokers that elect a controller, `ID@HOST:PORT,...`, with "+
		"their --cluster-listen addresses (default this broker alone)")
	s.registerTLS(f)
	f.StringVar(&s.broker.Rack, "rack", "", "`name` of where this broker stands (broker.rack)")
	f.StringVarP(&s.configFile, "config", "c", "", "YAML `file` with these flags and with settings")
	f.StringArrayVar(&s.sets, "set", nil, "a Kafka broker setting, `KEY=VALUE`; may be repeated")
	f.StringVar(&s.logFormat, "log-format", "text", "`text` or json")
	f.StringVar(&s.logLevel, "log-level", "info", "`debug`, info, warn or error")
	refuseTwice(f)
	markEnv(f)
}

type start struct {
	*app
	startFlags
}

func newStart(a *app) *cobra.Command {
	s := &start{app: a}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run a broker",
		Long:  startLong,
		Args:  wantArgs(0, 0, "no arguments, only flags"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	s.register(cmd.Flags())
	return cmd
}

func (s *start) run(cmd *cobra.Command) error {
	if err := s.resolve(s.app, cmd); err != nil {
		return err
	}
	settings, err := s.check()
	if err != nil {
		return err
	}
	if err := s.checkAddresses(settings); err != nil {
		return err
	}
	logger, err := s.logger()
	if err != nil {
		return err
	}
	o := s.broker
	o.Logger = logger
	s.warnMisspelled(s.app)
	tuneCollector()
	if err := relaxMonitor("/proc"); err != nil {
		logger.Debug("the runtime's monitor thread keeps its pace", "error", err)
	}
	began := time.Now()
	b, err := s.env.Start(cmd.Context(), o)
	if err != nil {
		return s.startFailure(cmd.Context(), err)
	}
	s.banner(b, time.Since(began))
	s.notify("READY=1")
	stop := context.AfterFunc(cmd.Context(), func() {
		s.notify("STOPPING=1")
		_ = b.Close() // Wait returns the error.
	})
	defer stop()
	if err := b.Wait(); err != nil {
		return newFailure(exitFailed, "the broker stopped: %w", err)
	}
	s.out.note("Stopped.")
	return nil
}

// check proves that the settings are valid before anything is touched.
func (s *startFlags) check() (*config.Broker, error) {
	if s.broker.NodeID < 1 {
		return nil, usagef("--node-id %d: want a number above zero", s.broker.NodeID)
	}
	if err := s.joinCluster(); err != nil {
		return nil, err
	}
	if err := s.checkTLS(); err != nil {
		return nil, err
	}
	b, err := config.Sources{Static: s.broker.Settings}.Broker()
	if err != nil {
		return nil, usagef("%w",
			err).hint("Settings are Kafka's broker settings: docs/configuration.md lists them.")
	}
	return b, nil
}

// logger writes to the standard error.
func (s *start) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, usagef("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	o := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(s.env.Stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(s.env.Stderr, o)), nil
	}
	return nil, usagef("--log-format %q: want text or json", s.logFormat)
}

// startFailure adds what to do when a broker does not start.
func (s *start) startFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f := newFailure(exitFailed, "the broker did not start: %w", err)
	text := err.Error()
	var damage *quorum.CorruptionError
	switch {
	case strings.Contains(text, "address already in use"):
		f.hint("Something else listens there, perhaps another strandline: use another --listen or " +
			"--http-listen.")
	case errors.Is(err, vfs.ErrLocked):
		f.hint("Another strandline runs on %s: use that one, stop it, or give this one a --data-dir "+
			"of its own.", s.broker.DataDir)
	case errors.As(err, &damage):
		f.hint("Nothing was changed there. Put %s/metadata back from a copy: docs/operations/damage.md says what to do "+
			"without one.", s.broker.DataDir)
	case strings.Contains(text, "permission denied"):
		f.hint("Choose a --data-dir and ports that this user may use.")
	}
	return f
}

// banner says where to connect.
func (s *start) banner(b Broker, took time.Duration) {
	if s.logFormat == "json" {
		return // The log says it, and nothing but JSON is to be printed.
	}
	where := "data in " + s.broker.DataDir
	if s.broker.DataDir == "" {
		where = "data in memory only"
	}
	p := s.out.paint
	s.out.printf("%s %s  node %d, %s, up in %s\n", p.bold("Strandline"), buildVersion().Version,
		s.broker.NodeID, where, roundDuration(took))
	listening := ""
	if s.broker.Advertise != "" {
		listening = p.dim("  (listening on " + s.broker.Listen + ")")
	}
	s.out.printf("  Kafka clients  %s%s\n", p.cyan(b.Addr()), listening)
	if addr := b.HTTPAddr(); addr != "" {
		s.out.printf("  HTTP           %s\n", p.cyan(scheme(s.broker.TLS.Given())+addr))
	}
	brokers := ""
	if b.Addr() != defaultBroker {
		brokers = " -b " + b.Addr()
	}
	if s.broker.TLS.Given() {
		brokers += " --tls"
	}
	s.out.printf("  Try            echo hello | strandline produce greetings%[1]s; strandline consume "+
		"greetings%[1]s\n", brokers)
	s.out.printf("Ctrl-C stops it.\n")
	_ = s.out.flush() // A broker runs on without a reader of its banner.
}
