package cli

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

const doctorLong = `Look for what goes wrong most often, and say what to do about it.

Without --config it looks at a running broker, ours or another, as a client on this machine sees
it: do the names resolve, does every broker answer at the address that it advertises and belong to
the same cluster, have clients asked for addresses and never come, was stored data found corrupt
(both ours only, over HTTP), do all partitions have a leader and enough replicas for their min.insync.replicas, how full are the disks,
do consumer groups lag or lose records, are there records from the future, is the clock kept right;
of several brokers, whether all are up, who votes, and who leads how much (strandline cluster doctor).
For a broker on this machine it looks at its limit of open files too.

With --config FILE it looks at what strandline start would meet here: is the file right, are the
addresses free and fit to be advertised, is the data directory writable, on what file system, how
full and how fast its disk is, and the limit of open files. It writes and removes a small file
in the data directory to time the disk.

The exit code is 4 if there is a problem. Warnings do not change it, unless --strict is given.

`

type doctor struct {
	*app
	configFile string
	http       string
	strict     bool
	watch      time.Duration // For hot partitions.
	// undecided says that no controller is known: what brokers tell of the cluster was
	// so when there was one.
	undecided bool
	// registered is how many brokers there are, those that are down among them.
	registered int
	report     []finding
}

// finding is one thing that was looked at.
type finding struct {
	Status  string `json:"status"`
	Check   string `json:"check"`
	Message string `json:"message"`
	Advice  string `json:"advice"` // What to do; "" if there is nothing.
}

const (
	statusOK      = "ok"
	statusNote    = "note"
	statusWarning = "warning"
	statusProblem = "problem"
)

func newDoctor(a *app) *cobra.Command {
	d := &doctor{app: a}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with a broker or a configuration",
		Long: doctorLong + resultHelp[[]finding]("status (ok, note, warning or problem)", "check",
			"message", "advice"),
		Args: wantArgs(0, 0, "no arguments, only flags"),
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	cmd.Flags().StringVarP(&d.configFile, "config", "c", "",
		"look at what this `file` configures, not at a running broker")
	cmd.Flags().StringVar(&d.http, "http", "",
		"`address` of the broker's HTTP listener (default port 8080 beside port 9092); none for not "+
			"at all")
	cmd.Flags().BoolVar(&d.strict, "strict", false, "exit with 4 on warnings too")
	return cmd
}

func (d *doctor) run(ctx context.Context) error {
	if d.configFile != "" {
		d.checkConfig(ctx)
	} else {
		d.checkBroker(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.conclude()
}

// conclude prints what was found, and returns the exit code that fits it.
func (d *doctor) conclude() error {
	if d.out.form != formTable {
		t := newTable("status", "check", "message", "advice")
		for _, f := range d.report {
			t.add(f.Status, f.Check, f.Message, f.Advice)
		}
		if err := d.out.show(d.report, t); err != nil {
			return err
		}
	}
	problems, warnings := d.count(statusProblem), d.count(statusWarning)
	switch {
	case problems > 0 || d.strict && warnings > 0:
		d.out.note("%s, %s.", plural(problems, "problem"), plural(warnings, "warning"))
		return silent(exitUnsound)
	case warnings > 0:
		d.out.note("No problem, %s.", plural(warnings, "warning"))
	default:
		d.out.note("All is well.")
	}
	return nil
}

func (d *doctor) count(status string) int {
	n := 0
	for _, f := range d.report {
		if f.Status == status {
			n++
		}
	}
	return n
}

// say adds a finding. People see it at once.
func (d *doctor) say(status, check, message, advice string) {
	d.report = append(d.report, finding{status, check, message, advice})
	if d.out.form != formTable {
		return
	}
	color := map[string]style{
		statusOK: styleGreen, statusNote: styleDim, statusWarning: styleYellow, statusProblem: styleRed,
	}[status]
	d.out.printf("%s  %s  %s\n", d.out.paint.apply(color, fmt.Sprintf("%-7s", status)),
		d.out.paint.bold(fmt.Sprintf("%-10s", check)), visible(message))
	if advice != "" {
		d.out.printf("%22s%s\n", "", visible(advice))
	}
	_ = d.out.flush() // An output that fails shows when the command ends.
}

func (d *doctor) ok(check, format string, args ...any) {
	d.say(statusOK, check, fmt.Sprintf(format, args...), "")
}

// checkBroker looks at a running broker.
func (d *doctor) checkBroker(ctx context.Context) {
	if !d.checkBootstrap(ctx) {
		return
	}
	d.dials.warn = nil // Reported as findings.
	client, err := d.connect(ctx)
	if err != nil {
		d.say(statusProblem, "address", d.explain(err).message, "")
		return
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	limited, cancel := context.WithTimeout(ctx, d.flags.timeout)
	defer cancel()
	m, err := adm.Metadata(limited)
	if err != nil {
		d.say(statusProblem, "metadata", d.explain(err).message, "")
		return
	}
	d.checkAdvertised(ctx, m)
	d.checkNotes(ctx)
	d.checkCluster(ctx, client, m)
	d.checkTopics(ctx, adm, m)
	d.checkDisks(ctx, adm)
	d.checkGroups(ctx, adm)
	d.checkRecordTimes(ctx, adm)
	d.checkClock()
	if host, port, err := net.SplitHostPort(d.flags.brokers[0]); err == nil && isLoopback(host) {
		d.checkProcess(port)
	}
}

// limit bounds one check, so that one broker that hangs does not hide the rest.
func (d *doctor) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.flags.timeout)
}

// isLoopback reports whether a host names this machine to itself.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// some lists the first few of many for a message.
func some(names []string) string {
	const most = 5
	text := ""
	for i, n := range names {
		if i == most {
			return fmt.Sprintf("%s and %d more", text, len(names)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += n
	}
	return text
}

const (
	// probeTimeout bounds one look at an address.
	probeTimeout = 5 * time.Second
	// probePatience bounds the wait for the first answer of what stands there.
	probePatience = 2 * time.Second
)
