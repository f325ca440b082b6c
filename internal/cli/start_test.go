package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/cli"
	"github.com/strandline/strandline/internal/vfs"
)

// fakeBroker ends when it is closed, or at once if it has an error.
type fakeBroker struct {
	closed chan struct{}
	err    error
}

func (*fakeBroker) Addr() string     { return "127.0.0.1:19999" }
func (*fakeBroker) HTTPAddr() string { return "127.0.0.1:18888" }

func (b *fakeBroker) Close() error {
	close(b.closed)
	return nil
}

func (b *fakeBroker) Wait() error {
	if b.err != nil {
		return b.err
	}
	<-b.closed
	return nil
}

// started runs the start command until its broker would have been interrupted.
type started struct {
	options        cli.BrokerOptions
	ran            bool
	stdout, stderr bytes.Buffer
	code           int
}

func startWith(t *testing.T, environ []string, broker *fakeBroker, args ...string) *started {
	t.Helper()
	var s started
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	s.code = cli.Run(ctx, cli.Env{
		Args: append([]string{"start"}, args...), Environ: environ,
		Stdin: strings.NewReader(""), Stdout: &s.stdout, Stderr: &s.stderr,
		Start: func(_ context.Context, o cli.BrokerOptions) (cli.Broker, error) {
			s.options, s.ran = o, true
			interrupt()
			return broker, nil
		},
	})
	return &s
}

func newFakeBroker() *fakeBroker { return &fakeBroker{closed: make(chan struct{})} }

// ignoreLogger compares options without what they log to.
func ignoreLogger() cmp.Option {
	return cmp.Comparer(func(a, b *slog.Logger) bool { return true })
}

func TestStartDefaults(t *testing.T) {
	s := startWith(t, nil, newFakeBroker())
	want := cli.BrokerOptions{
		DataDir: "./strandline-data", Listen: "127.0.0.1:9092", HTTPListen: "127.0.0.1:8080", NodeID: 1,
		Settings: map[string]string{},
	}
	if d := cmp.Diff(want, s.options, ignoreLogger()); d != "" {
		t.Error(d)
	}
	if s.code != 0 || !strings.Contains(s.stdout.String(), "127.0.0.1:19999") ||
		!strings.Contains(s.stdout.String(), "http://127.0.0.1:18888") {
		t.Errorf("code %d, banner\n%s%s", s.code, &s.stdout, &s.stderr)
	}
}

