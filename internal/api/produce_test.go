package api_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// outcome is what a producer is told about a partition.
type outcome struct {
	code   kafka.Code
	offset int64
}

func outcomeOf(p kmsg.ProduceResponseTopicPartition) outcome {
	return outcome{kafka.Code(p.ErrorCode), p.BaseOffset}
}

// TestIdempotence: duplicates get the first offset, gaps and old epochs are
// refused.
func TestIdempotence(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1)
	c := w.connect()
	for _, step := range []struct {
		name     string
		epoch    kafka.ProducerEpoch
		sequence int32
		values   []string
		want     outcome
	}{
		{"first", 0, 0, []string{"a", "b"}, outcome{0, 0}},
		{"second", 0, 2, []string{"c"}, outcome{0, 2}},
		{"third", 0, 3, []string{"d"}, outcome{0, 3}},
		{"third again", 0, 3, []string{"d"}, outcome{0, 3}},
		{"first again", 0, 0, []string{"a", "b"}, outcome{0, 0}},
		{"gap", 0, 5, []string{"x"}, outcome{kafka.ErrOutOfOrderSequenceNumber, -1}},
		{"new epoch", 1, 0, []string{"e"}, outcome{0, 4}},
		{"new epoch in the middle", 2, 7, []string{"x"}, outcome{kafka.ErrOutOfOrderSequenceNumber, -1}},
		{"old epoch", 0, 4, []string{"x"}, outcome{kafka.ErrInvalidProducerEpoch, -1}},
		{"goes on", 1, 1, []string{"f"}, outcome{0, 5}},
	} {
		p := c.produced(produceOf(9, "t", 0, idempotent(7, step.epoch, step.sequence, step.values...)))
		if got := outcomeOf(p); got != step.want {
			t.Errorf("%s: %v (%s), want %v", step.name, got, text(p.ErrorMessage), step.want)
		}
		if (p.ErrorCode != 0) != (text(p.ErrorMessage) != "") {
			t.Errorf("%s: code %d and message %q", step.name, p.ErrorCode, text(p.ErrorMessage))
		}
	}
	if got := w.values("t", 0); got != "a b c d e f" {
		t.Errorf("the log has %q", got)
	}
}

// TestLateDuplicate: a batch that comes again when newer ones have driven it from memory is
// acknowledged where it is, once it is as safe as its producer asks for.
func TestLateDuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		c, follower := w.connect(), w.connect()
		made := map[string][]byte{} // A retry is of the same bytes.
		send := func(acks int16, sequence int32, value string) outcome {
			name := fmt.Sprint(sequence, value)
			if made[name] == nil {
				made[name] = idempotent(7, 0, sequence, value)
			}
			req := produceOf(9, "t", 0, made[name])
			req.Acks, req.TimeoutMillis = acks, 10
			return outcomeOf(c.produced(req))
		}
		const batches = 7
		for i := range int32(batches) {
			if got := send(1, i, "v"); got != (outcome{0, int64(i)}) {
				t.Fatalf("batch %d: %v", i, got)
			}
		}
		if got := send(1, 0, "v"); got != (outcome{0, 0}) {
			t.Errorf("acks=1: %v", got)
		}
		if got := send(1, 0, "another"); got.code != kafka.ErrOutOfOrderSequenceNumber {
			t.Errorf("another batch with its sequences: %v", got)
		}
		if got := send(-1, 1, "v"); got.code != kafka.ErrRequestTimedOut {
			t.Errorf("acks=all, before the follower has it: %v", got)
		}
		_ = follower.send(followOf(topic, 2, 3))
		for i := range int64(2) {
			if got := send(-1, int32(i), "v"); got != (outcome{0, i}) {
				t.Errorf("acks=all, batch %d: %v", i, got)
			}
		}
		if got := send(1, 2, "v"); got != (outcome{0, 2}) {
			t.Errorf("the oldest that is remembered: %v", got)
		}
		if got := send(1, batches+1, "v"); got.code != kafka.ErrOutOfOrderSequenceNumber {
			t.Errorf("a gap: %v", got)
		}
	})
}

