package coordinator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// phase is where a host is in its life; it only goes up.
type phase int8

const (
	loading phase = iota
	active
	dropped
)

// maxTicks bounds the steps that one pass of serve does for a shard.
const maxTicks = 64

// host runs the machine of one partition.
type host[M shard.Machine] struct {
	c         *Coordinator[M]
	number    int32
	partition Partition

	woken      atomic.Bool  // The partition woke us.
	deadlineMs atomic.Int64 // Of the machine; NoDeadline while loading.
	gone       chan struct{}

	mu      sync.Mutex
	phase   phase
	machine M // Once active.
	clock   wallClock
	fx      shard.Effects
	writer  writer
	parked  parked
	waiting bool      // The partition will wake us.
	stalled bool      // It was logged that replies are late, and none went out since.
	lost    bool      // An append found out that somebody else leads.
	news    []func(M) // Of Notify, while loading.
	// loadWaits says that the load waits for the high watermark: it goes on when that wakes us.
	loadWaits bool

	loader *loader[M] // The load under way, if any: of whichever goroutine loads.
}

func newHost[M shard.Machine](c *Coordinator[M], number int32, p Partition) *host[M] {
	h := &host[M]{
		c: c, number: number, partition: p, gone: make(chan struct{}), clock: wallClock{elapsed: c.o.Elapsed},
	}
	h.deadlineMs.Store(shard.NoDeadline)
	h.parked.dueMs = shard.NoDeadline
	return h
}

// Wake implements Waker.
func (h *host[M]) Wake() {
	h.woken.Store(true)
	h.c.poke()
}

func (h *host[M]) do(step func(m M, nowMs int64, fx *shard.Effects)) error {
	return h.step(func(now time.Time) error {
		step(h.machine, now.UnixMilli(), &h.fx)
		return nil
	})
}

// step runs one step of the machine, which leaves its outcome in h.fx, and sends what is
// to be answered; nothing follows from a step that fails.
func (h *host[M]) step(run func(now time.Time) error) error {
	h.mu.Lock()
	if err := h.readyLocked(); err != nil {
		h.mu.Unlock()
		return err
	}
	if h.parked.len() >= h.c.o.MaxParked {
		h.mu.Unlock()
		return h.busy()
	}
	now := h.c.o.Now()
	h.followClockLocked(now)
	h.fx.Reset()
	if err := run(now); err != nil {
		h.mu.Unlock()
		return err
	}
	var scratch [4]shard.Reply
	var replies []shard.Reply
	switch {
	case !h.waitsLocked() || !h.inDoubt():
		replies = h.applyLocked(now, scratch[:0])
	case len(h.fx.Records) > 0:
		h.machine.Rejected(now.UnixMilli(), &h.fx, kafka.ErrNotCoordinator)
		replies = append(scratch[:0], h.fx.Replies...)
	default:
		replies = h.lateLocked(scratch[:0], h.fx.Replies, kafka.ErrNotCoordinator)
	}
	replies = h.settleLocked(replies)
	h.mu.Unlock()
	send(replies)
	return nil
}

// waitsLocked reports whether the outcome of a step waits for the high watermark, for
// records of its own or for earlier ones.
func (h *host[M]) waitsLocked() bool {
	if len(h.fx.Records) > 0 {
		return true
	}
	if len(h.fx.Replies) == 0 || h.fx.MinHighWatermark == 0 {
		return false
	}
	highWatermark, err := h.partition.HighWatermark()
	return err != nil || highWatermark < h.fx.MinHighWatermark
}

func (h *host[M]) inDoubt() bool {
	return h.c.o.OutOfTouch != nil && h.c.o.OutOfTouch() && h.partition.InDoubt()
}

func (h *host[M]) view(fn func(m M)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.phase {
	case loading:
		return h.readyLocked()
	case active:
		fn(h.machine)
	}
	return nil
}

func (h *host[M]) notify(fn func(m M)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.phase {
	case loading:
		h.news = append(h.news, fn)
	case active:
		fn(h.machine)
		h.publishDeadlineLocked()
	}
}

