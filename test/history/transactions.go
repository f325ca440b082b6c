package history

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Session is a producer of a transactional id, from one answer to InitProducerId that
// it got to whatever replaces it.
type Session struct {
	h             *History
	id            string
	producerID    int64
	producerEpoch int16
}

// Took notes that InitProducerId was answered: whoever had a lower epoch of the
// transactional id is fenced from here on, and nobody else is given the same. A new
// producer id follows the last epoch of the one before, and is greater.
func (h *History) Took(id string, producerID int64, producerEpoch int16) *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Session{h, id, producerID, producerEpoch}
	if h.given[s.named()] {
		h.foundLocked(Zombie, "epoch %d of producer %d was given to two producers of %s", producerEpoch, producerID, id)
	}
	h.given[s.named()] = true
	if newest := h.newest[id]; newest == nil || s.compare(newest) > 0 {
		h.newest[id] = s
	}
	return s
}

// epochName is what no two producers have in common.
type epochName struct {
	id            string
	producerID    int64
	producerEpoch int16
}

func (s *Session) named() epochName { return epochName{s.id, s.producerID, s.producerEpoch} }

func (s *Session) compare(other *Session) int {
	return cmp.Or(cmp.Compare(s.producerID, other.producerID), cmp.Compare(s.producerEpoch, other.producerEpoch))
}

// fencedLocked reports whether another producer has taken over.
func (s *Session) fencedLocked() bool { return s.compare(s.h.newest[s.id]) < 0 }

// Outcome is how a transaction ended, as far as its client knows.
type Outcome int

// The outcomes. What is unknown may have been committed, all of it, or nothing.
const (
	Unknown Outcome = iota
	WasCommitted
	WasAborted
)

// Txn is one transaction.
type Txn struct {
	h       *History
	session *Session
	number  int
	values  []Value
	reads   []Value
	offsets []commit
	asked   bool // To be committed.
	outcome Outcome
}

// Begin notes that a transaction begins.
func (s *Session) Begin() *Txn {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	x := &Txn{h: s.h, session: s, number: len(s.h.txns)}
	s.h.txns = append(s.h.txns, x)
	return x
}

// sent is what is known of a record when it is sent in a transaction.
type sent struct {
	txn    *Txn
	fenced bool // Another producer had taken over.
}

// Sends notes that a record of the transaction is about to be sent.
func (x *Txn) Sends(v Value) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.values = append(x.values, v)
	x.h.sent[v] = sent{x, x.session.fencedLocked()}
}

// Acked notes that a record of the transaction was acknowledged at a place.
func (x *Txn) Acked(v Value, at Place, now time.Time) {
	x.h.Acked(v, at, now)
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	if x.h.sent[v].fenced {
		x.h.foundLocked(Zombie, "value %x was acknowledged at %v to epoch %d of %s, which was sent when epoch %d was there",
			v, at, x.session.producerEpoch, x.session.id, x.h.newest[x.session.id].producerEpoch)
	}
}

// Reads notes that the transaction is made of a record that was read.
func (x *Txn) Reads(v Value) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.reads = append(x.reads, v)
}

// Offset notes an offset that is part of the transaction.
func (x *Txn) Offset(group string, partition, generation int32, offset int64) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.offsets = append(x.offsets, commit{group, partition, generation, offset})
}

// Commits notes that EndTxn is about to ask for a commit.
func (x *Txn) Commits() {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.asked = true
	if x.session.fencedLocked() {
		x.h.late[x] = true
	}
}

// Ended notes the answer to EndTxn. A client that got none notes nothing.
func (x *Txn) Ended(o Outcome) {
	x.h.mu.Lock()
	defer x.h.mu.Unlock()
	x.outcome = o
	if o != WasCommitted {
		return
	}
	for _, c := range x.offsets {
		x.h.commitLocked(c)
	}
	if x.h.late[x] {
		x.h.foundLocked(Zombie, "transaction %d was committed by epoch %d of %s, which asked when epoch %d was there",
			x.number, x.session.producerEpoch, x.session.id, x.h.newest[x.session.id].producerEpoch)
	}
}

// way is what a read_committed reader has of a partition: from where it began until
// its position.
type way struct {
	from, until int64
	values      map[Value]bool
}

// ReadCommitted is Read for a reader that is read_committed.
func (h *History) ReadCommitted(name string, at Place, v Value) {
	h.Read(name, at, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.sent[v]; ok && !s.txn.asked {
		h.foundLocked(PrecommittedRead, "%s read value %x at %v before transaction %d of %s was to be committed",
			name, v, at, s.txn.number, s.txn.session.id)
	}
	w := h.wayLocked(name, at.Partition, at.Offset)
	w.until = max(w.until, at.Offset+1)
	w.values[v] = true
}

// At notes the position of a read_committed reader: it has been given all that there
// was for it below.
func (h *History) At(name string, at Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.wayLocked(name, at.Partition, at.Offset)
	w.until = max(w.until, at.Offset)
}

func (h *History) wayLocked(name string, partition int32, from int64) *way {
	r := reader{name, partition}
	if h.ways[r] == nil {
		h.ways[r] = &way{from: from, until: from, values: map[Value]bool{}}
	}
	return h.ways[r]
}

// Derived notes that a record was made of another, which has to happen once to each
// record that Must names.
func (h *History) Derived(v, from Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.derived[v] = from
}

// Must notes that something was to be made of a record, if it is committed.
func (h *History) Must(from Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.must = append(h.must, from)
}

// checkTransactions holds what read_committed readers saw against how transactions
// ended.
func (h *History) checkTransactions(note noter) {
	seen := map[*Txn]string{} // By whom.
	for _, r := range h.sortedWays() {
		for _, v := range slices.Sorted(maps.Keys(h.ways[r].values)) {
			s, ok := h.sent[v]
			if !ok {
				continue
			}
			if s.txn.outcome == WasAborted {
				note(AbortedRead, "%s read value %x of transaction %d of %s, which was aborted",
					r.name, v, s.txn.number, s.txn.session.id)
				continue
			}
			seen[s.txn] = r.name
		}
	}
	h.checkTorn(seen, note)
	h.checkCycles(seen, note)
	h.checkOnce(seen, note)
}

func (h *History) sortedWays() []reader {
	return slices.SortedFunc(maps.Keys(h.ways), func(a, b reader) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.partition, b.partition))
	})
}

