package httpapi

// POST /v1/transactions/{transaction}/produce: records as part of a transaction.
//
// The client numbers its requests, and a request that comes again under its number is
// not appended again. Nothing is kept for that beyond what the log knows of any producer:
// the records of a request have, in each partition, the sequences from its number times
// requestSequences on.
//
//	request 3, its records of one partition   [3*2^14, 3*2^14 + records)
//	request 4                                 [4*2^14, ...)
//
// A partition's leader takes what is above the last sequence, whatever was left out
// (producerstate.Append.Gaps), answers what it has already with the offsets of that,
// and refuses all else. It knows that of every open transaction, after a restart and as
// the next leader too, since it is in the batches. So any node may take any try.
//
// A record that cannot be appended fails its request before anything is appended. What
// fails later may be there in part; then the same request is sent again, or the
// transaction aborted.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/strandline/strandline/internal/coordinator/transactions"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/strictjson"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/txn"
)

// TransactionProduceRequest is one record, or several, of a topic, as part of a
// transaction. It is what readJSON reads, which does so in place.
type TransactionProduceRequest struct {
	RecordRequest
	TimeoutMs int64           `json:"timeout_ms"`
	Records   []RecordRequest `json:"records"`
	Topic     string          `json:"topic"`
	// Request is the number of the request: each in a transaction has a higher one than
	// those before, and its retries have the same.
	Request int64 `json:"request"`
}

// Fields of a request in a transaction, by their index in the names.
const (
	fieldTopic = iota + fieldAcks
	fieldRequest
)

// txnFieldNames are the names of the fields of a request in a transaction; those of a
// record come first. It is constant.
var txnFieldNames = append(slices.Clone(fieldNames[:fieldAcks]), "topic", "request")

// noKeysInside says why.
const noKeysInside = "there are no idempotency keys in a transaction, whose records may never count: a retry " +
	"is told by the request's number"

// The sequences of a request are as many as it may have records, and those of the
// last request still fit. A partition remembers the last five batches of a producer: all
// of a request must be among them.
const (
	requestSequences = 1 << 14
	maxRequest       = 1<<17 - 1
	maxBatches       = 5
)

// inTransaction is what a produce request has that is part of a transaction.
type inTransaction struct {
	producer txn.Producer
	topic    string
	request  int32
}

func (s *server) produceInTransaction(w http.ResponseWriter, r *http.Request) error {
	producer, err := transactionOf(r)
	if err != nil {
		return err
	}
	return s.produceInto(w, r, &inTransaction{producer: producer})
}

// readField reads a field that only a request in a transaction has.
func (t *inTransaction) readField(in *strictjson.Reader, i int) {
	switch i {
	case fieldTopic:
		t.topic = in.String()
	case fieldRequest:
		t.request = int32(in.Int(0, maxRequest))
	}
}

// checkObject checks that they are there.
func (t *inTransaction) checkObject(in *strictjson.Reader, o *strictjson.Object) {
	missing := t.missing(func(name string) bool { return o.Has(slices.Index(txnFieldNames, name)) })
	if missing != "" {
		in.Fail("%s", missing)
	}
}

// missing says what a request lacks that has those settings, or "".
func (t *inTransaction) missing(has func(name string) bool) string {
	switch {
	case !has("topic"):
		return "the topic is missing"
	case !has("request"):
		return "request is missing: number the requests of a transaction, from 0 on; a retry has the number of " +
			"what it repeats"
	}
	return ""
}

// path is where the request goes, as one broker asks another.
func (t *inTransaction) path() string {
	return transactionsPath + "/" + tokenOf(t.producer) + "/produce"
}

// appendFields appends them to a request.
func (t *inTransaction) appendFields(b []byte) []byte {
	return fmt.Appendf(appendText(append(b, `"topic":`...), []byte(t.topic)), `,"request":%d`, t.request)
}

// partitionOf returns the partition of record number i, which may go to any: the same
// one each time.
func (t *inTransaction) partitionOf(i int, n int32) int32 {
	turn := uint64(t.producer.PID) + uint64(t.producer.Epoch) + uint64(t.request) + uint64(i)
	return int32(turn % uint64(n))
}

// findTopic finds the topic. What another broker has heard of, this one soon will.
func (t *inTransaction) findTopic(ctx context.Context, c *produceCall) (*topics.View, error) {
	view, err := c.server.topicToWrite(ctx, t.topic)
	if c.inside && refusal.CodeOf(err) == kafka.ErrUnknownTopicOrPartition {
		return nil, &kafka.Error{Code: kafka.ErrLeaderNotAvailable, Message: refusal.MessageOf(err)}
	}
	return view, err
}

