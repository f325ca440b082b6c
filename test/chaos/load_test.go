// Package chaos_test breaks real broker processes under load and checks what
// clients were promised: no acknowledged record is lost, offsets are dense and
// in order, and an idempotent producer's record is there once.
package chaos_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/test/harness"
	"github.com/strandline/strandline/test/history"
)

// rounds returns how often a fault is repeated: what the environment says, or
// the given number.
func rounds(t *testing.T, otherwise int) int {
	t.Helper()
	s := os.Getenv("STRANDLINE_CHAOS_ROUNDS")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("STRANDLINE_CHAOS_ROUNDS=%q: %v", s, err)
	}
	return n
}

// place is where a record was acknowledged.
type place struct {
	partition int32
	offset    int64
}

// load is a set of idempotent producers that write numbered records until they are
// stopped, a consumer that reads along, and the history of what they saw.
type load struct {
	t       *testing.T
	addrs   []string
	topic   string
	topicID string // In hexadecimal digits, as in the names of directories.
	history *history.History
	pause   atomic.Int64 // Between the records of a producer, in nanoseconds.
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// startLoad creates the topic and starts the producers.
func startLoad(t *testing.T, addr, topic string, partitions int32, producers int) *load {
	t.Helper()
	return startLoadOn(t, []string{addr}, topic, partitions, producers, nil)
}

// startLoadOn is startLoad for a cluster: a topic has as many replicas as there are
// addresses.
func startLoadOn(
	t *testing.T, addrs []string, topic string, partitions int32, producers int, configs map[string]*string,
) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, addrs: addrs, topic: topic, stop: cancel, history: history.New()}
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	l.history.Sender = func(v history.Value) uint64 { return uint64(v) >> producerShift }
	// Small segments, so that faults meet rolls as well.
	small := "1048576" // The least there is.
	all := map[string]*string{"segment.bytes": &small}
	maps.Copy(all, configs)
	id := createTopic(t, adm, partitions, int16(len(addrs)), all, topic)
	l.topicID = hex.EncodeToString(id[:])
	for i := range producers {
		l.done.Add(1)
		go l.produce(ctx, i) // Ends with stop.
	}
	l.done.Go(func() { l.consume(ctx) })
	t.Cleanup(func() { l.end() })
	return l
}

// createTopic creates a topic, once as many brokers as it needs have joined.
func createTopic(
	t *testing.T, adm *kadm.Client, partitions int32, replicas int16, configs map[string]*string, topic string,
) kadm.TopicID {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(20 * time.Millisecond) {
		created, err := adm.CreateTopic(t.Context(), partitions, replicas, configs, topic)
		if err == nil {
			return created.ID
		}
		if !errors.Is(err, kerr.InvalidReplicationFactor) || time.Now().After(end) {
			t.Fatalf("create topic: %v", err)
		}
	}
}

// producerShift is how far up in a value the number of its producer is; below it, values
// rise.
const producerShift = 48

func (l *load) produce(ctx context.Context, id int) {
	defer l.done.Done()
	// A broker that hangs is given up after 1.6 seconds, when others have begun to lead, and
	// after 0.4 if it is asked who leads; by itself the client waits for twenty and ten.
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addrs...), kgo.AlwaysRetryEOF(), kgo.DefaultProduceTopic(l.topic),
		kgo.ProduceRequestTimeout(1200*time.Millisecond), kgo.RequestTimeoutOverhead(400*time.Millisecond),
		kgo.DialTimeout(time.Second), kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(500), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer cl.Close()
	for n := uint64(0); ctx.Err() == nil; n++ {
		if pause := time.Duration(l.pause.Load()); pause > 0 {
			<-time.After(pause)
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(id)<<producerShift|n)
		value = append(value, make([]byte, n%700)...)
		cl.Produce(ctx, &kgo.Record{Value: value}, func(r *kgo.Record, err error) {
			switch {
			case err == nil:
				l.history.Acked(valueOf(r), placeOf(r), time.Now())
			case !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed):
				l.t.Errorf("produce: %v", err)
			}
		})
	}
}

func valueOf(r *kgo.Record) history.Value { return history.Value(binary.BigEndian.Uint64(r.Value)) }

func placeOf(r *kgo.Record) history.Place {
	return history.Place{Partition: r.Partition, Offset: r.Offset}
}

// consume reads along.
func (l *load) consume(ctx context.Context) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addrs...), kgo.AlwaysRetryEOF(), kgo.ConsumeTopics(l.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RequestTimeoutOverhead(time.Second), kgo.FetchMaxWait(500*time.Millisecond), kgo.DialTimeout(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		for r := range cl.PollFetches(ctx).RecordsAll() {
			l.history.Read("the reader along", placeOf(r), valueOf(r))
		}
	}
}

