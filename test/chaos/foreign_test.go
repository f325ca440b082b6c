package chaos_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

	mu    sync.Mutex
	last  string // What it said last.
	acked [foreignPartitions]int
	// ackedTo and readTo are the highest offsets that it has an acknowledgement for, and that it
	// has read.
	ackedTo, readTo [foreignPartitions]int64
}

// foreignPartitions is how many partitions each client writes to.
const foreignPartitions = 3

// valuesOfEach is how many values each client may take.
const valuesOfEach = 1_000_000_000_000

// startForeign starts the n-th client's program.
func startForeign(t *testing.T, n int, name string, addrs []string, dir, command string, args ...string) *foreign {
	t.Helper()
	f := &foreign{t: t, name: name, topic: "ride-" + name, history: history.New(), ended: make(chan struct{})}
	f.history.Sender = func(history.Value) uint64 { return 0 }
	two := "2"
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	createTopic(t, adm, foreignPartitions, 3, map[string]*string{"min.insync.replicas": &two}, f.topic)
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
			f.mu.Lock()
			f.acked[n[1]]++
			f.ackedTo[n[1]] = max(f.ackedTo[n[1]], n[2])
			f.mu.Unlock()
		case "stored":
			f.history.Stored(history.Value(n[0]))
		case "read":
			f.history.Read(f.name, history.Place{Partition: int32(n[0]), Offset: n[1]}, history.Value(n[2]))
			f.mu.Lock()
			f.readTo[n[0]] = max(f.readTo[n[0]], n[1])
			f.mu.Unlock()
		case "assigned":
			for p := range int32(foreignPartitions) {
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

// ackedIn returns how many acknowledgements the client has for each partition.
func (f *foreign) ackedIn() [foreignPartitions]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acked
}

// reading returns up to where the client has acknowledgements, and has read.
func (f *foreign) reading() (acked, read [foreignPartitions]int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ackedTo, f.readTo
}

// awaitMore waits until the client has n more acknowledgements for each partition, and has
// read what was acknowledged.
func (f *foreign) awaitMore(n int) {
	f.t.Helper()
	before := f.ackedIn()
	f.await(fmt.Sprint(n, " more acknowledgements for each partition"), func() bool {
		now := f.ackedIn()
		for p := range now {
			if now[p] < before[p]+n {
				return false
			}
		}
		return true
	})
	acked, _ := f.reading()
	f.await("its consumer reads what was acknowledged", func() bool {
		_, read := f.reading()
		for p := range read {
			if read[p] < acked[p] {
				return false
			}
		}
		return true
	})
}

func (f *foreign) await(what string, so func() bool) {
	f.t.Helper()
	for end := time.Now().Add(90 * time.Second); !so(); {
		select {
		case <-f.ended:
			f.t.Fatalf("%s ended: %s", f.name, f.lastWords())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			acked, read := f.reading()
			f.t.Fatalf("%s: not within 90 s: %s; %d are acknowledged of each partition, up to %d, and %d are read",
				f.name, what, f.ackedIn(), acked, read)
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
	awaitAgreement(f.t, addrs, f.topic)
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

// awaitAgreement waits until each broker names the same leaders of a topic as the others,
// with all replicas in sync. One that was cut off believes that it leads until it hears of
// its successor, and tells where its own log ends.
func awaitAgreement(t *testing.T, addrs []string, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	view := func(addr string) (said string, healed bool) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
		if err != nil {
			return err.Error(), false
		}
		healed = true
		for _, p := range resp.(*kmsg.MetadataResponse).Topics[0].Partitions {
			said += fmt.Sprintf("%d led by %d in epoch %d, ", p.Partition, p.Leader, p.LeaderEpoch)
			healed = healed && len(p.ISR) == len(p.Replicas)
		}
		return said, healed
	}
	for {
		first, agreed := view(addrs[0])
		for _, addr := range addrs[1:] {
			said, healed := view(addr)
			agreed = agreed && healed && said == first
		}
		if agreed {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the brokers do not agree on the leaders of %s; the first says: %s", topic, first)
		}
	}
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
		startForeign(t, 1, "java", addrs, ".", "java", append(javaLog(t), "-Xmx256m", "-XX:+UseSerialGC",
			"-XX:TieredStopAtLevel=1", "-cp", classpath, "Ride")...),
		startForeign(t, 2, "librdkafka", addrs, ".", "env", "RIDE_LOG="+clientLog(t, "librdkafka"),
			filepath.Join(venv, "bin", "python"), filepath.Join(clients, "python", "ride.py")),
		startForeign(t, 3, "kafkajs", addrs, node, "env", "RIDE_LOG="+clientLog(t, "kafkajs"), "node", "ride.js"),
	}
}

// keepLogs has what the brokers logged be with the test's artifacts, beside what clients did.
func keepLogs(t *testing.T, c *harness.Cluster) {
	dir := t.ArtifactDir()
	t.Cleanup(func() {
		for i, b := range c.Brokers {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("broker-%d.log", i+1)), []byte(b.Log()), 0o644); err != nil {
				t.Error(err)
			}
		}
	})
}

