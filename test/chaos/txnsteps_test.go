package chaos_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline/strandline/test/harness"
)

// stepTimeout is how long a client may take for a step.
const stepTimeout = 90 * time.Second

// stepper is a transactional producer that is told each step, and answers "ok" or what
// went wrong.
type stepper interface {
	Tell(words ...string)
	Next(limit time.Duration) string
}

// stepsOf is what a stepper works with.
type stepsOf struct {
	id, topic string
	topicID   kadm.TopicID
	timeout   time.Duration // Of its transactions.
}

// txnClients are the clients, each of which has a topic and groups of its own. All
// transactional ids have the same coordinator.
type txnClients struct {
	t         *testing.T
	cluster   *harness.Cluster
	adm       *kadm.Client
	names     []string
	starts    map[string]func(of stepsOf) stepper
	topicIDs  map[string]kadm.TopicID
	committed map[string][]string         // What each has committed.
	offsets   map[string]map[string]int64 // The offsets that its groups should have.
	downs     []time.Duration             // How long a step took without the coordinator.
}

func newTxnClients(t *testing.T) *txnClients {
	t.Helper()
	const limit = 6 * time.Minute
	classpath, python := harness.JavaClasspath(t, limit), harness.Python(t, limit)
	c := harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3,
		"--set", "transaction.state.log.num.partitions=1", "--set", "group.initial.rebalance.delay.ms=0")
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(adm.Close)
	program := filepath.Join(harness.Root(t), "test", "clients", "python", "transaction_steps.py")
	args := func(of stepsOf) []string {
		return []string{strings.Join(c.Addrs(), ","), of.id, of.topic, fmt.Sprint(of.timeout.Milliseconds())}
	}
	x := &txnClients{
		t: t, cluster: c, adm: adm, names: []string{"java", "librdkafka", "franz-go", "franz-go-v1"},
		topicIDs: map[string]kadm.TopicID{}, committed: map[string][]string{}, offsets: map[string]map[string]int64{},
		starts: map[string]func(of stepsOf) stepper{
			"java": func(of stepsOf) stepper { return harness.StartJava(t, classpath, "TransactionSteps", args(of)...) },
			"librdkafka": func(of stepsOf) stepper {
				return harness.StartProgram(t, of.id, ".", python, append([]string{program}, args(of)...)...)
			},
			"franz-go": func(of stepsOf) stepper { return newFranzSteps(t, c.Addrs(), of, false) },
			"franz-go-v1": func(of stepsOf) stepper {
				return newFranzSteps(t, c.Addrs(), of, true, kgo.MaxVersions(kversion.V3_9_0()))
			},
		},
	}
	two := "2"
	for _, name := range x.names {
		x.offsets[name] = map[string]int64{}
		x.topicIDs[name] = createTopic(t, adm, 2, 3, map[string]*string{"min.insync.replicas": &two}, x.of(name).topic)
	}
	return x
}

func (x *txnClients) of(name string) stepsOf {
	return stepsOf{id: name, topic: "steps-" + name, topicID: x.topicIDs[name], timeout: time.Minute}
}

// start starts each client, with a time-out of its transactions.
func (x *txnClients) start(timeout time.Duration) map[string]stepper {
	x.t.Helper()
	all := map[string]stepper{}
	for _, name := range x.names {
		of := x.of(name)
		of.timeout = timeout
		all[name] = x.starts[name](of)
	}
	return all
}

// coordinator returns the broker that coordinates the transactions.
func (x *txnClients) coordinator() *harness.Broker {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if c := x.adm.FindTxnCoordinators(ctx, x.names[0])[x.names[0]]; c.Err == nil {
			return x.cluster.Brokers[c.NodeID-1]
		}
	}
	x.t.Fatal("no coordinator within a minute")
	return nil
}

