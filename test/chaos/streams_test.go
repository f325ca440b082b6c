package chaos_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
)

// wordsPerKill is how long the text is for each kill, until it has a million words.
const (
	wordsPerKill = 50_000
	mostWords    = 1_000_000
)

// wordsOf splits a line as the Streams program does.
func wordsOf(line string) []string {
	return strings.FieldsFunc(strings.ToLower(line), func(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' })
}

// prose returns lines with so many words in all, and how often each word is there. The
// text is of two novels, The Adventures of Sherlock Holmes and The Adventures of Tom
// Sawyer, from the test data of a compressor that the product is built with; it begins
// again where it is too short.
func prose(t *testing.T, words int) (lines []string, counts map[string]int64) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/pierrec/lz4/v4").Output()
	if err != nil {
		t.Fatalf("find the text: %v", err)
	}
	var text []string
	for _, name := range []string{"pg1661.txt", "Mark.Twain-Tom.Sawyer.txt"} {
		book, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "fuzz", "corpus", name))
		if err != nil {
			t.Fatal(err)
		}
		for sc := bufio.NewScanner(strings.NewReader(string(book))); sc.Scan(); {
			if len(wordsOf(sc.Text())) > 0 {
				text = append(text, sc.Text())
			}
		}
	}
	counts = map[string]int64{}
	for i, n := 0, 0; n < words; i++ {
		line := text[i%len(text)]
		of := wordsOf(line)
		if left := words - n; len(of) > left {
			of = of[:left]
			line = strings.Join(of, " ")
		}
		for _, w := range of {
			counts[w]++
		}
		n += len(of)
		lines = append(lines, line)
	}
	return lines, counts
}

// counted is what a reader of committed counts has seen: the last count of each word.
// An application that counts each word once writes 1, 2, 3 and so on.
type counted struct {
	total atomic.Int64 // Of all words.

	mu     sync.Mutex
	counts map[string]int64
	wrong  []string
}

func (c *counted) read(r *kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word, n := string(r.Key), int64(binary.BigEndian.Uint64(r.Value))
	if last := c.counts[word]; n != last+1 {
		c.wrong = append(c.wrong, fmt.Sprintf("%q: count %d at %s-%d/%d follows %d", word, n, r.Topic, r.Partition, r.Offset, last))
	}
	c.counts[word] = n
	c.total.Add(1)
}

// check holds what was counted against what is right.
func (c *counted) check(t *testing.T, topic string, want map[string]int64) {
	t.Helper()
	const most = 20
	for i, w := range c.wrong {
		if i == most {
			t.Errorf("%s: and %d more", topic, len(c.wrong)-most)
			break
		}
		t.Errorf("%s: %s", topic, w)
	}
	bad := 0
	for word, n := range want {
		if c.counts[word] != n {
			if bad++; bad <= most {
				t.Errorf("%s: %q is counted %d times, and there %d times", topic, word, c.counts[word], n)
			}
		}
	}
	if bad > 0 || len(c.counts) != len(want) {
		t.Errorf("%s: %d of %d words have a wrong count; %d words were counted", topic, bad, len(want), len(c.counts))
	}
}

// streamsApp is the application, which may be killed and started again.
type streamsApp struct {
	t         *testing.T
	classpath string
	addrs     []string
	state     string // Its directory.

	program *harness.Program
	said    chan string // What the program said when it failed; closed at its end.
}

func (a *streamsApp) start() {
	a.t.Helper()
	a.program = harness.StartJava(a.t, a.classpath, "WordCount", strings.Join(a.addrs, ","), a.state)
	a.said = make(chan string, 1)
	go func(lines <-chan string, said chan<- string) { // Ends with the program.
		defer close(said)
		for line := range lines {
			if strings.HasPrefix(line, "failed") {
				select {
				case said <- line:
				default:
				}
			}
		}
	}(a.program.Lines(), a.said)
}

// await waits until something is so while the application runs.
func (a *streamsApp) await(what string, limit time.Duration, so func() bool) {
	a.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(limit); !so(); {
		select {
		case why := <-a.said:
			a.t.Fatalf("the application ended before %s: %s", what, why)
		case <-ticker.C:
		}
		if time.Now().After(end) {
			a.t.Fatalf("not %s within %v", what, limit)
		}
	}
}

// end has the application end by itself.
func (a *streamsApp) end() {
	a.t.Helper()
	a.program.EndInput()
	select {
	case <-a.program.Ended():
	case <-time.After(time.Minute):
		a.t.Error("the application does not end within a minute")
	}
	if why, failed := <-a.said; failed {
		a.t.Errorf("the application ended badly: %s", why)
	}
}

// awaitTotal waits until so many words are counted.
func (a *streamsApp) awaitTotal(seen *counted, total int64) {
	a.t.Helper()
	a.await(fmt.Sprintf("%d words were counted", total), 2*time.Minute, func() bool { return seen.total.Load() >= total })
}

