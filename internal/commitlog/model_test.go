package commitlog_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// A log that does what a slice of batches does, over tiny segments, with
// crashes of the process and of the power between any two steps.

// modelBatch is one batch that the log should hold.
type modelBatch struct {
	base, last kafka.Offset
	value      string
	timestamp  int64
	producer   kafka.ProducerID
	sequence   int32
	epoch      kafka.LeaderEpoch
	txn        modelTxn
}

type logModel struct {
	fs      *memfs.FS
	journal *commitlog.JournalModel
	dir     *commitlog.Dir
	log     *commitlog.Log
	config  commitlog.Config
	epoch   kafka.LeaderEpoch
	now     int64

	batches  []modelBatch
	start    kafka.Offset // Log start offset.
	tail     kafka.Offset // Log end offset.
	safe     kafka.Offset // Everything below was reported durable.
	next     map[kafka.ProducerID]int32
	problems []string
	// ghosts are batches that an earlier crash took. They may come back where
	// nothing was acknowledged in their place.
	ghosts []modelBatch
	// highWatermark is what the log was told; see transactions in model_txn_test.go.
	highWatermark kafka.Offset
	exactFrom     kafka.Offset
	coordinator   int32
}

// modelEvents fails the test on what must not happen.
type modelEvents struct {
	commitlog.Events
	m *logModel
}

func (e modelEvents) Corrupt(_ kafka.TopicIDPartition, err *commitlog.CorruptionError) {
	e.m.problems = append(e.m.problems, err.Error())
}

func (e modelEvents) Failed(_ kafka.TopicIDPartition, err error) {
	e.m.problems = append(e.m.problems, err.Error())
}
func (modelEvents) Recovered(commitlog.RecoveredLog)                    {}
func (modelEvents) Deleted(kafka.TopicIDPartition, int, kafka.Offset)   {}
func (modelEvents) Problem(string, error)                               {}
func (modelEvents) Mended(kafka.TopicIDPartition, commitlog.MendedHole) {}
func (e modelEvents) Alarm(what string, err error) {
	e.m.problems = append(e.m.problems, what+": "+err.Error())
}