// take has each client take a step, within which the coordinator is killed: before it if
// after is zero, and otherwise so long after the step has begun. All replicas are in
// sync when it ends. It returns the words of each client's step, and its answer.
func (x *txnClients) take(
	clients map[string]stepper, after time.Duration, step string,
) (words map[string][]string, answers map[string]string) {
	x.t.Helper()
	b := x.coordinator()
	words, answers = map[string][]string{}, map[string]string{}
	for _, name := range x.names {
		words[name] = strings.Fields(step)
		if words[name][0] == "offsets" {
			words[name] = append(words[name], x.group(name, b))
		}
	}
	if after == 0 {
		b.Kill()
	}
	began := time.Now()
	for _, name := range x.names {
		clients[name].Tell(words[name]...)
	}
	if after > 0 {
		<-time.After(after)
		b.Kill()
	}
	for _, name := range x.names {
		answers[name] = clients[name].Next(stepTimeout)
	}
	x.downs = append(x.downs, time.Since(began))
	x.t.Logf("%s, without the coordinator: %v", step, time.Since(began))
	b.Restart()
	x.awaitInSync()
	return words, answers
}

// group returns a new group of a client that has the same coordinator as the
// transactions, so that it loses both. For librdkafka it has another: what it caches of a
// group's coordinator stays the broker that went away, also after it has dropped that
// from the brokers that it knows, and it waits for it for ever (librdkafka's issue 5511).
func (x *txnClients) group(name string, coordinator *harness.Broker) string {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		group := fmt.Sprintf("%s-%d-%d", name, len(x.offsets[name]), i)
		c := x.adm.FindGroupCoordinators(ctx, group)[group]
		if c.Err == nil && (x.cluster.Brokers[c.NodeID-1] == coordinator) == (name != "librdkafka") {
			return group
		}
	}
	x.t.Fatalf("%s: no group with the coordinator that it should have", name)
	return ""
}

// awaitInSync waits until another coordinator can be killed.
func (x *txnClients) awaitInSync() {
	x.t.Helper()
	topics := []string{"__transaction_state"}
	for _, name := range x.names {
		topics = append(topics, x.of(name).topic)
	}
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	awaitInSync(ctx, x.t, x.cluster.Addrs(), topics...)
}

// steps has each client take steps, all of which have to go well.
func (x *txnClients) steps(clients map[string]stepper, after time.Duration, steps ...string) {
	x.t.Helper()
	open := map[string][][]string{}
	for _, step := range steps {
		if step == "begin" { // Of which no broker hears.
			x.tell(clients, step)
			continue
		}
		words, answers := x.take(clients, after, step)
		for _, name := range x.names {
			if answers[name] != "ok" {
				x.t.Fatalf("%s, %s: %s", name, step, answers[name])
			}
			open[name] = append(open[name], words[name])
			if step == "commit" || step == "abort" {
				x.ended(name, open[name], step == "commit")
				open[name] = nil
			}
		}
	}
}

// ask has each client take a step, with all brokers there, and returns their answers.
func (x *txnClients) ask(clients map[string]stepper, step string) map[string]string {
	x.t.Helper()
	answers := map[string]string{}
	for _, name := range x.names {
		clients[name].Tell(step)
		answers[name] = clients[name].Next(stepTimeout)
	}
	return answers
}

// tell is ask for a step that has to go well.
func (x *txnClients) tell(clients map[string]stepper, step string) {
	x.t.Helper()
	for name, answer := range x.ask(clients, step) {
		if answer != "ok" {
			x.t.Fatalf("%s, %s: %s", name, step, answer)
		}
	}
}

// ended notes what a transaction has come to.
func (x *txnClients) ended(name string, steps [][]string, committed bool) {
	x.t.Helper()
	for _, words := range steps {
		switch words[0] {
		case "offsets":
			const none = -1 // Of a group that has committed nothing.
			offset := int64(none)
			if committed {
				var err error
				if offset, err = strconv.ParseInt(words[2], 10, 64); err != nil {
					x.t.Fatal(err)
				}
			}
			x.offsets[name][words[3]] = offset
		case "send":
			if committed {
				x.committed[name] = append(x.committed[name], words[2])
			}
		}
	}
}

// refused checks that a step did not go well.
func (x *txnClients) refused(step string, answers map[string]string) {
	x.t.Helper()
	for _, name := range x.names {
		if answers[name] == "ok" {
			x.t.Errorf("%s, %s: it went well", name, step)
		}
		x.t.Logf("%s, %s: %s", name, step, answers[name])
	}
}

