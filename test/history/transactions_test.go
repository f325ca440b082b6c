package history_test

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/test/history"
)

// world is a history of transactions in which nothing is wrong.
type world struct {
	*history.History
	first, second *history.Session
}

// in notes a transaction whose records are acknowledged from an offset on.
func in(s *history.Session, h *history.History, from int64, values ...history.Value) *history.Txn {
	x := s.Begin()
	for i, v := range values {
		x.Sends(v)
		x.Acked(v, at(from+int64(i)), time.Unix(from, 0))
	}
	return x
}

func commit(x *history.Txn) {
	x.Commits()
	x.Ended(history.WasCommitted)
}

// goodTransactions notes one that is committed at 0 and 1, one aborted at 3 and one at
// 5 of which nobody knows, in which an offset is committed. Others are markers.
func goodTransactions() *world {
	w := &world{History: history.New()}
	w.Markers = true
	w.first = w.Took("id", 7, 0)
	commit(in(w.first, w.History, 0, 1, 2))
	in(w.first, w.History, 3, 3).Ended(history.WasAborted)
	unknown := in(w.first, w.History, 5, 4)
	unknown.Reads(1)
	unknown.Commits()
	made := w.first.Begin()
	made.Reads(4)
	made.Sends(5)
	made.Acked(5, at(7), time.Unix(7, 0))
	made.Offset("g", 3, 1, 6)
	w.Derived(5, 1)
	w.Must(1)
	w.Must(3) // Was aborted.
	commit(made)
	w.Fetched(w.Mark(), "g", 3, 1, 6)
	for _, o := range []int64{0, 1, 3, 5, 7} {
		w.Final(at(o), map[int64]history.Value{0: 1, 1: 2, 3: 3, 5: 4, 7: 5}[o])
	}
	w.At("committed", at(0))
	for _, o := range []int64{0, 1, 5, 7} {
		w.ReadCommitted("committed", at(o), map[int64]history.Value{0: 1, 1: 2, 5: 4, 7: 5}[o])
	}
	w.At("committed", at(9))
	w.Replica(1, 3, 9, slices.Concat(
		written(0, 7, 0, 0, 2, 0), written(2, 7, 1, -1, 1, 1<<5), written(3, 7, 1, 0, 1, 0), written(4, 7, 1, -1, 1, 1<<5),
		written(5, 7, 1, 1, 1, 0), written(6, 9, 0, 0, 1, 0)))
	w.second = w.Took("id", 7, 2)
	return w
}

// written returns a batch of records of a producer.
func written(base, producer int64, epoch int16, sequence, records int32, attributes uint16) []byte {
	b := make([]byte, 61)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], 61-12)
	binary.BigEndian.PutUint16(b[21:], attributes)
	binary.BigEndian.PutUint32(b[23:], uint32(records-1))
	binary.BigEndian.PutUint64(b[43:], uint64(producer))
	binary.BigEndian.PutUint16(b[51:], uint16(epoch))
	binary.BigEndian.PutUint32(b[53:], uint32(sequence))
	return b
}