func (m *logModel) open(t *rapid.T) {
	o := commitlog.DirOptions{Fresh: testMeta, BallastBytes: -1, RecoveryThreads: 1, Events: modelEvents{m: m}}
	m.journal.Keeps = rapid.Bool().Draw(t, "keep")
	m.journal.Use(&o)
	d, err := commitlog.OpenDir(m.fs, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	l, err := d.Log(logID(1), commitlog.Options{
		Config:    m.config,
		OnDurable: func(end kafka.Offset) { m.safe = max(m.safe, end) },
	})
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	m.dir, m.log = d, l
	if len(m.problems) > 0 {
		t.Fatalf("problems: %q", m.problems)
	}
}

func (m *logModel) end() kafka.Offset { return m.tail }

func (m *logModel) build(mb modelBatch, records int) record.Batch {
	b := record.NewBuilder(record.CodecNone, 0)
	for range records {
		b.Append(mb.timestamp, nil, []byte(mb.value), nil)
	}
	if mb.producer >= 0 {
		b.SetProducer(mb.producer, mb.txn.epoch, mb.sequence)
	}
	if mb.txn.part {
		b.SetTransactional()
	}
	batch, _, err := record.Next(append([]byte(nil), b.Build()...))
	if err != nil {
		panic(err)
	}
	return batch
}

func (m *logModel) appendBatch(t *rapid.T) {
	records := rapid.IntRange(1, 3).Draw(t, "records")
	m.now += rapid.Int64Range(0, 20).Draw(t, "later")
	mb := modelBatch{
		value:     fmt.Sprintf("%d:%s", rapid.Uint16().Draw(t, "value"), strings.Repeat("x", rapid.IntRange(0, 100).Draw(t, "padding"))),
		timestamp: m.now - rapid.Int64Range(0, 30).Draw(t, "skew"),
		producer:  kafka.ProducerID(rapid.IntRange(-1, 2).Draw(t, "producer")),
		epoch:     m.epoch,
	}
	mb.timestamp = max(mb.timestamp, 0)
	if mb.producer >= 0 {
		mb.sequence = m.next[mb.producer]
	}
	info, err := m.log.AppendAsLeader([]record.Batch{m.build(mb, records)}, m.epoch, time.UnixMilli(m.now))
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	mb.base, mb.last = m.end(), m.end()+kafka.Offset(records)-1
	if info.Duplicate || info.BaseOffset != mb.base || info.LastOffset != mb.last {
		t.Fatalf("append went to %+v, want [%d, %d]", info, mb.base, mb.last)
	}
	if mb.producer >= 0 {
		m.next[mb.producer] += int32(records)
	}
	m.batches = append(m.batches, mb)
	m.tail = mb.last + 1
}

// retry sends a producer's newest batch again.
func (m *logModel) retry(t *rapid.T) {
	for i := len(m.batches) - 1; i >= 0; i-- {
		mb := m.batches[i]
		if mb.producer < 0 || mb.txn.part || mb.last < m.start {
			continue
		}
		b := m.build(mb, int(mb.last-mb.base)+1)
		info, err := m.log.AppendAsLeader([]record.Batch{b}, m.epoch, time.UnixMilli(m.now))
		if err != nil || !info.Duplicate || info.BaseOffset != mb.base || info.LastOffset != mb.last {
			t.Fatalf("retry of [%d, %d]: %+v, %v", mb.base, mb.last, info, err)
		}
		return
	}
}

func (m *logModel) truncate(t *rapid.T) {
	if m.end() == m.start {
		return
	}
	to := m.start + kafka.Offset(rapid.Int64Range(0, int64(m.end()-m.start)).Draw(t, "to"))
	if err := m.log.TruncateTo(to); err != nil {
		t.Fatalf("truncate to %d: %v", to, err)
	}
	m.dropFrom(to)
	m.safe = min(m.safe, m.end())
	m.epoch++
	m.forgetDecided()
}

// dropFrom removes the batches that reach offset.
func (m *logModel) dropFrom(offset kafka.Offset) {
	for len(m.batches) > 0 && m.batches[len(m.batches)-1].last >= offset {
		m.tail = m.batches[len(m.batches)-1].base
		m.batches = m.batches[:len(m.batches)-1]
	}
	m.start = min(m.start, m.tail)
	m.rebuildSequences()
}

func (m *logModel) rebuildSequences() {
	m.next = map[kafka.ProducerID]int32{}
	for _, mb := range m.batches {
		if mb.producer >= 0 {
			m.next[mb.producer] = mb.sequence + int32(mb.last-mb.base) + 1
		}
	}
}

func (m *logModel) deleteRecords(t *rapid.T) {
	if m.safe <= m.start {
		return
	}
	to := m.start + kafka.Offset(rapid.Int64Range(0, int64(m.safe-m.start)).Draw(t, "to"))
	if err := m.log.DeleteRecords(to); err != nil {
		t.Fatalf("delete records below %d: %v", to, err)
	}
	m.start = max(m.start, to)
}

func (m *logModel) retain(t *rapid.T) {
	if err := m.log.ApplyRetention(time.UnixMilli(m.now), m.safe); err != nil {
		t.Fatalf("retention: %v", err)
	}
	if got := m.log.LogStartOffset(); got < m.start || got > max(m.safe, m.start) {
		t.Fatalf("log start %d after retention; it was %d, durable below %d", got, m.start, m.safe)
	}
	m.start = m.log.LogStartOffset()
}

// crash opens what a crash left and compares it with what must have survived.
func (m *logModel) crash(t *rapid.T) {
	seed := rapid.Uint64().Draw(t, "seed")
	m.fs = m.fs.CrashClone(seed, rapid.SampledFrom([]int{0, 50, 90, 100}).Draw(t, "survive"))
	m.journal.Crash(rand.New(rand.NewPCG(seed, 1)))
	m.open(t)
	got := m.log.LogEndOffset()
	if got < m.safe {
		t.Fatalf("log ends at %d after a crash, %d were acknowledged", got, m.safe)
	}
	start := m.log.LogStartOffset()
	if start > m.start {
		t.Fatalf("log starts at %d after a crash, and before at %d", start, m.start)
	}
	m.start = start // Retention may not have reached the disk.
	m.dropUnlessThere(t, got)
	if m.log.DurableEnd() != got {
		t.Fatalf("durable end %d after recovery, want %d", m.log.DurableEnd(), got)
	}
	m.safe = got
	m.epoch++
	m.forgetDecided()
}

// dropUnlessThere removes the batches that a crash took, up to where the log ends
// now, and takes back the ghosts that are there instead.
func (m *logModel) dropUnlessThere(t *rapid.T, end kafka.Offset) {
	var there []modelBatch
	for i := len(m.batches) - 1; i >= 0; i-- {
		if mb := m.batches[i]; mb.last < m.safe || mb.last < end && m.isThere(t, mb) {
			there = append(slices.Clone(m.batches[:i+1]), there...)
			break
		}
	}
	lost := m.batches[len(there):]
	m.tail = m.start
	if n := len(there); n > 0 {
		m.tail = max(m.tail, there[n-1].last+1)
	}
	for m.tail < end {
		i := slices.IndexFunc(m.ghosts, func(mb modelBatch) bool { return mb.base == m.tail && m.isThere(t, mb) })
		if i < 0 {
			t.Fatalf("what is at %d after a crash was never written there", m.tail)
		}
		there = append(there, m.ghosts[i])
		m.tail = m.ghosts[i].last + 1
	}
	m.ghosts = append(m.ghosts, lost...)
	m.batches = there
	m.start = min(m.start, m.tail)
	m.rebuildSequences()
}

// isThere reports whether a batch is in the log.
func (m *logModel) isThere(t *rapid.T, want modelBatch) bool {
	c, err := m.log.Read(want.base, 1, m.log.LogEndOffset(), true)
	if err != nil {
		t.Fatalf("read at %d: %v", want.base, err)
	}
	defer c.Release()
	data, err := c.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := record.Next(data)
	if err != nil || b.BaseOffset() != want.base || b.LastOffset() != want.last || b.LeaderEpoch() != want.epoch {
		return false
	}
	for r, err := range b.Records(1 << 20) {
		return err == nil && string(r.Value) == want.value
	}
	return false
}

func (m *logModel) reopen(t *rapid.T) {
	if err := m.dir.Close(true); err != nil {
		t.Fatalf("close: %v", err)
	}
	m.journal.Crash(rand.New(rand.NewPCG(0, 0)))
	m.safe = m.end()
	m.open(t)
	if !m.dir.WasClean() {
		t.Fatal("clean stop was not noticed")
	}
	if m.log.LogEndOffset() != m.end() || m.log.LogStartOffset() != m.start {
		t.Fatalf("log has [%d, %d), want [%d, %d)", m.log.LogStartOffset(), m.log.LogEndOffset(), m.start, m.end())
	}
	m.forgetDecided()
}

// check reads everything and compares.
func (m *logModel) check(t *rapid.T) {
	if m.log.LogStartOffset() != m.start || m.log.LogEndOffset() != m.end() {
		t.Fatalf("log has [%d, %d), want [%d, %d)", m.log.LogStartOffset(), m.log.LogEndOffset(), m.start, m.end())
	}
	if len(m.problems) > 0 {
		t.Fatalf("problems: %q", m.problems)
	}
	from := m.start
	if m.end() > m.start {
		from += kafka.Offset(rapid.Int64Range(0, int64(m.end()-m.start)).Draw(t, "from"))
	}
	bound := from + kafka.Offset(rapid.Int64Range(0, int64(m.end()-from)).Draw(t, "bound"))
	size := rapid.IntRange(1, 500).Draw(t, "size")
	i := 0
	for i < len(m.batches) && m.batches[i].last < from {
		i++
	}
	for at := from; ; {
		c, err := m.log.Read(at, size, bound, true)
		if err != nil {
			t.Fatalf("read from %d up to %d: %v", at, bound, err)
		}
		data, err := c.AppendTo(nil)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			if i < len(m.batches) && m.batches[i].last < bound {
				t.Fatalf("read from %d up to %d: nothing", at, bound)
			}
			return
		}
		for rest := data; len(rest) > 0; i++ {
			var b record.Batch
			if b, rest, err = record.Next(rest); err != nil {
				t.Fatal(err)
			}
			m.checkBatch(t, b, m.batches[i], bound)
		}
		at = c.NextOffset()
		if at != m.batches[i-1].last+1 {
			t.Fatalf("next offset %d, want %d", at, m.batches[i-1].last+1)
		}
	}
}

