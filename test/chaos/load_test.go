// Package chaos_test breaks real broker processes under load and checks what
// clients were promised: no acknowledged record is lost, offsets are dense and
// in order, and an idempotent producer's record is there once.
package chaos_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

// load is a set of idempotent producers that write numbered records until they
// are stopped, and the history of what was acknowledged.
type load struct {
	t     *testing.T
	addrs []string
	topic string
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex
	acked map[uint64]place
	sent  uint64
	// last is when a partition was last acknowledged something, and gaps the longest
	// time without.
	last map[int32]time.Time
	gaps map[int32]time.Duration
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
	l := &load{
		t: t, addrs: addrs, topic: topic, stop: cancel, acked: map[uint64]place{},
		last: map[int32]time.Time{}, gaps: map[int32]time.Duration{},
	}
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	// Small segments, so that faults meet rolls as well.
	small := "1048576" // The least there is.
	all := map[string]*string{"segment.bytes": &small}
	maps.Copy(all, configs)
	if _, err := adm.CreateTopic(ctx, partitions, int16(len(addrs)), all, topic); err != nil {
		t.Fatalf("create topic: %v", err)
	}
	for i := range producers {
		l.done.Add(1)
		go l.produce(ctx, i) // Ends with stop.
	}
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) produce(ctx context.Context, id int) {
	defer l.done.Done()
	// A broker that hangs is given up after two seconds; by itself the client waits for
	// twenty.
	cl, err := kgo.NewClient(kgo.SeedBrokers(l.addrs...), kgo.DefaultProduceTopic(l.topic),
		kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second),
		kgo.ProducerLinger(time.Millisecond), kgo.MaxBufferedRecords(500), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		l.t.Error(err)
		return
	}
	defer cl.Close()
	for n := uint64(0); ctx.Err() == nil; n++ {
		value := binary.BigEndian.AppendUint64(nil, uint64(id)<<48|n)
		value = append(value, make([]byte, n%700)...)
		cl.Produce(ctx, &kgo.Record{Value: value}, func(r *kgo.Record, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sent++
			switch {
			case err == nil:
				l.acked[binary.BigEndian.Uint64(r.Value)] = place{r.Partition, r.Offset}
				l.noteGapLocked(r.Partition, time.Now())
			case !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed):
				l.t.Errorf("produce: %v", err)
			}
		})
	}
}

func (l *load) noteGapLocked(partition int32, now time.Time) {
	if last, ok := l.last[partition]; ok {
		l.gaps[partition] = max(l.gaps[partition], now.Sub(last))
	}
	l.last[partition] = now
}

// takeGap returns the longest time that a partition was without an acknowledgement
// since the last call.
func (l *load) takeGap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var longest time.Duration
	for p, gap := range l.gaps {
		longest = max(longest, gap)
		delete(l.gaps, p)
	}
	return longest
}

// end stops the producers and waits for them.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// count returns how many records were acknowledged so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

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

// verify reads the whole topic and holds it against the history. It returns how
// many acknowledged records it checked.
func (l *load) verify() int {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	at, values := readAll(ctx, l.t, l.addrs, l.topic)
	for value, where := range values {
		if len(where) > 1 {
			l.t.Errorf("record %x stands at %v: an idempotent producer's record may stand once", value, where)
		}
	}
	lost := 0
	for value, p := range l.acked {
		got, ok := at[p]
		if ok && got == value {
			continue
		}
		if lost++; lost <= 10 {
			l.t.Errorf("record %x was acknowledged at %d/%d, where there is %s", value, p.partition, p.offset,
				describe(got, ok))
		}
	}
	if lost > 0 {
		l.t.Errorf("%d of %d acknowledged records are lost", lost, len(l.acked))
	}
	return len(l.acked)
}

func describe(value uint64, ok bool) string {
	if !ok {
		return "nothing"
	}
	return fmt.Sprintf("record %x", value)
}

// readAll consumes a topic from start to end and fails on a gap.
func readAll(ctx context.Context, t *testing.T, addrs []string, topic string) (map[place]uint64, map[uint64][]place) {
	t.Helper()
	at, values := map[place]uint64{}, map[uint64][]place{}
	for _, r := range readRecords(ctx, t, addrs, topic) {
		p, v := place{r.Partition, r.Offset}, binary.BigEndian.Uint64(r.Value)
		at[p] = v
		values[v] = append(values[v], p)
	}
	return at, values
}

// readRecords is readAll for records of any kind.
func readRecords(ctx context.Context, t *testing.T, addrs []string, topic string) []*kgo.Record {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic),
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