func (h *host[M]) readyLocked() error {
	switch h.phase {
	case loading:
		return &kafka.Error{
			Code:    kafka.ErrCoordinatorLoadInProgress,
			Message: fmt.Sprintf("%s-%d is being loaded: try again", h.c.o.Topic, h.number),
		}
	case active:
		return nil
	}
	return h.c.notCoordinator(h.number)
}

func (h *host[M]) busy() error {
	return &kafka.Error{
		Code: kafka.ErrCoordinatorLoadInProgress,
		Message: fmt.Sprintf("%d requests to %s-%d wait for the disk: try again",
			h.c.o.MaxParked, h.c.o.Topic, h.number),
	}
}

// serve does what is due and returns the next deadline. clockSet says that the
// deadline that was published may be of another clock.
func (h *host[M]) serve(nowMs int64, clockSet bool) int64 {
	woken := h.woken.Swap(false)
	if !woken && !clockSet && h.deadlineMs.Load() > nowMs {
		return h.deadlineMs.Load()
	}
	h.mu.Lock()
	if h.phase != active {
		goesOn := h.phase == loading && h.loadWaits && woken
		h.loadWaits = h.loadWaits && !goesOn
		h.mu.Unlock()
		if goesOn {
			h.c.enqueueLoad(h)
		}
		return shard.NoDeadline
	}
	if woken {
		h.waiting = false
	}
	h.followClockLocked(h.c.o.Now())
	var replies []shard.Reply
	for range maxTicks {
		now := h.c.o.Now()
		if h.machine.Deadline() > now.UnixMilli() {
			break
		}
		h.fx.Reset()
		h.machine.Tick(now.UnixMilli(), &h.fx)
		replies = h.applyLocked(now, replies)
	}
	replies = h.settleLocked(replies)
	replies = h.refuseLateLocked(replies)
	next := h.deadlineMs.Load()
	h.mu.Unlock()
	send(replies)
	return next
}

// applyLocked appends and replays the effects of a step. It adds to replies what
// may be sent at once, and parks the rest.
func (h *host[M]) applyLocked(now time.Time, replies []shard.Reply) []shard.Reply {
	fx := &h.fx
	until := fx.MinHighWatermark
	if n := len(fx.Records); n > 0 {
		last, err := h.writer.write(h.partition, fx.Records, fx.Transaction, now, h.c.o.MaxBatchBytes)
		if err != nil {
			return append(replies, h.rejectLocked(now, err)...)
		}
		h.replayLocked(last-kafka.Offset(n)+1, now.UnixMilli())
		until = max(until, last+1)
	}
	if len(fx.Replies) == 0 {
		return replies
	}
	if until == 0 {
		return append(replies, fx.Replies...)
	}
	if highWatermark, err := h.partition.HighWatermark(); err == nil && highWatermark >= until {
		return append(replies, fx.Replies...)
	}
	h.parked.push(until, now.Add(h.c.o.WriteTimeout).UnixMilli(), fx.Replies)
	h.lookForDoubtLocked(now)
	return replies
}

// doubtEvery is how often a host whose replies wait asks whether it may have been replaced.
const doubtEvery = 500 * time.Millisecond

func (h *host[M]) lookForDoubtLocked(now time.Time) {
	if h.c.o.OutOfTouch != nil && h.parked.len() > 0 {
		h.parked.dueMs = min(h.parked.dueMs, now.Add(doubtEvery).UnixMilli())
	}
}

// rejectLocked turns the replies of a step whose records could not be appended
// into refusals. They have nothing to wait for.
func (h *host[M]) rejectLocked(now time.Time, err error) []shard.Reply {
	h.c.o.Logger.Warn("append failed", "topic", h.c.o.Topic, "partition", h.number, "error", err)
	h.machine.Rejected(now.UnixMilli(), &h.fx, callerCode(h.c.o.CodeOf(err)))
	_, leads := h.partition.HighWatermark()
	h.lost = leads != nil
	return h.fx.Replies
}