func (m *logModel) checkBatch(t *rapid.T, b record.Batch, want modelBatch, bound kafka.Offset) {
	if b.BaseOffset() != want.base || b.LastOffset() != want.last || b.LeaderEpoch() != want.epoch {
		t.Fatalf("batch [%d, %d] epoch %d, want %+v", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), want)
	}
	if b.LastOffset() >= bound {
		t.Fatalf("batch [%d, %d] is not below %d", b.BaseOffset(), b.LastOffset(), bound)
	}
	for r, err := range b.Records(1 << 20) {
		if err != nil || string(r.Value) != want.value {
			t.Fatalf("record at %d: %q, %v, want %q", b.BaseOffset(), r.Value, err, want.value)
		}
	}
}

// checkTimestamps compares the time lookups with a search through the model.
func (m *logModel) checkTimestamps(t *rapid.T) {
	ts := rapid.Int64Range(0, m.now+5).Draw(t, "timestamp")
	want := kafka.NoOffset
	for _, mb := range m.batches {
		if mb.timestamp >= ts && mb.last >= m.start {
			want = max(mb.base, m.start)
			break
		}
	}
	got, ok, err := m.log.OffsetForTimestamp(ts, m.end())
	if err != nil || ok != (want >= 0) || ok && got.Offset != want {
		t.Fatalf("offset for timestamp %d: %+v, %v, %v, want %d", ts, got, ok, err, want)
	}
	largest, want := int64(-1), kafka.NoOffset
	for _, mb := range m.batches {
		if mb.timestamp > largest && mb.last >= m.start {
			largest, want = mb.timestamp, max(mb.base, m.start)
		}
	}
	got, ok, err = m.log.OffsetOfMaxTimestamp(m.end())
	if err != nil || ok != (want >= 0) || ok && (got.Timestamp != largest || got.Offset != want) {
		t.Fatalf("max timestamp: %+v, %v, %v, want %d at %d", got, ok, err, largest, want)
	}
}

