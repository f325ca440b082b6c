package strandlinetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/txn"
	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/tamper"
	"github.com/strandline/strandline/test/transact"
)

// transactional makes a producer of a transactional id.
func transactional(t *testing.T, c *strandlinetest.Cluster, id string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := dial(t, c, append([]kgo.Opt{
		kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
	}, options...)...)
	t.Cleanup(cl.Close)
	return cl
}

// inTransaction begins a transaction with a record in each of some partitions.
func inTransaction(t *testing.T, cl *kgo.Client, value string, partitions ...int32) {
	t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		rec := &kgo.Record{Topic: "orders", Partition: p, Value: []byte(value)}
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatalf("produce %s: %v", value, err)
		}
	}
}

func end(t *testing.T, cl *kgo.Client, how kgo.TransactionEndTry) {
	t.Helper()
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatalf("end a transaction: %v", err)
	}
}

// commitUntilTold commits a client's transaction, asking again until it is told that this
// was done. The client gives up instead when its request breaks: it may have been done.
func commitUntilTold(t *testing.T, c *strandlinetest.Cluster, cl *kgo.Client, id string) {
	t.Helper()
	p := &rawProducer{t: t, c: c, cl: cl, id: id}
	var err error
	if p.producerID, p.producerEpoch, err = cl.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Await("the commit is told", func() bool {
		err := p.end(true)
		var refused *kerr.Error
		if errors.As(err, &refused) && !refused.Retriable {
			t.Fatalf("commit the transaction of %s: %v", id, err)
		}
		return err == nil
	})
}

// coordinatorOf returns the node that coordinates a transactional id, which there is.
func coordinatorOf(c *strandlinetest.Cluster, id string) int {
	partitions := int32(c.Partitions(metadata.TransactionsTopic))
	return c.Leader(metadata.TransactionsTopic, c.GroupPartition(id, partitions))
}

// expectCommitted waits until no transaction is open, and then reads, read_committed,
// to the end.
func expectCommitted(t *testing.T, c *strandlinetest.Cluster, partitions int, want ...string) {
	t.Helper()
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := dial(t, c, kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	defer cl.Close()
	adm := kadm.NewClient(cl)
	left := map[int32]int64{}
	c.Await("no transaction is open", func() bool {
		stable, err := adm.ListCommittedOffsets(ctx, "orders")
		ends, err2 := adm.ListEndOffsets(ctx, "orders")
		if err := errors.Join(err, err2, stable.Error(), ends.Error()); err != nil {
			return false
		}
		open := 0
		ends.Each(func(o kadm.ListedOffset) {
			if s, _ := stable.Lookup("orders", o.Partition); s.Offset != o.Offset {
				open++
			}
			if o.Offset > 0 {
				left[o.Partition] = o.Offset
			}
		})
		return open == 0
	})
	var got []string
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v are left: %v", left, err)
		}
		for rec := range fetches.RecordsAll() {
			if !rec.Attrs.IsControl() {
				got = append(got, string(rec.Value))
			}
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("read_committed reads %v, want %v", got, want)
	}
}

// Scenario 31: EndTxn is held up, the client's second try ends the transaction, and the
// first one arrives within the next transaction. It does not end that one.
func TestOldEndTxn(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	watch(t, c, "orders", 2)
	var want []string
	for name, how := range map[string]kgo.TransactionEndTry{"commit": kgo.TryCommit, "abort": kgo.TryAbort} {
		var way tamper.Way
		cl := transactional(t, c, name, kgo.Dialer(way.Dial))
		var held *tamper.Request
		way.Pick(kmsg.EndTxn, func(r *tamper.Request) { held = r })
		inTransaction(t, cl, name+" 1", 0, 1)
		end(t, cl, how)
		if held == nil {
			t.Fatal("nothing was held")
		}
		inTransaction(t, cl, name+" 2", 0, 1)
		late := kmsg.NewPtrEndTxnResponse()
		if err := held.Deliver(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(late.ErrorCode); !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("an EndTxn of the transaction before: %v", err)
		}
		if how == kgo.TryCommit { // The late one would commit, too, what is aborted.
			want = append(want, name+" 1", name+" 1")
			end(t, cl, kgo.TryAbort)
		} else {
			want = append(want, name+" 2", name+" 2")
			end(t, cl, kgo.TryCommit)
		}
	}
	expectCommitted(t, c, 2, want...)
}

// Scenario 31: a marker is held up between brokers, another try ends the transaction, and the
// first one arrives within the next transaction of a producer whose epoch does not rise. It
// does not end that one.
func TestOldMarker(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	watch(t, c, "orders", 2)
	cl := transactional(t, c, "id", kgo.MaxVersions(kversion.V3_9_0()))
	inTransaction(t, cl, "read", 0, 1)
	end(t, cl, kgo.TryCommit)
	held := firstMarkers(t, c, cl, "id")
	inTransaction(t, cl, "lost", 0, 1)
	for i, code := range deliver(t, c, cl, held) {
		if !errors.Is(code, kerr.InvalidProducerEpoch) {
			t.Errorf("partition %d: a marker of the transaction before: %v", i, code)
		}
	}
	end(t, cl, kgo.TryAbort) // The late markers would have committed it.
	expectCommitted(t, c, 2, "read", "read")
}

