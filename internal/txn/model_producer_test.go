package txn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/txn"
)

// producer works in transactions, one after the other, and asks again when it hears
// nothing. It stops when it is fenced.
type producer struct {
	m       *model
	name    string
	id      string // The transactional id.
	v2      bool
	dead    bool
	given   bool // It has a producer id and epoch.
	pid     kafka.ProducerID
	epoch   kafka.ProducerEpoch
	current *work
	count   int
	added   []kafka.TopicPartition // Of a producer of before KIP-890.

	asked  kmsg.Request // Without an answer.
	then   func(kmsg.Response)
	caller *answer
}

// answer is a caller that may have stopped listening.
type answer struct {
	p    *producer
	gone bool
}

// Complete implements shard.Caller.
func (a *answer) Complete(response any) {
	if a.gone {
		return
	}
	p := a.p
	if _, ok := response.(txn.NeedProducerID); ok {
		a.gone = true
		p.m.nextID++
		p.send(p.m.nextID)
		return
	}
	p.asked, p.caller = nil, nil
	p.then(response.(kmsg.Response))
}

// lost: the connection is gone, and the request must be made again.
func (p *producer) lost() {
	if p.caller != nil {
		p.caller.gone, p.caller = true, nil
	}
}

func (p *producer) ask(req kmsg.Request, then func(kmsg.Response)) {
	req.SetVersion(req.MaxVersion())
	if end, ok := req.(*kmsg.EndTxnRequest); ok && !p.v2 {
		end.Version = 4
	}
	p.asked, p.then = req, then
	p.send(kafka.NoProducerID)
}

func (p *producer) send(id kafka.ProducerID) {
	p.caller = &answer{p: p}
	c := &txn.Context{NowMs: p.m.nowMs, Caller: p.caller, ProducerID: id}
	p.m.step(func(fx *shard.Effects) { p.m.shard.Handle(c, p.asked, fx) })
}

// act does the next thing.
func (p *producer) act() {
	switch {
	case p.dead:
	case p.asked != nil && p.caller == nil:
		p.send(kafka.NoProducerID)
	case p.asked != nil: // It waits.
	case !p.given:
		p.init()
	case p.current == nil:
		p.count++
		p.current = &work{name: fmt.Sprintf("%s-%d", p.name, p.count), records: map[kafka.TopicPartition]bool{}}
		p.m.work[p.current.name] = p.current
	case p.current.spoiled:
		p.end(false)
	case len(p.current.records) > 0 && rapid.IntRange(0, 2).Draw(p.m.t, "end") == 0:
		p.end(rapid.Bool().Draw(p.m.t, "commit"))
	default:
		p.produce()
	}
}

func (p *producer) init() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.id, 10_000
	p.ask(req, func(response kmsg.Response) {
		r := response.(*kmsg.InitProducerIDResponse)
		if r.ErrorCode != 0 {
			p.fail(r.ErrorCode)
			return
		}
		p.given, p.pid, p.epoch = true, kafka.ProducerID(r.ProducerID), kafka.ProducerEpoch(r.ProducerEpoch)
		p.hold()
	})
}

// hold checks that nobody else was given the producer id and epoch.
func (p *producer) hold() {
	key := fmt.Sprintf("%d/%d", p.pid, p.epoch)
	if before := p.m.holders[key]; before != nil && before != p {
		p.m.t.Fatalf("%s was given to %s and to %s", key, before.name, p.name)
	}
	p.m.holders[key] = p
}

// fail stops a producer that is fenced; others ask again.
func (p *producer) fail(code int16) {
	switch kafka.Code(code) {
	case kafka.ErrConcurrentTransactions:
	default:
		p.dead = true
	}
}

// produce adds a partition, or appends a record to it, which is verified if it must be.
func (p *producer) produce() {
	at := kafka.TopicPartition{Topic: "t", Partition: rapid.Int32Range(0, 2).Draw(p.m.t, "partition")}
	part, w := p.m.partitions[at], p.current
	add := !p.v2 && !slices.Contains(p.added, at)
	check := part.begin(p.pid, p.epoch)
	if !add && !check.needed {
		w.records[at] = w.records[at] || part.append(p.m, p.pid, p.epoch, check, w.name)
		return
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{
		TransactionalID: p.id, ProducerID: int64(p.pid), ProducerEpoch: int16(p.epoch), VerifyOnly: !p.v2 && !add,
		Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: at.Topic, Partitions: []int32{at.Partition}}},
	}}
	p.ask(req, func(response kmsg.Response) {
		code := response.(*kmsg.AddPartitionsToTxnResponse).Transactions[0].Topics[0].Partitions[0].ErrorCode
		switch {
		case code != 0:
			p.fail(code)
		case add:
			p.added = append(p.added, at)
		case rapid.IntRange(0, 3).Draw(p.m.t, "held up") == 0:
			p.m.held = append(p.m.held, &heldRecord{at, p.pid, p.epoch, check, w.name})
			w.spoiled = true
		case part.append(p.m, p.pid, p.epoch, check, w.name):
			w.records[at] = true
		}
		// Else a marker came in between, and it asks again.
	})
}