// checkEpochs compares the epoch history with the model's.
func (m *logModel) checkEpochs(t *rapid.T) {
	for _, mb := range m.batches {
		if mb.base < m.start {
			continue
		}
		got, err := m.log.EpochAt(mb.base)
		if err != nil || got != mb.epoch {
			history, _ := m.log.Epochs()
			t.Fatalf("epoch at %d: %d, %v, want %d of %v", mb.base, got, err, mb.epoch, history)
		}
	}
}

func TestLogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &logModel{
			fs: memfs.New(), journal: &commitlog.JournalModel{}, config: commitlog.DefaultConfig(),
			next: map[kafka.ProducerID]int32{}, now: 1000,
		}
		m.config.SegmentBytes = rapid.Int64Range(600, 3000).Draw(t, "segment.bytes")
		m.config.SegmentMs = rapid.SampledFrom([]int64{50, 1 << 40}).Draw(t, "segment.ms")
		m.config.IndexIntervalBytes = rapid.SampledFrom([]int64{0, 100, 4096}).Draw(t, "index.interval.bytes")
		m.config.RetentionMs = rapid.SampledFrom([]int64{-1, 100}).Draw(t, "retention.ms")
		m.config.RetentionBytes = rapid.SampledFrom([]int64{-1, 5000}).Draw(t, "retention.bytes")
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.appendBatch,
			"append 2": m.appendBatch,
			"append 3": m.appendBatch,
			"retry":    m.retry,
			"journal":  func(t *rapid.T) { m.mustDo(t, m.journal.Round(false)) },
			"files":    func(t *rapid.T) { m.mustDo(t, m.journal.Round(true)) },
			"recycle":  func(t *rapid.T) { m.mustDo(t, m.journal.Recycle(m.dir)) },
			"tidy":     func(t *rapid.T) { m.mustDo(t, m.log.Tidy(0)) },
			"flush": func(t *rapid.T) {
				m.config.FlushMessages = rapid.SampledFrom([]int64{1, 1, 3, 1000}).Draw(t, "flush.messages")
				m.log.SetConfig(m.config)
			},
			"checkpoint": func(t *rapid.T) { m.mustDo(t, m.dir.Checkpoint()) },
			"roll":       func(t *rapid.T) { m.mustDo(t, m.log.Roll()) },
			"truncate":   m.truncate,
			"delete":     m.deleteRecords,
			"retain":     m.retain,
			"crash":      m.crash,
			"reopen":     m.reopen,
			"times":      m.checkTimestamps,
			"in txn":     m.appendInTxn,
			"in txn 2":   m.appendInTxn,
			"end txn":    m.endTxn,
			"end txn 2":  m.endTxn,
			"late":       m.appendLate,
			"replicate":  m.replicate,
			"stable":     m.checkStable,
			"aborted":    m.checkAborted,
			"epochs":     m.checkEpochs,
			"":           m.check,
		})
	})
}

func (m *logModel) mustDo(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
