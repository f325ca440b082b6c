package group_test

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
)

// TestScripts runs the scripts in testdata/scripts: each is a conversation with one
// shard, with every reply and every record. At the end of each, and at each
// reload, the records are replayed into an empty shard, which must be equal.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.out.Reset()
			if err := w.run(&args{d}); err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.shard.Check()
			if s := shortIDs(w.out.String()); s != "" {
				return s
			}
			return "ok\n"
		})
		w.checkReplayLaw(t)
	})
}

// world is a shard with the host around it: a log, a clock, and callers who
// print what they are told.
type world struct {
	shard    *group.Shard
	settings group.Settings
	topics   topics
	uuids    int
	nowMs    int64
	log      []entry
	fx       shard.Effects
	reject   kafka.Code
	silent   bool
	out      strings.Builder
}

func newWorld() *world {
	w := &world{settings: group.DefaultSettings(), nowMs: 1_000_000, topics: topics{}}
	w.shard = w.newShard()
	w.shard.Loaded(w.nowMs)
	return w
}

func (w *world) newShard() *group.Shard {
	return group.New(group.Options{Settings: w.settings, Topics: w.knownTopics(), NewUUID: func() [16]byte {
		w.uuids++
		return [16]byte{14: byte(w.uuids >> 8), 15: byte(w.uuids)}
	}})
}

// entry is a record of the log, which may be part of a transaction, or a marker.
type entry struct {
	shard.Record
	producer     kafka.ProducerID // Of the transaction; kafka.NoProducerID without one.
	ends, commit bool             // Of a marker.
}

func (e *entry) replay(s *group.Shard) error {
	switch {
	case e.ends:
		s.EndTransaction(e.producer, e.commit, e.Offset)
		return nil
	case e.producer != kafka.NoProducerID:
		return s.ReplayPending(e.Record, e.producer)
	}
	return s.Replay(e.Record)
}

// end ends a producer's transaction.
func (w *world) end(producer kafka.ProducerID, commit bool) {
	e := entry{
		Record:   shard.Record{Offset: kafka.Offset(len(w.log)), TimestampMs: w.nowMs},
		producer: producer, ends: true, commit: commit,
	}
	w.log = append(w.log, e)
	if err := e.replay(w.shard); err != nil {
		panic(err)
	}
}

// caller is somebody who waits for a reply.
type caller struct {
	w    *world
	name string
}

// Complete implements shard.Caller.
func (c *caller) Complete(response any) { c.w.printf("%s <- %s\n", c.name, show(response)) }

func (w *world) printf(format string, args ...any) {
	var to io.Writer = &w.out
	if w.silent {
		to = io.Discard
	}
	fmt.Fprintf(to, format, args...)
}

// step runs one step as the host does, with every append committed at once.
func (w *world) step(fn func(fx *shard.Effects)) {
	w.fx.Reset()
	fn(&w.fx)
	if len(w.fx.Records) > 0 && w.reject != kafka.ErrNone {
		code := w.reject
		w.reject = kafka.ErrNone
		w.printf("append fails\n")
		w.fx.Records = nil
		w.shard.Rejected(w.nowMs, &w.fx, code)
		if len(w.fx.Records) > 0 {
			panic("Rejected added records")
		}
	}
	for _, kv := range w.fx.Records {
		w.append(kv)
	}
	for _, r := range w.fx.Replies {
		r.To.Complete(r.Response)
	}
}

func (w *world) append(kv shard.KeyValue) {
	r := shard.Record{
		Key: append([]byte(nil), kv.Key...), Offset: kafka.Offset(len(w.log)), TimestampMs: w.nowMs,
	}
	if kv.Value != nil {
		r.Value = append([]byte{}, kv.Value...)
	}
	text, err := group.DecodeRecord(r.Key, r.Value)
	if err != nil {
		panic(err)
	}
	e := entry{Record: r, producer: kafka.NoProducerID}
	if t := w.fx.Transaction; t != nil {
		e.producer = t.ProducerID
		text += fmt.Sprintf(" in the transaction of %d", t.ProducerID)
	}
	w.printf("record %d: %s\n", r.Offset, text)
	w.log = append(w.log, e)
	if err := e.replay(w.shard); err != nil {
		panic(err)
	}
}