// clientLog returns where a client is to log what it meets. The file is with the test's
// artifacts (go test -artifacts), and its end is shown when the test fails.
func clientLog(t *testing.T, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.ArtifactDir(), name+".log")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Logf("the log of %s: %v", name, err)
			return
		}
		const shown = 40_000
		t.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-shown):])
	})
	return path
}

// javaLog has the Java client log what its producer meets, and returns the arguments for
// that.
func javaLog(t *testing.T) (args []string) {
	t.Helper()
	path := clientLog(t, "java")
	for key, value := range map[string]string{
		"logFile": path, "showDateTime": "true", "dateTimeFormat": "HH:mm:ss.SSS", "showThreadName": "false",
		"defaultLogLevel": "info", "log.org.apache.kafka.clients.Metadata": "debug",
		// Not the accumulator, which tells of each batch.
		"log.org.apache.kafka.clients.producer.internals.Sender":             "debug",
		"log.org.apache.kafka.clients.producer.internals.TransactionManager": "debug",
	} {
		args = append(args, "-Dorg.slf4j.simpleLogger."+key+"="+value)
	}
	return args
}

// TestForeignClients has the Java client, librdkafka and kafkajs ride through kill -9,
// SIGSTOP and SIGCONT, and cuts of the network in all ways.
func TestForeignClients(t *testing.T) {
	links := harness.NewLinks(t, 3)
	c := harness.StartClusterOn(t, links, harness.Binary(t), t.TempDir())
	keepLogs(t, c)
	clients := startForeigners(t, c.Addrs())
	progress := func(what string) {
		t.Helper()
		for _, f := range clients {
			began := time.Now()
			f.awaitMore(70)
			t.Logf("%s: %s: %s has gone on after %v", time.Now().Format("15:04:05.000"), what, f.name, time.Since(began))
		}
	}
	stop := func(s syscall.Signal) func(int) {
		return func(node int) {
			if err := syscall.Kill(c.Brokers[node-1].Pid(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	faults := slices.Concat([]fault{
		{name: "killed", begin: func(node int) { c.Brokers[node-1].Kill() }, end: func(node int) { c.Brokers[node-1].Restart() }},
		{name: "stopped by SIGSTOP", begin: stop(syscall.SIGSTOP), end: stop(syscall.SIGCONT)},
	}, cuts(links), clientCuts(links))
	// Each takes 10 to 20 s with three clients. Unless more rounds are asked for these are met.
	soon := []string{"killed", "stopped by SIGSTOP", "deaf to the brokers", "heard by no client"}
	isLate := func(f fault) bool { return !slices.Contains(soon, f.name) }
	late := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !isLate(f) })
	faults = append(slices.DeleteFunc(faults, isLate), late...)
	progress("before")
	for i := range rounds(t, len(soon)) {
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
