package api

// Produce, versions 3-13.
//
//	v3  record batch v2 only (KIP-896 floor)    v8  record errors (KIP-467)
//	v9  flexible   v10 current leader in the answer (KIP-951)
//	v11 TRANSACTION_ABORTABLE   v12 partitions join transactions by it (KIP-890)
//	v13 topics by id (KIP-516)
//
// The request is read in place (producebody.go), so that no count that a stranger
// sends makes this broker allocate more than a few times the bytes that came.
// A batch is validated outside of any lock, appended in the order in which its
// request was read from the connection, and answered in that order: at once for
// acks=1, when the high watermark has passed it for acks=all, never for acks=0.
// A batch of a transaction is appended only when its coordinator has said that the
// partition is part of the transaction (producetxn.go).
// The answer waits in the connection's write loop while the next request is
// appended, so pipelining costs nothing.
//
// An answer for acks=all is given under the leader epoch of the append: when it has
// passed to another leader nobody here knows what became of the records, and the
// client tries again (NOT_LEADER_OR_FOLLOWER). Too few replicas in sync are
// NOT_ENOUGH_REPLICAS before the append, and NOT_ENOUGH_REPLICAS_AFTER_APPEND if
// they were lost meanwhile.
//
// A batch of an idempotent producer that was appended before is not appended again, and
// is acknowledged like the first: it is one of the producer's last five here, or the same
// is found in the log before them.
//
// Deviations from Kafka: acks=all is answered after the sync. A request whose
// partition was refused with acks=0 closes the connection, as in Kafka. A batch that
// comes again and is not among the last five is OUT_OF_ORDER_SEQUENCE_NUMBER in Kafka, which
// the Java client meets by sending it again until delivery.timeout.ms has passed, and
// nothing else. A broker that is cut off closes connections on which it can't acknowledge anything,
// where Kafka's answers REQUEST_TIMED_OUT, and names itself as the leader, for ever; what
// comes after that it refuses (doubt.go).

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/topics"
	"github.com/strandline/strandline/internal/wire"
)

// produceAPI answers Produce requests.
type produceAPI struct {
	s    *Services
	pool sync.Pool // of *produceReply: their slices are worth keeping.
}

// produced is the outcome of one partition of a request.
type produced struct {
	index   int32
	records []byte // Aliases the frame; nil once appended.
	code    kafka.Code
	message string
	info    commitlog.AppendInfo
	record  int32 // Index of the offending record, or -1.
	part    *partition.Partition
}

// producedTopic is the outcome of one topic: results[first:end].
type producedTopic struct {
	name       string // Aliases the frame until the topic was resolved.
	id         kafka.TopicID
	first, end int
}

// produceReply is the answer to one request. It is done when every partition's
// high watermark has passed what was appended to it.
type produceReply struct {
	handler  *produceAPI
	wire     *wire.Request
	version  int16
	acks     partition.Acks
	timeout  time.Duration
	deadline time.Time
	topics   []producedTopic
	results  []produced
	batches  []record.Batch // Scratch.
	// transactionalID aliases the frame; txn is of requests that have one.
	transactionalID string
	txn             *producedTransaction
	// waiting counts down: results[waiting:] are settled. The last appended is
	// waited for first, because the committer reports logs in the order of
	// their appends: when it is through, the others are too.
	waiting  int
	waiter   partition.Waiter
	waitedOn *partition.Partition
	// stranded says that nobody here will ever know: see isStranded. doubted says that
	// something was refused because others may lead; who does is not known here.
	stranded, doubted bool
}

func (h *produceAPI) handle(ctx context.Context, w *wire.Request) wire.Response {
	r, _ := h.pool.Get().(*produceReply)
	if r == nil {
		r = &produceReply{}
	}
	r.handler, r.wire, r.version = h, w, w.Version
	r.waitedOn, r.waiting, r.deadline, r.stranded, r.doubted = nil, 0, time.Time{}, false, false
	if err := r.read(w.Body); err != nil {
		return badRequest(w, err)
	}
	if r.transactionalID != "" {
		r.join(ctx)
	}
	now := h.s.Now()
	for i := range r.topics {
		r.appendTopic(ctx, &r.topics[i], now)
	}
	r.transactionalID, r.txn = "", nil
	w.Release() // Everything is in the page cache; the buffer is free.
	if r.acks == partition.AcksNone {
		return r.finishUnanswered()
	}
	w.Charge(r.heldBytes())
	if r.acks == partition.AcksAll {
		r.waiting = len(r.results)
		r.deadline = now.Add(r.timeout)
	}
	return r
}