// callerCode turns the code of a failed append into one that clients of a
// coordinator understand, as Kafka does: those that a produce would be told mean
// nothing to them.
func callerCode(code kafka.Code) kafka.Code {
	switch code {
	case kafka.ErrUnknownTopicOrPartition, kafka.ErrNotEnoughReplicas,
		kafka.ErrNotEnoughReplicasAfterAppend, kafka.ErrRequestTimedOut:
		return kafka.ErrCoordinatorNotAvailable
	case kafka.ErrNotLeaderOrFollower, kafka.ErrFencedLeaderEpoch, kafka.ErrUnknownLeaderEpoch,
		kafka.ErrKafkaStorageError, kafka.ErrCorruptMessage:
		return kafka.ErrNotCoordinator
	case kafka.ErrMessageTooLarge, kafka.ErrRecordListTooLarge, kafka.ErrInvalidFetchSize:
		return kafka.ErrUnknownServerError
	}
	return code
}

func (h *host[M]) replayLocked(base kafka.Offset, nowMs int64) {
	for i, kv := range h.fx.Records {
		r := shard.Record{
			Key: kv.Key, Value: kv.Value, Offset: base + kafka.Offset(i), TimestampMs: nowMs,
		}
		var err error
		if t := h.fx.Transaction; t != nil {
			err = any(h.machine).(shard.Transactional).ReplayPending(r, t.ProducerID)
		} else {
			err = h.machine.Replay(r)
		}
		if err != nil {
			panic(fmt.Sprintf("coordinator: a machine cannot read its own record: %v", err))
		}
	}
}

// settleLocked adds to replies what the high watermark has passed, makes sure
// that the partition wakes us for the rest, and publishes the deadline.
func (h *host[M]) settleLocked(replies []shard.Reply) []shard.Reply {
	if h.lost {
		return append(replies, h.unloadLocked()...)
	}
	for h.parked.len() > 0 {
		highWatermark, err := h.partition.HighWatermark()
		if err != nil {
			// Somebody else leads now; Resign will say so as well.
			return append(replies, h.unloadLocked()...)
		}
		sent := len(replies)
		replies = h.parked.pop(highWatermark, replies)
		h.stalled = h.stalled && len(replies) == sent
		if h.parked.len() == 0 || h.waiting {
			break
		}
		h.waiting = h.partition.Wait(h.parked.first(), h)
	}
	h.publishDeadlineLocked()
	return replies
}

// refuseLateLocked adds to replies refusals in the place of those that have waited
// for too long, or wait for what another coordinator may have cut off by now.
func (h *host[M]) refuseLateLocked(replies []shard.Reply) []shard.Reply {
	if h.phase != active {
		return replies
	}
	until := kafka.NoOffset
	if h.parked.len() > 0 {
		until = h.parked.first()
	}
	now := h.c.o.Now()
	looks := h.parked.dueMs <= now.UnixMilli()
	late := h.parked.popLate(now.UnixMilli(), nil)
	if looks {
		if h.parked.len() > 0 && h.inDoubt() {
			replies = h.lateLocked(replies, h.parked.all(), kafka.ErrNotCoordinator)
		}
		h.lookForDoubtLocked(now)
	}
	if len(late) > 0 {
		replies = h.lateLocked(replies, late, callerCode(kafka.ErrRequestTimedOut))
		if !h.stalled {
			h.c.o.Logger.Warn("not on every in-sync replica in time", "topic", h.c.o.Topic,
				"partition", h.number, "offset", int64(until-1), "timeout", h.c.o.WriteTimeout)
			h.stalled = true
		}
	}
	h.publishDeadlineLocked()
	return replies
}

// lateLocked adds to replies refusals in the place of those that are waited for in vain.
func (h *host[M]) lateLocked(replies, late []shard.Reply, code kafka.Code) []shard.Reply {
	fx := &shard.Effects{Replies: late}
	h.machine.Late(fx, code)
	return append(replies, fx.Replies...)
}

func (h *host[M]) publishDeadlineLocked() {
	next := min(h.machine.Deadline(), h.parked.dueMs)
	h.deadlineMs.Store(next)
	h.c.deadlineMoved(next)
}

