package commitlog

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/strandline/strandline/internal/kafka"
)

// stability says how far a log is decided: below its first unstable offset every
// transaction has ended, and its end is replicated.
//
//	first      marker   first                high watermark   marker
//	|--- decided ---|   |--- undecided: open, or its marker --|
//	                    |    lies at or above the high watermark
//	                    first unstable offset
//
// A transaction whose marker is not replicated counts as open: another leader may
// not have the marker, and what a reader was shown must not become undecided again.
//
// Readers take no lock. They load the high watermark first and the first unstable
// offset after it: whatever began below that high watermark was noted before it was
// reached. Writers hold the log's lock, or none when the high watermark moves; mu is
// a leaf.
type stability struct {
	// first is the first unstable offset; stable if there is none.
	first atomic.Int64
	// pending says that decided is not empty, so that a move of the high watermark
	// costs one load where there are no transactions.
	pending atomic.Bool

	mu   sync.Mutex
	open kafka.Offset // The first offset of all open transactions, or stable.
	// decided are transactions whose markers may not be replicated: those that can
	// be the first one of all. Both offsets rise strictly from one to the next.
	decided []decidedTxn
}

// decidedTxn is a transaction that has ended.
type decidedTxn struct{ first, marker kafka.Offset }

// stable stands above all offsets.
const stable = math.MaxInt64

func (s *stability) init() {
	s.open = stable
	s.first.Store(stable)
}

// publishLocked shows readers the first unstable offset.
func (s *stability) publishLocked() {
	first := s.open
	if len(s.decided) > 0 {
		first = min(first, s.decided[0].first)
	}
	s.first.Store(int64(first))
	s.pending.Store(len(s.decided) > 0)
}

// began notes a transaction that begins at the log's end.
func (s *stability) began(first kafka.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = min(s.open, first)
	s.publishLocked()
}

// ended notes the marker of a transaction, and the first offset of those that are
// still open, or stable.
func (s *stability) ended(t decidedTxn, open kafka.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = open
	// What began later and ended earlier can't be the first one any more.
	n := len(s.decided)
	for n > 0 && s.decided[n-1].first >= t.first {
		n--
	}
	s.decided = append(s.decided[:n], t)
	s.publishLocked()
}

// replicated notes that the high watermark has risen.
func (s *stability) replicated(highWatermark kafka.Offset) {
	if !s.pending.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.decided) && s.decided[n].marker < highWatermark {
		n++
	}
	s.decided = append(s.decided[:0], s.decided[n:]...)
	s.publishLocked()
}

// reset notes which transaction is the first open one of a log that was read back,
// or cut to end there.
func (s *stability) reset(open, end kafka.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = open
	n := len(s.decided)
	for n > 0 && s.decided[n-1].marker >= end {
		n--
	}
	s.decided = s.decided[:n]
	s.publishLocked()
}

// FirstUnstableOffset returns the first offset of all transactions that are not
// known to have ended, with their ends replicated; false if there is none.
func (l *Log) FirstUnstableOffset() (kafka.Offset, bool) {
	first := kafka.Offset(l.stability.first.Load())
	return first, first != stable
}

// StableBelow returns the last stable offset under a high watermark that was loaded
// before: every transaction with a record below it has ended.
func (l *Log) StableBelow(highWatermark kafka.Offset) kafka.Offset {
	return max(min(highWatermark, kafka.Offset(l.stability.first.Load())), l.LogStartOffset())
}

// Replicated notes that the high watermark has risen. It is called after the new one
// was published, and before those who wait for it are woken.
func (l *Log) Replicated(highWatermark kafka.Offset) { l.stability.replicated(highWatermark) }