// Every rule about transactions finds what breaks it, and nothing else does.
func TestTransactionRules(t *testing.T) {
	tests := []struct {
		name string
		bad  func(w *world)
		want []history.Rule
	}{
		{"nothing wrong", func(*world) {}, nil},
		{"aborted and read", func(w *world) { w.ReadCommitted("other", at(3), 3) }, []history.Rule{history.AbortedRead, history.PrecommittedRead}},
		{"read too early", func(w *world) {
			x := in(w.second, w.History, 9, 9)
			w.ReadCommitted("other", at(9), 9)
			commit(x)
			w.Final(at(9), 9)
		}, []history.Rule{history.PrecommittedRead}},
		{"committed and passed over", func(w *world) {
			w.ReadCommitted("other", at(0), 1)
			w.ReadCommitted("other", at(5), 4)
		}, []history.Rule{history.TornTransaction}},
		{"passed over at the end", func(w *world) {
			commit(in(w.second, w.History, 9, 9))
			w.Final(at(9), 9)
			w.At("committed", at(11))
		}, []history.Rule{history.TornTransaction}},
		{"half of a transaction of which nobody knows", func(w *world) {
			in(w.second, w.History, 9, 9, 10).Commits()
			w.Final(at(9), 9)
			w.Final(at(10), 10)
			w.ReadCommitted("committed", at(9), 9)
			w.At("committed", at(12))
		}, []history.Rule{history.TornTransaction}},
		{"none of a transaction of which nobody knows", func(w *world) {
			in(w.second, w.History, 9, 9, 10).Commits()
			w.Final(at(9), 9)
			w.Final(at(10), 10)
			w.At("committed", at(12))
		}, nil},
		{"begun behind it", func(w *world) { w.ReadCommitted("other", at(7), 5) }, nil},
		{"not read as far", func(w *world) { w.ReadCommitted("other", at(0), 1) }, nil},
		{"a circle", func(w *world) {
			a, b := w.second.Begin(), w.second.Begin()
			a.Sends(20)
			b.Sends(21)
			a.Reads(21)
			b.Reads(20)
			commit(a)
			commit(b)
		}, []history.Rule{history.Cycle}},
		{"it read itself", func(w *world) {
			a := w.second.Begin()
			a.Sends(20)
			a.Reads(20)
			commit(a)
		}, []history.Rule{history.Cycle}},
		{"it read what an aborted one made of it", func(w *world) {
			a, b := w.second.Begin(), w.second.Begin()
			a.Sends(20)
			b.Reads(20)
			commit(a)
			b.Ended(history.WasAborted)
		}, nil},
		{"processed twice", func(w *world) {
			commit(in(w.second, w.History, 9, 9))
			w.Final(at(9), 9)
			w.Derived(9, 1)
		}, []history.Rule{history.Duplicate}},
		{"processed again, as the first was aborted", func(w *world) {
			in(w.second, w.History, 9, 9).Ended(history.WasAborted)
			w.Final(at(9), 9)
			w.Derived(9, 1)
		}, nil},
		{"not processed", func(w *world) { w.Must(2) }, []history.Rule{history.LostWrite}},
		{"an aborted record is not in the log", func(w *world) {
			in(w.second, w.History, 9, 9).Ended(history.WasAborted)
		}, []history.Rule{history.Unseen}},
		{"a group falls behind what a transaction committed", func(w *world) {
			w.Fetched(w.Mark(), "g", 3, 2, 5)
		}, []history.Rule{history.OffsetRegression}},
		{"a transaction with an offset is aborted", func(w *world) {
			x := w.second.Begin()
			x.Offset("g", 3, 2, 8)
			x.Ended(history.WasAborted)
			w.Fetched(w.Mark(), "g", 3, 2, 6)
		}, nil},
		{"a zombie's record", func(w *world) {
			in(w.first, w.History, 9, 9)
			w.Final(at(9), 9)
		}, []history.Rule{history.Zombie}},
		{"a record from before the fence", func(w *world) {
			x := w.second.Begin()
			x.Sends(9)
			w.Took("id", 7, 3)
			x.Acked(9, at(9), time.Unix(9, 0))
			w.Final(at(9), 9)
		}, nil},
		{"a zombie's commit", func(w *world) {
			x := w.second.Begin()
			w.Took("id", 8, 0)
			commit(x)
		}, []history.Rule{history.Zombie}},
		{"another id's producer", func(w *world) {
			w.Took("other", 12, 5)
			commit(w.second.Begin())
		}, nil},
		{"an answer that comes late", func(w *world) {
			w.Took("id", 7, 1)
			commit(w.second.Begin())
		}, nil},
		{"an epoch for two", func(w *world) { w.Took("id", 7, 0) }, []history.Rule{history.Zombie}},
		{"a zombie's batch", func(w *world) {
			w.Replica(1, 4, 9, append(written(0, 7, 1, 0, 1, 0), written(1, 7, 0, 5, 1, 0)...))
		}, []history.Rule{history.Zombie}},
		{"a batch behind its marker", func(w *world) {
			w.Replica(1, 4, 9, append(written(0, 7, 1, -1, 1, 1<<5), written(1, 7, 0, 5, 1, 0)...))
		}, []history.Rule{history.Zombie}},
		{"a batch twice", func(w *world) {
			w.Replica(1, 4, 9, slices.Concat(
				written(0, 7, 1, 0, 5, 0), written(5, 7, 1, -1, 1, 1<<5), written(6, 7, 1, 4, 1, 0)))
		}, []history.Rule{history.Duplicate}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := goodTransactions()
			test.bad(w)
			var rules []history.Rule
			for _, v := range w.Check() {
				t.Log(v)
				rules = append(rules, v.Rule)
			}
			if rules = slices.Compact(rules); !slices.Equal(rules, test.want) {
				t.Errorf("broken: %q, want %q", rules, test.want)
			}
		})
	}
}
