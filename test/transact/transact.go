// Package transact is clients with transactions that go on while brokers break, and
// note in a history what they saw: producers, each of a transactional id, of which some
// are replaced by others of the same id all the time; members of a group that read
// records and write, in one transaction with their offsets, something made of them;
// and readers that are read_committed and read_uncommitted.
//
// All of them use one topic. Members of the group have sessions of two seconds, which
// brokers have to allow (group.min.session.timeout.ms). The topic is to be judged with the
// rules of package history, for which Verify reads it when no fault is left.
package transact

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline/strandline/test/history"
)

// Options say who does what.
type Options struct {
	Addrs      []string
	Topic      string // Which exists.
	Partitions int32
	Producers  int // Of a transactional id each.
	Contested  int // Transactional ids that two producers take from each other.
	Transforms int // Members that make records of records.
}

// Load is clients that go on until End.
type Load struct {
	Options
	History *history.History

	t         testing.TB
	stop      context.CancelFunc
	clients   sync.WaitGroup
	committed chan struct{} // Has a token after a commit.
	value     atomic.Uint64
	commits   atomic.Int64
	aborts    atomic.Int64
	sessions  atomic.Int64

	transforming context.CancelFunc
	transforms   sync.WaitGroup
}

// Start has the clients begin; they end with the test, or by Verify.
func Start(t testing.TB, o Options) *Load {
	t.Helper()
	l := &Load{Options: o, History: history.New(), t: t, committed: make(chan struct{}, 1)}
	l.History.Markers = true
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	var transforming context.Context
	transforming, l.transforming = context.WithCancel(t.Context())
	t.Cleanup(l.end)
	for i := range o.Producers {
		l.clients.Go(func() { l.produce(ctx, fmt.Sprint("producer-", i), uint64(i)) })
	}
	for i := range o.Contested {
		for k := range 2 {
			l.clients.Go(func() { l.produce(ctx, fmt.Sprint("contested-", i), uint64(100+2*i+k)) })
		}
	}
	for i := range o.Transforms {
		l.transforms.Go(func() { l.transform(transforming, i) })
	}
	l.clients.Go(func() { l.readAlong(ctx, "the committed reader", true) })
	l.clients.Go(func() { l.readAlong(ctx, "the uncommitted reader", false) })
	if o.Transforms > 0 {
		l.clients.Go(func() { l.lookUp(ctx) })
	}
	return l
}

// end stops all clients.
func (l *Load) end() {
	l.stop()
	l.clients.Wait()
	l.transforming()
	l.transforms.Wait()
}

// Summary says what was done so far.
func (l *Load) Summary() string {
	return fmt.Sprintf("%d transactions committed, %d aborted, by %d producers; %d acknowledged records",
		l.commits.Load(), l.aborts.Load(), l.sessions.Load(), l.History.AckedCount())
}

// AwaitMore waits until n more transactions are committed.
func (l *Load) AwaitMore(n int) {
	l.t.Helper()
	const patience = time.Minute
	tooLong := time.NewTimer(patience)
	defer tooLong.Stop()
	for want := l.commits.Load() + int64(n); l.commits.Load() < want; {
		select {
		case <-l.committed:
		case <-tooLong.C:
			l.t.Fatalf("no %d more transactions were committed within %v", n, patience)
		}
	}
}

// ended notes how a transaction ended.
func (l *Load) ended(x *history.Txn, o history.Outcome) {
	x.Ended(o)
	switch o {
	case history.WasAborted:
		l.aborts.Add(1)
	case history.WasCommitted:
		l.commits.Add(1)
		select {
		case l.committed <- struct{}{}:
		default:
		}
	}
}

// A broker that hangs is given up after two seconds.
const patienceWithABroker = time.Second

// dial returns the options of a client that does not wait for long.
func (l *Load) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(l.Addrs...), kgo.AlwaysRetryEOF(), kgo.DialTimeout(patienceWithABroker),
		kgo.ProduceRequestTimeout(patienceWithABroker), kgo.RequestTimeoutOverhead(patienceWithABroker),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
	}, more...)
}

// transactional returns the options of a producer. Every other uses transactions of
// version 1, where an epoch is that of many transactions.
func (l *Load) transactional(id string, old bool) []kgo.Opt {
	const timeout = 10 * time.Second // Until what a producer left open is aborted.
	options := l.options(kgo.TransactionalID(id), kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if old {
		options = append(options, kgo.MaxVersions(kversion.V3_9_0()))
	}
	return options
}

// client makes a client, which never fails with options as they are here.
//
// It ends with ctx, as some of its waits know of no other end.
func (l *Load) client(ctx context.Context, options ...kgo.Opt) (cl *kgo.Client, done func()) {
	cl, err := kgo.NewClient(options...)
	if err != nil {
		l.t.Error(err)
	}
	return cl, closing(ctx, cl.Close)
}

// closing has something be closed once, when ctx ends or by what it returns.
func closing(ctx context.Context, closes func()) (done func()) {
	once := sync.OnceFunc(closes)
	stop := context.AfterFunc(ctx, once)
	return func() {
		stop()
		once()
	}
}

// record returns a record that is no other's, made of another or of none.
func (l *Load) record(from history.Value, random *rand.Rand) (history.Value, *kgo.Record) {
	v := history.Value(l.value.Add(1))
	value := binary.BigEndian.AppendUint64(nil, uint64(v))
	value = binary.BigEndian.AppendUint64(value, uint64(from))
	return v, &kgo.Record{
		Topic: l.Topic, Partition: random.Int32N(l.Partitions), Value: append(value, make([]byte, random.IntN(300))...),
	}
}

func valueOf(r *kgo.Record) history.Value { return history.Value(binary.BigEndian.Uint64(r.Value)) }

// fromOf returns what a record was made of, or 0.
func fromOf(r *kgo.Record) history.Value { return history.Value(binary.BigEndian.Uint64(r.Value[8:])) }

func placeOf(r *kgo.Record) history.Place {
	return history.Place{Partition: r.Partition, Offset: r.Offset}
}

// pause waits, as long as ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// took asks for a producer id, and notes the answer.
func (l *Load) took(ctx context.Context, cl *kgo.Client, id string) *history.Session {
	const patience = 15 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	producerID, producerEpoch, err := cl.ProducerID(ctx)
	if err != nil {
		return nil
	}
	l.sessions.Add(1)
	return l.History.Took(id, producerID, producerEpoch)
}
