package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/quorum"
)

const (
	// maxBatch and maxBatchBytes limit what one request carries.
	maxBatch      = 256
	maxBatchBytes = 2 << 20
	// sendTimeout is how long messages may take to be taken; a node that takes
	// longer hangs. Snapshots get longer.
	sendTimeout     = 2 * time.Second
	snapshotTimeout = time.Minute
	// probeTimeout is how long a node may take to be there again after it closed
	// a connection.
	probeTimeout = 100 * time.Millisecond
)

// outbound is the way to one node: a queue and a goroutine that empties it, one
// request at a time, so that what comes meanwhile goes with the next. Snapshots have
// a connection of their own, so that a heartbeat never waits behind one.
type outbound struct {
	raft      *Raft
	id        kafka.BrokerID
	conn      *Conn
	snapshots *Conn
	wake      chan struct{}
	// pausing says that the last request failed, so that dialing may pause.
	pausing atomic.Bool
	// probing says that it is being asked whether the node is there.
	probing atomic.Bool
	// transferring says that a snapshot is on its way.
	transferring atomic.Bool

	mu       sync.Mutex
	queue    []*raftpb.Message
	bytes    int // Of queue.
	greeting bool
	fresh    bool
}

func newOutbound(r *Raft, id kafka.BrokerID) *outbound {
	address := func() (string, bool) { return r.Address(id) }
	return &outbound{
		raft: r, id: id, wake: make(chan struct{}, 1),
		conn: Dial(address, r.opt.Conn), snapshots: Dial(address, r.opt.Conn),
	}
}

// enqueue adds a message, or drops it when there is no room.
func (o *outbound) enqueue(m *raftpb.Message) bool {
	size := proto.Size(m)
	o.mu.Lock()
	full := len(o.queue) >= o.raft.opt.MaxQueued || o.bytes > 0 && o.bytes+size > o.raft.opt.MaxQueuedBytes
	if !full {
		o.queue = append(o.queue, m)
		o.bytes += size
	}
	o.mu.Unlock()
	o.nudge()
	return !full
}

// greet has the next request be a greeting.
func (o *outbound) greet(fresh bool) {
	o.mu.Lock()
	o.greeting, o.fresh = true, fresh
	o.mu.Unlock()
	o.nudge()
}

func (o *outbound) nudge() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns the next request's content; ok is false when there is nothing to
// say. A snapshot is returned alone.
func (o *outbound) take() (e *envelope, snapshot *raftpb.Message, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e = &envelope{greeting: o.greeting, fresh: o.fresh}
	o.greeting, o.fresh = false, false
	size := 0
	for len(o.queue) > 0 && len(e.messages) < maxBatch && size < maxBatchBytes {
		m := o.queue[0]
		if m.GetType() == raftpb.MsgSnap {
			if len(e.messages) > 0 || e.greeting {
				break
			}
			snapshot = m
		}
		o.queue[0] = nil
		o.queue = o.queue[1:]
		n := proto.Size(m)
		o.bytes -= n
		size += n
		if snapshot != nil {
			return e, snapshot, true
		}
		e.messages = append(e.messages, m)
	}
	if len(o.queue) == 0 {
		o.queue, o.bytes = nil, 0
	}
	return e, nil, e.greeting || len(e.messages) > 0
}

// drop forgets what is queued: when it can be sent again it is old.
func (o *outbound) drop() {
	o.mu.Lock()
	dropped := o.queue
	o.queue, o.bytes = nil, 0
	o.mu.Unlock()
	for _, m := range dropped {
		if m.GetType() == raftpb.MsgSnap {
			o.enqueue(m) // Its end must be reported.
		}
	}
}

// run sends until ctx ends.
func (o *outbound) run(ctx context.Context) error {
	var transfers, probes sync.WaitGroup
	o.conn.OnDown(func(err error) { o.down(ctx, &probes, err) })
	defer func() {
		_ = o.conn.Close()
		_ = o.snapshots.Close()
		transfers.Wait()
		probes.Wait()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.wake:
		}
		for ctx.Err() == nil {
			e, snapshot, ok := o.take()
			if !ok {
				break
			}
			if snapshot != nil {
				o.transfer(ctx, &transfers, snapshot)
				continue
			}
			if err := o.send(ctx, o.conn, e, sendTimeout); err != nil {
				o.pausing.Store(true)
				o.drop()
				o.report(func(q Quorum) error { return q.ReportUnreachable(ctx, o.id) })
			}
		}
	}
}

