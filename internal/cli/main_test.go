package cli_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/test/harness"
)

// raceOptions keep the race detector from sleeping for a second at the end of each process.
const raceOptions = "atexit_sleep_ms=0"

// TestMain lets scripts run the command line as a process of its own, as users
// do: the test's binary becomes strandline.
func TestMain(m *testing.M) {
	if err := os.Setenv("GORACE", raceOptions); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"strandline": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop)
		os.Exit(cli.Run(ctx, cli.Env{
			Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
			Start: startNode,
		}))
	}})
}

// startNode runs a broker of a cluster, as cmd/strandline does.
func startNode(ctx context.Context, o cli.BrokerOptions) (cli.Broker, error) {
	c := strandline.Config{
		DataDir: o.DataDir, Listen: o.Listen, NodeID: o.NodeID, ClusterListen: o.ClusterListen,
		ClusterAdvertise: o.ClusterAdvertise, Settings: o.Settings, Logger: o.Logger,
	}
	for _, v := range o.Voters {
		c.Voters = append(c.Voters, strandline.Voter{NodeID: v.NodeID, Address: v.Address})
	}
	return strandline.Start(ctx, c)
}

// TestScripts runs testdata/*.txtar. Commands beside those of testscript:
//
//	broker [DIR]     start a broker, in memory or in $WORK/DIR, for the rest of the script;
//	                 with advertise=HOST:PORT instead, one in memory that tells clients this
//	stopbroker       stop it
//	transact ID TOPIC  begin a transaction, with a record in the topic, and leave it open
//	hang DIR TOPIC   restart the broker, with a transaction in the topic that no coordinator knows
//	exits N CMD...   run a command that must exit with N
//	overwrite FILE POSITION TEXT  change bytes of a file; FILE may be a pattern
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			closed, err := closedAddress()
			env.Setenv("CLOSED", closed)
			env.Setenv("STRANDLINE_BROKERS", closed)
			env.Setenv("TERM", "xterm")
			env.Setenv("GORACE", raceOptions)
			env.Values[slotKey{}] = &slot{}
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"broker": startBroker, "stopbroker": stopBroker, "exits": exits, "overwrite": overwrite,
			"transact": transact, "hang": hang,
		},
	})
}

// closedAddress returns a loopback address at which nothing listens.
func closedAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// slot holds the broker of a script.
type slot struct{ server *strandline.Server }

type slotKey struct{}

func startBroker(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 1 {
		ts.Fatalf("usage: broker [DIR]")
	}
	c := strandline.Config{
		HTTPListen: "127.0.0.1:0",
		Settings: map[string]string{
			"group.initial.rebalance.delay.ms": "0",
			"offsets.topic.num.partitions":     "1",
		},
	}
	if len(args) == 1 {
		var told bool
		if c.Advertise, told = strings.CutPrefix(args[0], "advertise="); told {
			var err error
			c.Listen, err = closedAddress() // Free a moment ago; the broker does not tell it later.
			ts.Check(err)
		} else {
			c.Advertise, c.DataDir = "", ts.MkAbs(args[0])
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	srv, err := strandline.Start(ctx, c)
	ts.Check(err)
	ts.Value(slotKey{}).(*slot).server = srv
	ts.Defer(func() {
		cancel()
		_ = srv.Wait() // stopbroker reports what goes wrong.
	})
	ts.Setenv("STRANDLINE_BROKERS", cmp.Or(c.Listen, srv.Addr()))
	ts.Setenv("HTTP", srv.HTTPAddr())
}

func stopBroker(ts *testscript.TestScript, neg bool, args []string) {
	b := ts.Value(slotKey{}).(*slot)
	if neg || len(args) > 0 || b.server == nil {
		ts.Fatalf("usage: stopbroker, after broker")
	}
	ts.Check(b.server.Close())
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

func overwrite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: overwrite FILE POSITION TEXT")
	}
	found, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s: %d files match", args[0], len(found))
	}
	position, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.OpenFile(found[0], os.O_WRONLY, 0)
	ts.Check(err)
	if position < 0 {
		info, err := f.Stat()
		ts.Check(err)
		position += info.Size()
	}
	_, err = f.WriteAt([]byte(args[2]), position)
	ts.Check(errors.Join(err, f.Close()))
}

func transact(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: transact ID TOPIC")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(ts.Getenv("STRANDLINE_BROKERS")), kgo.TransactionalID(args[0]))
	ts.Check(err)
	ts.Defer(client.Close)
	ts.Check(client.BeginTransaction())
	ts.Check(client.ProduceSync(context.Background(), &kgo.Record{Topic: args[1], Value: []byte("v")}).FirstErr())
}

func hang(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: hang DIR TOPIC")
	}
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(ts.Getenv("STRANDLINE_BROKERS")))
	ts.Check(err)
	topics, err := adm.ListTopics(context.Background(), args[1])
	adm.Close()
	ts.Check(err)
	stopBroker(ts, false, nil)
	const producer = 4711
	_, err = harness.HangTransaction(ts.MkAbs(args[0]), topics[args[1]].ID, 0, producer, "open for ever", time.Now())
	ts.Check(err)
	startBroker(ts, false, args[:1])
}
