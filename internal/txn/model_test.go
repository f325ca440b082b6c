package txn_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// model is a coordinator with a log, partitions that follow the rules of the data
// path, producers that work in transactions, and a network that delays. The
// coordinator crashes between any two steps and may lose what is not committed.
type model struct {
	t       *rapid.T
	shard   *txn.Shard
	epoch   int32
	nowMs   int64
	nextID  kafka.ProducerID
	log     []shard.Record
	high    kafka.Offset // The high watermark.
	waiting []waitingReply
	fx      shard.Effects

	orders     []*order
	partitions map[kafka.TopicPartition]*partition
	producers  []*producer
	late       []kmsg.Request // Ends of transactions, on their way for the second time.
	held       []*heldRecord  // Records that were verified, and that nobody waits for any more.

	holders   map[string]*producer     // Who was given a producer id and epoch.
	decisions map[string]bool          // By producer id and epoch, of version 2: what was decided.
	outcomes  map[string]map[bool]bool // By transaction: what partitions were told of it.
	work      map[string]*work
}

// waitingReply is a reply that the high watermark has not reached.
type waitingReply struct {
	until kafka.Offset
	reply shard.Reply
}

// order is an order of a coordinator of some epoch, on its way to the partitions.
type order struct {
	*txn.Markers
	epoch int32
	left  []kafka.TopicPartition
}

// work is a transaction as its producer sees it.
type work struct {
	name      string
	records   map[kafka.TopicPartition]bool // That were acknowledged.
	spoiled   bool                          // A record was not: it can only be aborted.
	committed bool                          // The end was acknowledged: with which outcome.
	aborted   bool
}

// heldRecord is a record that is held up between the coordinator's word and the append.
type heldRecord struct {
	at    kafka.TopicPartition
	pid   kafka.ProducerID
	epoch kafka.ProducerEpoch
	check check
	name  string
}

// partition follows the rules of the data path: see package partition.
type partition struct{ of map[kafka.ProducerID]*entry }

// check is what a partition says before the coordinator is asked: whether there is need to,
// and how many markers the producer has had.
type check struct {
	needed  bool
	markers int
}

type entry struct {
	epoch            kafka.ProducerEpoch
	coordinatorEpoch int32
	markers          int
	open             map[string]bool // Names of transactions with records since the last marker.
}

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, nowMs: 1000, nextID: 10, partitions: map[kafka.TopicPartition]*partition{},
		holders: map[string]*producer{}, decisions: map[string]bool{},
		outcomes: map[string]map[bool]bool{}, work: map[string]*work{},
	}
	for i := range int32(3) {
		m.partitions[kafka.TopicPartition{Topic: "t", Partition: i}] = &partition{of: map[kafka.ProducerID]*entry{}}
	}
	m.start()
	return m
}

// start loads the log as a new coordinator does, which waits for all of it to be
// committed.
func (m *model) start() {
	m.epoch++
	m.shard = txn.New(txn.Options{
		Settings: txn.DefaultSettings(), CoordinatorEpoch: m.epoch, Sender: &taker{m, m.epoch},
	})
	for _, r := range m.log {
		if err := m.shard.Replay(r); err != nil {
			m.t.Fatal(err)
		}
	}
	m.shard.Loaded(m.nowMs)
	m.high = kafka.Offset(len(m.log))
}

// taker is the sender of one coordinator.
type taker struct {
	m     *model
	epoch int32
}

// Complete implements shard.Caller. The decision must be committed.
func (s *taker) Complete(response any) {
	markers := response.(*txn.Markers)
	if len(markers.Partitions) == 0 {
		return
	}
	m := s.m
	last := -1
	for i, r := range m.log {
		if text, _ := txn.DecodeRecord(r.Key, nil); text == markers.ID+" tombstone" {
			last = i
		}
	}
	if last < 0 || kafka.Offset(last) >= m.high {
		m.t.Fatalf("markers of %s are sent before the decision is committed", markers.ID)
	}
	id, epoch, state := txn.StateOf(m.log[last].Value)
	if id != markers.ProducerID || epoch != markers.ProducerEpoch || markers.Decision != kafka.Offset(last) ||
		(state == txn.PrepareCommit) != markers.Commit {
		m.t.Fatalf("markers of %s say other than the log", markers.ID)
	}
	key := fmt.Sprintf("%d/%d", id, epoch)
	if before, ok := m.decisions[key]; ok && before != markers.Commit && markers.Version == 2 {
		m.t.Fatalf("the outcome of %s has changed", key)
	}
	m.decisions[key] = markers.Commit
	copied := *markers
	m.orders = append(m.orders, &order{&copied, s.epoch, append([]kafka.TopicPartition(nil), markers.Partitions...)})
}

