package api

// Fetch, versions 4-18.
//
//	v4  read_committed      v5  log start offset     v7  sessions (KIP-227)
//	v9  current leader epoch (KIP-320)               v11 rack (KIP-392)
//	v12 flexible, last fetched epoch (KIP-595)       v13 topics by id (KIP-516)
//	v15 replica state (KIP-903)                      v16 node endpoints (KIP-951)
//	v17 directory ids   v18 a follower's high watermark (KIP-1166)
//
// The answer waits in the connection's write loop until it has min_bytes, or an
// error to tell, or max_wait is over. It waits on the very partitions it names
// and reads again only those whose high watermark moved. Record bytes are not
// touched: the writer is handed file ranges.
//
// A read_committed consumer reads to the last stable offset and waits for that: an
// open transaction does not wake it. It is told which transactions with records in
// the answer were aborted, and leaves those out itself; where none was, it costs what
// any other does.
//
// A consumer that names its rack is sent to a replica in sync that stands in it
// (KIP-392), and is served by followers that hear from their leader. Followers'
// fetches are in fetchreplica.go. On a listener for brokers, the replica id -2, which Kafka
// has for debugging, is of one whose log is damaged: it takes what this replica has, up to
// its high watermark, leader or not.
//
// A consumer that has connections to a broker alone that is cut off from the others would
// read there for ever, up to what that one knew last: see fetchstranded.go.
//
// Deviations from Kafka: the answer never ends in part of a batch. There is no
// replica.selector.class to set: a consumer that names a rack wants it. One that
// names none is not served by followers.