// checkAll fails if one of the records cannot be appended wherever it belongs, as far as
// can be seen from here.
func (c *produceCall) checkAll() error {
	if err := c.failure(); err != nil {
		return err
	}
	now := c.server.Now()
	for i := range c.records {
		c.records[i].date(now)
	}
	for of := range c.groups() {
		g := destination{limits: c.topic.ProduceLimits(record.CodecSet(0), now)}
		batches := c.split(of, g.limits.MaxBatchBytes)
		if len(batches) > maxBatches {
			return refuse(http.StatusRequestEntityTooLarge, kafka.ErrRecordListTooLarge,
				"the records of partition %d take more than %d batches of %d bytes (max.message.bytes), of which a retry could "+
					"be told: send fewer at a time", c.records[of[0]].partition, maxBatches, g.limits.MaxBatchBytes)
		}
		for _, batch := range batches {
			c.fill(batch)
			if c.build(&g) != nil {
				c.sift(&g, slices.Clone(batch)) // Which?
			}
		}
	}
	return c.failure()
}

// split returns which records of one partition make a batch. It goes by the records
// alone, so that a retry makes the same.
func (c *produceCall) split(of []int32, maxBytes int) (batches [][]int32) {
	start, size := 0, record.HeaderSize
	for k, i := range of {
		bound := c.records[i].sizeBound()
		if k > start && size+bound > maxBytes {
			batches = append(batches, of[start:k])
			start, size = k, record.HeaderSize
		}
		size += bound
	}
	return append(batches, of[start:])
}

// fill puts records into the builder.
func (c *produceCall) fill(of []int32) {
	c.builder.Reset()
	for _, i := range of {
		r := &c.records[i]
		c.builder.Append(r.timestampMs, r.key, r.value, r.headers)
	}
}

// entry is a partition that records of a transaction are appended to.
type entry struct {
	destination
	of    []int32
	check partition.TxnCheck
	err   error
}

// appendInside appends every record that has no place yet, once the transaction's
// coordinator knows their partitions to be part of it.
func (c *produceCall) appendInside(ctx context.Context, now time.Time) {
	var all []entry
	for of := range c.groups() {
		e := entry{of: of, destination: destination{
			part: c.topic.Partition(c.records[of[0]].partition), now: now,
			limits: c.topic.ProduceLimits(record.CodecSet(0), now),
		}}
		if e.part == nil {
			e.err = &kafka.Error{Code: kafka.ErrNotLeaderOrFollower, Message: "another broker leads the partition: try again"}
		}
		all = append(all, e)
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.left, firstPause))
	defer cancel()
	c.join(ctx, all)
	for i := range all {
		e := &all[i]
		sequence := c.txn.request * requestSequences
		for _, batch := range c.split(e.of, e.limits.MaxBatchBytes) {
			if e.err == nil {
				e.err = c.appendBatch(ctx, e, batch, sequence)
			}
			if e.err != nil {
				c.refuseAll(batch, e.err)
			}
			sequence += int32(len(batch))
		}
	}
}

// join asks the coordinator about all partitions in which the transaction is not open
// yet, in one go.
func (c *produceCall) join(ctx context.Context, all []entry) {
	j := c.txn.joining()
	var asked []*entry
	for i := range all {
		e := &all[i]
		if e.err != nil {
			continue
		}
		var needed bool
		if e.check, needed, e.err = e.part.BeginVerification(j.ProducerID, j.ProducerEpoch); needed {
			asked = append(asked, e)
			j.Add(e.part)
		}
	}
	if len(asked) == 0 {
		return
	}
	for k, code := range c.server.Transactions.Join(ctx, j) {
		asked[k].err = joinRefusal(code)
	}
}

// joinRefusal is txnRefusal where a partition is to join the transaction. Whoever asks has
// found the topic: the coordinator, on another broker, soon hears of it too.
func joinRefusal(code kafka.Code) error {
	if code == kafka.ErrUnknownTopicOrPartition || code == kafka.ErrOperationNotAttempted {
		return &kafka.Error{
			Code: kafka.ErrLeaderNotAvailable, Message: "the transaction's coordinator has not heard of the topic yet: try again",
		}
	}
	return txnRefusal(code)
}

// joining is what the coordinator is asked.
func (t *inTransaction) joining() *transactions.Joining {
	return &transactions.Joining{
		ID: t.producer.ID, ProducerID: t.producer.PID, ProducerEpoch: t.producer.Epoch,
	}
}

