package httpapi

// POST /v1/topics/{topic}/produce.
//
//	JSON: one record, or {"records": [...]}; with Content-Type:
//	application/octet-stream the body is the value and the rest is in the query
//
// The records of a request go into one batch a partition, in their order, and
// are appended like those of Kafka's clients. With acks=all (the default) the
// answer comes when every in-sync replica has synced them, with 0 and 1 when they
// are written; unlike Kafka's, acks=0 is told of failures, because HTTP has an
// answer anyway.
//
// A record with an idempotency_key is appended once: see append.go.

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/topics"
)

// Bounds of one produce request.
const (
	maxRecords = 10_000
	maxHeaders = 100_000 // Of all records together.
)

// defaultProduceTimeout is how long acks=all may take where the request does not
// say, maxProduceTimeout where it does.
const (
	defaultProduceTimeout = 30 * time.Second
	maxProduceTimeout     = 2 * time.Minute
)

// Result is what became of a record.
type Result struct {
	Partition   int32 `json:"partition"`
	Offset      int64 `json:"offset"`
	Timestamp   int64 `json:"timestamp"`    // In seconds.
	TimestampMs int64 `json:"timestamp_ms"` // In milliseconds.
}

// BatchResult is what became of one of several records: a Result, or why not.
type BatchResult struct {
	Result
	Error *Problem `json:"error,omitempty"`
}

// BatchResults is the answer to several records: one result for each, in order.
type BatchResults struct {
	Failed  int           `json:"failed"` // How many have an error.
	Results []BatchResult `json:"results"`
}

func (s *server) produce(w http.ResponseWriter, r *http.Request) error {
	return s.produceInto(w, r, nil)
}

// produceInto is produce, as part of a transaction if there is one.
func (s *server) produceInto(w http.ResponseWriter, r *http.Request, txn *inTransaction) error {
	b, err := s.readBody(w, r, math.MaxInt64)
	if err != nil {
		return err
	}
	defer func() {
		if b != nil {
			b.release()
		}
	}()
	c, _ := s.calls.Get().(*produceCall)
	if c == nil {
		c = newProduceCall(s)
	}
	defer c.recycle()
	c.txn, c.inside = txn, inside(r)
	if err := guarded(func() error { return c.read(r, b.bytes) }); err != nil {
		return err
	}
	if err := c.charge(); err != nil {
		return err
	}
	if c.topic, err = c.findTopic(r); err != nil {
		return err
	}
	c.left = c.timeout
	c.choosePartitions()
	if c.txn != nil && !c.inside {
		if err := c.checkAll(); err != nil {
			return err
		}
	}
	if s.travels(r) {
		err := c.deliverAsking(r, b.bytes, func() {
			b.release()
			b = nil
		})
		if err != nil {
			return err
		}
		return c.answer(w)
	}
	if err := c.findElsewhere(r.Context()); err != nil {
		return err
	}
	if err := c.appendHere(r.Context()); err != nil {
		return err
	}
	b.release() // What was appended was copied; waiting takes no memory of it.
	b = nil
	c.await(r.Context())
	return c.answer(w)
}

// findTopic finds the topic that the records go to.
func (c *produceCall) findTopic(r *http.Request) (*topics.View, error) {
	if c.txn != nil {
		return c.txn.findTopic(r.Context(), c)
	}
	return c.server.topicToWrite(r.Context(), r.PathValue("topic"))
}

// appendHere appends what is to be appended on this broker.
func (c *produceCall) appendHere(ctx context.Context) error {
	for i := range c.records {
		if x := &c.records[i]; x.err == nil && !x.done {
			c.server.awaitOpen(ctx, c.topic, x.partition)
		}
	}
	return c.append(ctx)
}

// read reads the request.
func (c *produceCall) read(r *http.Request, body []byte) error {
	switch t := contentType(r); {
	case t == typeJSON:
		return c.readJSON(r, body)
	case t == typeRaw:
		return c.readRaw(r, body)
	default:
		return wrongType(t, typeJSON+" (or "+typeRaw+" for a value as it is)")
	}
}