import (
	"context"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

// fetchAPI answers Fetch requests.
type fetchAPI struct {
	s        *Services
	memory   *memory
	sessions *sessionCache
	// replicas says that followers may fetch here: a listener for brokers only.
	replicas bool
}

func newFetchAPI(s *Services, m *memory) *fetchAPI {
	return &fetchAPI{s: s, memory: m, sessions: newSessionCache(s.Now, func() int {
		return int(s.Broker().MaxIncrementalFetchSessionCacheSlots)
	})}
}

// fetchEntry is one partition of one fetch, or of all fetches in a follower's
// session.
type fetchEntry struct {
	want *fetchedPartition
	part *partition.Partition
	// due says that it is to be read.
	due    bool
	waiter partition.Waiter
	// waiting says that waiter is registered with part.
	waiting bool
	// watermark waits for the high watermark where waiter waits for the log's end:
	// for a follower that has readers.
	watermark *partition.Waiter
	result    partition.ReadResult
	size      int
	code      kafka.Code
	// elsewhere is the replica that the consumer should read from, if sent says so.
	elsewhere kafka.BrokerID
	sent      bool
	held      heldEntry
}

// fetchReply is the answer to one request.
type fetchReply struct {
	handler   *fetchAPI
	wire      *wire.Request
	version   int16
	code      kafka.Code // Of the whole request.
	session   *fetchSession
	sessionID int32
	full      bool // Answer with every partition, changed or not.
	isolation partition.Isolation
	minBytes  int
	maxBytes  int
	deadline  time.Time
	entries   []*fetchEntry
	total     int // Bytes of records collected.
	// more says that a partition has more than it was allowed to give: then
	// waiting for min_bytes would be waiting for nothing.
	more bool
	// failed says that there is something to tell besides records.
	failed  bool
	rack    string // Of the consumer.
	replica *replicaFetch
	// anyCopy says that the reader takes what this replica has.
	anyCopy bool
}

func (h *fetchAPI) handle(ctx context.Context, w *wire.Request) wire.Response {
	var req kmsg.FetchRequest
	give, err := h.memory.read(ctx, w, &req)
	if err != nil {
		return badRequest(w, err)
	}
	defer give()
	w.Release()
	r := &fetchReply{
		handler: h, wire: w, version: w.Version,
		isolation: partition.Isolation(req.IsolationLevel),
		maxBytes:  int(max(min(req.MaxBytes, h.s.Broker().FetchMaxBytes), 0)),
		deadline:  h.s.Now().Add(time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond),
	}
	r.minBytes = min(int(req.MinBytes), r.maxBytes) // More could never be had.
	if req.ReplicaID >= 0 || req.ReplicaState.ID >= 0 {
		if !h.replicas {
			// Only brokers may fetch as replicas, and none does on this listener
			// (CVE-2018-1288).
			r.refuse(wantedOf(&req), kafka.ErrClusterAuthorizationFailed)
			return r
		}
		r.replica = h.replicaOf(w, &req)
		return r
	}
	r.rack = req.Rack
	r.anyCopy = h.replicas &&
		(kafka.BrokerID(req.ReplicaID) == kafka.AnyCopy || kafka.BrokerID(req.ReplicaState.ID) == kafka.AnyCopy)
	wanted, code := h.sessions.begin(r, &req)
	if r.code = code; code == kafka.ErrNone {
		r.take(wanted)
	}
	return r
}

// fetchedBytes is what a fetch holds for each partition until it is answered.
const fetchedBytes = int64(unsafe.Sizeof(fetchEntry{}) + unsafe.Sizeof(fetchedPartition{}) + unsafe.Sizeof("") +
	unsafe.Sizeof((*fetchEntry)(nil)))

// take makes an entry of each partition that is wanted.
func (r *fetchReply) take(wanted []*fetchedPartition) {
	r.wire.Charge(int64(len(wanted)) * fetchedBytes)
	block := make([]fetchEntry, len(wanted))
	r.entries = make([]*fetchEntry, len(wanted))
	for i, want := range wanted {
		block[i].want, block[i].due = want, true
		r.entries[i] = &block[i]
	}
}

// refuse answers all partitions with one code.
func (r *fetchReply) refuse(wanted []*fetchedPartition, code kafka.Code) {
	r.take(wanted)
	r.full, r.failed = true, true
	for _, e := range r.entries {
		e.code, e.due = code, false
	}
}

// Done implements wire.Response.
func (r *fetchReply) Done() bool {
	if r.replica != nil {
		r.beginReplica()
		r.takeFired()
	}
	if r.code != kafka.ErrNone {
		return true
	}
	for _, e := range r.entries {
		if e.due || e.fired() {
			e.stopWaiting()
			r.read(e)
		}
	}
	return r.enough() || r.park()
}

// fired reports whether something that the entry waits for is there.
func (e *fetchEntry) fired() bool {
	return e.waiting && (e.waiter.Fired() || e.watermark != nil && e.watermark.Fired())
}

func (e *fetchEntry) stopWaiting() {
	if !e.waiting {
		return
	}
	e.waiting = false
	e.part.StopWaiting(&e.waiter)
	if e.watermark != nil {
		e.part.StopWaiting(e.watermark)
	}
}

// enough reports whether there is no reason to wait.
func (r *fetchReply) enough() bool {
	return r.total >= r.minBytes || r.more || r.failed || r.isEmpty() || r.replica.isCut()
}

// isEmpty reports whether the reader follows nothing.
func (r *fetchReply) isEmpty() bool {
	if r.holds() {
		return len(r.session.order) == 0
	}
	return len(r.entries) == 0
}

// read collects one partition within the bytes that are left.
func (r *fetchReply) read(e *fetchEntry) {
	r.total -= e.size
	e.size, e.due = 0, false
	e.result.Chunk.Release()
	e.result = partition.ReadResult{}
	e.code = kafka.ErrNone
	if e.part == nil {
		e.part, e.code = r.handler.s.fetchable(e.want)
	}
	if e.code == kafka.ErrNone && r.replica == nil && r.rack != "" {
		e.elsewhere, e.sent = r.handler.s.nearest(e.part, r.rack, e.want.fetchOffset)
	}
	if e.code == kafka.ErrNone && !e.sent {
		var err error
		e.result, err = r.readEntry(e)
		e.code = r.atTheEnd(e, fetchError(err))
		e.size = e.result.Chunk.Size()
		r.total += e.size
		r.more = r.more || r.total > 0 && r.cutShort(e)
	}
	r.failed = r.failed || e.code != kafka.ErrNone || e.sent || r.replica.tells(e)
}

// atTheEnd does not let a leader that may have been replaced call an offset out of range
// that its own log has not come to: its successor's may have, and a client that believes
// it begins the partition anew.
func (r *fetchReply) atTheEnd(e *fetchEntry, code kafka.Code) kafka.Code {
	beyond := code == kafka.ErrOffsetOutOfRange && e.want.fetchOffset > e.result.LogStartOffset
	if beyond && r.replica == nil && r.handler.s.Leased != nil && !r.handler.s.Leased() {
		return kafka.ErrNotLeaderOrFollower
	}
	return code
}

func (r *fetchReply) readEntry(e *fetchEntry) (partition.ReadResult, error) {
	maxBytes, minOne := min(int(e.want.maxBytes), r.maxBytes-r.total), r.total == 0
	if r.replica != nil {
		return e.part.ReadAsReplica(r.replica.options(e.want, maxBytes, minOne, r.handler.s.Now()))
	}
	o := partition.ReadOptions{
		From: e.want.fetchOffset, Isolation: r.isolation, CurrentEpoch: e.want.leaderEpoch,
		MaxBytes: maxBytes, MinOneBatch: minOne,
	}
	switch {
	case r.anyCopy:
		o.Source = partition.Anything
	case r.rack != "":
		o.Source, o.Now = partition.FollowerToo, r.handler.s.Now()
	}
	return e.part.Read(o)
}

// serves returns nil while the entry's partition may answer this reader.
func (r *fetchReply) serves(e *fetchEntry) error {
	switch {
	case r.anyCopy:
		return e.part.Serves(e.want.leaderEpoch, partition.Anything, r.handler.s.Now())
	case r.rack != "":
		return e.part.Serves(e.want.leaderEpoch, partition.FollowerToo, r.handler.s.Now())
	}
	return e.part.Leads(e.want.leaderEpoch)
}

// nearest returns the replica in a reader's rack that it should turn to instead
// of this one, if this broker leads the partition and there is one (KIP-392).
func (s *Services) nearest(p *partition.Partition, rack string, from kafka.Offset) (kafka.BrokerID, bool) {
	image := s.image()
	id, ok := p.Nearest(func(id kafka.BrokerID) bool {
		b, known := image.Broker(id)
		return known && b.Available() && b.Rack == rack
	}, from)
	return id, ok && id != s.NodeID
}

// cutShort reports whether there is more to read of a partition than was read.
func (r *fetchReply) cutShort(e *fetchEntry) bool {
	bound := e.result.HighWatermark
	switch {
	case r.replica != nil:
		bound = e.result.LogEndOffset
	case r.isolation == partition.ReadCommitted:
		bound = e.result.LastStableOffset
	}
	return e.want.fetchOffset < bound && e.result.Chunk.NextOffset() < bound
}

// park registers with every partition and reports whether there is something
// to send after all, because one moved in between.
func (r *fetchReply) park() bool {
	for _, e := range r.entries {
		for !e.waiting {
			e.waiting = r.wait(e)
			if e.waiting {
				// Only now: a partition that resigned before wakes nobody.
				if err := r.serves(e); err != nil {
					e.code, r.failed = fetchError(err), true
				}
				break
			}
			if r.read(e); r.enough() {
				return true
			}
		}
	}
	return r.failed
}

// wait registers for what would change the entry's answer. It returns false, and
// registers nothing, if that is there already.
func (r *fetchReply) wait(e *fetchEntry) bool {
	if r.replica != nil {
		return r.replica.wait(r, e)
	}
	if r.isolation == partition.ReadCommitted {
		return e.part.WaitStable(&e.waiter, r.wire, e.result.LastStableOffset+1)
	}
	return e.part.Wait(&e.waiter, r.wire, e.result.HighWatermark+1)
}

// Deadline implements wire.Response.
func (r *fetchReply) Deadline() time.Time { return r.deadline }

// Encode implements wire.Response.
func (r *fetchReply) Encode(w *wire.Writer) error {
	defer r.release()
	if r.holds() {
		r.settleHeld()
	} else {
		for _, e := range r.entries {
			e.stopWaiting()
		}
	}
	if r.strands() {
		r.handler.s.letGo.add(clientHost(r.wire.Conn))
		return errStrandedReader
	}
	if r.session != nil && r.replica == nil {
		r.session.answered(r)
	}
	r.handler.s.errors.note(r.wire.Key, r.code)
	e := encoder{flexible: r.version >= 12}
	w.Append(func(dst []byte) []byte {
		e.dst = dst
		e.int32(0) // Throttle time.
		if r.version >= 7 {
			e.code(r.code)
			e.int32(r.sessionID)
		}
		return e.dst
	})
	leaders := currentLeaders{image: r.handler.s.image()}
	r.encodeTopics(w, &e, &leaders)
	w.Append(func(dst []byte) []byte {
		e.dst = dst
		e.nodeEndpoints(&leaders)
		return e.dst
	})
	return nil
}

// release gives back the chunks that were not handed to the writer.
func (r *fetchReply) release() {
	for _, e := range r.entries {
		e.result.Chunk.Release()
		e.result.Chunk, e.size = commitlog.Chunk{}, 0
	}
	if r.session != nil {
		r.handler.sessions.end(r.session)
	}
}

// encodeTopics writes the partitions that have something to say, grouped by
// topic in runs, in the order of the fetch.
func (r *fetchReply) encodeTopics(w *wire.Writer, e *encoder, leaders *currentLeaders) {
	send := make([]*fetchEntry, 0, len(r.entries))
	topics := 0
	for _, en := range r.entries {
		if r.code == kafka.ErrNone && (r.full || en.worthSending()) {
			if len(send) == 0 || !send[len(send)-1].want.sameTopic(en.want) {
				topics++
			}
			send = append(send, en)
		}
	}
	w.Append(func(dst []byte) []byte {
		e.dst = dst
		e.arrayLen(topics)
		return e.dst
	})
	for len(send) > 0 {
		n := 1
		for n < len(send) && send[n].want.sameTopic(send[0].want) {
			n++
		}
		for i, en := range send[:n] {
			r.encodePartition(w, e, en, i == 0, n)
			w.Append(func(dst []byte) []byte {
				e.dst = dst
				r.encodeTags(e, en, leaders)
				return e.dst
			})
		}
		w.Append(func(dst []byte) []byte {
			e.dst = dst
			e.noTags()
			return e.dst
		})
		send = send[n:]
	}
}

// encodePartition writes one partition but for its tagged fields, the first of a
// topic behind the topic's own header.
func (r *fetchReply) encodePartition(w *wire.Writer, e *encoder, en *fetchEntry, first bool, n int) {
	res := &en.result
	if en.code != kafka.ErrNone && en.code != kafka.ErrOffsetOutOfRange {
		res.HighWatermark, res.LastStableOffset, res.LogStartOffset = kafka.NoOffset, kafka.NoOffset, kafka.NoOffset
	}
	en.want.sent(res.HighWatermark, res.LogStartOffset, en.code)
	w.Append(func(dst []byte) []byte {
		e.dst = dst
		if first {
			if r.version >= 13 {
				e.topicID(en.want.id)
			} else {
				e.string(en.want.topic)
			}
			e.arrayLen(n)
		}
		e.int32(en.want.partition)
		e.code(en.code)
		e.int64(int64(res.HighWatermark))
		e.int64(int64(res.LastStableOffset))
		if r.version >= 5 {
			e.int64(int64(res.LogStartOffset))
		}
		if r.isolation == partition.ReadCommitted {
			e.aborted(res.Aborted)
		} else {
			e.nullArray()
		}
		if r.version >= 11 {
			e.int32(int32(en.preferred()))
		}
		e.bytesLen(en.size)
		return e.dst
	})
	if en.code != kafka.ErrNone {
		r.handler.s.errors.note(r.wire.Key, en.code)
	}
	if en.size > 0 {
		switch {
		case w.Discards():
		case r.replica != nil:
			en.part.NoteCopiedOut(en.size)
		default:
			en.part.NoteSent(en.size, en.want.fetchOffset, res.Chunk.NextOffset())
		}
		w.Chunk(res.Chunk)
		res.Chunk = commitlog.Chunk{} // The writer's now.
	}
}

// aborted writes the aborted transactions of a partition.
func (e *encoder) aborted(txns []commitlog.AbortedTxn) {
	e.arrayLen(len(txns))
	for i := range txns {
		e.int64(int64(txns[i].ProducerID))
		e.int64(int64(txns[i].FirstOffset))
		e.noTags()
	}
}

// encodeTags ends a partition: with where a follower's log parts from this one
// (KIP-595), with what a follower is asked, or with the leader to turn to, if there is one
// of these to tell.
func (r *fetchReply) encodeTags(e *encoder, en *fetchEntry, leaders *currentLeaders) {
	if at := en.result.Diverging; at != nil && e.flexible {
		e.uvarint(1)
		e.uvarint(0)         // The tag.
		e.uvarint(4 + 8 + 1) // Its size.
		e.int32(int32(at.LeaderEpoch))
		e.int64(int64(at.EndOffset))
		e.noTags()
		return
	}
	if round := en.result.Round; round.Number > 0 && e.flexible {
		en.want.toldRound = round
		e.uvarint(1)
		e.uvarint(kafka.RoundTag)
		e.uvarint(kafka.RoundSize)
		e.dst = round.AppendTo(e.dst)
		return
	}
	if r.version >= 16 && r.replica == nil {
		if leader, ok := leaders.of(en.want.topic, en.want.id, en.want.partition, en.code); ok {
			e.currentLeader(1, leader)
			return
		}
	}
	e.noTags()
}

// preferred is the replica that a consumer should read from.
func (e *fetchEntry) preferred() kafka.BrokerID {
	if e.sent {
		return e.elsewhere
	}
	return kafka.NoBroker
}

// worthSending says whether an incremental answer names the partition.
func (e *fetchEntry) worthSending() bool {
	return e.size > 0 || e.sent || e.result.Diverging != nil || e.asks() || e.want.changed(e.result.HighWatermark, e.result.LogStartOffset, e.code)
}
