package cleaner_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/cleaner"
	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// events notes what the cleaner tells.
type events struct {
	mu   sync.Mutex
	told []string
}

func newEvents() *events { return &events{} }

func (e *events) tell(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, s)
}

func (e *events) count(prefix string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.told {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (e *events) Cleaned(_ kafka.TopicIDPartition, s cleaner.Stats) {
	e.tell(fmt.Sprintf("cleaned %+v", s))
}

func (e *events) Uncleanable(_ kafka.TopicIDPartition, err error) {
	e.tell("uncleanable " + err.Error())
}
func (e *events) Failed(_ kafka.TopicIDPartition, err error) { e.tell("failed " + err.Error()) }

// runUntilQuiet runs a cleaner over l for a number of looks.
func runUntilQuiet(t *testing.T, o cleaner.Options, l *commitlog.Log) {
	t.Helper()
	const looks = 12
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	o.Backoff = time.Millisecond
	o.Targets = func() []cleaner.Target {
		if n++; n == looks {
			cancel()
		}
		return []cleaner.Target{{Log: l, LastStableOffset: l.LogEndOffset()}}
	}
	if err := cleaner.New(o).Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// rot flips a bit of the oldest segment behind the broker's back.
func rot(t *testing.T, fsys vfs.FS, l *commitlog.Log) string {
	t.Helper()
	name := fmt.Sprintf("%s/%020d.log", commitlog.LogDir(logID), l.LogStartOffset())
	f, err := fsys.Open(name, vfs.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	position := int64(record.HeaderSize + 12)
	if _, err := f.ReadAt(b, position); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b, position); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// Rot of bytes that this process wrote, and so trusts when it serves them, is
// found: it would get a good checksum otherwise. The log is named once, and its
// files stay as they are.
func TestCorruptLogIsNamedOnce(t *testing.T) {
	fsys := memfs.New()
	_, l := openLog(t, fsys)
	fill(t, l, 1000, 50)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	name := rot(t, fsys, l)
	before := l.Size()
	e := newEvents()
	runUntilQuiet(t, cleaner.Options{Events: e}, l)
	if e.count("uncleanable") != 1 || len(e.told) != 1 || !strings.Contains(e.told[0], name) {
		t.Errorf("told %q, want one line with %s", e.told, name)
	}
	if l.Size() != before || l.Err() != nil {
		t.Errorf("size %d, was %d; %v", l.Size(), before, l.Err())
	}
}

// A batch with more keys than the map may hold is named with what to do.
func TestTooManyKeysIsNamedOnce(t *testing.T) {
	_, l := openLog(t, memfs.New())
	var writes []write
	for i := range 100 {
		writes = append(writes, write{key: fmt.Sprint(i)})
	}
	cfg := compactConfig()
	cfg.SegmentBytes = 1 << 20
	l.SetConfig(cfg)
	b := buildBatch(record.CodecNone, 1000, writes, -1, -1)
	if _, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1000)); err != nil {
		t.Fatal(err)
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	e := newEvents()
	runUntilQuiet(t, cleaner.Options{Events: e, DedupeBytes: 1}, l)
	if e.count("uncleanable") != 1 || !strings.Contains(e.told[0], "log.cleaner.dedupe.buffer.size") {
		t.Errorf("told %q", e.told)
	}
}

// A full disk stops a compaction and nothing else; it goes on with more room.
func TestFullDiskIsTriedAgain(t *testing.T) {
	fsys := memfs.New()
	_, l := openLog(t, fsys)
	fill(t, l, 1000, 200)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(readLog(t, l).latest)
	fsys.SetCapacity(1)
	e := newEvents()
	runUntilQuiet(t, cleaner.Options{Events: e}, l)
	if e.count("failed") == 0 || e.count("uncleanable") > 0 || l.Err() != nil {
		t.Fatalf("told %q; %v", e.told, l.Err())
	}
	fsys.SetCapacity(-1)
	runUntilQuiet(t, cleaner.Options{Events: e}, l)
	if e.count("cleaned") == 0 || len(readLog(t, l).offsets) != 5 || fmt.Sprint(readLog(t, l).latest) != want {
		t.Errorf("told %q", e.told)
	}
}

// Records without a key go; a producer that the log has forgotten keeps nothing.
func TestKeylessRecordsAndForgottenProducersGo(t *testing.T) {
	_, l := openLog(t, memfs.New())
	builder := record.NewBuilder(record.CodecNone, 0)
	builder.Append(1000, nil, []byte("no key"), nil)
	builder.SetProducer(9, 0, 0)
	b, _, err := record.Next(append([]byte(nil), builder.Build()...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsLeader([]record.Batch{b}, 1, time.UnixMilli(1000)); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1000, 20)
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	batches := func() (n int) {
		_ = l.Batches(0, l.LogEndOffset(), func(b record.Batch) error {
			if b.ProducerID() == 9 {
				n++
			}
			return nil
		})
		return n
	}
	clean(t, l, 2000, 0)
	if got := readLog(t, l); batches() != 1 || got.offsets[0] == 0 {
		t.Errorf("%d batches of the producer, first record at %d", batches(), got.offsets[0])
	}
	if err := l.ApplyRetention(time.UnixMilli(1000).Add(48*time.Hour), 0); err != nil {
		t.Fatal(err)
	}
	clean(t, l, 3000, 0)
	if n := batches(); n != 0 {
		t.Errorf("%d batches of a producer that nobody knows", n)
	}
}