// TestStartPrecedence: flags win over variables, and variables over the file.
func TestStartPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "strandline.yaml")
	writeFile(t, file, `
listen: 0.0.0.0:1
advertise: from-file
rack: from-file
node-id: 3
data-dir: from-file
settings:
  num.partitions: 3
  log.retention.hours: 1
  default.replication.factor: 1
  auto.create.topics.enable: false
  log.cleanup.policy: [compact, delete]
`)
	environ := []string{
		"STRANDLINE_RACK=from-env", "STRANDLINE_DATA_DIR=from-env", "STRANDLINE_CONFIG=" + file,
		"STRANDLINE_SET=log.retention.hours=2;num.partitions=4", "STRANDLINE_SET_LOG_RETENTION_BYTES=5",
		"STRANDLINE_HTTP_LISTEN=none", "STRANDLINE_BROKERS=", "PATH=/bin",
	}
	s := startWith(t, environ, newFakeBroker(), "--data-dir", "from-flag", "--set", "num.partitions=6")
	want := cli.BrokerOptions{
		DataDir: "from-flag", Listen: "0.0.0.0:1", Advertise: "from-file", NodeID: 3, Rack: "from-env",
		Settings: map[string]string{
			"num.partitions": "6", "log.retention.hours": "2", "log.retention.bytes": "5",
			"default.replication.factor": "1", "auto.create.topics.enable": "false",
			"log.cleanup.policy": "compact,delete",
		},
	}
	if d := cmp.Diff(want, s.options, ignoreLogger()); d != "" {
		t.Errorf("%s\n%s", d, &s.stderr)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"typo": "listne: x\n", "dotted": "num.partitions: 3\n",
		"nested": "settings: {num: {partitions: 3}}\n",
		"twice":  "rack: a\nrack: b\n", "broken": "rack: [\n", "list": "- a\n", "meta": "config: other\n",
		"number": "node-id: many\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", filepath.Join(dir, "typo")}, "unknown key listne: did you mean listen?"},
		{[]string{"--config", filepath.Join(dir, "dotted")}, `Kafka's settings stand under "settings:"`},
		{[]string{"--config", filepath.Join(dir, "nested")}, "a setting's whole name is one key"},
		{[]string{"--config", filepath.Join(dir, "twice")}, "already defined"},
		{[]string{"--config", filepath.Join(dir, "broken")}, "broken: "},
		{[]string{"--config", filepath.Join(dir, "list")}, "list: "},
		{[]string{"--config", filepath.Join(dir, "meta")}, "unknown key config"},
		{[]string{"--config", filepath.Join(dir, "number")}, "node-id: "},
		{[]string{"--config", filepath.Join(dir, "absent")}, "no such file"},
		{[]string{"--set", "num.partitions"}, "want KEY=VALUE"},
		{[]string{"--set", "num.partition=3"}, "num.partitions"},
		{[]string{"--set", "num.partitions=none"}, "num.partitions"},
		{[]string{"--voters", "1@a:1,2@b:1"}, "names two brokers"},
		{[]string{"--voters", "1@a:1,1@b:1,3@c:1"}, "names broker 1 twice"},
		{[]string{"--voters", "1@a:1,2@a:1,3@c:1"}, "gives the brokers 1 and 2 the same address"},
		{[]string{"--voters", "a:1"}, "want ID@HOST:PORT"},
		{[]string{"--set", "node.id=x"}, "node.id"},
		{[]string{"--set", "node.id=0"}, "above zero"},
		{[]string{"--voters", "1@a:0"}, "want ID@HOST:PORT"},
		{[]string{"--cluster-listen", "nowhere"}, "want HOST:PORT"},
		{[]string{"--cluster-listen", "0.0.0.0:9093"}, "does not say where the other"},
		{[]string{"--node-id", "0"}, "above zero"},
		{[]string{"--data-dir", ""}, "--in-memory"},
		{[]string{"--data-dir", "x", "--in-memory"}, "exclude each other"},
		{[]string{"--listen", "x:1", "--set", "listeners=PLAINTEXT://y:2"}, "say the same thing"},
		{[]string{"--log-level", "loud"}, "debug, info, warn or error"},
		{[]string{"--log-format", "xml"}, "text or json"},
		{[]string{"now"}, "only flags"},
		{[]string{"-l", ""}, "--listen is empty"},
		{[]string{"--listen", "9092"}, "--listen 9092: want HOST:PORT"},
		{[]string{"-l", "0.0.0.0:9092"}, "--advertise HOST[:PORT]"},
		{[]string{"-l", ":9092"}, "--advertise HOST[:PORT]"},
		{[]string{"--advertise", "0.0.0.0:1"}, "--advertise 0.0.0.0:1 is every address of a machine"},
		{[]string{"--advertise", "::"}, "no client can connect to that"},
		{[]string{"--set", "advertised.listeners=PLAINTEXT://0.0.0.0:1"}, "advertise a host that they can reach"},
		{[]string{"-l", "127.0.0.1:1", "-l", "127.0.0.1:2"}, "it was given twice"},
		{[]string{"-l", "127.0.0.1:1", "--listen", "127.0.0.1:1"}, "it was given twice"},
		{[]string{"--node-id", "1", "--node-id", "2"}, "it was given twice"},
	} {
		s := startWith(t, nil, newFakeBroker(), c.args...)
		if s.code != 2 || s.ran || !strings.Contains(s.stderr.String(), c.want) {
			t.Errorf("%v: code %d, want 2 and %q in\n%s", c.args, s.code, c.want, &s.stderr)
		}
	}
}

// TestStartTakesSettingsForFlags: a setting that means the same as a flag is not ignored.
func TestStartTakesSettingsForFlags(t *testing.T) {
	s := startWith(t, []string{"STRANDLINE_SET_BROKER_RACK=b"}, newFakeBroker(), "--set", "node.id=7")
	if s.code != 0 || s.options.NodeID != 7 || s.options.Rack != "b" {
		t.Errorf("code %d, node %d in rack %q\n%s", s.code, s.options.NodeID, s.options.Rack, &s.stderr)
	}
}