// topic returns the topic of a path, or why there is none.
func (s *server) topic(name string) (*topics.View, error) {
	view, code := s.Topics.ByName(name)
	if code == kafka.ErrNone {
		return view, nil
	}
	if err := metadata.CheckTopicName(name); err != nil {
		return nil, &kafka.Error{Code: kafka.ErrInvalidTopicException, Message: err.Error()}
	}
	message := topics.Unknown(name, kafka.TopicID{})
	if near := s.Topics.Nearest(name); near != "" {
		message += "; did you mean " + near + "?"
	}
	return nil, &kafka.Error{Code: code, Message: message}
}

// topicToWrite is topic for somebody who writes to it: the topic is created if
// Kafka's clients would have it created.
func (s *server) topicToWrite(ctx context.Context, name string) (*topics.View, error) {
	view, code := s.Topics.ByName(name)
	if code != kafka.ErrNone {
		ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
		defer cancel()
		refused, err := s.Topics.AutoCreate(ctx, name)
		if err != nil {
			return nil, err
		}
		if why := refused[name]; why != nil {
			return nil, why
		}
		if view, err = s.awaitTopic(ctx, name); err != nil {
			return nil, err
		}
	}
	return view, view.Writable()
}

// awaitTopic is topic for one that was created just now, if topics are: on a cluster
// the news takes a moment.
func (s *server) awaitTopic(ctx context.Context, name string) (*topics.View, error) {
	until := time.Now().Add(openPatience)
	for {
		view, err := s.topic(name)
		if err == nil || s.Forward == nil || !s.Broker().AutoCreateTopicsEnable || metadata.CheckTopicName(name) != nil ||
			ctx.Err() != nil || time.Now().After(until) {
			return view, err
		}
		sleep(ctx, firstPause)
	}
}

// openPatience bounds a wait for a partition that is being opened.
const openPatience = 2 * time.Second