// slow has each producer pause after each record: others are to have most of the machine.
func (l *load) slow(pause time.Duration) { l.pause.Store(int64(pause)) }

// takeGap returns the longest time that a partition was without an acknowledgement
// since the last call.
func (l *load) takeGap() time.Duration { return l.history.TakeGap(time.Now()) }

// end stops the producers and waits for them.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// count returns how many records were acknowledged so far.
func (l *load) count() int { return l.history.AckedCount() }

// awaitMore waits until n more records are acknowledged: the broker is up and
// under load again.
func (l *load) awaitMore(n int) {
	l.t.Helper()
	want, end := l.count()+n, time.Now().Add(60*time.Second)
	for l.count() < want {
		if time.Now().After(end) {
			l.t.Fatalf("no %d more acknowledgements within a minute", n)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// awaitEach waits until every partition has acknowledged something since a moment.
func (l *load) awaitEach(since time.Time) {
	l.t.Helper()
	for end := time.Now().Add(60 * time.Second); l.history.LastAck().Before(since); {
		if time.Now().After(end) {
			l.t.Fatal("a partition has acknowledged nothing for a minute")
		}
		<-time.After(2 * time.Millisecond)
	}
}

// compareReplicas holds what is on the disks of brokers that have stopped against each
// other.
func (l *load) compareReplicas(c *harness.Cluster) {
	l.t.Helper()
	noteReplicas(l.t, c, l.topicID, l.history)
	report(l.t, l.history)
}

// noteReplicas notes what is on the disks of brokers that have stopped.
func noteReplicas(t *testing.T, c *harness.Cluster, topicID string, h *history.History) {
	t.Helper()
	for i, b := range c.Brokers {
		for partition, log := range replicasOf(t, b.DataDir, topicID) {
			const all = 1 << 62 // With the load ended, all is acknowledged.
			h.Replica(i+1, partition, all, log)
		}
	}
}

// replicasOf returns the logs of a topic in a data directory, by partition.
func replicasOf(t *testing.T, dataDir, topicID string) map[int32][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dataDir, "topics", topicID+"-*", "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no segments of topic %s below %s: %v", topicID, dataDir, err)
	}
	logs := map[int32][]byte{}
	for _, name := range names { // Sorted by directory and base offset.
		_, number, _ := strings.Cut(filepath.Base(filepath.Dir(name)), "-")
		partition, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		segment, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		logs[int32(partition)] = append(logs[int32(partition)], segment...)
	}
	return logs
}

// verifyTimeout bounds a look at everything.
const verifyTimeout = 2 * time.Minute

// verify waits until all replicas are in sync, reads the whole topic and holds it against
// the history. It returns how many acknowledged records it checked.
func (l *load) verify() int {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
	defer cancel()
	awaitInSync(ctx, l.t, l.addrs, l.topic)
	return l.verifyRest()
}

// verifyRest is verify where brokers are gone for good.
func (l *load) verifyRest() int {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), verifyTimeout)
	defer cancel()
	l.history.Forget()
	for _, r := range readRecords(ctx, l.t, l.addrs, l.topic) {
		l.history.Final(placeOf(r), valueOf(r))
	}
	report(l.t, l.history)
	return l.count()
}

// awaitInSync waits until every replica of topics is in sync: what a broker that was cut
// off has alone is gone then.
func awaitInSync(ctx context.Context, t *testing.T, addrs []string, names ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for ; ; <-ticker.C {
		topics, err := kadm.NewClient(cl).ListTopics(kadm.WithAuthorizedOps(ctx), names...) // So asked, it is not from a cache.
		if ctx.Err() != nil {
			t.Fatalf("not all replicas are in sync: %v, %v", topics, err)
		}
		missing := err != nil
		for _, name := range names {
			missing = missing || topics[name].Err != nil || len(topics[name].Partitions) == 0
			for _, p := range topics[name].Partitions {
				missing = missing || len(p.ISR) < len(p.Replicas)
			}
		}
		if !missing {
			return
		}
	}
}

// report fails the test for what is wrong with a history.
func report(t *testing.T, h *history.History) {
	t.Helper()
	const most = 20
	found := h.Check()
	for i, v := range found {
		if i == most {
			t.Errorf("and %d more", len(found)-most)
			break
		}
		t.Error(v)
	}
}

// readRecords reads a topic from start to end and fails on a gap.
func readRecords(ctx context.Context, t *testing.T, addrs []string, topic string) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatalf("list end offsets: %v %v", err, ends.Error())
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	var all []*kgo.Record
	next := map[int32]int64{}
	for int64(len(all)) < total {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(all), total, err)
		}
		for r := range fs.RecordsAll() {
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d follows %d", r.Partition, r.Offset, next[r.Partition]-1)
			}
			next[r.Partition]++
			all = append(all, r)
		}
	}
	return all
}