// heldBytes is what the reply holds until it is answered.
func (r *produceReply) heldBytes() int64 {
	n := int64(len(r.results))*int64(unsafe.Sizeof(produced{})) +
		int64(len(r.topics))*int64(unsafe.Sizeof(producedTopic{}))
	for i := range r.results {
		n += int64(len(r.results[i].message))
	}
	return n
}

// maxKeptResults bounds what a reply keeps for the next request.
const maxKeptResults = 1024

// recycle gives the reply back for the next request.
func (r *produceReply) recycle() {
	if cap(r.results) <= maxKeptResults && cap(r.topics) <= maxKeptResults {
		r.handler.pool.Put(r)
	}
}

// finishUnanswered ends an acks=0 request: a failure can only be told by
// closing the connection.
func (r *produceReply) finishUnanswered() wire.Response {
	for i := range r.results {
		if p := &r.results[i]; p.code != kafka.ErrNone {
			return wire.Close("produce with acks=0 failed: " + p.code.String() + ": " + p.message)
		}
	}
	r.recycle()
	return nil
}

func (r *produceReply) appendTopic(ctx context.Context, t *producedTopic, now time.Time) {
	topic, code := r.handler.s.resolve(t.name, t.id, r.version >= 13)
	unknown := ""
	if code != kafka.ErrNone {
		unknown = topics.Unknown(t.name, t.id)
	}
	for i := t.first; i < t.end; i++ {
		out := &r.results[i]
		if code != kafka.ErrNone {
			out.code, out.message = code, unknown
		} else {
			r.appendPartition(ctx, topic, now, i)
		}
		out.records = nil
	}
	t.name = topic.Name
}

func (r *produceReply) appendPartition(ctx context.Context, topic *topics.View, now time.Time, i int) {
	out := &r.results[i]
	p := topic.Partition(out.index)
	err := r.parse(out.records, topic, now)
	switch {
	case p == nil:
		out.code, out.message = topic.NoPartition(out.index)
		return
	case topic.Internal:
		err = topic.Writable()
	case err == nil && r.acks == partition.AcksAll && r.handler.s.inDoubt(p, now):
		r.wire.Conn.SetValue(refusedKey{}, true)
		r.doubted, err = true, errInDoubt
	case err == nil && r.txn == nil && r.batches[0].IsTransactional():
		err = errNoTransactionalID
	case err == nil && r.txn != nil:
		out.info, err = r.appendTxn(ctx, p, i, now)
	case err == nil:
		out.info, err = p.Append(r.batches, r.acks, now)
	}
	if err != nil {
		out.code, out.message, out.record = produceError(err)
		return
	}
	out.part = p
}

// parse validates the record data of one partition into r.batches.
func (r *produceReply) parse(data []byte, topic *topics.View, now time.Time) error {
	r.batches = r.batches[:0]
	if r.acks < partition.AcksAll || r.acks > partition.AcksLeader {
		return &kafka.Error{Code: kafka.ErrInvalidRequiredAcks, Message: "acks must be 0, 1 or -1 (all)"}
	}
	if len(data) == 0 {
		return &kafka.Error{Code: kafka.ErrInvalidRecord, Message: "the request has no record batch for this partition"}
	}
	limits := topic.ProduceLimits(codecsOf(r.version), now)
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil {
			return err
		}
		if len(r.batches) == 1 {
			return &kafka.Error{
				Code:    kafka.ErrInvalidRecord,
				Message: "a produce request may carry one record batch a partition: send the others in requests of their own",
			}
		}
		if err := record.ValidateProduced(b, limits); err != nil {
			return err
		}
		r.batches, data = append(r.batches, b), rest
	}
	return nil
}

// Done implements wire.Response.
func (r *produceReply) Done() bool {
	if r.waitedOn != nil && !r.waiter.Fired() {
		return false
	}
	r.waitedOn = nil
	for r.waiting > 0 {
		p := &r.results[r.waiting-1]
		if p.part == nil || p.settle() {
			r.waiting--
			continue
		}
		if !p.part.Wait(&r.waiter, r.wire, p.info.LastOffset+1) {
			continue
		}
		// Only now: a partition that resigned before the line above wakes nobody.
		if p.settle() {
			p.part.StopWaiting(&r.waiter)
			r.waiting--
			continue
		}
		if r.isStranded(p.part) {
			p.part.StopWaiting(&r.waiter)
			return true
		}
		r.waitedOn = p.part
		return false
	}
	return true
}

