package commitlog_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/producerstate"
	"github.com/strandline/strandline/internal/record"
)

// sequenced returns a batch of a producer, the same bytes each time.
func sequenced(id kafka.ProducerID, sequence int32, records int, value string) record.Batch {
	b := record.NewBuilder(record.CodecNone, 0)
	for range records {
		b.Append(1000, nil, []byte(value), nil)
	}
	b.SetProducer(id, 0, sequence)
	batch, _, err := record.Next(slices.Clone(b.Build()))
	if err != nil {
		panic(err)
	}
	return batch
}

// TestAcknowledgedBatchesAreThere sends a producer's batches in any order, again and again,
// with sequences that are given twice to other records, as clients do that start over or
// have a batch fail for good; others write as well, and the log is restarted and cut at its
// start. What is acknowledged was appended, where the answer
// says.
func TestAcknowledgedBatchesAreThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newLoss(t)
		x.config.LogAppendTime = rapid.Bool().Draw(t, "log append time")
		x.log.SetConfig(x.config)
		defer func() { x.must(t, x.dir.Close(false)) }()
		var appended []record.Batch // Of the producer.
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			case 0:
				x.must(t, x.journal.Round(true), x.dir.Close(rapid.Bool().Draw(t, "clean")))
				x.open(t)
			case 1:
				_, err := x.log.AppendAsLeader([]record.Batch{batchOf("another's")}, 1, time.UnixMilli(1))
				x.must(t, err)
			case 2:
				x.must(t, x.journal.Round(true))
				start, end := int(x.log.LogStartOffset()), int(x.log.LogEndOffset())
				x.must(t, x.log.DeleteRecords(kafka.Offset(rapid.IntRange(start, min(end, start+5)).Draw(t, "log start"))))
			default:
				next := int32(0)
				producers, err := x.log.Producers()
				x.must(t, err)
				if len(producers) > 0 {
					next = producers[0].LastSequence + 1
				}
				if rapid.IntRange(0, 2).Draw(t, "retry") == 0 {
					next = int32(rapid.IntRange(0, int(next)).Draw(t, "sequence"))
				}
				sent := sequenced(7, next, rapid.IntRange(1, 2).Draw(t, "records"),
					rapid.SampledFrom([]string{"a", "b"}).Draw(t, "value"))
				info, err := x.log.AppendAsLeader([]record.Batch{sent}, 1, time.UnixMilli(2000))
				_, outOfOrder := errors.AsType[*producerstate.OutOfOrderSequenceError](err)
				switch {
				case outOfOrder:
				case err != nil:
					t.Fatalf("sequence %d: %v", next, err)
				case info.Duplicate:
					checkAppended(t, appended, sent, info)
				default:
					appended = append(appended, sent)
				}
				if err == nil && (info.LogAppendTimeMs >= 0) != x.config.LogAppendTime {
					t.Fatalf("%+v: log append time is %v", info, x.config.LogAppendTime)
				}
			}
		}
	})
}

// checkAppended fails unless one of the batches that were appended is the one that is said
// to have been. Those that are remembered are known by their sequences alone, as in Kafka.
func checkAppended(t *rapid.T, appended []record.Batch, sent record.Batch, info commitlog.AppendInfo) {
	t.Helper()
	for i, b := range appended {
		remembered := i >= len(appended)-producerstate.Window &&
			b.BaseSequence() == sent.BaseSequence() && b.LastSequence() == sent.LastSequence()
		if (remembered || b.SameAs(sent)) && b.BaseOffset() == info.BaseOffset && b.LastOffset() == info.LastOffset {
			return
		}
	}
	t.Fatalf("sequences %d to %d are acknowledged as %+v, and were not appended", sent.BaseSequence(),
		sent.LastSequence(), info)
}

// TestRecallAmongOthers: a batch is found behind what others have written since, over
// segments, but not however much that is.
func TestRecallAmongOthers(t *testing.T) {
	x := newLoss(t)
	x.config.SegmentBytes, x.config.IndexIntervalBytes = 8<<20, 4096
	x.log.SetConfig(x.config)
	others := batchOf(string(make([]byte, 1<<20)))
	send := func(sequence int32) (commitlog.AppendInfo, error) {
		return x.log.AppendAsLeader([]record.Batch{sequenced(7, sequence, 1, "v")}, 1, time.UnixMilli(1))
	}
	behind := []int{70, 10, 3, 0, 0, 0, 0, 0} // What others write after each, in MiB.
	places := make([]kafka.Offset, len(behind))
	for i, n := range behind {
		info, err := send(int32(i))
		x.must(t, err)
		places[i] = info.BaseOffset
		for range n {
			_, err := x.log.AppendAsLeader([]record.Batch{others}, 1, time.UnixMilli(1))
			x.must(t, err)
		}
	}
	for i := 2; i >= 1; i-- {
		if info, err := send(int32(i)); err != nil || !info.Duplicate || info.BaseOffset != places[i] {
			t.Errorf("batch %d, which is at %d: %+v, %v", i, places[i], info, err)
		}
	}
	if info, err := send(0); err == nil {
		t.Errorf("a batch behind 83 MiB: %+v", info)
	}
}