// What the other brokers are told is where the list of voters says that this one is, unless
// it listens on another port of that very host.
func TestStartTellsWhereItIs(t *testing.T) {
	const others = ",2@b:9093,3@c:9093"
	for _, c := range []struct{ listen, own, told string }{
		{"", "a:9093", "a:9093"},
		{"a:9093", "a:9093", "a:9093"},
		{"a:9193", "a:9093", "a:9193"},
		{"127.0.0.1:9193", "127.0.0.1:9093", "127.0.0.1:9193"},
		{"10.0.0.1:9193", "a:9093", "a:9093"},
		{"0.0.0.0:9193", "a:9093", "a:9093"},
		{"0.0.0.0:9193", "0.0.0.0:9093", "0.0.0.0:9093"},
		{"a:0", "a:9093", "a:9093"},
	} {
		args := []string{"--voters", "1@" + c.own + others}
		if c.listen != "" {
			args = append(args, "--cluster-listen", c.listen)
		}
		s := startWith(t, nil, newFakeBroker(), args...)
		if !s.ran || s.options.ClusterAdvertise != c.told {
			t.Errorf("listens on %q, is said to be at %s: tells %q, want %s\n%s", c.listen, c.own,
				s.options.ClusterAdvertise, c.told, &s.stderr)
		}
	}
}

func TestStartInMemory(t *testing.T) {
	s := startWith(t, nil, newFakeBroker(), "--in-memory", "--voters", "1@localhost:9093")
	if s.code != 0 || !s.ran || s.options.DataDir != "" ||
		!strings.Contains(s.stdout.String(), "in memory only") {
		t.Errorf("code %d, data in %q\n%s%s", s.code, s.options.DataDir, &s.stdout, &s.stderr)
	}
}

// TestStartFails: a broker that ends by itself is a failure, and says why.
func TestStartFails(t *testing.T) {
	b := newFakeBroker()
	b.err = errors.New("the disk is gone")
	s := startWith(t, nil, b)
	if s.code != 1 || !strings.Contains(s.stderr.String(), "the broker stopped: the disk is gone") {
		t.Errorf("code %d\n%s", s.code, &s.stderr)
	}
}

// TestStartOnLockedDirectory: it says whose the directory is and what to do.
func TestStartOnLockedDirectory(t *testing.T) {
	var stderr bytes.Buffer
	code := cli.Run(t.Context(), cli.Env{
		Args: []string{"start", "--data-dir", "here"}, Stdin: strings.NewReader(""),
		Stdout: io.Discard, Stderr: &stderr,
		Start: func(context.Context, cli.BrokerOptions) (cli.Broker, error) {
			return nil, fmt.Errorf("lock data directory: %w", vfs.ErrLocked)
		},
	})
	if code != 1 || !strings.Contains(stderr.String(), "Another strandline runs on here") {
		t.Errorf("code %d\n%s", code, &stderr)
	}
}

// TestStartBannerCommandsReachTheBroker: what the banner says to try names the
// address where that is not the one that commands use by default.
func TestStartBannerCommandsReachTheBroker(t *testing.T) {
	s := startWith(t, nil, newFakeBroker())
	want := "strandline produce greetings -b 127.0.0.1:19999; " +
		"strandline consume greetings -b 127.0.0.1:19999\n"
	if !strings.Contains(s.stdout.String(), want) {
		t.Errorf("the banner lacks %q\n%s", want, &s.stdout)
	}
}

// TestStartWarnsOfMisspelledVariables: they would be ignored in silence. What
// an orchestrator sets for a service of that name is no misspelling.
func TestStartWarnsOfMisspelledVariables(t *testing.T) {
	s := startWith(t, []string{
		"STRANDLINE_DATADIR=x", "STRANDLINE_PORT=tcp://10.0.0.1:9092", "STRANDLINE_SERVICE_HOST=10.0.0.1",
		"STRANDLINE_PORT_9092_TCP_ADDR=10.0.0.1",
	}, newFakeBroker())
	got := s.stderr.String()
	if !strings.Contains(got,
		"STRANDLINE_DATADIR means nothing here: did you mean STRANDLINE_DATA_DIR?") ||
		strings.Contains(got, "PORT") ||
		strings.Contains(got, "SERVICE") {
		t.Errorf("warned\n%s", got)
	}
}
