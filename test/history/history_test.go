package history_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/test/history"
)

func at(offset int64) history.Place { return history.Place{Partition: 3, Offset: offset} }

// batch returns the bytes of a batch, as far as anybody looks.
func batch(base int64, content string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(base))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

// good notes a history in which nothing is wrong.
func good(h *history.History) {
	h.Sender = func(v history.Value) uint64 { return uint64(v) % 2 }
	began := time.Unix(0, 0)
	for i := range int64(4) {
		h.Acked(history.Value(i), at(i), began.Add(time.Duration(i)*time.Second))
		h.Read("reader", at(i), history.Value(i))
	}
	h.Read("reader", at(4), 4) // Nobody knows whether it was acknowledged.
	h.Assigned("reader", 3)
	h.Read("reader", at(0), 0)
	for i := range int64(5) {
		h.Final(at(i), history.Value(i))
	}
	h.Stored(2)
	h.Committed("g", 3, 7, 2)
	h.Fetched(h.Mark(), "g", 3, 8, 2)
	h.Owns("g", 7, 3, "a")
	h.Owns("g", 8, 3, "b")
	h.Replica(1, 3, 5, append(batch(0, "x"), batch(1, "y")...))
	h.Replica(2, 3, 5, append(batch(1, "y"), batch(5, "beyond")...))
	h.Healed(history.State{Partition: 3, Replicas: 3, InSync: 3, HighWatermark: 5, LastStableOffset: 5, LogEndOffset: 5})
}

// Every rule finds what breaks it, and nothing else does.
func TestRules(t *testing.T) {
	tests := []struct {
		name string
		bad  func(*history.History)
		want []history.Rule
	}{
		{"nothing wrong", func(*history.History) {}, nil},
		{"passed over", func(h *history.History) {
			h.Forget()
			h.Sparse = true
			h.Acked(77, at(10), time.Unix(4, 0))
			h.Read("second", at(11), 11)
		}, []history.Rule{history.LostWrite}},
		{"not in the end", func(h *history.History) { h.Acked(77, at(5), time.Unix(4, 0)) }, []history.Rule{history.Unseen}},
		{"nowhere in the end", func(h *history.History) { h.Stored(77) }, []history.Rule{history.Unseen}},
		{"acknowledged elsewhere", func(h *history.History) { h.Acked(77, at(2), time.Unix(4, 0)) }, []history.Rule{history.InconsistentOffset}},
		{"read as two", func(h *history.History) { h.Read("second", at(2), 77) }, []history.Rule{history.InconsistentOffset}},
		{"acknowledged twice", func(h *history.History) { h.Acked(2, at(3), time.Unix(4, 0)) }, []history.Rule{history.Duplicate, history.InconsistentOffset}},
		{"out of order", func(h *history.History) {
			h.Final(at(5), 9)
			h.Final(at(6), 10)
			h.Final(at(7), 7)
		}, []history.Rule{history.Reordered}},
		{"two producers by turns", func(h *history.History) {
			h.Final(at(5), 9)
			h.Final(at(6), 6)
			h.Final(history.Place{Partition: 4, Offset: 0}, 5)
		}, nil},
		{"stands twice", func(h *history.History) { h.Final(at(5), 2) }, []history.Rule{history.Duplicate}},
		{"backwards", func(h *history.History) {
			h.Read("second", at(3), 3)
			h.Read("second", at(2), 2)
		}, []history.Rule{history.Order}},
		{"a gap", func(h *history.History) {
			h.Read("second", at(0), 0)
			h.Read("second", at(2), 2)
		}, []history.Rule{history.Order}},
		{"overwritten", func(h *history.History) { h.Read("second", at(5), 5) }, []history.Rule{history.BeyondWatermark}},
		{"a commit is lost", func(h *history.History) {
			h.Committed("g", 3, 8, 4)
			h.Fetched(h.Mark(), "g", 3, 8, 2)
		}, []history.Rule{history.OffsetRegression}},
		{"a fetch from before the commit", func(h *history.History) {
			began := h.Mark()
			h.Committed("g", 3, 8, 4)
			h.Fetched(began, "g", 3, 8, 2)
		}, nil},
		{"a member of the past", func(h *history.History) {
			h.Committed("g", 3, 8, 4)
			h.Fetched(h.Mark(), "g", 3, 7, 2)
		}, nil},
		{"two owners", func(h *history.History) { h.Owns("g", 8, 3, "c") }, []history.Rule{history.TwoOwners}},
		{"another replica", func(h *history.History) { h.Replica(3, 3, 5, batch(1, "z")) }, []history.Rule{history.ReplicasDiffer}},
		{"an empty replica", func(h *history.History) { h.Replica(3, 3, 5, nil) }, []history.Rule{history.ReplicasDiffer}},
		{"a replica without a batch", func(h *history.History) {
			h.Replica(3, 3, 5, batch(0, "x"))
		}, []history.Rule{history.ReplicasDiffer}},
		{"no acknowledgement", func(h *history.History) {
			h.MaxGap = 2 * time.Second
			h.TakeGap(time.Unix(6, 0))
		}, []history.Rule{history.Unavailable}},
		{"not in sync", func(h *history.History) {
			h.Healed(history.State{Replicas: 3, InSync: 2, HighWatermark: 5, LastStableOffset: 5, LogEndOffset: 5})
		}, []history.Rule{history.NotHealed}},
		{"a transaction that hangs", func(h *history.History) {
			h.Healed(history.State{Replicas: 3, InSync: 3, HighWatermark: 5, LastStableOffset: 4, LogEndOffset: 5})
		}, []history.Rule{history.NotHealed}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := history.New()
			good(h)
			test.bad(h)
			var rules []history.Rule
			for _, v := range h.Check() {
				t.Log(v)
				rules = append(rules, v.Rule)
			}
			if rules = slices.Compact(rules); !slices.Equal(rules, test.want) {
				t.Errorf("broken: %q, want %q", rules, test.want)
			}
		})
	}
}

// The longest gap counts the time that goes on, and is taken once.
func TestTakeGap(t *testing.T) {
	h := history.New()
	for _, s := range []int64{0, 1, 6, 7} {
		h.Acked(history.Value(s), at(s), time.Unix(s, 0))
	}
	if got := h.TakeGap(time.Unix(8, 0)); got != 5*time.Second {
		t.Errorf("longest gap %v, want 5s", got)
	}
	if got := h.TakeGap(time.Unix(10, 0)); got != 3*time.Second {
		t.Errorf("then %v, want 3s", got)
	}
}