// awaitClosed waits until no transaction is open: until readers of what is committed can
// read all that there is.
func (x *txnClients) awaitClosed(limit time.Duration) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), limit)
	defer cancel()
	for _, name := range x.names {
		for topic := x.of(name).topic; x.open(ctx, topic); {
			if ctx.Err() != nil {
				x.t.Fatalf("%s: a transaction is open after %v", name, limit)
			}
		}
	}
}

// open reports whether a transaction is open in a topic.
func (x *txnClients) open(ctx context.Context, topic string) bool {
	stable, err := x.adm.ListCommittedOffsets(ctx, topic)
	if err != nil || stable.Error() != nil {
		return true
	}
	ends, err := x.adm.ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		return true
	}
	open := false
	ends.Each(func(end kadm.ListedOffset) {
		at, ok := stable.Lookup(topic, end.Partition)
		open = open || !ok || at.Offset < end.Offset
	})
	return open
}

// check holds what can be read, and the offsets that groups have, against what was
// committed.
func (x *txnClients) check() {
	x.t.Helper()
	x.awaitClosed(time.Minute)
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	for _, name := range x.names {
		want, values := slices.Sorted(slices.Values(x.committed[name])), []string{}
		for _, r := range readAllCommitted(x.t, x.cluster.Addrs(), x.of(name).topic) {
			values = append(values, string(r.Value))
		}
		if slices.Sort(values); !slices.Equal(values, want) {
			x.t.Errorf("%s: committed is %v, read is %v", name, want, values)
		}
		for group, offset := range x.offsets[name] {
			offsets, err := x.adm.FetchOffsets(ctx, group)
			for ; err != nil && ctx.Err() == nil; offsets, err = x.adm.FetchOffsets(ctx, group) {
				<-time.After(20 * time.Millisecond) // Of connections that were closed.
			}
			if err != nil {
				x.t.Fatal(err)
			}
			got := int64(-1)
			if at, ok := offsets.Lookup(x.of(name).topic, 0); ok {
				got = at.At
			}
			if got != offset {
				x.t.Errorf("%s: the offset of group %s is %d, want %d", name, group, got, offset)
			}
		}
	}
}

// TestTransactionsByStep has clients of three families take transactions step by step,
// and kills the coordinator between every two steps; with more rounds, within them too.
func TestTransactionsByStep(t *testing.T) {
	x := newTxnClients(t)
	clients := x.start(time.Minute)
	x.steps(clients, 0, "init")
	for i := range rounds(t, 1) {
		value := func(s string) string { return fmt.Sprintf("%d-%s", i, s) }
		x.steps(clients, time.Duration(i)*3*time.Millisecond,
			"begin", "send 0 "+value("a"), "send 1 "+value("b"), "offsets 0 1", "commit",
			"begin", "send 0 "+value("lost"), "offsets 0 2", "abort",
			"begin", "send 1 "+value("c"), "offsets 0 3", "commit")
		x.check()
	}

	// A second instance fences the first, which has a transaction open.
	x.steps(clients, 0, "begin", "send 0 zombie")
	next := x.start(time.Minute)
	x.steps(next, 0, "init")
	_, answers := x.take(clients, 0, "commit")
	x.refused("commit of the first", answers)
	x.steps(next, 0, "begin", "send 0 next", "commit")
	x.check()

	// A transaction whose time is up is aborted, also by a coordinator that is new.
	const timeout = 3 * time.Second
	late := x.start(timeout)
	x.steps(late, 0, "init")
	x.tell(late, "begin")
	x.tell(late, "send 0 late")
	b, began := x.coordinator(), time.Now()
	b.Kill()
	x.awaitClosed(timeout + 20*time.Second)
	t.Logf("transactions of %v were aborted %v after their coordinator was killed", timeout, time.Since(began))
	b.Restart()
	x.awaitInSync()
	x.refused("commit when its time is up", x.ask(late, "commit"))
	x.check()

	slices.Sort(x.downs)
	t.Logf("%d kills of the coordinator; a step of all clients took: median %v, most %v",
		len(x.downs)+1, x.downs[len(x.downs)/2], x.downs[len(x.downs)-1])
}
