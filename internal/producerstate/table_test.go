package producerstate_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
)

// batchOf is a batch of producer 1, epoch 0.
func batchOf(baseSequence int32, records int, baseOffset kafka.Offset) producerstate.Append {
	return producerstate.Append{
		ProducerID:   1,
		BaseSequence: baseSequence,
		LastSequence: int32((int64(baseSequence) + int64(records) - 1) & math.MaxInt32),
		BaseOffset:   baseOffset,
		LastOffset:   baseOffset + kafka.Offset(records) - 1,
		MaxTimestamp: 1000 + int64(baseOffset),
	}
}

func withEpoch(a producerstate.Append, epoch kafka.ProducerEpoch) producerstate.Append {
	a.ProducerEpoch = epoch
	return a
}

func transactional(a producerstate.Append) producerstate.Append {
	a.Transactional = true
	return a
}

// withGaps makes it one of a producer that leaves sequences out, in a transaction that
// is open.
func withGaps(a producerstate.Append) producerstate.Append {
	a.Gaps, a.Transactional, a.Verified, a.VerifiedAt = true, true, true, 1000
	return a
}

func TestCheck(t *testing.T) {
	duplicateOf := func(base, last kafka.Offset) producerstate.Verdict {
		return producerstate.Verdict{
			Duplicate: true, BaseOffset: base, LastOffset: last,
			Timestamp: 1000 + int64(base),
		}
	}
	// searched is the error about a batch that may be in a part of the log.
	searched := func(base, next int32, from, upTo kafka.Offset) error {
		return &producerstate.OutOfOrderSequenceError{
			ProducerID: 1, BaseSequence: base, NextSequence: next, From: from, UpTo: upTo,
		}
	}
	six := []producerstate.Append{
		batchOf(0, 10, 100), batchOf(10, 1, 110), batchOf(11, 4, 115),
		batchOf(15, 1, 130), batchOf(16, 4, 131), batchOf(20, 5, 140),
	}
	wrapping := []producerstate.Append{
		batchOf(math.MaxInt32-4, 4, 100), batchOf(math.MaxInt32, 3, 104),
	}
	tests := []struct {
		name    string
		log     []producerstate.Append
		options producerstate.Options
		append  producerstate.Append
		verdict producerstate.Verdict
		err     error
	}{
		{name: "first batch of a producer", append: batchOf(0, 3, 0)},
		{
			name: "unknown producer", append: batchOf(7, 3, 0),
			err: &producerstate.UnknownProducerError{ProducerID: 1, BaseSequence: 7},
		},
		{
			name: "unknown producer accepted", options: producerstate.Options{AcceptUnknown: true},
			append: batchOf(7, 3, 0),
		},
		{name: "next batch", log: six, append: batchOf(25, 3, 0)},
		{name: "newest again", log: six, append: batchOf(20, 5, 0), verdict: duplicateOf(140, 144)},
		{name: "fifth newest again", log: six, append: batchOf(10, 1, 0), verdict: duplicateOf(110, 110)},
		{name: "older than the window", log: six, append: batchOf(0, 10, 0), err: searched(0, 25, 0, 110)},
		{name: "well before the window", log: six, append: batchOf(3, 5, 0), err: searched(3, 25, 0, 108)},
		{
			name: "older than the window, and in it", log: six, append: batchOf(9, 2, 0),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 9, NextSequence: 25},
		},
		{
			name: "older than the only one of a producer with gaps", log: []producerstate.Append{transactional(batchOf(20, 5, 140))},
			append: withGaps(batchOf(0, 10, 0)),
			err:    &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 0, NextSequence: 25},
		},
		{
			name: "older than a window with a gap", log: append(six[:6:6], batchOf(30, 1, 145)), append: batchOf(0, 10, 0),
			err: searched(0, 31, 0, 114),
		},
		{
			name: "before a producer that started over", log: append(six[:6:6], batchOf(0, 1, 145)), append: batchOf(9, 1, 0),
			err: searched(9, 1, 0, 114),
		},
		{
			name: "older than the window, where the log has no room for it",
			log:  []producerstate.Append{batchOf(7, 3, 3)}, append: batchOf(3, 4, 0),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 3, NextSequence: 10},
		},
		{
			name: "older than the window, in the transaction", append: transactional(batchOf(0, 10, 0)),
			log: []producerstate.Append{
				transactional(six[0]), transactional(six[1]), transactional(six[2]),
				transactional(six[3]), transactional(six[4]), transactional(six[5]),
			},
			err: searched(0, 25, 100, 110),
		},
		{
			name: "older than the window, in a transaction that is not there", log: six,
			append: transactional(batchOf(0, 10, 0)),
			err: &producerstate.TransactionStateError{
				ProducerID: 1,
				Reason:     "the batch is not part of a transaction that the coordinator knows to be open here",
			},
		},
		{
			name: "part of a duplicate", log: six, append: batchOf(20, 4, 0),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 20, NextSequence: 25},
		},
		{
			name: "same end, other start", log: six, append: batchOf(21, 4, 0),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 21, NextSequence: 25},
		},
		{
			name: "gap", log: six, append: batchOf(26, 1, 0),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 26, NextSequence: 25},
		},
		{name: "newer epoch starts over", log: six, append: withEpoch(batchOf(0, 1, 0), 1)},
		{
			name: "newer epoch goes on", log: six, append: withEpoch(batchOf(25, 1, 0), 1),
			err: &producerstate.OutOfOrderSequenceError{
				ProducerID: 1, ProducerEpoch: 1, BaseSequence: 25,
				NextSequence: 0,
			},
		},
		{
			name: "older epoch", log: []producerstate.Append{withEpoch(batchOf(0, 1, 0), 4)},
			append: withEpoch(batchOf(1, 1, 0), 3),
			err:    &producerstate.InvalidEpochError{ProducerID: 1, ProducerEpoch: 3, CurrentEpoch: 4},
		},
		{
			name: "duplicate of an older epoch", append: batchOf(20, 5, 0),
			log: append(six[:6:6], withEpoch(batchOf(0, 1, 200), 1)),
			err: &producerstate.InvalidEpochError{ProducerID: 1, CurrentEpoch: 1},
		},
		{name: "gaps: first batch of a producer", append: withGaps(batchOf(7, 3, 0))},
		{name: "gaps: first batch of an epoch", log: six, append: withGaps(withEpoch(batchOf(7, 3, 0), 1))},
		{name: "gaps: next batch", log: six, append: withGaps(batchOf(25, 3, 0))},
		{name: "gaps: a gap", log: six, append: withGaps(batchOf(16<<14, 3, 0))},
		{name: "gaps: newest again", log: six, append: withGaps(batchOf(20, 5, 0)), verdict: duplicateOf(140, 144)},
		{
			name: "gaps: more than the newest", log: six, append: withGaps(batchOf(20, 6, 0)),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 20, NextSequence: 25},
		},
		{
			name: "gaps: into what there is", log: six, append: withGaps(batchOf(24, 9, 0)),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 24, NextSequence: 25},
		},
		{
			name: "gaps: older than the window", log: six, append: withGaps(batchOf(0, 10, 0)),
			err: &producerstate.OutOfOrderSequenceError{ProducerID: 1, BaseSequence: 0, NextSequence: 25},
		},
		{
			name: "gaps: older epoch", log: []producerstate.Append{withEpoch(batchOf(0, 1, 0), 4)},
			append: withGaps(withEpoch(batchOf(1<<14, 1, 0), 3)),
			err:    &producerstate.InvalidEpochError{ProducerID: 1, ProducerEpoch: 3, CurrentEpoch: 4},
		},
		{name: "sequence wraps inside a batch", log: wrapping[:1], append: batchOf(math.MaxInt32, 3, 0)},
		{name: "after the wrap", log: wrapping, append: batchOf(2, 1, 0)},
		{
			name: "duplicate over the wrap", log: wrapping, append: batchOf(math.MaxInt32, 3, 0),
			verdict: duplicateOf(104, 106),
		},
		{name: "older than the window, over the wrap", log: wrapping, append: batchOf(math.MaxInt32-9, 5, 0), err: searched(math.MaxInt32-9, 2, 0, 100)},
		{
			name: "wraps between batches", append: batchOf(0, 1, 0),
			log: []producerstate.Append{batchOf(math.MaxInt32-1, 2, 0)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := producerstate.New(test.options)
			for _, a := range test.log {
				table.Update(a, 0)
			}
			verdict, err := table.Check(test.append)
			if diff := cmp.Diff(test.err, err); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.verdict, verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			// The same after a restart, window and all.
			restored := restore(t, table, test.options)
			again, err := restored.Check(test.append)
			if again != verdict || !cmp.Equal(test.err, err) {
				t.Errorf("after a restart: %+v, %v", again, err)
			}
		})
	}
}