// feed writes the lines to a topic.
func feed(t *testing.T, addrs []string, topic string, lines []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, line := range lines {
		cl.Produce(t.Context(), kgo.StringRecord(line), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("feed: %v", err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// streamsCluster is three brokers, an application on them, and a reader of what it
// commits.
type streamsCluster struct {
	*harness.Cluster
	t    *testing.T
	adm  *kadm.Client
	seen *counted
	stop func() // Stops the reader.
	text []string
	want map[string]int64
}

// startStreams starts the brokers and the reader.
func startStreams(t *testing.T, words int) *streamsCluster {
	t.Helper()
	c := &streamsCluster{t: t, seen: &counted{counts: map[string]int64{}}}
	c.text, c.want = prose(t, words)
	c.Cluster = harness.StartCluster(t, harness.Binary(t), t.TempDir(), 3, "--set", "group.initial.rebalance.delay.ms=0")
	var err error
	if c.adm, err = kadm.NewOptClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.adm.Close)
	two := "2"
	for _, topic := range []string{"lines", "counts"} {
		createTopic(t, c.adm, 4, 3, map[string]*string{"min.insync.replicas": &two}, topic)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { // Ends with stop.
		readCommitted(ctx, t, c.Addrs(), "counts", func(r *kgo.Record) bool {
			if !r.Attrs.IsControl() {
				c.seen.read(r)
			}
			return true
		})
	})
	c.stop = func() { cancel(); reading.Wait() }
	t.Cleanup(c.stop)
	return c
}

// instance starts an instance of the application.
func (c *streamsCluster) instance(classpath string) *streamsApp {
	c.t.Helper()
	app := &streamsApp{t: c.t, classpath: classpath, addrs: c.Addrs(), state: filepath.Join(c.t.TempDir(), "state")}
	app.start()
	return app
}

// check holds what the application has come to against what is right.
func (c *streamsCluster) check() {
	c.t.Helper()
	c.stop()
	c.seen.check(c.t, "counts", c.want)
	for _, topic := range []string{"counts", "words-counts-changelog"} {
		all := &counted{counts: map[string]int64{}}
		for _, r := range readAllCommitted(c.t, c.Addrs(), topic) {
			all.read(r)
		}
		all.check(c.t, topic, c.want)
	}
	checkReplicated(c.t, c.adm, len(c.Brokers))
}

// TestStreams has an application of Kafka Streams count the words of a text, exactly
// once, while its brokers and it are killed in turn; every other time it comes back
// without what it had on its disk. Each count of each word must be there once.
func TestStreams(t *testing.T) {
	kills := rounds(t, 3)
	words := min(max(kills, 1)*wordsPerKill, mostWords)
	apart := int64(words / (kills + 1))
	classpath := harness.JavaClasspath(t, 5*time.Minute)
	c := startStreams(t, words)
	feed(t, c.Addrs(), "lines", c.text)
	began := time.Now()
	app := c.instance(classpath)
	for i := range kills {
		app.awaitTotal(c.seen, apart*int64(i+1))
		at := c.seen.total.Load()
		killed := time.Now()
		what := "the application"
		if i%2 == 0 {
			b := c.Brokers[i/2%3]
			what = fmt.Sprintf("broker %d", i/2%3+1)
			b.Kill()
			app.awaitTotal(c.seen, at+apart/3) // Without the broker.
			b.Restart()
		} else {
			app.program.Kill()
			if i%4 == 3 {
				what += " and its disk"
				if err := os.RemoveAll(app.state); err != nil {
					t.Fatal(err)
				}
			}
			app.start()
			app.awaitTotal(c.seen, at+apart/3)
		}
		t.Logf("kill %d, of %s, at %d words: %d more were counted %v later", i+1, what, at, apart/3, time.Since(killed))
	}
	app.awaitTotal(c.seen, int64(words))
	took := time.Since(began)
	app.end()
	c.check()
	t.Logf("%d words, %d of them different, counted in %v with %d kills", words, len(c.want), took, kills)
}

// TestStreamsZombie stops one of two instances of the application, for as long as the
// other takes to do all that was there, and lets it go on where it was: what it had under
// way must come to nothing, and with it they count the rest.
func TestStreamsZombie(t *testing.T) {
	const words = 60_000
	classpath := harness.JavaClasspath(t, 5*time.Minute)
	c := startStreams(t, words)
	half := len(c.text) / 2
	feed(t, c.Addrs(), "lines", c.text[:half])
	first, second := c.instance(classpath), c.instance(classpath)
	zombie := first
	zombie.awaitTotal(c.seen, 1000)
	zombie.program.Signal(syscall.SIGSTOP)
	before, stopped := int64(0), time.Now()
	for _, line := range c.text[:half] {
		before += int64(len(wordsOf(line)))
	}
	second.awaitTotal(c.seen, before)
	t.Logf("the other has done all alone %v after the first was stopped", time.Since(stopped))
	zombie.program.Signal(syscall.SIGCONT)
	feed(t, c.Addrs(), "lines", c.text[half:])
	zombie.awaitTotal(c.seen, words)
	second.end()
	zombie.end()
	c.check()
}

// checkReplicated checks that each topic has so many replicas: those of the
// application and of the coordinators, too.
func checkReplicated(t *testing.T, adm *kadm.Client, replicas int) {
	t.Helper()
	topics, err := adm.ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics.Sorted() {
		for _, p := range topic.Partitions.Sorted() {
			if len(p.Replicas) != replicas {
				t.Errorf("%s-%d has the replicas %v", topic.Topic, p.Partition, p.Replicas)
			}
		}
	}
	for _, name := range []string{"__consumer_offsets", "__transaction_state", "words-counts-changelog", "words-words-repartition"} {
		if !topics.Has(name) {
			t.Errorf("there is no topic %s: there are %v", name, topics.Names())
		}
	}
}
