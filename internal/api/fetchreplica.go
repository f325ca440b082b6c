package api

// Fetch as followers send it, on a listener for brokers only.
//
// A follower's fetch offset acknowledges everything below it, so a fetch counts
// when its turn has come: when every earlier answer of its connection is on its
// way. It reads to the log's end, waits for the log's end, and is answered with
// where its log parts from the leader's, if it does (KIP-595).
//
// A follower has one fetch under way that waits for records. When it wants to follow
// more partitions meanwhile, or fewer, it sends the next one of its session at once:
// the one before is then answered as it is. So a partition that has a new leader is
// followed without waiting for records of others.
//
// In a session a partition is read again only when there is something new of it
// (fetchheld.go), so that a fetch costs what it brings, however many partitions the
// follower follows.
//
// A leader that has to know whether it leads still asks its followers, and tells them
// so in the answer to the fetch that waits: partition.Confirm. Each question is told once,
// for there may be followers that do not know how to answer.

import (
	"math"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/wire"
)

// ReplicaFetch returns the row of the table that answers followers' fetches, for a
// listener that only brokers reach. Table must have been called before.
func (s *Services) ReplicaFetch() wire.API {
	h := newFetchAPI(s, s.others)
	h.replicas = true
	return wire.API{
		Name: kmsg.Fetch.Name(), Key: kmsg.Fetch.Int16(), Min: firstReplicaFetch, Max: 18,
		FlexibleFrom: flexibleFrom(kmsg.Fetch), Handle: h.handle, Quick: true, LongPoll: true,
	}
}

// firstReplicaFetch is the first version with the sender's broker epoch.
const firstReplicaFetch = 15

// replicaFetch is the part of a fetch that only followers have.
type replicaFetch struct {
	id    kafka.BrokerID
	epoch kafka.BrokerEpoch
	// request is what was asked for, until its turn has come.
	request *kmsg.FetchRequest
	// session is that of an incremental fetch, and turn its number there: when a
	// later one has arrived, this one is cut short.
	session *fetchSession
	turn    int64
}

// noWatermark is what a follower sends that does not wait for the high watermark.
const noWatermark = kafka.Offset(math.MaxInt64)

// replicaOf takes a follower's request in, and cuts short the one before.
func (h *fetchAPI) replicaOf(w *wire.Request, req *kmsg.FetchRequest) *replicaFetch {
	f := &replicaFetch{
		id: kafka.BrokerID(req.ReplicaState.ID), epoch: kafka.BrokerEpoch(req.ReplicaState.Epoch), request: req,
	}
	h.s.followers.heard(w.Conn, f.id)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	w.Charge(int64(n) * int64(unsafe.Sizeof(kmsg.FetchRequestTopicPartition{})))
	if req.SessionEpoch > 0 {
		f.session, f.turn = h.sessions.arrive(req.SessionID)
	}
	return f
}

// arrive counts a request of a session and wakes the one that waits in it.
func (c *sessionCache) arrive(id int32) (*fetchSession, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	if s == nil {
		return nil, 0
	}
	turn := s.held.arrived.Add(1)
	if w := s.held.waiting.Load(); w != nil {
		w.Wake()
	}
	return s, turn
}

// beginReplica begins a follower's fetch when its turn has come.
func (r *fetchReply) beginReplica() {
	req := r.replica.request
	if req == nil {
		return
	}
	r.replica.request = nil
	wanted, code := r.handler.sessions.begin(r, req)
	if r.code = code; code != kafka.ErrNone {
		return
	}
	if r.session == nil {
		r.take(wanted)
		return
	}
	r.session.held.waiting.Store(r.wire)
	if r.full {
		r.handler.sessions.replace(r.session, r.replica.id, r.replica.epoch)
		r.session.held.hold(r.session, wanted)
	}
	r.takeHeld()
}

// isCut reports whether a later request of the session has arrived.
func (f *replicaFetch) isCut() bool {
	return f != nil && f.session != nil && f.session.held.arrived.Load() > f.turn
}

// tells reports whether an entry has something to tell at once, besides records.
func (f *replicaFetch) tells(e *fetchEntry) bool {
	return f != nil && (e.result.Diverging != nil || e.result.HighWatermark > e.want.highWatermark ||
		e.want.told && e.result.LogStartOffset > e.want.toldLogStart || e.asks())
}

// asks reports whether the leader has a question that the follower was not told of. One
// without a session is told with whatever is the next answer.
func (e *fetchEntry) asks() bool {
	return e.held.session != nil && e.result.Round.Number > 0 && e.result.Round != e.want.toldRound
}

func (f *replicaFetch) options(
	want *fetchedPartition, maxBytes int, minOneBatch bool, now time.Time,
) partition.ReplicaFetch {
	return partition.ReplicaFetch{
		Replica: f.id, BrokerEpoch: f.epoch, LeaderEpoch: want.leaderEpoch,
		From: want.fetchOffset, LastEpoch: want.lastEpoch, LogStartOffset: want.logStart,
		Answers: want.answers, MaxBytes: maxBytes, MinOneBatch: minOneBatch, Now: now,
	}
}

// wait registers for the log's end, and for the high watermark: in a session, or if the
// follower wants to be told at once.
func (f *replicaFetch) wait(r *fetchReply, e *fetchEntry) bool {
	var records, watermark partition.Waker = r.wire, r.wire
	prompt := e.want.highWatermark != noWatermark
	if e.held.session != nil {
		records, watermark = e, (*heldWatermark)(e)
		if prompt {
			watermark = e
		}
	}
	if !e.part.WaitAppended(&e.waiter, records, e.result.LogEndOffset+1) {
		return false
	}
	if e.part.Asked() > e.result.Asked { // Only now: who asked before that woke nobody.
		e.part.StopWaiting(&e.waiter)
		return false
	}
	if !prompt && e.held.session == nil {
		return true
	}
	if e.watermark == nil {
		e.watermark = &partition.Waiter{}
	}
	known := e.result.HighWatermark
	if prompt {
		known = max(known, e.want.highWatermark)
	}
	if !e.part.Wait(e.watermark, watermark, known+1) {
		e.part.StopWaiting(&e.waiter)
		return false
	}
	return true
}
