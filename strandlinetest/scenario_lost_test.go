package strandlinetest_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/strandlinetest"
	"github.com/strandline/strandline/test/history"
	"github.com/strandline/strandline/test/tamper"
)

// Scenario 28: a record is in the log, and the answer is lost. The producer tries again,
// with the same leader or with another, and is told where the record is already.
func TestLostAnswers(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3)
	r := watch(t, c, "orders", 1)
	var way tamper.Way
	cl := dial(t, c, kgo.DefaultProduceTopic("orders"), kgo.Dialer(way.Dial))
	defer cl.Close()
	value := uint64(0)
	produce := func() <-chan *kgo.Record {
		value++
		done := make(chan *kgo.Record, 1)
		cl.Produce(t.Context(), &kgo.Record{Value: binary.BigEndian.AppendUint64(nil, value)}, func(rec *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			} else {
				r.note(rec)
			}
			done <- rec
		})
		return done
	}
	for _, then := range []struct {
		what string
		to   func(leader int)
	}{
		{"nothing", func(int) {}},
		{"is killed", func(leader int) { c.Kill(leader) }},
		{"loses its power", func(leader int) { c.LosePower(leader) }},
		{"hands over", func(leader int) { c.MoveLeader("orders", 0, 1+leader%3) }},
		{"is paused", func(leader int) { c.Pause(leader) }},
	} {
		<-produce()
		leader := c.Leader("orders", 0)
		answer := kmsg.NewPtrProduceResponse()
		applied, goOn := make(chan error, 1), make(chan struct{})
		way.Pick(kmsg.Produce, func(req *tamper.Request) {
			applied <- req.Deliver(t.Context(), answer)
			<-goOn
		})
		done := produce()
		if err := <-applied; err != nil {
			t.Fatal(err)
		}
		then.to(leader)
		close(goOn)
		rec, first := <-done, answer.Topics[0].Partitions[0]
		if first.ErrorCode != 0 || rec.Offset != first.BaseOffset {
			t.Errorf("the leader %s: the second answer is offset %d, the first %d, code %d",
				then.what, rec.Offset, first.BaseOffset, first.ErrorCode)
		}
		<-produce()
		c.Resume(leader)
		if c.Node(leader) == nil {
			c.Restart(leader)
		}
		c.AwaitInSync()
	}
	r.check()
}

// sequenced returns a batch of one record of an idempotent producer.
func sequenced(producer kafka.ProducerID, sequence int32, value uint64) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(producer, 0, sequence)
	b.Append(time.Now().UnixMilli(), nil, binary.BigEndian.AppendUint64(nil, value), nil)
	return b.Build()
}

// txnBatchOf returns a batch of one record of a transaction.
func txnBatchOf(producerID int64, producerEpoch int16, sequence int32, value string) []byte {
	b := record.NewBuilder(record.CodecNone, 0)
	b.SetProducer(kafka.ProducerID(producerID), kafka.ProducerEpoch(producerEpoch), sequence)
	b.SetTransactional()
	b.Append(time.Now().UnixMilli(), nil, []byte(value), nil)
	return b.Build()
}

// Scenario 29: what is known of a producer is gone, with its records and with the
// snapshots, which are corrupt. A batch that comes again is refused with an error that
// says so, and never appended.
func TestProducersAreForgotten(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("log.retention.check.interval.ms", "100"))
	watch(t, c, "orders", 1)
	cl := dial(t, c)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	const producer, records = 4711, 5
	send := func(sequence int32) (int64, error) {
		return produceBatch(t.Context(), cl, c.Leader("orders", 0), "orders", sequenced(producer, sequence, uint64(sequence)))
	}
	for i := range int32(records) {
		if at, err := send(i); err != nil || at != int64(i) {
			t.Fatalf("sequence %d: offset %d, %v", i, at, err)
		}
	}
	if at, err := send(records - 1); err != nil || at != records-1 {
		t.Fatalf("the last one again: offset %d, %v", at, err)
	}
	c.AwaitInSync()
	dir := c.LogDir("orders", 0)
	removeRecords(t, c, cl, dir)
	c.Stop(1, 2, 3)
	for id := 1; id <= 3; id++ {
		spoilSnapshots(t, c.Disk(id), dir)
	}
	c.Restart(1, 2, 3)
	c.AwaitInSync()
	end := func() int64 {
		t.Helper()
		ends, err := adm.ListEndOffsets(t.Context(), "orders")
		o, _ := ends.Lookup("orders", 0)
		if err := errors.Join(err, o.Err); err != nil {
			t.Fatal(err)
		}
		return o.Offset
	}
	c.Await("the latest offset is told", func() bool {
		ends, err := adm.ListEndOffsets(t.Context(), "orders")
		return err == nil && ends.Error() == nil
	})
	before := end()
	at, err := send(records - 1)
	t.Logf("the last one again: offset %d, %v", at, err)
	switch {
	case err == nil && at == records-1: // It is known still.
	case errors.Is(err, kerr.UnknownProducerID), errors.Is(err, kerr.OutOfOrderSequenceNumber):
	default:
		t.Errorf("a batch that was there: offset %d, %v", at, err)
	}
	if after := end(); after != before {
		t.Errorf("the log ends at %d, and at %d after a batch came again", before, after)
	}
	if _, err := send(0); err != nil {
		t.Errorf("a producer that begins anew: %v", err)
	}
}