// unload ends the host for good.
func (h *host[M]) unload() {
	h.mu.Lock()
	replies := h.unloadLocked()
	h.mu.Unlock()
	send(replies)
}

func (h *host[M]) unloadLocked() []shard.Reply {
	was := h.phase
	if was == dropped {
		return nil
	}
	h.phase = dropped
	close(h.gone)
	h.deadlineMs.Store(shard.NoDeadline)
	if was == loading {
		return nil // The loader has the machine, and nobody is parked.
	}
	fx := &shard.Effects{Replies: h.parked.all()}
	h.machine.Unloaded(fx, kafka.ErrNotCoordinator)
	return fx.Replies
}

func send(replies []shard.Reply) {
	for _, r := range replies {
		r.To.Complete(r.Response)
	}
}

// parked is a queue of replies that wait for the high watermark, each for a time.
// Invariant: the offsets they wait for and their deadlines never fall from one to
// the next.
type parked struct {
	replies []parkedReply
	head    int
	// dueMs is no later than the first deadline, or than the next look whether the host is in
	// doubt. It is not moved when replies are sent in time, so that those cost no timer.
	dueMs int64
}

type parkedReply struct {
	until      kafka.Offset
	deadlineMs int64
	reply      shard.Reply
}

func (p *parked) len() int { return len(p.replies) - p.head }

// first returns what the high watermark must be for the first reply.
func (p *parked) first() kafka.Offset { return p.replies[p.head].until }

// push parks replies until the high watermark is at or above until. One that
// could go before those parked already goes with the last of them: it is simpler,
// and they are one sync away.
func (p *parked) push(until kafka.Offset, deadlineMs int64, replies []shard.Reply) {
	if n := len(p.replies); n > p.head {
		last := &p.replies[n-1]
		until, deadlineMs = max(until, last.until), max(deadlineMs, last.deadlineMs)
	}
	p.dueMs = min(p.dueMs, deadlineMs)
	for _, r := range replies {
		p.replies = append(p.replies, parkedReply{until, deadlineMs, r})
	}
}

// pop moves to dst what highWatermark has reached.
func (p *parked) pop(highWatermark kafka.Offset, dst []shard.Reply) []shard.Reply {
	return p.popWhile(func(r *parkedReply) bool { return r.until <= highWatermark }, dst)
}

// popLate moves to dst what has waited for too long.
func (p *parked) popLate(nowMs int64, dst []shard.Reply) []shard.Reply {
	if nowMs < p.dueMs {
		return dst
	}
	dst = p.popWhile(func(r *parkedReply) bool { return r.deadlineMs <= nowMs }, dst)
	p.dueMs = shard.NoDeadline
	if p.len() > 0 {
		p.dueMs = p.replies[p.head].deadlineMs
	}
	return dst
}

// shift moves all deadlines along with a clock that was set.
func (p *parked) shift(byMs int64) {
	for i := p.head; i < len(p.replies); i++ {
		p.replies[i].deadlineMs += byMs
	}
	if p.dueMs != shard.NoDeadline {
		p.dueMs += byMs
	}
}

func (p *parked) popWhile(isNext func(*parkedReply) bool, dst []shard.Reply) []shard.Reply {
	for p.head < len(p.replies) && isNext(&p.replies[p.head]) {
		dst = append(dst, p.replies[p.head].reply)
		p.replies[p.head] = parkedReply{}
		p.head++
	}
	switch {
	case p.head == len(p.replies):
		p.replies, p.head = p.replies[:0], 0
	case p.head > len(p.replies)/2:
		n := copy(p.replies, p.replies[p.head:])
		clear(p.replies[n:])
		p.replies, p.head = p.replies[:n], 0
	}
	return dst
}

// all empties the queue.
func (p *parked) all() []shard.Reply {
	var all []shard.Reply
	for _, r := range p.replies[p.head:] {
		all = append(all, r.reply)
	}
	*p = parked{dueMs: shard.NoDeadline}
	return all
}
