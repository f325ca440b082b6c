// Package history judges what clients saw while brokers broke. Clients note what was
// acknowledged to them and what they read; Check says which promises that breaks.
//
// The rules are those of Jepsen's workload for Kafka, and some that this product adds:
//
//	lost write          acknowledged, passed over by a reader, and read by nobody
//	unseen              acknowledged, and not in the log in the end
//	inconsistent offset two values at one offset, or another than was acknowledged
//	duplicate           one value at two offsets, with an idempotent producer, or two
//	                    values made of one in transactions
//	order               a reader's offsets fall, or leave some out
//	reordered           a producer's values do not stand in a partition in the order in
//	                    which it sent them
//	beyond watermark    read, and not in the log in the end: overwritten
//	aborted read        read_committed, and of a transaction that was aborted
//	precommitted read   read_committed, before the transaction was to be committed
//	torn transaction    a reader passes over records of a transaction that is committed
//	cycle               transactions read what each other wrote
//	zombie              a producer goes on after another took its transactional id
//	offset regression   a group begins below what was committed before, which what a
//	                    transaction committed is as well
//	two owners          two members own a partition in one generation
//	replicas differ     replicas have other bytes below the high watermark
//	unavailable         no acknowledgement for longer than a bound
//	not healed          not all replicas in sync, or open records, after the faults
//
// A value stands for one record: a producer gives each of its records another. Methods
// may be called from any goroutine; what a client notes, it notes in the order in which
// it saw it. What was written within transactions is acknowledged whatever becomes of
// them, and found by a reader that is not read_committed. Deliberately absent: clients.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Value is a record's identity.
type Value uint64

// Place is where a record is.
type Place struct {
	Partition int32
	Offset    int64
}

// String returns the place as text.
func (p Place) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

// Rule is a promise to clients.
type Rule string

// The rules.
const (
	LostWrite          Rule = "lost write"
	Unseen             Rule = "unseen"
	InconsistentOffset Rule = "inconsistent offset"
	Duplicate          Rule = "duplicate"
	Order              Rule = "order"
	Reordered          Rule = "reordered"
	BeyondWatermark    Rule = "beyond watermark"
	AbortedRead        Rule = "aborted read"
	PrecommittedRead   Rule = "precommitted read"
	TornTransaction    Rule = "torn transaction"
	Cycle              Rule = "cycle"
	Zombie             Rule = "zombie"
	OffsetRegression   Rule = "offset regression"
	TwoOwners          Rule = "two owners"
	ReplicasDiffer     Rule = "replicas differ"
	Unavailable        Rule = "unavailable"
	NotHealed          Rule = "not healed"
)

// Violation is a promise that was broken.
type Violation struct {
	Rule Rule
	Text string
}

// String returns the violation as a line.
func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// History is what clients saw of one topic.
type History struct {
	// Sparse says that offsets may be missing, as where the log is compacted or cut.
	Sparse bool
	// Markers says that offsets may be those of markers, which nobody reads.
	Markers bool
	// MayRepeat says that producers are not idempotent, so that a value may stand
	// twice.
	MayRepeat bool
	// Sender says which producer a value is of, where each sends rising values; nil says
	// that values have no order.
	Sender func(Value) uint64
	// MaxGap is how long a partition may be without an acknowledgement; 0 is any time.
	MaxGap time.Duration

	mu      sync.Mutex
	acked   map[Value]Place
	stored  map[Value]bool  // Acknowledged, nobody said where.
	read    map[Place]Value // What was read first at a place.
	final   map[Place]Value // The log in the end; nil until it was read.
	readers map[reader]int64
	reached map[int32]int64 // The highest offset read, by partition.
	found   []Violation     // While it was noted.

	lastAck map[int32]time.Time
	gaps    map[int32]time.Duration

	commits     map[committer]map[int32][]raise // By generation.
	commitCount Mark                            // How many there were.
	owners      map[ownership]string

	replicas []replica
	states   []State

	newest  map[string]*Session // By transactional id.
	given   map[epochName]bool
	txns    []*Txn
	sent    map[Value]sent
	late    map[*Txn]bool // Was to be committed when another had taken over.
	ways    map[reader]*way
	derived map[Value]Value // Of which other a value was made.
	must    []Value
}

// reader is one reader's way through one partition.
type reader struct {
	name      string
	partition int32
}

// commit is a committed offset that was acknowledged.
type commit struct {
	group      string
	partition  int32
	generation int32
	offset     int64
}

// committer is what a committed offset is of.
type committer struct {
	group     string
	partition int32
}

// raise is a commit of a higher offset than those before it in its generation.
type raise struct {
	number Mark
	offset int64
}

type ownership struct {
	group      string
	generation int32
	partition  int32
}

// New returns an empty history.
func New() *History {
	return &History{
		acked: map[Value]Place{}, stored: map[Value]bool{}, read: map[Place]Value{}, readers: map[reader]int64{}, reached: map[int32]int64{},
		lastAck: map[int32]time.Time{}, gaps: map[int32]time.Duration{}, owners: map[ownership]string{},
		commits: map[committer]map[int32][]raise{},
		newest:  map[string]*Session{}, given: map[epochName]bool{}, sent: map[Value]sent{}, late: map[*Txn]bool{}, ways: map[reader]*way{}, derived: map[Value]Value{},
	}
}

func (h *History) foundLocked(r Rule, format string, args ...any) {
	h.found = append(h.found, Violation{r, fmt.Sprintf(format, args...)})
}

