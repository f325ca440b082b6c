package strandline_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

// transactional is a transactional producer.
type transactional struct {
	*kgo.Client
	t *testing.T
}

func newTransactional(t *testing.T, addrs []string, id string, opts ...kgo.Opt) *transactional {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionTimeout(time.Minute),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &transactional{client, t}
}

// oldVersions keeps a client to transactions of version 1.
func oldVersions() kgo.Opt {
	v := kversion.V3_9_0()
	return kgo.MaxVersions(v)
}

// produce begins a transaction and produces values to partitions of a topic.
func (p *transactional) produce(topic string, values ...string) {
	p.t.Helper()
	if err := p.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.send(topic, values...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *transactional) send(topic string, values ...string) error {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte(v)}
	}
	return p.ProduceSync(p.t.Context(), records...).FirstErr()
}

func (p *transactional) end(commit kgo.TransactionEndTry) {
	p.t.Helper()
	if err := p.EndTransaction(p.t.Context(), commit); err != nil {
		p.t.Fatalf("end the transaction: %v", err)
	}
}

// committed reads a topic of two partitions as read_committed sees it, to its end.
func committed(t *testing.T, addrs []string, topic string) []string {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addrs...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.KeepControlRecords(),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var values []string
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s is not read to its end: %v are left, read %v", topic, left, values)
		}
		fetches.EachError(func(_ string, _ int32, err error) { t.Fatal(err) })
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	slices.Sort(values)
	return values
}

// A commit is answered when nothing can undo it, which is before its markers are in
// every partition: expectCommitted reads again while something is missing.
func expectCommitted(t *testing.T, addrs []string, topic string, want ...string) {
	t.Helper()
	slices.Sort(want)
	got := committed(t, addrs, topic)
	for end := time.Now().Add(20 * time.Second); len(got) < len(want) && time.Now().Before(end); {
		got = committed(t, addrs, topic)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s: read_committed reads %v, want %v", topic, got, want)
	}
}

func createTopic(t *testing.T, addrs []string, topic string, replicas int16) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 2, replicas, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// TestTransactions: what is committed is read, what is aborted is not, and a producer
// that another has replaced can do nothing any more, for clients of both versions.
func TestTransactions(t *testing.T) {
	for _, version := range []struct {
		name string
		opts []kgo.Opt
	}{{"v1", []kgo.Opt{oldVersions()}}, {"v2", nil}} {
		t.Run(version.name, func(t *testing.T) {
			s := strandlinetest.Start(t)
			addrs := []string{s.Addr()}
			createTopic(t, addrs, "t", 1)
			p := newTransactional(t, addrs, "id", version.opts...)
			p.produce("t", "a", "b", "c")
			p.end(kgo.TryCommit)
			p.produce("t", "lost-1", "lost-2")
			p.end(kgo.TryAbort)
			p.produce("t", "d")
			p.end(kgo.TryCommit)
			expectCommitted(t, addrs, "t", "a", "b", "c", "d")

			p.produce("t", "lost-3")
			next := newTransactional(t, addrs, "id", version.opts...)
			next.produce("t", "e", "f")
			next.end(kgo.TryCommit)
			err := errors.Join(p.send("t", "lost-4"), p.EndTransaction(t.Context(), kgo.TryCommit))
			if err == nil {
				t.Error("a producer that was replaced went on")
			}
			next.produce("t", "g")
			next.end(kgo.TryCommit)
			expectCommitted(t, addrs, "t", "a", "b", "c", "d", "e", "f", "g")
		})
	}
}

// TestTransactionTimesOut: the transaction of a producer that is silent for too long is
// aborted, its offsets can be read past, and it is told so.
func TestTransactionTimesOut(t *testing.T) {
	s := strandlinetest.Start(t)
	addrs := []string{s.Addr()}
	createTopic(t, addrs, "t", 1)
	p := newTransactional(t, addrs, "id", kgo.TransactionTimeout(200*time.Millisecond))
	p.produce("t", "lost-1", "lost-2")
	other := newTransactional(t, addrs, "other")
	other.produce("t", "a", "b")
	other.end(kgo.TryCommit)
	for len(committed(t, addrs, "t")) < 2 {
		select {
		case <-t.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	expectCommitted(t, addrs, "t", "a", "b")
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("a transaction whose time was up was committed")
	}
}

// TestOffsetsInTransactions: a consumer that transforms and produces within
// transactions, a third of which it aborts, does so exactly once.
func TestOffsetsInTransactions(t *testing.T) {
	const records = 60
	s := strandlinetest.Start(t)
	addrs := []string{s.Addr()}
	createTopic(t, addrs, "in", 1)
	createTopic(t, addrs, "out", 1)
	feed := newTransactional(t, addrs, "feed")
	var want []string
	for i := range records {
		feed.produce("in", fmt.Sprintf("%02d", i))
		feed.end(kgo.TryCommit)
		want = append(want, fmt.Sprintf("%02d!", i))
	}
	for turn := 0; turn < 100 && len(committed(t, addrs, "out")) < records; turn++ {
		transform(t, addrs, turn)
	}
	expectCommitted(t, addrs, "out", want...)
}

// transform runs a consumer for a few transactions.
func transform(t *testing.T, addrs []string, turn int) {
	t.Helper()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(addrs...), kgo.TransactionalID("transform"), kgo.ConsumerGroup("g"),
		kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for i := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		fetches := session.PollRecords(ctx, 7)
		cancel()
		if err := session.Begin(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(t.Context(), &kgo.Record{Topic: "out", Value: []byte(string(r.Value) + "!")}, nil)
		})
		if _, err := session.End(t.Context(), kgo.TransactionEndTry((turn+i)%3 != 0)); err != nil {
			t.Fatalf("end: %v", err)
		}
	}
}