// TestStranded: a broker that is cut off, or whose disk hangs, does not keep a producer to
// itself where others may lead, but goes on acknowledging what its replicas take.
func TestStranded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var outOfTouch, hangs atomic.Bool
		w.services.OutOfTouch, w.services.Hangs = outOfTouch.Load, hangs.Load
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		c, waiting := w.connect(), w.connect()
		soon := func(value string) *kmsg.ProduceRequest {
			req := produceOf(9, "t", 0, batchOf(value))
			req.TimeoutMillis = 1000
			return req
		}
		first := waiting.send(produceOf(9, "t", 0, batchOf("a")))
		synctest.Wait() // It is appended before what other connections send.
		if got := outcomeOf(c.produced(soon("b"))); got.code != kafka.ErrRequestTimedOut {
			t.Errorf("in touch: %v", got)
		}
		outOfTouch.Store(true)
		_ = w.connect().send(followOf(topic, 2, 3))
		if got := outcomeOf(onlyProduced(t, waiting.receive(first))); got.code != 0 {
			t.Errorf("out of touch, but not with the follower: %v", got)
		}
		c.send(soon("c"))
		waiting.send(produceOf(9, "t", 0, batchOf("d")))
		c.expectClosed()
		<-time.After(time.Second)
		w.partitions.WakeWaiting()
		waiting.expectClosed()
		outOfTouch.Store(false)
		hangs.Store(true)
		c = w.connect()
		began := time.Now()
		c.send(produceOf(9, "t", 0, batchOf("e")))
		c.expectClosed()
		if took := time.Since(began); took > 0 {
			t.Errorf("closed after %v", took)
		}
		w.createTopic("alone", 1)
		c = w.connect()
		if got := outcomeOf(c.produced(produceOf(9, "alone", 0, batchOf("f")))); got.code != 0 {
			t.Errorf("a partition that nobody else has: %v", got)
		}
		for range 3 {
			if reason := (<-w.closed).Error(); !strings.Contains(reason, "is cut off from the cluster or its disk hangs") {
				t.Errorf("closed because of %q", reason)
			}
		}
	})
}

// TestStrandedSoon: replicas that are silent end the wait for them, before it has lasted a
// session.
func TestStrandedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var outOfTouch atomic.Bool
		w.services.OutOfTouch = outOfTouch.Load
		w.replicate(w.createTopic("t", 1))
		c, began := w.connect(), time.Now()
		outOfTouch.Store(true)
		c.send(produceOf(9, "t", 0, batchOf("v")))
		for range 5 { // As the broker does while it is out of touch.
			<-time.After(100 * time.Millisecond)
			w.partitions.WakeWaiting()
		}
		c.expectClosed()
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("closed after %v", took)
		}
	})
}

// values fetches a whole partition.
func (w *world) values(topic string, partition int32) string {
	w.t.Helper()
	c := w.connect()
	req := fetchOf(12, w.plane.Image().Topic(topic), 0)
	req.Topics[0].Partitions[0].Partition, req.MinBytes = partition, 0
	resp := c.ask(req).(*kmsg.FetchResponse)
	return valuesIn(w.t, resp.Topics[0].Partitions[0].RecordBatches)
}

// refusals are record data that no topic takes.
func refusals() map[string]struct {
	records []byte
	code    kafka.Code
	message string
} {
	good := batchOf("v", "w")
	future := record.NewBuilder(record.CodecNone, 0)
	future.Append(time.Now().Add(1000*time.Hour).UnixMilli(), nil, []byte("v"), nil)
	set16 := func(at int, v int16) []byte {
		return edited(good, func(b []byte) { binary.BigEndian.PutUint16(b[at:], uint16(v)) })
	}
	type refusal = struct {
		records []byte
		code    kafka.Code
		message string
	}
	return map[string]refusal{
		"nothing":        {nil, kafka.ErrInvalidRecord, "no record batch"},
		"empty":          {[]byte{}, kafka.ErrInvalidRecord, "no record batch"},
		"cut off":        {good[:len(good)-1], kafka.ErrCorruptMessage, "ends before the batch"},
		"a few bytes":    {good[:5], kafka.ErrCorruptMessage, "ends before the batch"},
		"wrong checksum": {append(append([]byte(nil), good[:len(good)-1]...), 'z'), kafka.ErrCorruptMessage, "checksum"},
		"old magic":      {edited(good, func(b []byte) { b[magicAt] = 1 }), kafka.ErrInvalidRecord, "magic"},
		"control batch":  {set16(attributesAt, 0x30), kafka.ErrInvalidRecord, "control"},
		"unknown codec":  {set16(attributesAt, 7), kafka.ErrUnsupportedCompressionType, "unknown"},
		"wrong count": {edited(good, func(b []byte) {
			binary.BigEndian.PutUint32(b[countAt:], 3)
		}), kafka.ErrInvalidRecord, "3 records"},
		"transactional": {edited(idempotent(1, 0, 0, "v"), func(b []byte) {
			b[attributesAt+1] |= 0x10
		}), kafka.ErrTransactionalIDAuthorizationFailed, "transactional id"},
		"too large":     {batchOf(strings.Repeat("x", 2000)), kafka.ErrMessageTooLarge, "max.message.bytes"},
		"in the future": {append([]byte(nil), future.Build()...), kafka.ErrInvalidTimestamp, "timestamp"},
		"two batches":   {append(append([]byte(nil), good...), good...), kafka.ErrInvalidRecord, "one record batch"},
		"and garbage":   {append(append([]byte(nil), good...), 1, 2, 3), kafka.ErrCorruptMessage, "ends before"},
	}
}