// removeRecords has all records of a partition be removed, with their segments.
func removeRecords(t *testing.T, c *strandlinetest.Cluster, cl *kgo.Client, dir string) {
	t.Helper()
	const more = 700 << 10 // Two of them roll the segment.
	for range 3 {
		rec := &kgo.Record{Topic: "orders", Value: make([]byte, more)}
		if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.AwaitInSync()
	var all kadm.Offsets
	all.Add(kadm.Offset{Topic: "orders", At: -1})
	deleted, err := kadm.NewClient(cl).DeleteRecords(t.Context(), all)
	if err := errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	c.Await("the first segments go", func() bool {
		for id := 1; id <= 3; id++ {
			if _, err := c.Disk(id).Stat(path.Join(dir, "00000000000000000000.log")); err == nil {
				return false
			}
		}
		return true
	})
}

// spoilSnapshots flips a bit in each snapshot of the producers of a log.
func spoilSnapshots(t *testing.T, files vfs.FS, dir string) {
	t.Helper()
	entries, err := files.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".snapshot") {
			continue
		}
		f, err := files.Open(path.Join(dir, e.Name()), vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		const at = 20
		if _, err = f.ReadAt(b[:], at); err == nil {
			b[0] ^= 1
			_, err = f.WriteAt(b[:], at)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		spoiled++
	}
	if spoiled == 0 {
		t.Fatalf("there is nothing to spoil in %s", dir)
	}
}

// Scenario 30: whatever happens to leaders, a batch that comes again and again is
// answered with errors that every client tries again after, and is there once.
func TestRetriesGetKnownCodes(t *testing.T) {
	c := strandlinetest.StartCluster(t, 3, strandlinetest.WithSetting("replica.lag.time.max.ms", "1000"))
	r := watch(t, c, "orders", 1)
	cl := dial(t, c)
	defer cl.Close()
	const producer = 4711
	known := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.KafkaStorageError, kerr.FencedLeaderEpoch,
	}
	got := map[string]int{}
	sequence := int32(0)
	// send sends the next batch to all nodes in turn until one takes it, and once more
	// to each.
	send := func() {
		t.Helper()
		value := uint64(sequence) + 1
		batch := sequenced(producer, sequence, value)
		taken := false
		for again := 0; !taken || again < 3; again++ {
			at, err := produceBatch(t.Context(), cl, 1+again%3, "orders", batch)
			var code *kerr.Error
			switch {
			case err == nil:
				taken = true
				r.history.Acked(history.Value(value), history.Place{Offset: at}, time.Now())
			case errors.As(err, &code):
				got[code.Message]++
				if !slices.Contains(known, code) {
					t.Fatalf("sequence %d is refused with %v", sequence, err)
				}
			}
		}
		sequence++
	}
	for round := range 2 {
		for id := 1; id <= 3; id++ {
			send()
			c.MoveLeader("orders", 0, id)
			send()
			if round == 0 {
				c.Kill(id)
			} else {
				c.LosePower(id)
			}
			send()
			c.Restart(id)
			c.AwaitInSync()
		}
	}
	t.Logf("codes: %v", slices.Sorted(maps.Keys(got)))
	r.check()
}