// isStranded reports whether the request waits in vain for a partition that others have
// too: on a disk that hangs; or on a broker that is out of touch with the active
// controller, where it has waited for as long as it takes the cluster to have others lead,
// or the replicas do not say that they follow it still. A client that is answered in time
// stays here, as far as it has no connection to others: all it is told of is a broker that
// believes to lead. (What the replicas take while the quorum is lost is acknowledged as
// ever.)
func (r *produceReply) isStranded(p *partition.Partition) bool {
	s := r.handler.s
	switch {
	case !p.Shared():
	case s.Hangs != nil && s.Hangs():
		r.stranded = true
	case s.OutOfTouch != nil && s.OutOfTouch():
		now := s.Now()
		// What comes after this is refused by what the replicas say, too: see doubt.go.
		waited, unanswered := now.Sub(r.deadline.Add(-r.timeout)), p.Doubt(now)
		r.stranded = r.stranded || waited >= min(r.timeout, s.Broker().SessionTimeout) ||
			unanswered >= partition.ConfirmTimeout
	}
	return r.stranded
}

// errStranded ends a connection.
var errStranded = errors.New("this broker can't acknowledge what was produced, because it is cut off from the " +
	"cluster or its disk hangs: others may lead by now")

// settle decides whether what was appended is acknowledged, or will not be; false
// if neither.
func (p *produced) settle() bool {
	err := p.part.Acknowledged(p.info.LeaderEpoch, p.info.LastOffset+1)
	if errors.Is(err, partition.ErrNotYet) {
		return false
	}
	if err != nil {
		p.code, p.message, _ = produceError(err)
		p.part = nil
	}
	return true
}

// Deadline implements wire.Response.
func (r *produceReply) Deadline() time.Time { return r.deadline }

// Encode implements wire.Response.
func (r *produceReply) Encode(w *wire.Writer) error {
	r.settleLate()
	if r.stranded {
		r.recycle()
		return errStranded
	}
	w.Append(r.appendTo)
	r.recycle()
	return nil
}

// settleLate decides what was not acknowledged by the deadline.
func (r *produceReply) settleLate() {
	if r.waitedOn != nil {
		r.waitedOn.StopWaiting(&r.waiter)
		r.waitedOn = nil
	}
	for ; r.waiting > 0; r.waiting-- {
		p := &r.results[r.waiting-1]
		if p.part != nil && !p.settle() {
			_ = r.isStranded(p.part)
			p.code = kafka.ErrRequestTimedOut
			p.message = "the records were written but not acknowledged by every in-sync replica in time"
		}
	}
}

func (r *produceReply) appendTo(dst []byte) []byte {
	e := encoder{dst: dst, flexible: r.version >= 9}
	leaders := currentLeaders{image: r.handler.s.image()}
	e.arrayLen(len(r.topics))
	for _, t := range r.topics {
		if r.version >= 13 {
			e.topicID(t.id)
		} else {
			e.string(t.name)
		}
		e.arrayLen(t.end - t.first)
		for i := t.first; i < t.end; i++ {
			p := &r.results[i]
			r.appendResult(&e, p)
			if leader, ok := r.leader(&leaders, t, p); ok {
				e.currentLeader(0, leader)
			} else {
				e.noTags()
			}
		}
		e.noTags()
	}
	e.int32(0) // Throttle time.
	if r.version >= 10 {
		e.nodeEndpoints(&leaders)
	} else {
		e.noTags()
	}
	return e.dst
}

// leader returns who leads what was refused, where that helps.
func (r *produceReply) leader(leaders *currentLeaders, t producedTopic, p *produced) (currentLeader, bool) {
	if r.version < 10 || r.doubted {
		return currentLeader{}, false
	}
	return leaders.of(t.name, t.id, p.index, p.code)
}

// appendResult writes one partition, but for its tagged fields.
func (r *produceReply) appendResult(e *encoder, p *produced) {
	info := p.info
	if p.code != kafka.ErrNone {
		r.handler.s.errors.note(r.wire.Key, p.code)
		info = commitlog.AppendInfo{BaseOffset: kafka.NoOffset, LogAppendTimeMs: -1, LogStartOffset: info.LogStartOffset}
	}
	e.int32(p.index)
	e.code(p.code)
	e.int64(int64(info.BaseOffset))
	e.int64(info.LogAppendTimeMs)
	if r.version >= 5 {
		e.int64(int64(info.LogStartOffset))
	}
	if r.version >= 8 {
		if p.record >= 0 {
			e.arrayLen(1)
			e.int32(p.record)
			e.nullableString(shortened(p.message))
			e.noTags()
		} else {
			e.arrayLen(0)
		}
		e.nullableString(shortened(p.message))
	}
}