// advance lets time pass, tick by tick.
func (w *world) advance(d time.Duration) {
	end := w.nowMs + d.Milliseconds()
	for steps := 0; ; steps++ {
		next := w.shard.Deadline()
		if next > end {
			break
		}
		if steps > 10_000 {
			panic("the shard ticks without end")
		}
		w.nowMs = max(w.nowMs, next)
		before := w.out.Len()
		w.step(func(fx *shard.Effects) { w.shard.Tick(w.nowMs, fx) })
		if w.out.Len() > before {
			text := w.out.String()
			passed := time.Duration(d.Milliseconds()-end+w.nowMs) * time.Millisecond
			w.out.Reset()
			fmt.Fprintf(&w.out, "%sat +%s:\n%s", text[:before], passed, text[before:])
		}
	}
	w.nowMs = end
}

// replayed returns a shard that has loaded the log.
func (w *world) replayed() *group.Shard {
	s := w.newShard()
	for i := range w.log {
		if err := w.log[i].replay(s); err != nil {
			panic(err)
		}
	}
	s.Loaded(w.nowMs)
	s.Check()
	return s
}

func (w *world) checkReplayLaw(t testing.TB) {
	t.Helper()
	s := w.replayed()
	if diff := cmp.Diff(w.shard.Durable(), s.Durable()); diff != "" {
		t.Errorf("the records rebuild another state (-live +replayed):\n%s", diff)
	}
	for _, g := range s.List(nil, nil, nil) {
		live, _ := w.shard.Describe(g.Group)
		if live.State != group.Stable && live.State != group.Empty {
			continue // In the middle of something soft.
		}
		loaded, _ := s.Describe(g.Group)
		if live.State != loaded.State {
			continue // The last append was rejected.
		}
		if diff := cmp.Diff(live, loaded); diff != "" {
			t.Errorf("group %s (-live +replayed):\n%s", g.Group, diff)
		}
	}
}

// topics is a metadata image in a map.
type topics map[string]topicEntry

type topicEntry struct {
	id         byte
	partitions int32
}

// Topic implements group.Topics.
func (t topics) Topic(name string) (kafka.TopicID, int32, bool) {
	e, ok := t[name]
	return topicID(e.id), e.partitions, ok
}

// TopicName implements group.Topics.
func (t topics) TopicName(id kafka.TopicID) (string, bool) {
	for name, e := range t {
		if topicID(e.id) == id {
			return name, true
		}
	}
	return "", false
}

func topicID(b byte) kafka.TopicID { return kafka.TopicID{15: b} }

// Member ids are shown as client#1 and may be written so.
var (
	longID  = regexp.MustCompile(`-00000000-0000-0000-0000-0000000000([0-9a-f]{2})`)
	shortID = regexp.MustCompile(`#([0-9]+)`)
)

func shortIDs(s string) string {
	return longID.ReplaceAllStringFunc(s, func(id string) string {
		n, _ := strconv.ParseUint(id[len(id)-2:], 16, 8)
		return "#" + strconv.FormatUint(n, 10)
	})
}

func longIDs(s string) string {
	return shortID.ReplaceAllStringFunc(s, func(id string) string {
		n, _ := strconv.Atoi(id[1:])
		return fmt.Sprintf("-00000000-0000-0000-0000-%012x", n)
	})
}

// args reads a command's arguments.
type args struct{ d *datadriven.TestData }

func (a *args) has(key string) bool { return a.d.HasArg(key) }

func (a *args) str(key, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return longIDs(strings.Join(arg.Vals, ","))
		}
	}
	return otherwise
}

func (a *args) list(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			vals := make([]string, len(arg.Vals))
			for i, v := range arg.Vals {
				vals[i] = longIDs(v)
			}
			return vals
		}
	}
	return nil
}

func (a *args) strp(key string) *string {
	if !a.has(key) {
		return nil
	}
	s := a.str(key, "")
	return &s
}

func (a *args) num(key string, otherwise int64) int64 {
	if !a.has(key) {
		return otherwise
	}
	n, err := strconv.ParseInt(a.str(key, ""), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a *args) duration(key string, otherwise time.Duration) time.Duration {
	if !a.has(key) {
		return otherwise
	}
	return mustDuration(a.str(key, ""))
}

func mustDuration(s string) time.Duration {
	if s == "max" {
		return math.MaxInt64
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
