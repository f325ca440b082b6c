package commitlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// lossEvents collects what a start reports.
type lossEvents struct {
	corrupt   []string
	alarms    []string
	recovered []commitlog.RecoveredLog
}

func (e *lossEvents) Corrupt(_ kafka.TopicIDPartition, err *commitlog.CorruptionError) {
	e.corrupt = append(e.corrupt, err.Error())
}

func (e *lossEvents) Alarm(what string, err error) {
	e.alarms = append(e.alarms, what+": "+err.Error())
}

func (e *lossEvents) Recovered(r commitlog.RecoveredLog)              { e.recovered = append(e.recovered, r) }
func (*lossEvents) Deleted(kafka.TopicIDPartition, int, kafka.Offset) {}
func (e *lossEvents) Failed(_ kafka.TopicIDPartition, err error) {
	e.alarms = append(e.alarms, err.Error())
}
func (*lossEvents) Problem(string, error)                               {}
func (*lossEvents) DiskFull(kafka.TopicIDPartition, error)              {}
func (*lossEvents) Mended(kafka.TopicIDPartition, commitlog.MendedHole) {}
func (*lossEvents) ReadFailed(kafka.TopicIDPartition, error)            {}

// loss is a log, what it took, and what it said is durable.
type loss struct {
	fs      *memfs.FS
	journal *commitlog.JournalModel
	events  lossEvents
	dir     *commitlog.Dir
	log     *commitlog.Log
	config  commitlog.Config

	values []string     // By offset.
	safe   kafka.Offset // Everything below was acknowledged.
	count  int
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newLoss(t fataler) *loss {
	x := &loss{fs: memfs.New(), journal: &commitlog.JournalModel{}, config: commitlog.DefaultConfig()}
	x.config.SegmentBytes, x.config.IndexIntervalBytes = 800, 100
	x.open(t)
	return x
}

func (x *loss) open(t fataler) {
	t.Helper()
	x.events = lossEvents{}
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1, Events: &x.events}
	x.journal.Use(&o)
	var err error
	if x.dir, err = commitlog.OpenDir(x.fs, o); err != nil {
		t.Fatalf("open: %v", err)
	}
	x.log, err = x.dir.Log(logID(1), commitlog.Options{
		Config: x.config, OnDurable: func(end kafka.Offset) { x.safe = max(x.safe, end) },
	})
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
}

func (x *loss) append(t fataler, records int) {
	t.Helper()
	x.count++
	values := make([]string, records)
	for i := range values {
		values[i] = fmt.Sprintf("value-%d-%d", x.count, i)
	}
	info, err := x.log.AppendAsLeader([]record.Batch{batchOf(values...)}, 1, time.UnixMilli(1))
	if err != nil || info.BaseOffset != kafka.Offset(len(x.values)) {
		t.Fatalf("append at %d: %+v, %v", len(x.values), info, err)
	}
	x.values = append(x.values, values...)
}

func batchOf(values ...string) record.Batch {
	b := record.NewBuilder(record.CodecNone, 0)
	for _, v := range values {
		b.Append(1000, nil, []byte(v), nil)
	}
	batch, _, err := record.Next(append([]byte(nil), b.Build()...))
	if err != nil {
		panic(err)
	}
	return batch
}

func (x *loss) must(t fataler, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%v", err)
	}
}

// crash ends the process, or the power.
func (x *loss) crash(seed uint64, percent int) {
	x.fs = x.fs.CrashClone(seed, percent)
	x.journal.Crash(rand.New(rand.NewPCG(seed, 2)))
}

// content reads each offset by itself: its value, or "corrupt".
func (x *loss) content(t fataler) []string {
	t.Helper()
	start, end := x.log.LogStartOffset(), x.log.LogEndOffset()
	out := make([]string, end)
	for at := start; at < end; at++ {
		c, err := x.log.Read(at, 1, end, true)
		var corrupt *commitlog.CorruptionError
		if errors.As(err, &corrupt) {
			out[at] = "corrupt"
			continue
		}
		if err != nil || c.Size() == 0 {
			t.Fatalf("read at %d of [%d, %d): %d bytes, %v", at, start, end, c.Size(), err)
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			t.Fatalf("%v", err)
		}
		b, _, err := record.Next(data)
		if err != nil || b.CheckCRC() != nil {
			t.Fatalf("a bad batch was served at %d", at)
		}
		if b.BaseOffset() > at || b.LastOffset() < at {
			t.Fatalf("a read at %d served [%d, %d]", at, b.BaseOffset(), b.LastOffset())
		}
		i := b.BaseOffset()
		for r := range b.Records(1 << 20) {
			if i == at {
				out[at] = string(r.Value)
			}
			i++
		}
	}
	return out
}

func (x *loss) frozen() bool {
	_, err := x.log.AppendAsLeader([]record.Batch{batchOf("probe")}, 1, time.UnixMilli(1))
	return errors.Is(err, commitlog.ErrFrozen)
}

// check fails if an acknowledged record is neither there nor reported missing.
func (x *loss) check(t fataler) (content []string, frozen bool) {
	t.Helper()
	content = x.content(t)
	if len(content) < int(x.safe) {
		t.Fatalf("the log ends at %d, %d were acknowledged; reported: %q", len(content), x.safe, x.events.corrupt)
	}
	for at := x.log.LogStartOffset(); at < x.safe; at++ {
		if got := content[at]; got != x.values[at] && got != "corrupt" {
			t.Fatalf("at %d %q, want %q", at, got, x.values[at])
		}
	}
	frozen = x.frozen()
	if frozen && len(x.events.corrupt) == 0 {
		t.Fatalf("the log is frozen and nothing was reported")
	}
	return content, frozen
}

