package chaos_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
	"github.com/strandline/strandline/test/history"
)

// foreign is a client of another language that rides through faults, as a process.
type foreign struct {
	t       *testing.T
	name    string
	topic   string
	history *history.History
	input   io.Closer
	ended   chan struct{}

	mu   sync.Mutex
	last string // What it said last.
}

// valuesOfEach is how many values each client may take.
const valuesOfEach = 1_000_000_000_000

// startForeign starts the n-th client's program.
func startForeign(t *testing.T, n int, name string, addrs []string, dir, command string, args ...string) *foreign {
	t.Helper()
	f := &foreign{t: t, name: name, topic: "ride-" + name, history: history.New(), ended: make(chan struct{})}
	two := "2"
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	createTopic(t, adm, 3, 3, map[string]*string{"min.insync.replicas": &two}, f.topic)
	cmd := exec.Command(command, append(args, strings.Join(addrs, ","), f.topic, strconv.Itoa(n*valuesOfEach))...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.input = input
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-f.ended
	})
	go func() { // Ends with the process.
		defer close(f.ended)
		f.follow(output)
		_ = cmd.Wait()
	}()
	return f
}

// follow notes what the program prints.
func (f *foreign) follow(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		f.mu.Lock()
		f.last = line
		f.mu.Unlock()
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var n [3]int64
		for i, w := range words[1:min(len(words), 4)] {
			n[i], _ = strconv.ParseInt(w, 10, 64)
		}
		switch words[0] {
		case "ack":
			f.history.Acked(history.Value(n[0]), history.Place{Partition: int32(n[1]), Offset: n[2]}, time.Now())
		case "stored":
			f.history.Stored(history.Value(n[0]))
		case "read":
			f.history.Read(f.name, history.Place{Partition: int32(n[0]), Offset: n[1]}, history.Value(n[2]))
		case "assigned":
			for p := range int32(3) {
				f.history.Assigned(f.name, p)
			}
		}
	}
}

func (f *foreign) lastWords() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// awaitMore waits until the client has n more acknowledgements.
func (f *foreign) awaitMore(n int) {
	f.t.Helper()
	want, end := f.history.AckedCount()+n, time.Now().Add(90*time.Second)
	for f.history.AckedCount() < want {
		select {
		case <-f.ended:
			f.t.Fatalf("%s ended: %s", f.name, f.lastWords())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			f.t.Fatalf("%s: no %d more acknowledgements within 90 s", f.name, n)
		}
	}
}

// endTimeout is how long a client may take to end: as long as a record may take to be
// delivered, and some time for the rest.
const endTimeout = 150 * time.Second

// end has the client end, and holds what it saw against the log.
func (f *foreign) end(addrs []string) {
	f.t.Helper()
	_ = f.input.Close()
	select {
	case <-f.ended:
	case <-time.After(endTimeout):
		f.t.Errorf("%s does not end; it said last: %s", f.name, f.lastWords())
		return
	}
	if f.lastWords() != "all ok" {
		f.t.Errorf("%s: %s", f.name, f.lastWords())
	}
	for _, r := range readRecords(f.t.Context(), f.t, addrs, f.topic) {
		v, err := strconv.ParseUint(string(r.Value), 10, 64)
		if err != nil {
			f.t.Fatalf("%s: a value of nobody's: %q", f.name, r.Value)
		}
		f.history.Final(placeOf(r), history.Value(v))
	}
	f.t.Run(f.name, func(t *testing.T) {
		report(t, f.history)
		t.Logf("%d acknowledged records checked", f.history.AckedCount())
	})
}

// startForeigners starts the Java client, librdkafka and kafkajs.
func startForeigners(t *testing.T, addrs []string) []*foreign {
	t.Helper()
	const limit = 6 * time.Minute
	harness.Needs(t, "node", "npm", "python3")
	clients := filepath.Join(harness.Root(t), "test", "clients")
	classpath := harness.JavaClasspath(t, limit)
	venv, node := filepath.Join(t.TempDir(), "venv"), t.TempDir()
	harness.Run(t, limit, ".", "python3", "-m", "venv", venv)
	harness.Run(t, limit, filepath.Join(clients, "python"), filepath.Join(venv, "bin", "pip"), "install", "-q",
		"--disable-pip-version-check", "-r", "requirements.txt")
	if err := os.CopyFS(node, os.DirFS(filepath.Join(clients, "node"))); err != nil {
		t.Fatal(err)
	}
	harness.Run(t, limit, node, "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
	return []*foreign{
		startForeign(t, 1, "java", addrs, ".", "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classpath, "Ride"),
		startForeign(t, 2, "librdkafka", addrs, ".", filepath.Join(venv, "bin", "python"), filepath.Join(clients, "python", "ride.py")),
		startForeign(t, 3, "kafkajs", addrs, node, "node", "ride.js"),
	}
}

// TestForeignClients has the Java client, librdkafka and kafkajs ride through kill -9,
// SIGSTOP and SIGCONT, and cuts of the network in all ways.
func TestForeignClients(t *testing.T) {
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir())
	clients := startForeigners(t, c.Addrs())
	progress := func(what string) {
		t.Helper()
		for _, f := range clients {
			began := time.Now()
			f.awaitMore(200)
			t.Logf("%s: %s has gone on after %v", what, f.name, time.Since(began))
		}
	}
	stop := func(s syscall.Signal) func(int) {
		return func(node int) {
			if err := syscall.Kill(c.Brokers[node-1].Pid(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	faults := append([]fault{
		{name: "killed", begin: func(node int) { c.Brokers[node-1].Kill() }, end: func(node int) { c.Brokers[node-1].Restart() }},
		{name: "stopped by SIGSTOP", begin: stop(syscall.SIGSTOP), end: stop(syscall.SIGCONT)},
	}, cuts(links)...)
	progress("before")
	const few = 3 // All of them, and again, by STRANDLINE_CHAOS_ROUNDS: clients take their time.
	for i := range rounds(t, few) {
		f, node := faults[i%len(faults)], 1+i%3
		if f.onlyController {
			node = controller(t, c.Addrs())
		}
		what := fmt.Sprintf("broker %d %s", node, f.name)
		f.begin(node)
		progress(what)
		f.end(node)
		progress(what + ", over")
	}
	for _, f := range clients {
		f.end(c.Addrs())
	}
}