func (p *producer) end(commit bool) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, int64(p.pid), int16(p.epoch)
	req.Commit = commit
	w := p.current
	p.ask(req, func(response kmsg.Response) {
		r := response.(*kmsg.EndTxnResponse)
		if r.ErrorCode != 0 {
			p.fail(r.ErrorCode)
			return
		}
		w.committed, w.aborted = commit, !commit
		p.current, p.added = nil, nil
		if p.v2 {
			p.pid, p.epoch = kafka.ProducerID(r.ProducerID), kafka.ProducerEpoch(r.ProducerEpoch)
			p.hold()
			copied := *req
			p.m.late = append(p.m.late, &copied)
		}
	})
}

// join adds a producer; those of the same transactional id become zombies.
func (m *model) join() {
	m.producers = append(m.producers, &producer{
		m: m, name: fmt.Sprintf("p%d", len(m.producers)), v2: rapid.Bool().Draw(m.t, "version 2"),
		id: rapid.SampledFrom([]string{"x", "y"}).Draw(m.t, "id"),
	})
}

// repeat delivers the end of a transaction again, long after the first time.
func (m *model) repeat(i int) {
	req := m.late[i]
	m.late = append(m.late[:i:i], m.late[i+1:]...)
	c := &txn.Context{NowMs: m.nowMs, Caller: &answer{gone: true}, ProducerID: kafka.NoProducerID}
	m.step(func(fx *shard.Effects) { m.shard.Handle(c, req, fx) })
}

// finish lets everything come to rest and checks what must hold then.
func (m *model) finish() {
	for range 200 {
		m.commit()
		m.due()
		for len(m.orders) > 0 {
			m.mark(0, 0)
		}
		if c := m.shard.Counts(); c.Ongoing+c.Ending == 0 && len(m.waiting) == 0 {
			break
		}
		if m.shard.Counts().Ending == 0 {
			m.tick() // To the timeout of what is still open.
		}
	}
	if c := m.shard.Counts(); c.Ongoing+c.Ending > 0 {
		m.t.Fatalf("transactions never end: %+v", c)
	}
	for len(m.held) > 0 {
		m.arrive(0)
	}
	for at, p := range m.partitions {
		for id, e := range p.of {
			if len(e.open) > 0 {
				m.t.Fatalf("a transaction of producer %d hangs in %s: %v", id, at, e.open)
			}
		}
	}
	for _, w := range m.work {
		told := m.outcomes[w.name]
		if len(w.records) > 0 && w.committed && !told[true] {
			m.t.Fatalf("%s was acknowledged as committed and is aborted", w.name)
		}
		if w.aborted && told[true] {
			m.t.Fatalf("%s was acknowledged as aborted and is committed", w.name)
		}
	}
}

// TestModel: whatever crashes between whichever steps, transactions are atomic, what
// was acknowledged stands, and none hangs.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			m.draw()
		}
		m.finish()
	})
}

// draw lets one thing happen.
func (m *model) draw() {
	switch n := rapid.IntRange(0, 99).Draw(m.t, "what"); {
	case n < 4 || len(m.producers) == 0:
		m.join()
	case n < 50:
		rapid.SampledFrom(m.producers).Draw(m.t, "producer").act()
	case n < 68:
		m.commit()
	case n < 75:
		m.due()
	case n < 77:
		m.tick()
	case n < 83:
		m.crash()
	case n < 87 && len(m.late) > 0:
		m.repeat(rapid.IntRange(0, len(m.late)-1).Draw(m.t, "repeated"))
	case n < 90 && len(m.held) > 0:
		m.arrive(rapid.IntRange(0, len(m.held)-1).Draw(m.t, "arrives"))
	case len(m.orders) > 0:
		i := rapid.IntRange(0, len(m.orders)-1).Draw(m.t, "order")
		m.mark(i, rapid.IntRange(0, len(m.orders[i].left)-1).Draw(m.t, "marker"))
	}
}

// TestLateRecords: a record that is held up after its partition was verified is no part of
// the transaction after, which has the same epoch before version 2.
func TestLateRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.producers = []*producer{{m: m, name: "p", id: "x"}}
		for range 200 {
			switch n := rapid.IntRange(0, 9).Draw(t, "what"); {
			case n < 1 && len(m.held) > 0:
				m.arrive(0)
			case n < 7:
				m.producers[0].act()
			case n < 9:
				m.commit()
				m.due()
			case len(m.orders) > 0:
				m.mark(0, 0)
			}
		}
		m.finish()
	})
}

// TestCrashBetweenAnySteps runs one transaction of each kind and crashes after each
// step of it, with and without the loss of what is not committed.
func TestCrashBetweenAnySteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.producers = []*producer{{m: m, name: "p", id: "x", v2: rapid.Bool().Draw(t, "version 2")}}
		p := m.producers[0]
		crashAt, commit := rapid.IntRange(0, 60).Draw(t, "crash after"), rapid.Bool().Draw(t, "commit")
		for i := range 60 {
			switch {
			case i == crashAt:
				m.crash()
			case p.asked != nil && p.caller != nil:
				m.commit()
				m.due()
			case p.current != nil && len(p.current.records) == 2:
				p.end(commit)
			default:
				p.act()
			}
			if len(m.orders) > 0 && i%2 == 0 {
				m.mark(0, 0)
			}
		}
		if p.dead {
			t.Fatal("the only producer was fenced")
		}
		m.finish()
	})
}
