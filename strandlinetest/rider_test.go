package strandlinetest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/history"
)

// rider is an idempotent producer and a consumer that go on while the cluster breaks,
// and what they saw.
type rider struct {
	t       *testing.T
	cluster *strandlinetest.Cluster
	topic   string
	history *history.History
	stop    context.CancelFunc
	clients sync.WaitGroup
	acked   chan struct{} // Has a token after an acknowledgement.
	// parts are the topic's partitions.
	parts   int32
	readers int // Beside its own consumer, so far.
}

// ride creates a topic with a replica on each of three nodes, of which two must have a
// record, and begins.
func ride(t *testing.T, c *strandlinetest.Cluster, topic string, partitions int32, configs ...string) *rider {
	t.Helper()
	r := watch(t, c, topic, partitions, configs...)
	r.history.Sender = func(history.Value) uint64 { return 0 } // There is one producer.
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	t.Cleanup(r.end)
	r.clients.Go(func() { r.produce(ctx) })
	r.clients.Go(func() { r.consume(ctx) })
	r.awaitMore(50)
	return r
}

// watch is ride without clients.
func watch(t *testing.T, c *strandlinetest.Cluster, topic string, partitions int32, configs ...string) *rider {
	t.Helper()
	r := &rider{
		t: t, cluster: c, topic: topic, parts: partitions, history: history.New(),
		acked: make(chan struct{}, 1), stop: func() {},
	}
	replicas := min(3, len(c.Addrs()))
	all := map[string]*string{
		"min.insync.replicas": kadm.StringPtr(strconv.Itoa(min(2, replicas))),
		"segment.bytes":       kadm.StringPtr("1048576"),
	}
	more := map[string]*string{}
	for i := 0; i+1 < len(configs); i += 2 {
		more[configs[i]] = &configs[i+1]
	}
	maps.Copy(all, more)
	if _, err := admin(t, c).CreateTopic(t.Context(), partitions, int16(replicas), all, topic); err != nil {
		t.Fatal(err)
	}
	return r
}

// dial makes a client that gives a broker up that hangs.
func dial(t *testing.T, c *strandlinetest.Cluster, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF(), kgo.ProduceRequestTimeout(time.Second),
		kgo.RequestTimeoutOverhead(time.Second), kgo.MetadataMinAge(20 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

func admin(t *testing.T, c *strandlinetest.Cluster) *kadm.Client {
	t.Helper()
	adm := kadm.NewClient(dial(t, c))
	t.Cleanup(adm.Close)
	return adm
}

func (r *rider) produce(ctx context.Context) {
	cl := dial(r.t, r.cluster, kgo.DefaultProduceTopic(r.topic), kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(100), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer cl.Close()
	const pace = time.Millisecond
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for n := uint64(1); ctx.Err() == nil; n++ {
		value := append(binary.BigEndian.AppendUint64(nil, n), make([]byte, n%300)...)
		cl.Produce(ctx, &kgo.Record{Value: value}, func(rec *kgo.Record, err error) {
			switch {
			case err == nil:
				r.note(rec)
			case !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed):
				r.t.Errorf("produce: %v", err)
			}
		})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func valueOf(rec *kgo.Record) history.Value { return history.Value(binary.BigEndian.Uint64(rec.Value)) }

func placeOf(rec *kgo.Record) history.Place {
	return history.Place{Partition: rec.Partition, Offset: rec.Offset}
}

// note takes an acknowledgement.
func (r *rider) note(rec *kgo.Record) {
	r.history.Acked(valueOf(rec), placeOf(rec), time.Now())
	select {
	case r.acked <- struct{}{}:
	default:
	}
}

func (r *rider) consume(ctx context.Context) {
	cl := dial(r.t, r.cluster, kgo.ConsumeTopics(r.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for ctx.Err() == nil {
		for rec := range cl.PollFetches(ctx).RecordsAll() {
			r.history.Read("rider", placeOf(rec), valueOf(rec))
		}
	}
}

// awaitMore waits until n more records are acknowledged.
func (r *rider) awaitMore(n int) {
	r.t.Helper()
	tooLong := time.NewTimer(40 * time.Second)
	defer tooLong.Stop()
	for want := r.history.AckedCount() + n; r.history.AckedCount() < want; {
		select {
		case <-r.acked:
		case <-tooLong.C:
			r.t.Fatalf("no %d more acknowledgements within 40 s", n)
		}
	}
}

// end stops the clients.
func (r *rider) end() {
	r.stop()
	r.clients.Wait()
}

// check stops the clients and holds all that they saw against the logs, which it reads
// as a consumer does, and then, with all nodes stopped, as they are on the disks of the
// first three.
func (r *rider) check() {
	r.t.Helper()
	r.end()
	r.cluster.AwaitInSync()
	r.readAll()
	r.compareReplicas()
	r.verdict()
	r.t.Logf("%d acknowledged records", r.history.AckedCount())
}

// compareReplicas stops all nodes and notes what is on the disks of the first three.
func (r *rider) compareReplicas() {
	r.t.Helper()
	dirs := map[int32]string{}
	for p := range r.parts {
		dirs[p] = r.cluster.LogDir(r.topic, p)
	}
	for id := range r.cluster.Addrs() {
		r.cluster.Stop(id + 1)
	}
	for p, dir := range dirs {
		for id := 1; id <= min(3, len(r.cluster.Addrs())); id++ {
			const all = 1 << 62 // All is acknowledged by now.
			r.history.Replica(id, p, all, r.cluster.Segments(id, dir))
		}
	}
}

// verdict says what is wrong with what was noted.
func (r *rider) verdict() {
	r.t.Helper()
	const most = 20
	found := r.history.Check()
	for i, v := range found {
		if i == most {
			r.t.Errorf("and %d more", len(found)-most)
			break
		}
		r.t.Error(v)
	}
}

// readAll reads the topic from its start to its end.
func (r *rider) readAll() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cl := dial(r.t, r.cluster, kgo.ConsumeTopics(r.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, r.topic)
	if err != nil || starts.Error() != nil {
		r.t.Fatal(errors.Join(err, starts.Error()))
	}
	ends, err := adm.ListEndOffsets(ctx, r.topic)
	for err == nil && errors.Is(ends.Error(), kerr.OffsetNotAvailable) { // A leader has just been elected.
		ends, err = adm.ListEndOffsets(ctx, r.topic)
	}
	if err != nil || ends.Error() != nil {
		r.t.Fatal(errors.Join(err, ends.Error()))
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	starts.Each(func(o kadm.ListedOffset) { left -= o.Offset })
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			r.t.Fatal(fmt.Errorf("%d records before the end: %w", left, err))
		}
		for rec := range fetches.RecordsAll() {
			r.history.Final(placeOf(rec), valueOf(rec))
			left--
		}
	}
}

// readSome reads from the start on until it has seen as many records.
func (r *rider) readSome(name string, want int) {
	cl := dial(r.t, r.cluster, kgo.ConsumeTopics(r.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for n := 0; n < want && r.t.Context().Err() == nil; {
		for rec := range cl.PollFetches(r.t.Context()).RecordsAll() {
			r.history.Read(name, placeOf(rec), valueOf(rec))
			n++
		}
	}
}