// Acked notes that a value was acknowledged at a place.
func (h *History) Acked(v Value, at Place, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, twice := h.acked[v]; twice && before != at && !h.MayRepeat {
		h.foundLocked(Duplicate, "value %x was acknowledged at %v and at %v", v, before, at)
	}
	h.acked[v] = at
	if last, ok := h.lastAck[at.Partition]; ok {
		h.gaps[at.Partition] = max(h.gaps[at.Partition], now.Sub(last))
	}
	h.lastAck[at.Partition] = now
}

// Stored notes that a value was acknowledged, and that its client does not know where.
func (h *History) Stored(v Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stored[v] = true
}

// AckedCount returns how many values were acknowledged.
func (h *History) AckedCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked) + len(h.stored)
}

// TakeGap returns the longest time that a partition was without an acknowledgement
// since the last call, the time until now included for those that have had one.
func (h *History) TakeGap(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var longest time.Duration
	for p, last := range h.lastAck {
		longest = max(longest, h.gaps[p], now.Sub(last))
	}
	if h.MaxGap > 0 && longest > h.MaxGap {
		h.foundLocked(Unavailable, "a partition had no acknowledgement for %v", longest)
	}
	clear(h.gaps)
	return longest
}

// LastAck returns when the partition that has waited longest was acknowledged
// something. Partitions that never were do not count.
func (h *History) LastAck() (earliest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, last := range h.lastAck {
		if earliest.IsZero() || last.Before(earliest) {
			earliest = last
		}
	}
	return earliest
}

// Assigned notes that a reader begins in a partition, wherever that is.
func (h *History) Assigned(name string, partition int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, reader{name, partition})
	delete(h.ways, reader{name, partition})
}

// Read notes the next record that a reader sees.
func (h *History) Read(name string, at Place, v Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := reader{name, at.Partition}
	last, before := h.readers[r]
	switch {
	case !before:
	case at.Offset <= last:
		h.foundLocked(Order, "%s saw %v after offset %d", name, at, last)
	case at.Offset > last+1 && !h.Sparse && !h.Markers:
		h.foundLocked(Order, "%s saw %v after offset %d: some are missing", name, at, last)
	}
	h.readers[r] = at.Offset
	h.readLocked(at, v, name)
}

func (h *History) readLocked(at Place, v Value, name string) {
	if first, ok := h.read[at]; ok && first != v {
		h.foundLocked(InconsistentOffset, "at %v, value %x was read, and %x by %s", at, first, v, name)
		return
	}
	h.read[at] = v
	if reached, ok := h.reached[at.Partition]; !ok || at.Offset > reached {
		h.reached[at.Partition] = at.Offset
	}
}

// Final notes the next record of the log as it is in the end, when no fault is left.
// It is read from its start.
func (h *History) Final(at Place, v Value) {
	h.mu.Lock()
	if h.final == nil {
		h.final = map[Place]Value{}
	}
	if other, ok := h.final[at]; ok && other != v {
		h.foundLocked(InconsistentOffset, "in the end, %v has value %x and %x", at, other, v)
	}
	h.final[at] = v
	h.mu.Unlock()
	h.Read("the last reader", at, v)
}

// Forget has the log in the end, as noted so far, be forgotten: it is read again.
func (h *History) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.final = nil
	for r := range h.readers {
		if r.name == "the last reader" {
			delete(h.readers, r)
		}
	}
}

// Committed notes that a group's commit was acknowledged, in a generation.
func (h *History) Committed(group string, partition, generation int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commitLocked(commit{group, partition, generation, offset})
}

func (h *History) commitLocked(c commit) {
	h.commitCount++
	of := committer{c.group, c.partition}
	if h.commits[of] == nil {
		h.commits[of] = map[int32][]raise{}
	}
	before := h.commits[of][c.generation]
	if len(before) == 0 || before[len(before)-1].offset < c.offset {
		h.commits[of][c.generation] = append(before, raise{h.commitCount, c.offset})
	}
}

// Mark is a moment of a history.
type Mark int

// Mark returns this moment: what was noted before is before it.
func (h *History) Mark() Mark {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commitCount
}

// Fetched notes the committed offset that a member of a generation was told. Its
// request was sent after began.
func (h *History) Fetched(began Mark, group string, partition, generation int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g, raises := range h.commits[committer{group, partition}] {
		if g > generation {
			continue
		}
		after, _ := slices.BinarySearchFunc(raises, began+1, func(r raise, m Mark) int { return cmp.Compare(r.number, m) })
		if after > 0 && raises[after-1].offset > offset {
			h.foundLocked(OffsetRegression, "group %s, partition %d: generation %d begins at %d, after %d was committed in %d",
				group, partition, generation, offset, raises[after-1].offset, g)
			return
		}
	}
}

// Owns notes that a member was given a partition in a generation.
func (h *History) Owns(group string, generation, partition int32, member string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := ownership{group, generation, partition}
	if other, ok := h.owners[o]; ok && other != member {
		h.foundLocked(TwoOwners, "group %s, generation %d: partition %d belongs to %s and to %s",
			group, generation, partition, other, member)
	}
	h.owners[o] = member
}

// State is a partition's state when no fault is left and some time has passed.
type State struct {
	Partition                                     int32
	Replicas, InSync                              int
	HighWatermark, LastStableOffset, LogEndOffset int64
}

// Healed notes a state that has to be a healed one.
func (h *History) Healed(s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, s)
}