// step runs one step as the host does.
func (m *model) step(fn func(fx *shard.Effects)) {
	m.fx.Reset()
	fn(&m.fx)
	until := m.fx.MinHighWatermark
	for _, kv := range m.fx.Records {
		r := shard.Record{Key: append([]byte(nil), kv.Key...), Offset: kafka.Offset(len(m.log)), TimestampMs: m.nowMs}
		if kv.Value != nil {
			r.Value = append([]byte{}, kv.Value...)
		}
		m.log = append(m.log, r)
		if err := m.shard.Replay(r); err != nil {
			m.t.Fatal(err)
		}
		until = max(until, r.Offset+1)
	}
	for _, r := range m.fx.Replies {
		m.waiting = append(m.waiting, waitingReply{until, r})
	}
	m.shard.Check()
	m.deliver()
}

// deliver sends what the high watermark has reached.
func (m *model) deliver() {
	var left []waitingReply
	ready := m.waiting
	m.waiting = nil
	for _, w := range ready {
		if w.until > m.high {
			left = append(left, w)
			continue
		}
		w.reply.To.Complete(w.reply.Response)
	}
	m.waiting = append(left, m.waiting...)
}

func (m *model) commit() {
	m.high = kafka.Offset(len(m.log))
	m.deliver()
}

// crash takes the coordinator away, with some of what was not committed.
func (m *model) crash() {
	kept := rapid.IntRange(int(m.high), len(m.log)).Draw(m.t, "kept")
	m.log, m.waiting = m.log[:kept], nil
	for _, p := range m.producers {
		p.lost()
	}
	m.start()
}

// tick lets the next thing happen that time brings.
func (m *model) tick() {
	next := m.shard.Deadline()
	if next == shard.NoDeadline {
		return
	}
	m.nowMs = max(m.nowMs, next)
	m.step(func(fx *shard.Effects) { m.shard.Tick(m.nowMs, fx) })
}

// due ticks while something is due.
func (m *model) due() {
	for m.shard.Deadline() <= m.nowMs {
		m.tick()
	}
}

// mark has one partition of an order get its marker, and the coordinator hear of it,
// if it is still there.
func (m *model) mark(i, k int) {
	o := m.orders[i]
	p := o.left[k]
	o.left = append(o.left[:k:k], o.left[k+1:]...)
	if len(o.left) == 0 {
		m.orders = append(m.orders[:i:i], m.orders[i+1:]...)
	}
	if !m.partitions[p].end(m, o) || o.epoch != m.epoch {
		return // Fenced: another coordinator has taken over.
	}
	m.step(func(fx *shard.Effects) {
		m.shard.MarkersWritten(o.Markers, []kafka.TopicPartition{p}, len(o.left), m.nowMs, fx)
	})
}

// end writes a marker; false if its coordinator is fenced.
func (p *partition) end(m *model, o *order) bool {
	e := p.of[o.ProducerID]
	if e == nil {
		e = &entry{open: map[string]bool{}}
		p.of[o.ProducerID] = e
	}
	if o.epoch < e.coordinatorEpoch {
		return false
	}
	if o.ProducerEpoch < e.epoch {
		return true // It has moved on, so it had its marker.
	}
	for name := range e.open {
		if m.outcomes[name] == nil {
			m.outcomes[name] = map[bool]bool{}
		}
		if m.outcomes[name][o.Commit] = true; len(m.outcomes[name]) > 1 {
			m.t.Fatalf("transaction %s is committed here and aborted there", name)
		}
	}
	e.epoch, e.coordinatorEpoch, e.open = o.ProducerEpoch, o.epoch, map[string]bool{}
	e.markers++
	return true
}

// append adds a record if it belongs to the open transaction, or if none has ended
// since it was verified.
func (p *partition) append(m *model, id kafka.ProducerID, epoch kafka.ProducerEpoch, c check, name string) bool {
	e := p.of[id]
	if e == nil {
		e = &entry{open: map[string]bool{}}
		p.of[id] = e
	}
	switch open := len(e.open) > 0; {
	case epoch < e.epoch, c.needed && e.markers != c.markers, open && e.epoch != epoch, !open && !c.needed:
		return false
	}
	for other := range e.open {
		if other != name {
			m.t.Fatalf("a record of transaction %s has become part of %s", name, other)
		}
	}
	e.epoch = epoch
	e.open[name] = true
	return true
}

// begin is what a partition says before the coordinator is asked.
func (p *partition) begin(id kafka.ProducerID, epoch kafka.ProducerEpoch) check {
	e := p.of[id]
	if e == nil {
		return check{needed: true}
	}
	return check{needed: len(e.open) == 0 || e.epoch != epoch, markers: e.markers}
}

// arrive lets a record arrive that was held up.
func (m *model) arrive(i int) {
	h := m.held[i]
	m.held = append(m.held[:i:i], m.held[i+1:]...)
	m.partitions[h.at].append(m, h.pid, h.epoch, h.check, h.name)
}