func restore(t testing.TB, table *producerstate.Table, options producerstate.Options) *producerstate.Table {
	t.Helper()
	restored, err := producerstate.Decode(table.Encode(nil), options, math.MaxInt64)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	return restored
}

func TestErrorsSayWhatToDo(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	_, err := table.Check(batchOf(3, 1, 0))
	if unknown, ok := errors.AsType[*producerstate.UnknownProducerError](err); !ok ||
		unknown.Error() == "" {
		t.Errorf("got %v", err)
	}
}

func TestExpire(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	for id := range kafka.ProducerID(10) {
		a := batchOf(0, 1, kafka.Offset(id))
		a.ProducerID, a.Transactional = id, id == 2
		a.MaxTimestamp = 0 // Producers' clocks do not matter.
		table.Update(a, 100+int64(id))
	}
	a := batchOf(1, 1, 10)
	a.ProducerID = 0
	table.Update(a, 200)
	if got := table.Expire(150, 45); got != 4 { // 1, 3, 4, 5; 0 is recent and 2 has a transaction.
		t.Errorf("forgot %d producers, want 4", got)
	}
	want := []kafka.ProducerID{2, 6, 7, 8, 9, 0}
	if diff := cmp.Diff(want, producerIDs(table)); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
	if got := table.Expire(1000, 1); got != 5 || table.Len() != 1 {
		t.Errorf("forgot %d producers, %d are left", got, table.Len())
	}
	table.EndTransaction(producerstate.Marker{ProducerID: 2}, 1000)
	if got := table.Expire(1001, 1); got != 1 || table.Len() != 0 {
		t.Errorf("forgot %d producers, %d are left", got, table.Len())
	}
}

