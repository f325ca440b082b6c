package cli

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/nearest"
)

// defaultBroker is where a broker listens, and where commands look for one.
const defaultBroker = "127.0.0.1:9092"

const rootLong = `Strandline is a message queue of the log kind that speaks the Kafka protocol.

  strandline start                        a complete single-node queue in ./strandline-data
  strandline dev --nodes 3                three of them on this machine, as one queue
  echo hello | strandline produce greetings
  strandline consume greetings

Lists are tables on a terminal, tab-separated lines without a header elsewhere, and
one JSON document with --json. Global flags and those of start can also be given in
the environment: --brokers as STRANDLINE_BROKERS.`

// newRoot builds the tree of commands.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:               "strandline",
		Short:             "A message queue of the log kind that speaks the Kafka protocol",
		Long:              rootLong + "\n\n" + exitCodesHelp,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
	}
	a.addGlobalFlags(root.PersistentFlags())
	root.SetFlagErrorFunc(flagFailure)
	root.AddCommand(
		newStart(a), newDev(a), newReady(a), newTopic(a), newProduce(a), newConsume(a), newGroup(a), newTxn(a), newCluster(a),
		newDoctor(a), newTop(a), newLog(a), newBench(a), newVersion(a),
	)
	root.InitDefaultCompletionCmd(a.env.Args...)
	root.SetHelpCommand(newHelp(root))
	refuseUnknown(root)
	return root
}

func (a *app) addGlobalFlags(f *pflag.FlagSet) {
	f.StringSliceVarP(&a.flags.brokers, "brokers", "b", []string{defaultBroker},
		"addresses of one or more brokers, `HOST:PORT,...`")
	f.DurationVar(&a.flags.timeout, "timeout", 15*time.Second,
		"how long to wait for a broker's answer")
	f.StringVarP(&a.flags.output, "output", "o", "auto",
		"`table`, plain, json, or auto: table on a terminal, else plain")
	f.BoolVar(&a.flags.json, "json", false, "short for --output json")
	f.StringVar(&a.flags.color, "color", "auto", "`auto`, always or never; auto respects NO_COLOR")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false,
		"log what the client does to the standard error")
	a.addTLSFlags(f)
	markEnv(f)
}

// prepare runs before every command: flags are parsed, nothing is done yet.
func (a *app) prepare(cmd *cobra.Command) error {
	if err := a.bindEnv(cmd); err != nil {
		return err
	}
	if len(a.flags.brokers) == 0 || slices.Contains(a.flags.brokers, "") {
		return usagef("--brokers names no address").hint("Example: --brokers 127.0.0.1:9092")
	}
	for i, b := range a.flags.brokers {
		if !strings.Contains(b, ":") {
			a.flags.brokers[i] = b + ":" + defaultPort
		}
		if err := checkPort(a.flags.brokers[i]); err != nil {
			return err
		}
	}
	if a.flags.timeout <= 0 {
		return usagef("--timeout %v: want a time above zero, such as 15s", a.flags.timeout)
	}
	if a.flags.json {
		a.flags.output = "json"
	}
	if err := a.prepareTLS(); err != nil {
		return err
	}
	return a.out.configure(a.flags.output, a.flags.color, a.vars)
}

// refuseUnknown makes a group of commands refuse a subcommand that it does not
// have. Cobra prints the help and exits 0, and a script that says "topic crate"
// goes on as if a topic had been created.
func refuseUnknown(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		refuseUnknown(c)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if !cmd.HasParent() {
				return cmd.Help()
			}
			return usagef("%s needs a subcommand: %s", cmd.CommandPath(),
				strings.Join(subcommands(cmd), ", ")).
				hint("See %s --help", cmd.CommandPath())
		}
		f := usagef("%s has no command %q", cmd.CommandPath(), args[0])
		if near := nearest.To(args[0], slices.Values(subcommands(cmd))); near != "" {
			f.hint("Did you mean %s %s?", cmd.CommandPath(), near)
		}
		return f.hint("See %s --help", cmd.CommandPath())
	}
}

func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	return names
}

// checkPort refuses an address whose port is no number of a port: nothing was dialed then,
// so nothing that is said of a broker there would be true.
func checkPort(address string) error {
	port := address[strings.LastIndexByte(address, ':')+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return usagef("--brokers %s: %q is no port, which is a number from 1 to 65535", address, port).
			hint("Example: --brokers 127.0.0.1:9092")
	}
	return nil
}

// flagFailure explains a flag that could not be parsed.
func flagFailure(cmd *cobra.Command, err error) error {
	f := usagef("%w", err)
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		f = usagef("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid))
	}
	if word, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		known := map[string]bool{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = !f.Hidden })
		if near := nearest.To(word, maps.Keys(known)); near != "" {
			f.hint("Did you mean --%s?", near)
		}
	}
	return f.hint("See %s --help", cmd.CommandPath())
}

// wanted says what a flag takes, in place of what its parser says, which speaks of Go's
// functions.
func wanted(invalid *pflag.InvalidValueError) string {
	var number *strconv.NumError
	switch kind := invalid.GetFlag().Value.Type(); {
	case kind == "duration":
		return "want a time with its unit, such as 500ms, 30s or 5m"
	case !errors.As(invalid, &number): // A flag of our own, which speaks for itself.
		return invalid.Unwrap().Error()
	case errors.Is(number.Err, strconv.ErrRange):
		return "the number is too large"
	case kind == "bool":
		return "want true or false"
	case strings.HasPrefix(kind, "float"):
		return "want a number"
	}
	return "want a whole number"
}

// wantArgs accepts from least to most arguments, which usage names; most < 0
// sets no limit.
func wantArgs(least, most int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s needs %s", cmd.CommandPath(), usage).hint("See %s --help", cmd.CommandPath())
		case most >= 0 && len(args) > most:
			return usagef("%s takes %s: %q is too much", cmd.CommandPath(), usage, args[most]).
				hint("See %s --help", cmd.CommandPath())
		}
		return nil
	}
}