// TestRefusedBatches: each has its code and says why; nothing of it is kept.
func TestRefusedBatches(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1, "max.message.bytes=1500")
	w.createTopic("compacted", 1, "cleanup.policy=compact")
	w.createTopic(metadata.OffsetsTopic, 1, "cleanup.policy=compact")
	c := w.connect()
	check := func(name string, req *kmsg.ProduceRequest, code kafka.Code, message string) {
		t.Helper()
		p := c.produced(req)
		if kafka.Code(p.ErrorCode) != code || p.BaseOffset != -1 || p.LogAppendTime != -1 {
			t.Errorf("%s: %v, offset %d, time %d; want %v", name, kafka.Code(p.ErrorCode), p.BaseOffset, p.LogAppendTime, code)
		}
		if !strings.Contains(text(p.ErrorMessage), message) {
			t.Errorf("%s: the message is %q, want it to have %q", name, text(p.ErrorMessage), message)
		}
	}
	for name, r := range refusals() {
		check(name, produceOf(9, "t", 0, r.records), r.code, r.message)
	}
	zstd := record.NewBuilder(record.CodecZstd, 0)
	zstd.Append(time.Now().UnixMilli(), nil, []byte("v"), nil)
	req := produceOf(6, "t", 0, append([]byte(nil), zstd.Build()...))
	if p := c.produced(req); kafka.Code(p.ErrorCode) != kafka.ErrUnsupportedCompressionType {
		t.Errorf("zstd in version 6: %v", kafka.Code(p.ErrorCode))
	}
	check("internal topic", produceOf(9, metadata.OffsetsTopic, 0, batchOf("v")), kafka.ErrInvalidTopicException, "internal")
	check("no topic", produceOf(9, "nowhere", 0, batchOf("v")), kafka.ErrUnknownTopicOrPartition, "no topic nowhere")
	check("no partition", produceOf(9, "t", 7, batchOf("v")), kafka.ErrUnknownTopicOrPartition, "no partition 7")
	check("negative partition", produceOf(9, "t", -1, batchOf("v")), kafka.ErrUnknownTopicOrPartition, "no partition -1")
	byID := produceOf(13, "", 0, batchOf("v"))
	byID.Topics[0].TopicID = [16]byte{1, 2}
	check("no topic id", byID, kafka.ErrUnknownTopicID, "no topic has the id")
	byID.Topics[0].TopicID = [16]byte{}
	check("zero topic id", byID, kafka.ErrUnknownTopicID, "no topic has the id")
	acks := produceOf(9, "t", 0, batchOf("v"))
	acks.Acks = 2
	check("acks", acks, kafka.ErrInvalidRequiredAcks, "acks must be")

	keyless := record.NewBuilder(record.CodecNone, 0)
	keyless.Append(time.Now().UnixMilli(), []byte("k"), []byte("v"), nil)
	keyless.Append(time.Now().UnixMilli(), nil, []byte("v"), nil)
	p := c.produced(produceOf(9, "compacted", 0, append([]byte(nil), keyless.Build()...)))
	if kafka.Code(p.ErrorCode) != kafka.ErrInvalidRecord || len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 {
		t.Errorf("a record without key in a compacted topic: %+v", p)
	}
	for _, topic := range []string{"t", "compacted", metadata.OffsetsTopic} {
		if end := w.partition(topic, 0).Log().LogEndOffset(); end != 0 {
			t.Errorf("%s ends at %d: something was kept", topic, end)
		}
	}
}

