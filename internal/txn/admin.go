package txn

import (
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline/internal/kafka"
)

// Describe answers for one transactional id of a DescribeTransactions request.
// While a transaction ends, its partitions are those without a marker.
func (s *Shard) Describe(id string) kmsg.DescribeTransactionsResponseTransactionState {
	out := kmsg.NewDescribeTransactionsResponseTransactionState()
	out.TransactionalID = id
	t := s.transactions[id]
	switch {
	case id == "":
		out.ErrorCode = int16(kafka.ErrInvalidRequest)
		return out
	case t == nil:
		out.ErrorCode = int16(kafka.ErrTransactionalIDNotFound)
		return out
	}
	out.State, out.TimeoutMillis, out.StartTimestamp = t.state.String(), t.timeoutMs, t.startMs
	out.ProducerID, out.ProducerEpoch = int64(t.producerID), int16(t.epoch)
	partitions := t.partitions
	if t.state.ending() {
		partitions = t.unmarked
	}
	for _, p := range partitions {
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != p.Topic {
			out.Topics = append(out.Topics, kmsg.DescribeTransactionsResponseTransactionStateTopic{Topic: p.Topic})
		}
		last := &out.Topics[len(out.Topics)-1]
		last.Partitions = append(last.Partitions, p.Partition)
	}
	return out
}

// Filter is what a ListTransactions request asks for.
type Filter struct {
	states     map[string]bool
	producers  map[int64]bool
	durationMs int64
	pattern    *regexp.Regexp // nil for any.
}

// NewFilter reads the filters of a ListTransactions request of versions 0-2. It
// returns the names of states that do not exist, and an error if the pattern is not
// one.
func NewFilter(req *kmsg.ListTransactionsRequest) (f Filter, unknown []string, err error) {
	f.durationMs = -1
	if len(req.StateFilters) > 0 {
		f.states = map[string]bool{} // Of unknown states alone nothing passes.
	}
	for _, name := range req.StateFilters {
		if !slices.Contains(stateNames(), name) {
			unknown = append(unknown, name)
			continue
		}
		f.states[name] = true
	}
	for _, id := range req.ProducerIDFilters {
		if f.producers == nil {
			f.producers = map[int64]bool{}
		}
		f.producers[id] = true
	}
	if req.Version >= 1 {
		f.durationMs = req.DurationFilterMillis
	}
	if req.Version >= 2 && req.TransactionalIDPattern != nil && *req.TransactionalIDPattern != "" {
		f.pattern, err = regexp.Compile("^(?:" + *req.TransactionalIDPattern + ")$")
	}
	return f, unknown, err
}

func (f *Filter) passes(t *transaction, nowMs int64) bool {
	switch {
	case f.states != nil && !f.states[t.state.String()]:
		return false
	case f.producers != nil && !f.producers[int64(t.producerID)]:
		return false
	case f.durationMs >= 0 && nowMs-t.startMs <= f.durationMs:
		return false
	}
	return f.pattern == nil || f.pattern.MatchString(t.id)
}

// List appends the shard's transactional ids that pass the filter, in order.
func (s *Shard) List(
	dst []kmsg.ListTransactionsResponseTransactionState, f *Filter, nowMs int64,
) []kmsg.ListTransactionsResponseTransactionState {
	for _, t := range s.sorted() {
		if !f.passes(t, nowMs) {
			continue
		}
		dst = append(dst, kmsg.ListTransactionsResponseTransactionState{
			TransactionalID: t.id, ProducerID: int64(t.producerID), TransactionState: t.state.String(),
		})
	}
	return dst
}

func (s *Shard) sorted() []*transaction {
	all := make([]*transaction, 0, len(s.transactions))
	for _, t := range s.transactions {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *transaction) int { return strings.Compare(a.id, b.id) })
	return all
}

// Counts is how many transactional ids of a shard are in which state.
type Counts struct {
	IDs, Ongoing, Ending int
	// OldestMs is when the longest open transaction began, or 0 if none is open.
	OldestMs int64
}

// Counts counts the shard's transactional ids.
func (s *Shard) Counts() Counts {
	c := Counts{IDs: len(s.transactions)}
	for _, t := range s.transactions {
		switch {
		case t.state == Ongoing:
			c.Ongoing++
		case t.state.ending():
			c.Ending++
		default:
			continue
		}
		if c.OldestMs == 0 || t.startMs < c.OldestMs {
			c.OldestMs = t.startMs
		}
	}
	return c
}