// due is a record that readers have to be given.
type due struct {
	offset int64
	value  Value
	txn    *Txn
}

// due returns the records of transactions that were committed, as their clients or
// readers know, by partition and in the order of the log.
func (h *History) due(seen map[*Txn]string) map[int32][]due {
	all := map[int32][]due{}
	for _, x := range h.txns {
		if _, read := seen[x]; !read && x.outcome != WasCommitted {
			continue
		}
		for _, v := range x.values {
			if at, acked := h.acked[v]; acked {
				all[at.Partition] = append(all[at.Partition], due{at.Offset, v, x})
			}
		}
	}
	for _, records := range all {
		slices.SortFunc(records, func(a, b due) int { return cmp.Compare(a.offset, b.offset) })
	}
	return all
}

// checkTorn looks for records of transactions that were committed which a reader has
// passed over.
func (h *History) checkTorn(seen map[*Txn]string, note noter) {
	all := h.due(seen)
	for _, r := range h.sortedWays() {
		w, records := h.ways[r], all[r.partition]
		from, _ := slices.BinarySearchFunc(records, w.from, func(d due, offset int64) int { return cmp.Compare(d.offset, offset) })
		for _, d := range records[from:] {
			if d.offset >= w.until {
				break
			}
			if w.values[d.value] {
				continue
			}
			by := "its client"
			if d.txn.outcome != WasCommitted {
				by = seen[d.txn]
			}
			note(TornTransaction, "%s passed over value %x at %d/%d of transaction %d of %s, which %s knows as committed",
				r.name, d.value, r.partition, d.offset, d.txn.number, d.txn.session.id, by)
		}
	}
}

// checkOnce looks for records that were processed twice, or not at all.
func (h *History) checkOnce(seen map[*Txn]string, note noter) {
	committed := func(v Value) bool {
		s, ok := h.sent[v]
		if !ok {
			return false
		}
		_, read := seen[s.txn]
		return read || s.txn.outcome == WasCommitted
	}
	results := map[Value]Value{}
	for _, v := range slices.Sorted(maps.Keys(h.derived)) {
		from := h.derived[v]
		if !committed(v) {
			continue
		}
		if other, twice := results[from]; twice {
			note(Duplicate, "of value %x, %x and %x were made, both committed", from, other, v)
		}
		results[from] = v
	}
	for _, from := range h.must {
		if _, once := results[from]; !once && committed(from) {
			note(LostWrite, "of value %x, nothing was made", from)
		}
	}
}

// checkCycles looks for transactions each of which read what another wrote, in a
// circle: none of them can have been first.
func (h *History) checkCycles(seen map[*Txn]string, note noter) {
	next := func(x *Txn) (writers []*Txn) {
		for _, v := range x.reads {
			if s, ok := h.sent[v]; ok {
				writers = append(writers, s.txn)
			}
		}
		return writers
	}
	c := circles{next: next, order: map[*Txn]int{}, low: map[*Txn]int{}, on: map[*Txn]bool{}}
	for _, x := range h.txns {
		if _, read := seen[x]; (read || x.outcome == WasCommitted) && c.order[x] == 0 {
			c.visit(x)
		}
	}
	for _, circle := range c.found {
		note(Cycle, "%d transactions, of them %d of %s, read what each other wrote",
			len(circle), circle[0].number, circle[0].session.id)
	}
}

// circles finds the strongly connected components that have an edge, as Tarjan does.
type circles struct {
	next  func(*Txn) []*Txn
	order map[*Txn]int // From 1.
	low   map[*Txn]int
	on    map[*Txn]bool
	stack []*Txn
	found [][]*Txn
}

func (c *circles) visit(x *Txn) {
	c.order[x] = len(c.order) + 1
	c.low[x], c.on[x] = c.order[x], true
	c.stack = append(c.stack, x)
	itself := false
	for _, y := range c.next(x) {
		itself = itself || y == x
		if c.order[y] == 0 {
			c.visit(y)
			c.low[x] = min(c.low[x], c.low[y])
		} else if c.on[y] {
			c.low[x] = min(c.low[x], c.order[y])
		}
	}
	if c.low[x] != c.order[x] {
		return
	}
	at := slices.Index(c.stack, x)
	circle := slices.Clone(c.stack[at:])
	c.stack = c.stack[:at]
	for _, y := range circle {
		c.on[y] = false
	}
	if len(circle) > 1 || itself {
		c.found = append(c.found, circle)
	}
}