// awaitOpen waits for a partition that the metadata gives to this broker and that
// is not there yet: somebody has just created the topic. Kafka's clients ask again
// by themselves; those of HTTP should not have to.
func (s *server) awaitOpen(ctx context.Context, topic *topics.View, i int32) {
	if topic.Partition(i) != nil || topic.Meta.Partitions[i].Leader != s.NodeID {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for topic.Partition(i) == nil {
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// decisionTimeout bounds a wait for the controller.
const decisionTimeout = 30 * time.Second

// choosePartitions gives every record that has no place yet its partition.
func (c *produceCall) choosePartitions() {
	n := int32(len(c.topic.Meta.Partitions))
	for i := range c.records {
		r := &c.records[i]
		switch {
		case r.done || r.err != nil:
		case r.partition >= n && c.txn != nil && c.inside:
			r.err = noLeaderError{} // Another broker knows of it already.
		case r.partition >= n && !r.chosen:
			code, message := c.topic.NoPartition(r.partition)
			r.err = &kafka.Error{Code: code, Message: message}
		case r.partition >= 0 && !r.chosen:
		case r.key != nil:
			r.partition, r.chosen = kafka.PartitionOfKey(r.key, n), true
		case r.idempotencyKey != nil:
			r.partition, r.chosen = kafka.PartitionOfKey(r.idempotencyKey, n), true
		case c.txn != nil:
			r.partition, r.chosen = c.txn.partitionOf(i, n), true
		default:
			r.partition, r.chosen = c.nextInTurn(n), true
		}
	}
}

// nextInTurn returns the partition whose turn it is. What another broker has sent
// goes to a partition that is led here: it has chosen this broker for it.
func (c *produceCall) nextInTurn(n int32) int32 {
	next := c.topic.NextInTurn()
	for i := int32(1); c.inside && i < n && c.topic.Meta.Partitions[next].Leader != c.server.NodeID; i++ {
		next = c.topic.NextInTurn()
	}
	return next
}

// lastWait is how much longer a record is waited for once the broker stops, or its
// client is gone: it comes soon, and the answer matters.
const lastWait = 1500 * time.Millisecond

// await waits until what was appended is as safe as the call wants it.
func (c *produceCall) await(ctx context.Context) {
	if c.acks != partition.AcksAll {
		return
	}
	c.timer.Reset(c.left)
	defer c.timer.Stop()
	expired, until := false, ""
	for i := range c.records {
		r := &c.records[i]
		if r.err != nil || r.sameAs >= 0 || r.part == nil || r.done {
			continue
		}
		// The records of a batch have one and the same fate; the high watermark
		// has passed most of them after the first wait.
		if expired && r.part.HighWatermark() <= r.offset {
			r.err = context.DeadlineExceeded
		} else {
			r.err = r.part.Await(ctx, c.timer.C, r.leaderEpoch, r.offset+1)
			if errors.Is(r.err, context.Canceled) {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastWait)
				defer cancel()
				until = "before the broker stopped"
				r.err = r.part.Await(ctx, c.timer.C, r.leaderEpoch, r.offset+1)
			}
		}
		if errors.Is(r.err, context.DeadlineExceeded) {
			expired = true
			until = cmp.Or(until, "in "+c.timeout.String())
			r.err = &kafka.Error{
				Code: kafka.ErrRequestTimedOut,
				Message: "the record was written but not acknowledged by every in-sync replica " + until +
					": " + r.tryAgain(),
			}
		}
	}
}

// tryAgain says how a record that may have been appended is sent again.
func (r *produceRecord) tryAgain() string {
	if r.numbered {
		return "try again, as the same request"
	}
	return "try again, with an idempotency_key to have it once"
}

// answer writes the results.
func (c *produceCall) answer(w http.ResponseWriter) error {
	if c.txn != nil && !c.inside {
		if err := c.failure(); err != nil {
			return err
		}
	}
	for i := range c.records {
		r := &c.records[i]
		if r.sameAs >= 0 && r.err == nil {
			first := &c.records[r.sameAs]
			r.partition, r.offset, r.timestampMs, r.err = first.partition, first.offset, first.timestampMs, first.err
		}
	}
	out := c.out[:0]
	if !c.several {
		r := &c.records[0]
		if r.err != nil {
			return r.refused()
		}
		c.out = append(r.appendResult(append(out, '{')), '}', '\n')
		answerJSON(w, http.StatusOK, c.out)
		return nil
	}
	failed := 0
	for i := range c.records {
		if c.records[i].err != nil {
			failed++
		}
	}
	out = strconv.AppendInt(append(out, `{"failed":`...), int64(failed), 10)
	out = append(out, `,"results":[`...)
	for i := range c.records {
		if i > 0 {
			out = append(out, ',')
		}
		r := &c.records[i]
		if r.err == nil {
			out = append(r.appendResult(append(out, '{')), '}')
			continue
		}
		_, problem := problemOf(r.refused())
		if c.inside {
			out = appendJSON(out, insideBody{insideProblem{problem, undone(r.refused())}})
			continue
		}
		out = appendJSON(out, problemBody{problem})
	}
	c.out = append(out, ']', '}', '\n')
	status := http.StatusOK
	if failed > 0 {
		status = http.StatusMultiStatus
	}
	answerJSON(w, status, c.out)
	return nil
}

// refused is why the record is not acknowledged; a doubtError if it may have been
// appended.
func (r *produceRecord) refused() error {
	switch {
	case r.part == nil:
		return r.err
	case movedCode(refusal.CodeOf(r.err)):
		return &doubtError{&kafka.Error{
			Code: refusal.CodeOf(r.err), Message: "the partition has another leader since the record was written, and it is not " +
				"known whether that one has it: " + r.tryAgain(),
		}}
	}
	return &doubtError{r.err}
}

// appendResult appends the fields of a Result.
func (r *produceRecord) appendResult(out []byte) []byte {
	out = strconv.AppendInt(append(out, `"partition":`...), int64(r.partition), 10)
	out = strconv.AppendInt(append(out, `,"offset":`...), int64(r.offset), 10)
	out = strconv.AppendInt(append(out, `,"timestamp":`...), seconds(r.timestampMs), 10)
	return strconv.AppendInt(append(out, `,"timestamp_ms":`...), r.timestampMs, 10)
}

// seconds rounds milliseconds down.
func seconds(ms int64) int64 { return time.UnixMilli(ms).Unix() }