// appendBatch appends records of one partition as one batch, or finds that they are
// there.
func (c *produceCall) appendBatch(ctx context.Context, e *entry, of []int32, sequence int32) error {
	for joins := 1; ; joins++ {
		c.fill(of)
		c.builder.SetProducer(c.txn.producer.PID, c.txn.producer.Epoch, sequence)
		c.builder.SetTransactional()
		if err := c.build(&e.destination); err != nil {
			return err
		}
		info, err := e.part.AppendTxn(kafka.NoLeaderEpoch, c.batch[:], c.acks, e.check.WithGaps(), e.now)
		if err == nil {
			for k, i := range of {
				r := &c.records[i]
				r.part, r.leaderEpoch, r.offset = e.part, info.LeaderEpoch, info.BaseOffset+kafka.Offset(k)
				if info.LogAppendTimeMs >= 0 {
					r.timestampMs = info.LogAppendTimeMs
				}
			}
			if info.Duplicate {
				return c.compare(e.part, of, info.BaseOffset)
			}
			return nil
		}
		if refusal.CodeOf(err) != kafka.ErrInvalidTxnState || joins == transactions.MaxJoins {
			return c.txn.refused(err)
		}
		// A late marker came between the coordinator's word and the append.
		check, code, err := c.server.Transactions.Enter(ctx, e.part, c.txn.joining())
		if err = cmp.Or(err, joinRefusal(code)); err != nil {
			return err
		}
		e.check = check
	}
}

// refused says what it means that the log refuses a batch.
func (t *inTransaction) refused(err error) error {
	code := refusal.CodeOf(err)
	if code == kafka.ErrOutOfOrderSequenceNumber {
		return &kafka.Error{Code: code, Message: fmt.Sprintf("request %d was sent before with other records, or a later request "+
			"has come to the partition: a retry repeats all of the last request, and another one has a higher number. "+
			"If that was no mistake of the client's, abort the transaction", t.request)}
	}
	if words := txnRefusal(code); txnWords(code) != "" {
		return words
	}
	return err
}

// compare holds records that came again against what is in the log from an offset on, and
// takes the timestamps from there: of those without one the first try's counts.
func (c *produceCall) compare(p *partition.Partition, of []int32, at kafka.Offset) error {
	chunk, err := p.Log().Read(at, 1, at+kafka.Offset(len(of)), true)
	if refusal.CodeOf(err) == kafka.ErrOffsetOutOfRange {
		return nil // Retention or DeleteRecords has taken them.
	}
	if err != nil {
		return err
	}
	defer chunk.Release()
	data, err := chunk.AppendTo(nil)
	if err != nil {
		return err
	}
	b, _, err := record.Next(data)
	if err != nil {
		return err
	}
	k := 0
	for there, err := range b.Records(int64(len(data))) {
		if err != nil {
			return err
		}
		if k == len(of) || !c.records[of[k]].equals(&there) {
			return refuse(http.StatusConflict, kafka.ErrDuplicateResource,
				"request %d was sent before with other records: %s-%d has them at offset %d. A retry repeats all of a request, "+
					"and another one has a higher number", c.txn.request, p.Topic(), p.ID().Partition, at)
		}
		if b.TimestampType() != record.LogAppendTime {
			c.records[of[k]].timestampMs = there.Timestamp
		}
		k++
	}
	return nil
}

// equals reports whether a record in a log has the same key, value and headers.
func (r *produceRecord) equals(there *record.Record) bool {
	same := func(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }
	return same(r.key, there.Key) && same(r.value, there.Value) &&
		slices.EqualFunc(r.headers, there.Headers, func(a, b record.Header) bool {
			return a.Key == b.Key && same(a.Value, b.Value)
		})
}

// mayRepeat reports whether the request is worth another try, which is one of all records
// of a partition: their sequences go by their places among them.
func (c *produceCall) mayRepeat() bool {
	again := map[int32]bool{}
	for i := range c.records {
		switch x := &c.records[i]; {
		case x.again():
			again[x.partition] = true
		case x.err != nil:
			return false
		}
	}
	for i := range c.records {
		if x := &c.records[i]; again[x.partition] {
			x.done = false
		}
	}
	return true
}

// failure is why a request in a transaction fails: because of one record, whatever
// became of the others. What cannot be helped by trying again comes first.
func (c *produceCall) failure() error {
	worst := -1
	var why passedOn
	for i := range c.records {
		r := &c.records[i]
		if r.err == nil {
			continue
		}
		status, problem := problemOf(r.refused())
		if worst >= 0 && (problem.Retriable || !why.problem.Retriable) {
			continue
		}
		worst, why = i, passedOn{status: status, problem: problem}
	}
	if worst < 0 {
		return nil
	}
	if c.several {
		why.problem.Message = fmt.Sprintf("records[%d]: %s", worst, why.problem.Message)
	}
	return &why
}
