package commitlog_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/errorfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// A loss of power leaves batches behind the length of a file, others take their
// place and are acknowledged from the journal, and a second loss brings back the
// first: what was acknowledged wins.
func TestStaleBatchesOfAnEarlierCrash(t *testing.T) {
	var stale, reaching int
	for seed := range uint64(800) {
		x := newLoss(t)
		x.append(t, 1)
		x.must(t, x.journal.Round(true), x.dir.Close(false))
		x.crash(seed, 0)
		x.open(t)
		x.append(t, 2)
		x.append(t, 1)
		x.crash(seed, 50)
		x.open(t)
		if x.log.LogEndOffset() > 1 {
			continue // The length survived as well.
		}
		x.values = x.values[:1]
		second := int(1 + seed%3) // The same length, a shorter and a longer one.
		for n := 0; n < 3; n += second {
			x.append(t, second)
			x.must(t, x.journal.Round(false))
		}
		x.crash(seed+1000, 50)
		x.open(t)
		for _, r := range x.events.recovered {
			if strings.Contains(r.CutReason, "earlier crash") {
				stale++
			}
		}
		if content, frozen := x.check(t); frozen || len(content) != len(x.values) {
			t.Fatalf("seed %d: frozen: %v, log ends at %d, want %d; reported %q", seed, frozen, len(content),
				len(x.values), x.events.corrupt)
		}
		if second > 2 {
			reaching++
		}
		// Durably so: the journal may go now.
		x.must(t, x.journal.Recycle(x.dir))
		x.safe = kafka.Offset(len(x.values))
		x.crash(seed, 0)
		x.open(t)
		x.check(t)
	}
	if stale < 5 || reaching < 5 {
		t.Errorf("stale batches were there %d times, a longer batch in their place %d times", stale, reaching)
	}
}

// A producer snapshot above the checkpoint may be of batches that a crash took,
// where stale ones came back: it is not believed, now or at a later start.
func TestSnapshotOfWhatACrashTook(t *testing.T) {
	x := newLoss(t)
	stale, lost := producersBatch(7), producersBatch(8)
	stale.Stamp(0, 1)
	_, err := x.log.AppendAsLeader([]record.Batch{lost}, 1, time.UnixMilli(1))
	x.must(t, err, x.log.Roll())
	names, _ := x.files(t, ".log")
	x.fs, x.journal = x.fs.CrashClone(1, 100), &commitlog.JournalModel{}
	x.must(t, x.fs.Remove(names[1]))
	x.rewrite(t, names[0], func([]byte) []byte { return stale.Bytes() })
	for i := range 3 {
		x.open(t)
		producers, err := x.log.Producers()
		x.must(t, err)
		if len(producers) != 1 || producers[0].ProducerID != 7 || x.log.LogEndOffset() != 1 {
			t.Fatalf("start %d: log ends at %d, producers %+v; recovered %+v", i, x.log.LogEndOffset(), producers, x.events.recovered)
		}
		x.must(t, x.dir.Checkpoint())
		x.crash(1, 0)
	}
}

func producersBatch(id kafka.ProducerID) record.Batch {
	b := record.NewBuilder(record.CodecNone, 0)
	b.Append(1000, nil, []byte("value"), nil)
	b.SetProducer(id, 0, 0)
	batch, _, err := record.Next(slices.Clone(b.Build()))
	if err != nil {
		panic(err)
	}
	return batch
}

// A kill before the sync of a name, a start that builds on what it finds, and a
// loss of power: nothing that was acknowledged hangs on the name.
func TestNamesThatAKillLeftUnsynced(t *testing.T) {
	for step := 1; step < 40; step++ {
		mem := memfs.New()
		var killed *memfs.FS
		seen := 0
		watched := errorfs.Wrap(mem, func(op errorfs.Op) error {
			if op.Kind == errorfs.SyncDir {
				if seen++; seen == step {
					killed = mem.CrashClone(1, 100)
				}
			}
			return nil
		})
		appendAndClose(t, watched)
		if killed == nil {
			if step < 6 {
				t.Fatalf("%d syncs of directories only", seen)
			}
			return
		}
		appendAndClose(t, killed)
		d, stop := real(t, killed.CrashClone(1, 0), nil)
		if l, ok := d.Lookup(logID(1)); !ok || l.LogEndOffset() < 17 {
			t.Errorf("killed at sync %d: what was acknowledged since is lost", step)
		}
		stop()
	}
	t.Error("there was no end of syncs of directories")
}

// appendAndClose appends 17 batches, more than fit into a journal file, and ends without a clean stop once they are
// durable.
func appendAndClose(t *testing.T, fsys vfs.FS) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, stop := real(t, fsys, nil)
		defer stop()
		l, err := d.Log(logID(1), commitlog.Options{Config: commitlog.DefaultConfig()})
		if err != nil {
			t.Fatal(err)
		}
		for range 17 {
			if _, err := l.AppendAsLeader([]record.Batch{batchOf("value")}, 1, time.UnixMilli(1)); err != nil {
				t.Fatal(err)
			}
			<-time.After(50 * time.Millisecond)
		}
		if l.DurableEnd() != l.LogEndOffset() {
			t.Fatalf("durable below %d of %d", l.DurableEnd(), l.LogEndOffset())
		}
	})
}
