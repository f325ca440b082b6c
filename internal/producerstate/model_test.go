package producerstate_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
)

// TestRetriesNeverDuplicate plays a client with more batches in flight than are
// remembered, over a network that loses requests and answers: what ends up in the log is
// every sequence once, in order, over the wrap, restarts included, and of whatever is sent
// again it is known where it is, or where to look for it.
func TestRetriesNeverDuplicate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const inFlight = 3 * producerstate.Window
		table := producerstate.New(producerstate.Options{})
		first := rapid.SampledFrom([]int32{0, 100, math.MaxInt32 - 20}).Draw(t, "first sequence")
		// The client's batches, where each stands in the log if it does.
		var batches []producerstate.Append
		next := int64(first)
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			records := rapid.IntRange(1, 4).Draw(t, "records")
			batches = append(batches, batchOf(int32(next&math.MaxInt32), records, kafka.NoOffset))
			next += int64(records)
		}
		var log []producerstate.Append
		end := kafka.Offset(0)
		if first != 0 { // What it wrote before.
			table.Update(batchOf(first-1, 1, end), 0)
			end++
		}
		placed := make([]kafka.Offset, len(batches))
		acked := 0 // The client's window starts here.
		for range 400 {
			if acked == len(batches) {
				break
			}
			i := acked + rapid.IntRange(0, min(inFlight, len(batches)-acked)-1).Draw(t, "send")
			a := batches[i]
			verdict, err := table.Check(a)
			outOfOrder, isOutOfOrder := errors.AsType[*producerstate.OutOfOrderSequenceError](err)
			_, unknown := errors.AsType[*producerstate.UnknownProducerError](err)
			forgotten := i < len(log)-producerstate.Window
			switch {
			case isOutOfOrder && forgotten:
				if placed[i] < outOfOrder.From || log[i].LastOffset >= outOfOrder.UpTo {
					t.Fatalf("batch %d is from %d to %d: %+v", i, placed[i], log[i].LastOffset, outOfOrder)
				}
			case isOutOfOrder && outOfOrder.From < outOfOrder.UpTo:
				t.Fatalf("batch %d, %d are in the log: %+v", i, len(log), outOfOrder)
			case err != nil:
				if i <= len(log) || !isOutOfOrder && !unknown {
					t.Fatalf("batch %d, %d are in the log: %v", i, len(log), err)
				}
				continue
			case verdict.Duplicate:
				if i >= len(log) || verdict.BaseOffset != placed[i] {
					t.Fatalf("batch %d is a duplicate at %d, %d are in the log", i, verdict.BaseOffset, len(log))
				}
			default:
				if i != len(log) {
					t.Fatalf("batch %d is new, %d are in the log", i, len(log))
				}
				a.BaseOffset, a.LastOffset = end, end+a.LastOffset-a.BaseOffset
				placed[i], end = a.BaseOffset, a.LastOffset+1
				log = append(log, a)
				table.Update(a, 0)
			}
			if i == acked && rapid.Bool().Draw(t, "answer arrives") {
				acked++
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				restored, err := producerstate.Decode(table.Encode(nil), producerstate.Options{}, 0)
				if err != nil {
					t.Fatal(err)
				}
				table = restored
			}
		}
	})
}

func BenchmarkCheckAndUpdate(b *testing.B) {
	table := producerstate.New(producerstate.Options{})
	const producers = 1000
	next := make([]int32, producers)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := i % producers
		a := batchOf(next[id], 10, kafka.Offset(i)*10)
		a.ProducerID = kafka.ProducerID(id)
		if _, err := table.Check(a); err != nil {
			b.Fatal(err)
		}
		table.Update(a, int64(i))
		next[id] = a.LastSequence + 1
	}
}

func TestUpdateDoesNotAllocate(t *testing.T) {
	table := producerstate.New(producerstate.Options{})
	next := int32(0)
	if allocs := testing.AllocsPerRun(100, func() {
		a := batchOf(next, 3, kafka.Offset(next))
		if _, err := table.Check(a); err != nil {
			t.Fatal(err)
		}
		table.Update(a, 0)
		next += 3
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