// TestProduceToMany: partitions stand for themselves, and the answer keeps
// their order.
// A batch that decompresses to more than the topic allows is refused, whatever it is
// compressed with, and the connection goes on.
func TestBombsAreRefused(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1, "max.decompressed.message.bytes=1048576", "max.message.bytes=8388608")
	codecs := []record.Codec{record.CodecGzip, record.CodecSnappy, record.CodecLZ4, record.CodecZstd}
	bombs := make([][]byte, len(codecs)) // Made before there is a connection: it takes a while.
	for i, codec := range codecs {
		bomb := record.NewBuilder(codec, 0)
		bomb.Append(time.Now().UnixMilli(), nil, make([]byte, 64<<20), nil)
		bombs[i] = append([]byte(nil), bomb.Build()...)
	}
	c := w.connect()
	for i, codec := range codecs {
		records := bombs[i]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := c.produced(produceOf(9, "t", 0, records))
		runtime.ReadMemStats(&after)
		if kafka.Code(p.ErrorCode) != kafka.ErrMessageTooLarge || !strings.Contains(text(p.ErrorMessage), "decompresses") {
			t.Errorf("%s: %v, %q", codec, kafka.Code(p.ErrorCode), text(p.ErrorMessage))
		}
		if n := int(after.TotalAlloc - before.TotalAlloc); n > 16<<20+4*len(records) {
			t.Errorf("%s: %d bytes were allocated for a request of %d", codec, n, len(records))
		}
		if p := c.produced(produceOf(9, "t", 0, batchOf("v"))); p.ErrorCode != 0 {
			t.Errorf("%s: a good batch afterwards: %v", codec, kafka.Code(p.ErrorCode))
		}
	}
}

func TestProduceToMany(t *testing.T) {
	w := startWorld(t)
	w.createTopic("a", 2)
	w.createTopic("b", 1)
	req := produceOf(9, "a", 1, batchOf("a1"))
	req.Topics[0].Partitions = append(req.Topics[0].Partitions,
		kmsg.ProduceRequestTopicPartition{Partition: 5, Records: batchOf("x")},
		kmsg.ProduceRequestTopicPartition{Partition: 0, Records: batchOf("a0")})
	req.Topics = append(req.Topics, produceOf(9, "none", 0, batchOf("x")).Topics[0], produceOf(9, "b", 0, batchOf("b0")).Topics[0])
	resp := w.connect().ask(req).(*kmsg.ProduceResponse)
	var got []string
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			got = append(got, strings.Join([]string{rt.Topic, string(rune('0' + p.Partition)), kafka.Code(p.ErrorCode).String()}, " "))
		}
	}
	want := "a 1 NONE, a 5 UNKNOWN_TOPIC_OR_PARTITION, a 0 NONE, none 0 UNKNOWN_TOPIC_OR_PARTITION, b 0 NONE"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("answer\n%s\nwant\n%s", s, want)
	}
	if a0, a1, b0 := w.values("a", 0), w.values("a", 1), w.values("b", 0); a0+a1+b0 != "a0a1b0" {
		t.Errorf("stored %q, %q, %q", a0, a1, b0)
	}
}

// TestLogAppendTime: the answer tells the time that the broker gave.
func TestLogAppendTime(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1, "message.timestamp.type=LogAppendTime")
	before := time.Now().UnixMilli()
	p := w.connect().produced(produceOf(9, "t", 0, batchOf("v")))
	if p.ErrorCode != 0 || p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
		t.Errorf("log append time %d, code %d", p.LogAppendTime, p.ErrorCode)
	}
}

// slowDisk is a disk whose syncs wait.
type slowDisk struct {
	gate chan struct{} // Closed: syncs pass.
	on   chan struct{} // Closed: syncs wait for gate.
}

func newSlowDisk() *slowDisk {
	return &slowDisk{gate: make(chan struct{}), on: make(chan struct{})}
}

func (d *slowDisk) inject(op errorfs.Op) error {
	if op.Kind != errorfs.Sync {
		return nil
	}
	select {
	case <-d.on:
		<-d.gate
	default:
	}
	return nil
}