// firstMarkers returns the markers that the coordinator sends when it has decided about the
// first transaction of an id, which was committed, to both partitions.
func firstMarkers(t *testing.T, c *strandlinetest.Cluster, cl *kgo.Client, id string) []transactions.Marker {
	t.Helper()
	topics, err := kadm.NewClient(cl).ListTopicsWithInternal(t.Context(), "orders", metadata.TransactionsTopic)
	if err != nil {
		t.Fatal(err)
	}
	reader := dial(t, c, kgo.ConsumeTopics(metadata.TransactionsTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	var markers []transactions.Marker
	for markers == nil {
		fetches := reader.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for rec := range fetches.RecordsAll() {
			v := kmsg.NewTxnMetadataValue()
			if err := v.ReadFrom(rec.Value); err != nil {
				t.Fatal(err)
			}
			if markers != nil || txn.State(v.State) != txn.PrepareCommit {
				continue
			}
			for p := range int32(2) {
				markers = append(markers, transactions.Marker{
					Partition:  kafka.TopicPartition{Topic: "orders", Partition: p},
					ProducerID: kafka.ProducerID(v.ProducerID), ProducerEpoch: kafka.ProducerEpoch(v.ProducerEpoch),
					CoordinatorEpoch: topics[metadata.TransactionsTopic].Partitions[rec.Partition].LeaderEpoch, Commit: true,
					LeaderEpoch: kafka.LeaderEpoch(topics["orders"].Partitions[p].LeaderEpoch), Decision: kafka.Offset(rec.Offset),
				})
			}
		}
	}
	return markers
}

// deliver has each partition's leader write its marker, and returns what it says.
func deliver(t *testing.T, c *strandlinetest.Cluster, cl *kgo.Client, markers []transactions.Marker) (codes []error) {
	t.Helper()
	for i, m := range markers {
		req := transactions.WriteRequest(markers[i : i+1])
		resp, err := cl.Broker(c.Leader(m.Partition.Topic, m.Partition.Partition)).Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		code := transactions.CodesOf(markers[i:i+1], resp.(*kmsg.WriteTxnMarkersResponse))[0]
		codes = append(codes, kerr.ErrorForCode(int16(code)))
	}
	return codes
}

// Scenario 32: a record of a transaction arrives when that was aborted, because another
// producer took over, in a partition that was part of it and in one that was not. It
// is refused, and no partition is left with an open transaction.
func TestLateProduce(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"v1": kversion.V3_9_0(), "v2": kversion.Stable()} {
		t.Run(name, func(t *testing.T) {
			c := strandlinetest.StartCluster(t, 3)
			watch(t, c, "orders", 2)
			var want []string
			for late := range int32(2) {
				id := fmt.Sprint("id ", late)
				var way tamper.Way
				first := transactional(t, c, id, kgo.Dialer(way.Dial), kgo.MaxVersions(versions))
				inTransaction(t, first, "lost", 0)
				held, goOn := make(chan *tamper.Request, 1), make(chan struct{})
				way.Pick(kmsg.Produce, func(r *tamper.Request) {
					held <- r
					<-goOn
				})
				refused := make(chan error, 1)
				first.Produce(t.Context(), &kgo.Record{Topic: "orders", Partition: late, Value: []byte("lost")},
					func(_ *kgo.Record, err error) { refused <- err })
				req := <-held
				second := transactional(t, c, id, kgo.MaxVersions(versions))
				if _, _, err := second.ProducerID(t.Context()); err != nil {
					t.Fatal(err)
				}
				answer := kmsg.NewPtrProduceResponse()
				if err := req.Deliver(t.Context(), answer); err != nil {
					t.Fatal(err)
				}
				code := kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
				if !errors.Is(code, kerr.InvalidProducerEpoch) {
					t.Errorf("partition %d: a record of an aborted transaction: %v", late, code)
				}
				close(goOn)
				if err := <-refused; err == nil {
					t.Errorf("partition %d: a fenced producer wrote a record", late)
				}
				inTransaction(t, second, "read", 0, 1)
				end(t, second, kgo.TryCommit)
				want = append(want, "read", "read")
			}
			expectCommitted(t, c, 2, want...)
		})
	}
}

// Scenario 33: markers take longer than anybody waits, and the producer goes on at once,
// with an empty transaction and with another. It is told to try again, and nothing is
// lost.
func TestTransactionsWithSlowMarkers(t *testing.T) {
	c := strandlinetest.StartCluster(t, 4)
	cl := dial(t, c, kgo.RequestTimeoutOverhead(20*time.Second)) // Longer than a broker holds a request back.
	defer cl.Close()
	data := 1 + c.Controller()%4 // Whose pause concerns nobody else.
	createOn(t, cl, data)
	id := coordinatedWithout(t, c, cl, data)
	p := &rawProducer{t: t, c: c, cl: cl, id: id}
	p.init()
	var want []string
	for i := range 3 {
		value := fmt.Sprint("value ", i)
		for err := p.produce(data, value); err != nil; err = p.produce(data, value) {
			if !kerr.IsRetriable(err) { // As while markers are written, or before the leader has heard of the topic.
				t.Fatalf("produce %s: %v", value, err)
			}
		}
		c.Pause(data)
		if err := p.end(true); err != nil {
			t.Fatalf("commit %s: %v", value, err)
		}
		want = append(want, value)
		if err := p.end(false); !errors.Is(err, kerr.ConcurrentTransactions) {
			t.Errorf("an empty transaction while markers are on their way: %v", err)
		}
		c.Resume(data)
		for err := p.end(false); err != nil; err = p.end(false) {
			if !errors.Is(err, kerr.ConcurrentTransactions) {
				t.Fatalf("an empty transaction: %v", err)
			}
		}
	}
	expectCommitted(t, c, 1, want...)
}

// createOn creates the topic with one replica, on a node.
func createOn(t *testing.T, cl *kgo.Client, node int) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "orders", -1, -1
	at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	at.Replicas = []int32{int32(node)}
	topic.ReplicaAssignment = append(topic.ReplicaAssignment, at)
	one := "1"
	topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: "min.insync.replicas", Value: &one})
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(t.Context(), cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// coordinatedWithout returns a transactional id that has nothing to do with a node.
func coordinatedWithout(t *testing.T, c *strandlinetest.Cluster, cl *kgo.Client, node int) string {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 1, []string{"any"}
	c.Await("coordinators", func() bool {
		resp, err := req.RequestWith(t.Context(), cl)
		return err == nil && resp.Coordinators[0].ErrorCode == 0 && c.Partitions(metadata.TransactionsTopic) > 0
	})
	for i := range 1000 {
		id := fmt.Sprint("id ", i)
		partition := c.GroupPartition(id, int32(c.Partitions(metadata.TransactionsTopic)))
		if !slices.Contains(c.Replicas(metadata.TransactionsTopic, partition), node) {
			return id
		}
	}
	t.Fatalf("node %d has a replica of all of %s", node, metadata.TransactionsTopic)
	return ""
}

// rawProducer is a producer that knows nothing of transactions, and sends what it is
// told.
type rawProducer struct {
	t             *testing.T
	c             *strandlinetest.Cluster
	cl            *kgo.Client
	id            string
	producerID    int64
	producerEpoch int16
}

// ask asks the coordinator once.
func (p *rawProducer) ask(req kmsg.Request) (kmsg.Response, error) {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	return p.cl.Broker(coordinatorOf(p.c, p.id)).Request(ctx, req)
}

func (p *rawProducer) init() {
	p.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &p.id, 60_000, -1, -1
	p.c.Await("a producer id", func() bool {
		resp, err := p.ask(req)
		if err != nil || resp.(*kmsg.InitProducerIDResponse).ErrorCode != 0 {
			return false
		}
		p.producerID = resp.(*kmsg.InitProducerIDResponse).ProducerID
		p.producerEpoch = resp.(*kmsg.InitProducerIDResponse).ProducerEpoch
		return true
	})
}

func (p *rawProducer) produce(node int, value string) error {
	_, err := produceTransactional(p.t.Context(), p.cl, node, p.id, txnBatchOf(p.producerID, p.producerEpoch, 0, value))
	return err
}

func (p *rawProducer) end(commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.producerID, p.producerEpoch, commit
	resp, err := p.ask(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.EndTxnResponse)
	if answer.ErrorCode == 0 {
		p.producerID, p.producerEpoch = answer.ProducerID, answer.ProducerEpoch
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// Scenario 34: the transaction's coordinator and the leaders of its data are gone when
// it is to be committed. What is told to be committed is there, all of it.
func TestCommitWithoutLeaders(t *testing.T) {
	c := strandlinetest.StartCluster(t, 5)
	watch(t, c, "orders", 2)
	var want []string
	for round := range 4 {
		id := fmt.Sprint("id ", round)
		cl := transactional(t, c, id)
		inTransaction(t, cl, id, 0, 1)
		gone := []int{coordinatorOf(c, id), c.Leader("orders", int32(round/2%2))}
		if gone[0] == gone[1] {
			gone = gone[:1]
		}
		if round%2 == 0 {
			c.Kill(gone...)
		} else {
			c.LosePower(gone...)
		}
		commitUntilTold(t, c, cl, id)
		want = append(want, id, id)
		c.Restart(gone...)
		c.AwaitInSync()
	}
	expectCommitted(t, c, 2, want...)
}

// Scenario 37: producers of the same transactional ids take them from each other all the
// time. Who was replaced is fenced for ever.
func TestProducersTakeOver(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	const partitions = 2
	r := watch(t, c, "orders", partitions)
	l := transact.Start(t, transact.Options{Addrs: c.Addrs(), Topic: "orders", Partitions: partitions, Contested: 3})
	r.history = l.History
	l.AwaitMore(200)
	l.Verify()
	t.Log(l.Summary())
	r.compareReplicas()
	r.verdict()
}