// TestTransactionsAreShown: what is open is listed and described.
func TestTransactionsAreShown(t *testing.T) {
	s := strandlinetest.Start(t)
	addrs := []string{s.Addr()}
	createTopic(t, addrs, "t", 1)
	p := newTransactional(t, addrs, "id")
	p.produce("t", "a")
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	listed, err := adm.ListTransactions(t.Context(), nil, []string{"Ongoing"})
	if err != nil || !slices.Equal(listed.TransactionalIDs(), []string{"id"}) {
		t.Fatalf("listed %v, %v", listed, err)
	}
	described, err := adm.DescribeTransactions(t.Context(), "id", "nobody")
	if err != nil || described["id"].State != "Ongoing" || !described["id"].Topics.Lookup("t", 0) {
		t.Errorf("described %+v, %v", described, err)
	}
	if !errors.Is(described["nobody"].Err, kerr.TransactionalIDNotFound) {
		t.Errorf("nobody: %v", described["nobody"].Err)
	}
}

// restarting is a broker that is stopped and started again at the same address.
type restarting struct {
	t      *testing.T
	config strandline.Config
	server *strandline.Server
}

func newRestarting(t *testing.T) *restarting {
	t.Helper()
	r := &restarting{t: t, config: strandline.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	}}
	r.start()
	r.config.Listen = r.server.Addr()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *restarting) start() {
	r.t.Helper()
	var err error
	if r.server, err = strandline.Start(r.t.Context(), r.config); err != nil {
		r.t.Fatal(err)
	}
}

func (r *restarting) stop() {
	if err := r.server.Close(); err != nil {
		r.t.Errorf("the broker ended badly: %v", err)
	}
}

func (r *restarting) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// TestTransactionsAcrossRestarts: the broker, which is coordinator and leader of all,
// is started anew between every two steps, and producers of both versions go on.
func TestTransactionsAcrossRestarts(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"v1": {oldVersions()}, "v2": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRestarting(t)
			addrs := []string{r.config.Listen}
			createTopic(t, addrs, "t", 1)
			p := newTransactional(t, addrs, "id", opts...)
			p.produce("t", "a")
			r.restart()
			if err := p.send("t", "b", "c"); err != nil {
				t.Fatal(err)
			}
			r.restart()
			p.end(kgo.TryCommit)
			r.restart()
			p.produce("t", "lost")
			r.restart()
			p.end(kgo.TryAbort)
			r.restart()
			p.produce("t", "d")
			p.end(kgo.TryCommit)
			r.restart()
			expectCommitted(t, addrs, "t", "a", "b", "c", "d")
		})
	}
}

// TestTransactionsInCluster: transactions over three brokers go on when one of them,
// which coordinates or leads some of it, has stopped.
func TestTransactionsInCluster(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	addrs := c.Addrs()
	createTopic(t, addrs, "t", 3)
	var want []string
	round := func(p *transactional, n int, opts ...string) {
		t.Helper()
		for i := range n {
			a, b := fmt.Sprintf("%s-%d-a", opts[0], i), fmt.Sprintf("%s-%d-b", opts[0], i)
			p.produce("t", a, b)
			if i%3 == 2 {
				p.end(kgo.TryAbort)
				continue
			}
			p.end(kgo.TryCommit)
			want = append(want, a, b)
		}
	}
	for name, opts := range map[string][]kgo.Opt{"v1": {oldVersions()}, "v2": nil} {
		p := newTransactional(t, addrs, name, opts...)
		round(p, 10, name)
	}
	p := newTransactional(t, addrs, "open")
	p.produce("t", "open-a", "open-b")
	c.Stop(2)
	p.end(kgo.TryCommit)
	want = append(want, "open-a", "open-b")
	round(p, 10, "after")
	expectCommitted(t, c.Addrs(), "t", want...)
}