// TestAcks: 0 is never answered, 1 before the sync, all after it, and late
// answers say so.
func TestAcks(t *testing.T) {
	disk := newSlowDisk()
	w := newWorld(t)
	w.files = errorfs.Wrap(memfs.New(), disk.inject)
	w.start()
	w.createTopic("t", 1)
	w.fill("t", 0, "before")
	close(disk.on)
	c := w.connect()
	none, leader, all := produceOf(9, "t", 0, batchOf("none")), produceOf(9, "t", 0, batchOf("leader")), produceOf(9, "t", 0, batchOf("all"))
	none.Acks, leader.Acks = 0, 1
	c.send(none)
	if got := outcomeOf(c.produced(leader)); got != (outcome{0, 2}) {
		t.Errorf("acks=1: %v", got)
	}
	all.TimeoutMillis = 5
	p := c.produced(all)
	if got := outcomeOf(p); got != (outcome{kafka.ErrRequestTimedOut, -1}) || !strings.Contains(text(p.ErrorMessage), "written") {
		t.Errorf("acks=all without a sync: %v %s", got, text(p.ErrorMessage))
	}
	// The next is answered only once the disk goes on, though it came before.
	waiting := c.send(produceOf(9, "t", 0, batchOf("more")))
	behind := c.send(leader)
	close(disk.gate)
	if got := outcomeOf(onlyProduced(t, c.receive(waiting))); got != (outcome{0, 4}) {
		t.Errorf("acks=all: %v", got)
	}
	if got := outcomeOf(onlyProduced(t, c.receive(behind))); got != (outcome{0, 5}) {
		t.Errorf("acks=1 behind it: %v", got)
	}
	w.fill("t", 0, "end") // Acknowledged: all before it can be read.
	if got := w.values("t", 0); got != "before none leader all more leader end" {
		t.Errorf("the log has %q", got)
	}
}

// TestUnansweredFailure: with acks=0 a failure can only be told by closing the
// connection, after the answers before it.
func TestUnansweredFailure(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1)
	c := w.connect()
	bad := produceOf(9, "t", 3, batchOf("bad"))
	bad.Acks = 0
	good := c.sendAll(produceOf(9, "t", 0, batchOf("good")), bad, produceOf(9, "t", 0, batchOf("too late")))
	if got := outcomeOf(onlyProduced(t, c.receive(good))); got != (outcome{0, 0}) {
		t.Errorf("before the failure: %v", got)
	}
	c.expectClosed()
	reason := (<-w.closed).Error()
	if !strings.Contains(reason, "acks=0") || !strings.Contains(reason, "UNKNOWN_TOPIC_OR_PARTITION") {
		t.Errorf("closed because of %q", reason)
	}
	if got := w.values("t", 0); got != "good" {
		t.Errorf("the log has %q", got)
	}
}

// TestPipelining: requests of a connection are appended and answered in the
// order they were sent.
func TestPipelining(t *testing.T) {
	w := startWorld(t)
	w.createTopic("t", 1)
	c := w.connect()
	ids := make([]int32, 60)
	for i := range ids {
		ids[i] = c.send(produceOf(9, "t", 0, idempotent(1, 0, int32(i), "v")))
	}
	for i, id := range ids {
		if got := outcomeOf(onlyProduced(t, c.receive(id))); got != (outcome{0, int64(i)}) {
			t.Fatalf("answer %d: %v", i, got)
		}
	}
}

// TestProduceWhenLeadershipEnds: what waits for its ack is told, and so is what
// comes later.
func TestProduceWhenLeadershipEnds(t *testing.T) {
	disk := newSlowDisk()
	w := newWorld(t)
	w.files = errorfs.Wrap(memfs.New(), disk.inject)
	w.start()
	t.Cleanup(func() { close(disk.gate) })
	w.createTopic("t", 1)
	w.fill("t", 0, "before")
	close(disk.on)
	c := w.connect()
	waiting := c.send(produceOf(9, "t", 0, batchOf("v")))
	p := w.partition("t", 0)
	for p.Log().LogEndOffset() < 2 {
		w.settle()
	}
	p.Resign(false)
	if got := outcomeOf(onlyProduced(t, c.receive(waiting))); got != (outcome{kafka.ErrNotLeaderOrFollower, -1}) {
		t.Errorf("the one that waited: %v", got)
	}
	if got := outcomeOf(c.produced(produceOf(9, "t", 0, batchOf("v")))); got.code != kafka.ErrNotLeaderOrFollower {
		t.Errorf("the next: %v", got)
	}
	p.Resign(true)
	if got := outcomeOf(c.produced(produceOf(9, "t", 0, batchOf("v")))); got.code != kafka.ErrUnknownTopicOrPartition {
		t.Errorf("after the deletion: %v", got)
	}
}