func producerIDs(table *producerstate.Table) []kafka.ProducerID {
	var ids []kafka.ProducerID
	for e := range table.Active {
		ids = append(ids, e.ProducerID)
	}
	return ids
}

func TestMaxProducers(t *testing.T) {
	table := producerstate.New(producerstate.Options{MaxProducers: 3})
	for id := range kafka.ProducerID(6) {
		a := batchOf(0, 1, kafka.Offset(id))
		a.ProducerID, a.Transactional = id, id == 1
		table.Update(a, 0)
	}
	if diff := cmp.Diff([]kafka.ProducerID{1, 4, 5}, producerIDs(table)); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
	// Open transactions are kept beyond the limit, and go when they are over.
	for id := range kafka.ProducerID(4) {
		a := batchOf(0, 1, 10)
		a.ProducerID, a.Transactional = 10+id, true
		table.Update(a, 0)
	}
	if diff := cmp.Diff([]kafka.ProducerID{1, 10, 11, 12, 13}, producerIDs(table)); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
	for id := range kafka.ProducerID(4) {
		table.EndTransaction(producerstate.Marker{ProducerID: 10 + id}, 0)
	}
	table.Update(batchOf(1, 1, 20), 0)
	a := batchOf(0, 1, 21)
	a.ProducerID = 20
	table.Update(a, 0)
	if diff := cmp.Diff([]kafka.ProducerID{13, 1, 20}, producerIDs(table)); diff != "" {
		t.Errorf("producers (-want +got):\n%s", diff)
	}
}

func TestTransactions(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	update := func(id kafka.ProducerID, baseSequence int32, offset kafka.Offset) {
		a := batchOf(baseSequence, 2, offset)
		a.ProducerID, a.Transactional = id, true
		table.Update(a, 0)
	}
	update(1, 0, 10)
	update(2, 0, 20)
	update(1, 2, 30)
	check := func(want kafka.Offset, wantOK bool) {
		t.Helper()
		for _, table := range []*producerstate.Table{table, restore(t, table, producerstate.Options{})} {
			if got, ok := table.FirstOpenOffset(); got != want || ok != wantOK {
				t.Errorf("first open offset %d, %v, want %d, %v", got, ok, want, wantOK)
			}
		}
	}
	check(10, true)
	if got, ok := table.EndTransaction(producerstate.Marker{
		ProducerID: 1, ProducerEpoch: 1,
		CoordinatorEpoch: 5,
	}, 0); got != 10 || !ok {
		t.Errorf("transaction began at %d, %v", got, ok)
	}
	check(20, true)
	update(1, 0, 40)
	check(20, true)
	if got, ok := table.EndTransaction(producerstate.Marker{ProducerID: 2}, 0); got != 20 || !ok {
		t.Errorf("transaction began at %d, %v", got, ok)
	}
	check(40, true)
	if _, ok := table.EndTransaction(producerstate.Marker{ProducerID: 2}, 0); ok {
		t.Error("a marker without a transaction ended one")
	}
	table.EndTransaction(producerstate.Marker{
		ProducerID: 1, ProducerEpoch: 1, CoordinatorEpoch: 6,
		Timestamp: 77,
	}, 0)
	check(kafka.NoOffset, false)
	want := producerstate.Entry{
		ProducerID: 1, ProducerEpoch: 1, LastSequence: -1, LastOffset: -1, LastTimestamp: 77,
		CoordinatorEpoch: 6, CurrentTxnFirstOffset: -1,
	}
	for e := range restore(t, table, producerstate.Options{}).Active {
		if e.ProducerID == 1 {
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		}
	}
}