// down is told that the node refused a dial or closed the connection. The second may
// be an accident of the network, so it is asked whether it is there, at once: a
// process that died does not answer, and its host mostly says so.
func (o *outbound) down(ctx context.Context, probes *sync.WaitGroup, err error) {
	if o.probing.Swap(true) {
		return // What this dial has met with is the probe's answer.
	}
	if isCause(err, Refused) {
		o.probing.Store(false)
		o.passOn(ctx, err)
		return
	}
	// Ends after probeTimeout; run waits for it.
	probes.Go(func() {
		o.conn.Hasten()
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		gone := o.conn.Connect(asking)
		o.probing.Store(false)
		if gone != nil && ctx.Err() == nil {
			o.passOn(ctx, gone)
		}
	})
}

// passOn tells that the node's process is gone.
func (o *outbound) passOn(ctx context.Context, err error) {
	o.report(func(q Quorum) error { return q.ReportDown(ctx, o.id) })
	if f := o.raft.opt.OnDown; f != nil {
		f(o.id, err)
	}
}

// report tells the quorum something; that it has stopped is no news.
func (o *outbound) report(tell func(q Quorum) error) {
	if q, _ := o.raft.attached(); q != nil {
		_ = tell(q)
	}
}

// transfer sends a snapshot beside the other messages. There is one at a time: the
// leader waits for the report before it sends another.
func (o *outbound) transfer(ctx context.Context, transfers *sync.WaitGroup, m *raftpb.Message) {
	size := proto.Size(m)
	if limit := o.raft.opt.MaxSnapshotBytes; size > limit {
		if reason := fmt.Sprintf("limit %d", limit); o.raft.firstTime(o.id, reason) {
			o.raft.log.Error("snapshot of the metadata is too large to be sent", "broker", o.id,
				"bytes", size, "limit", limit)
		}
		o.report(func(q Quorum) error { return q.ReportSnapshot(ctx, o.id, false) })
		return
	}
	if o.transferring.Swap(true) {
		o.report(func(q Quorum) error { return q.ReportSnapshot(ctx, o.id, false) })
		return
	}
	// Ends with the request or ctx; run waits for it.
	transfers.Go(func() {
		err := o.send(ctx, o.snapshots, &envelope{messages: []*raftpb.Message{m}}, snapshotTimeout)
		o.transferring.Store(false)
		o.report(func(q Quorum) error { return q.ReportSnapshot(ctx, o.id, err == nil) })
	})
}

// send makes an envelope a request and waits until it was taken.
func (o *outbound) send(ctx context.Context, conn *Conn, e *envelope, timeout time.Duration) error {
	q, clusterID := o.raft.attached()
	e.clusterID, e.from, e.to = clusterID, o.raft.opt.Self, quorum.Member{ID: o.id}
	if q != nil {
		if known, ok := q.Member(o.id); ok {
			e.to.Directory = known.Directory
		}
	}
	body, err := e.appendTo(nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := conn.Do(ctx, &raftRequest{body: body})
	if err != nil {
		var down *DownError
		if conn == o.conn && errors.As(err, &down) && (down.Cause == Refused || down.Cause == Unreachable) {
			o.raft.miss(o.id, down.Address)
		}
		return err
	}
	answer, ok := resp.(*raftResponse)
	if !ok {
		return fmt.Errorf("a request of Raft was answered by a %T", resp)
	}
	if answer.leader != kafka.NoBroker && answer.leader != o.raft.opt.Self.ID {
		o.raft.hearOf(answer.leader, answer.address)
	}
	if answer.code != kafka.ErrNone {
		refused := &RefusedError{answer.code, answer.reason}
		if refused.needsHelp() && o.raft.firstTime(o.id, answer.reason) {
			o.raft.log.Warn("another node refuses messages of Raft", "broker", o.id, "error", refused)
		}
		if f := o.raft.opt.OnTwin; f != nil && refused.Code == kafka.ErrDuplicateBrokerRegistration {
			f(refused)
		}
		if refused.Code == kafka.ErrInvalidVoterKey {
			// The node may be somewhere else by now.
			o.raft.miss(o.id, conn.Redial())
		}
		return refused
	}
	return nil
}
