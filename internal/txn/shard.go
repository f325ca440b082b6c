package txn

import (
	"container/heap"
	"container/list"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// Shard is the transactional ids of one partition of __transaction_state. It
// implements shard.Machine and is not safe for concurrent use.
type Shard struct {
	settings         Settings
	coordinatorEpoch int32
	sender           shard.Caller
	transactions     map[string]*transaction
	timers           timers
	once             list.List // Transactions of ids that the broker made, the last heard of last.
}

// New returns an empty shard.
func New(o Options) *Shard {
	return &Shard{
		settings: o.Settings, coordinatorEpoch: o.CoordinatorEpoch, sender: o.Sender,
		transactions: map[string]*transaction{},
	}
}

// Configure replaces the settings.
func (s *Shard) Configure(settings Settings) {
	s.settings = settings
	for _, t := range s.transactions {
		s.arm(t)
	}
}

// Replay implements shard.Machine.
func (s *Shard) Replay(r shard.Record) error {
	id, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	t := s.transactions[id]
	if r.Value == nil {
		if t != nil {
			s.forget(t)
		}
		return nil
	}
	m, err := decodeMetadata(r.Value)
	if err != nil {
		return err
	}
	if t == nil {
		t = &transaction{id: id, index: notInHeap}
		s.transactions[id] = t
	}
	if m.startMs != t.startMs {
		t.shiftMs = 0
	}
	t.metadata, t.lastAppended = m, r.Offset
	t.unmarked, t.sending, t.notBeforeMs = nil, false, 0
	if m.state.ending() {
		t.unmarked = m.partitions
	}
	s.noteOnce(t)
	s.arm(t)
	return nil
}

// forget drops a transactional id. One that has parked requests is not forgotten:
// see expire.
func (s *Shard) forget(t *transaction) {
	if t.index != notInHeap {
		heap.Remove(&s.timers, t.index)
	}
	if t.once != nil {
		s.once.Remove(t.once)
	}
	delete(s.transactions, t.id)
}

// Loaded implements shard.Machine. Transactions that were ending go on by Tick.
func (s *Shard) Loaded(int64) {}

// ClockSet implements shard.Clocked: what is open may go on, and what waits may wait,
// for as long as it was to.
func (s *Shard) ClockSet(byMs int64) {
	for _, t := range s.transactions {
		if t.state == Ongoing {
			t.shiftMs += byMs
		}
		if t.notBeforeMs > 0 {
			t.notBeforeMs += byMs
		}
		for i := range t.parked {
			t.parked[i].deadlineMs += byMs
		}
		s.arm(t)
	}
}

// Deadline implements shard.Machine.
func (s *Shard) Deadline() int64 {
	if len(s.timers) == 0 {
		return shard.NoDeadline
	}
	return s.timers[0].atMs
}

// Tick implements shard.Machine. It looks at one transaction.
func (s *Shard) Tick(nowMs int64, fx *shard.Effects) {
	if s.Deadline() > nowMs {
		return
	}
	t := s.timers[0]
	fx.Subject = t.id
	switch {
	case len(t.parked) > 0 && (!t.state.ending() || t.parked[0].deadlineMs <= nowMs):
		s.unpark(t, nowMs, fx)
	case t.state.ending():
		s.goOnEnding(t, nowMs, fx)
	case t.state == Ongoing:
		s.timeUp(t, nowMs, fx)
	default:
		s.expire(t, fx)
	}
	s.arm(t)
}

// goOnEnding sends the markers that are missing, or completes the transaction.
func (s *Shard) goOnEnding(t *transaction, nowMs int64, fx *shard.Effects) {
	t.sending = true
	if len(t.unmarked) == 0 {
		s.append(t, t.complete(nowMs), fx)
		return
	}
	fx.WaitFor(t.lastAppended)
	fx.Reply(s.sender, &Markers{
		ID: t.id, ProducerID: t.producerID, ProducerEpoch: t.epoch, CoordinatorEpoch: s.coordinatorEpoch,
		Commit: t.state == PrepareCommit, Version: t.version, Decision: t.lastAppended, Partitions: t.unmarked,
	})
}

// MarkersWritten is the sender's report that partitions have their markers, and how
// many it has left to write of the order: once there are none, what is still missing
// is sent anew.
func (s *Shard) MarkersWritten(
	order *Markers, done []kafka.TopicPartition, left int, nowMs int64, fx *shard.Effects,
) {
	fx.Subject = order.ID
	t := s.transactions[order.ID]
	if t == nil || !t.state.ending() || t.lastAppended != order.Decision {
		return // Of a transaction that was completed since; the next may have the same epoch.
	}
	t.unmarked = without(t.unmarked, done)
	switch {
	case len(t.unmarked) == 0:
		s.append(t, t.complete(nowMs), fx)
	case left == 0:
		t.sending = false
		s.arm(t)
	}
}

// without returns the partitions but for those of out.
func without(from, out []kafka.TopicPartition) []kafka.TopicPartition {
	gone := make(map[kafka.TopicPartition]bool, len(out))
	for _, p := range out {
		gone[p] = true
	}
	left := make([]kafka.TopicPartition, 0, len(from))
	for _, p := range from {
		if !gone[p] {
			left = append(left, p)
		}
	}
	return left
}

// timeUp aborts a transaction that took too long, and fences whoever began it: its
// records must not come in later. The producer itself may ask to go on.
func (s *Shard) timeUp(t *transaction, nowMs int64, fx *shard.Effects) {
	s.append(t, t.fence(t.epoch, nowMs), fx)
}

// fence returns the record that aborts the transaction under an epoch of its own.
// Whoever has the epoch recoverable may ask to go on.
func (m *metadata) fence(recoverable kafka.ProducerEpoch, nowMs int64) metadata {
	n := m.end(false, nowMs)
	n.epoch, n.lastEpoch = m.raised(), recoverable
	return n
}

// expire deletes a transactional id that nobody has used for long.
func (s *Shard) expire(t *transaction, fx *shard.Effects) {
	id := t.id
	fx.Append(func(dst []byte) []byte { return appendKey(dst, id) }, nil)
}

// append adds the next record of a transaction.
func (s *Shard) append(t *transaction, m metadata, fx *shard.Effects) { s.appendAs(t.id, m, fx) }

func (s *Shard) appendAs(id string, m metadata, fx *shard.Effects) {
	fx.Append(
		func(dst []byte) []byte { return appendKey(dst, id) },
		func(dst []byte) []byte { return m.appendTo(dst) },
	)
}

// Rejected implements shard.Machine. Whoever waits for the transaction is refused
// too, and what Tick does is tried again later.
func (s *Shard) Rejected(nowMs int64, fx *shard.Effects, code kafka.Code) {
	s.refuseReplies(fx, code)
	t := s.transactions[fx.Subject]
	if t == nil {
		return
	}
	for _, p := range t.parked {
		fx.Reply(p.context.Caller, ErrorResponse(p.request, code))
	}
	t.parked, t.sending = nil, false
	t.notBeforeMs = nowMs + appendRetry.Milliseconds()
	s.arm(t)
}

// Late implements shard.Machine. Markers are sent anew.
func (s *Shard) Late(fx *shard.Effects, code kafka.Code) { s.refuseReplies(fx, code) }

// refuseReplies turns the replies in fx into refusals. The markers of a transaction
// whose record is not committed must not be written yet.
func (s *Shard) refuseReplies(fx *shard.Effects, code kafka.Code) {
	for i := range fx.Replies {
		order, ok := fx.Replies[i].Response.(*Markers)
		if !ok {
			fx.Replies[i].Response = refused(fx.Replies[i].Response, code)
			continue
		}
		order.Partitions = nil
		if t := s.transactions[order.ID]; t != nil {
			t.sending = false
			s.arm(t)
		}
	}
}

// Unloaded implements shard.Machine.
func (s *Shard) Unloaded(fx *shard.Effects, code kafka.Code) {
	s.refuseReplies(fx, code)
	for _, t := range s.sorted() {
		for _, p := range t.parked {
			fx.Reply(p.context.Caller, ErrorResponse(p.request, code))
		}
	}
	s.transactions, s.timers = map[string]*transaction{}, nil
	s.once.Init()
}