// flip changes a bit of a file.
func (x *loss) flip(t fataler, name string, position int64) {
	t.Helper()
	x.rewrite(t, name, func(b []byte) []byte { b[position] ^= 0x10; return b })
}

func (x *loss) rewrite(t fataler, name string, fn func([]byte) []byte) {
	t.Helper()
	f, err := x.fs.Open(name, vfs.ReadWrite)
	x.must(t, err)
	size, err := f.Size()
	x.must(t, err)
	data := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(data, 0)
		x.must(t, err)
	}
	data = fn(data)
	x.must(t, f.Truncate(int64(len(data))))
	_, err = f.WriteAt(data, 0)
	x.must(t, err, f.Sync(), f.Close())
}

// files returns the log's files with a suffix, and their sizes.
func (x *loss) files(t fataler, suffix string) (names []string, sizes []int64) {
	t.Helper()
	list, err := x.fs.ReadDir(commitlog.LogDir(logID(1)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	x.must(t, err)
	for _, e := range list {
		if strings.HasSuffix(e.Name(), suffix) {
			info, err := e.Info()
			x.must(t, err)
			names = append(names, commitlog.LogDir(logID(1))+"/"+e.Name())
			sizes = append(sizes, info.Size())
		}
	}
	return names, sizes
}

// restart checks that another start comes to the same result.
func (x *loss) restart(t fataler, content []string, clean bool) {
	t.Helper()
	if clean {
		x.must(t, x.dir.Close(true))
	} else {
		x.crash(1, 100)
	}
	x.open(t)
	again, frozen := x.check(t)
	if diff := cmp.Diff(content, again); diff != "" {
		t.Fatalf("the next start found something else: %s", diff)
	}
	if !frozen {
		t.Fatalf("the next start forgot that the log is frozen")
	}
}

// Whatever happened before, however the broker ended and whichever bit of the
// log's data flipped: an acknowledged record is there, or is said to be damaged.
func TestAcknowledgedIsThereOrReported(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := newLoss(t)
		for range rapid.IntRange(0, 2).Draw(t, "earlier lives") {
			x.live(t)
			x.end(t)
			x.open(t)
			content := x.content(t) // What was not acknowledged may be there.
			if slices.Contains(content, "corrupt") || len(x.events.corrupt) > 0 {
				t.Fatalf("damage was reported where there is none: %q, %q", content, x.events.corrupt)
			}
			for at := x.log.LogStartOffset(); at < x.safe; at++ {
				if int(at) >= len(content) || content[at] != x.values[at] {
					t.Fatalf("%d were acknowledged, there is %q", x.safe, content)
				}
			}
			x.values = append(x.values[:min(int(x.log.LogStartOffset()), len(content))], content[min(int(x.log.LogStartOffset()), len(content)):]...)
		}
		x.live(t)
		x.end(t)
		names, sizes := x.files(t, ".log")
		i := len(names) - 1 - rapid.IntRange(0, 2).Draw(t, "file")
		flipped := i >= 0 && sizes[i] > 0
		if flipped {
			x.flip(t, names[i], rapid.Int64Range(0, sizes[i]-1).Draw(t, "position"))
		}
		x.open(t)
		content, frozen := x.check(t)
		switch {
		case frozen && !flipped:
			t.Fatalf("frozen without damage: %q", x.events.corrupt)
		case frozen:
			x.restart(t, content, rapid.Bool().Draw(t, "clean"))
			x.restart(t, content, true)
			x.restart(t, content, false)
		case slices.Contains(content, "corrupt") && !flipped:
			t.Fatal("damage was reported where there is none")
		}
	})
}

// live does something with the log.
func (x *loss) live(t *rapid.T) {
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		switch rapid.SampledFrom([]string{
			"append", "append", "append", "journal", "files", "checkpoint", "recycle", "roll", "truncate", "delete",
		}).Draw(t, "step") {
		case "append":
			x.append(t, rapid.IntRange(1, 3).Draw(t, "records"))
		case "journal":
			x.must(t, x.journal.Round(false))
		case "files":
			x.must(t, x.journal.Round(true))
		case "checkpoint":
			x.must(t, x.dir.Checkpoint())
		case "recycle":
			x.must(t, x.journal.Recycle(x.dir))
		case "roll":
			x.must(t, x.log.Roll())
		case "truncate":
			to := rapid.IntRange(int(x.log.LogStartOffset()), len(x.values)).Draw(t, "to")
			x.must(t, x.log.TruncateTo(kafka.Offset(to)))
			x.values = x.values[:x.log.LogEndOffset()]
			x.safe = min(x.safe, x.log.LogEndOffset())
		case "delete":
			x.must(t, x.log.DeleteRecords(max(x.log.LogStartOffset(), x.safe/2)))
		}
	}
}

// end kills the broker, or takes its power.
func (x *loss) end(t *rapid.T) {
	x.journal.Keeps = rapid.Bool().Draw(t, "keep")
	x.crash(rapid.Uint64().Draw(t, "seed"), rapid.SampledFrom([]int{100, 100, 0, 50, 90}).Draw(t, "survive"))
}
