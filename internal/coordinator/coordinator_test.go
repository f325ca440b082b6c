package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
)

// register is a machine that remembers the last value of each key, and an alarm.
type register struct {
	values   map[string]string
	offsets  []kafka.Offset
	loadedMs int64
	alarmMs  int64
	parked   []shard.Caller
	rejected int
}

func newRegister(int32) *register {
	return &register{values: map[string]string{}, alarmMs: shard.NoDeadline}
}

func (r *register) Replay(rec shard.Record) error {
	if len(rec.Key) == 0 {
		return errors.New("no key")
	}
	r.offsets = append(r.offsets, rec.Offset)
	if rec.Value == nil {
		delete(r.values, string(rec.Key))
		return nil
	}
	r.values[string(rec.Key)] = string(rec.Value)
	return nil
}

func (r *register) Loaded(nowMs int64) { r.loadedMs = nowMs }

func (r *register) Deadline() int64 { return r.alarmMs }

func (r *register) Tick(nowMs int64, fx *shard.Effects) {
	r.alarmMs = shard.NoDeadline
	set(fx, "alarm", fmt.Sprint(nowMs))
	for _, c := range r.parked {
		fx.Reply(c, "alarm")
	}
	r.parked = nil
}

func (r *register) Rejected(_ int64, fx *shard.Effects, code kafka.Code) {
	r.rejected++
	for i := range fx.Replies {
		fx.Replies[i].Response = code.String()
	}
}

func (r *register) Late(fx *shard.Effects, code kafka.Code) {
	for i := range fx.Replies {
		fx.Replies[i].Response = code.String()
	}
}

func (r *register) Unloaded(fx *shard.Effects, code kafka.Code) {
	for _, c := range r.parked {
		fx.Reply(c, nil)
	}
	for i := range fx.Replies {
		fx.Replies[i].Response = code.String()
	}
}

func set(fx *shard.Effects, key, value string) {
	fx.Append(
		func(dst []byte) []byte { return append(dst, key...) },
		func(dst []byte) []byte { return append(dst, value...) },
	)
}

// mailbox collects replies.
type mailbox struct {
	mu  sync.Mutex
	got []string
}

type letter struct {
	box  *mailbox
	name string
}

// Complete implements shard.Caller.
func (l letter) Complete(response any) {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	l.box.got = append(l.box.got, fmt.Sprintf("%s: %v", l.name, response))
}

// take returns what came since the last take, once the bubble is quiet.
func (b *mailbox) take() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	s := strings.Join(b.got, ", ")
	b.got = nil
	return s
}

// bench is a coordinator that runs in a bubble.
type bench struct {
	*coordinator.Coordinator[*register]
	t    *testing.T
	box  mailbox
	p    *fakePartition
	stop func()
}

// inBubble runs fn with a coordinator that leads partition 3 of an empty topic.
func inBubble(t *testing.T, change func(*coordinator.Options[*register]), fn func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		o := coordinator.Options[*register]{
			Topic: "topic", New: newRegister, Now: time.Now,
			CodeOf: func(err error) kafka.Code {
				if errors.Is(err, errDiskFull) {
					return kafka.ErrCoordinatorNotAvailable
				}
				return kafka.ErrNotCoordinator
			},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		if change != nil {
			change(&o)
		}
		b := &bench{Coordinator: coordinator.New(o), t: t, p: &fakePartition{}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }() // Ended by stop, at the latest below.
		var once sync.Once
		b.stop = func() {
			once.Do(func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		}
		defer b.stop()
		b.Lead(3, b.p)
		fn(b)
	})
}

// put sets a key; the reply is the value.
func (b *bench) put(name, key, value string) error {
	return b.Do(3, func(_ *register, _ int64, fx *shard.Effects) {
		set(fx, key, value)
		fx.Reply(letter{&b.box, name}, value)
	})
}

func (b *bench) mustPut(name, key, value string) {
	b.t.Helper()
	if err := b.put(name, key, value); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) expect(want string) {
	b.t.Helper()
	if got := b.box.take(); got != want {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

func (b *bench) values() map[string]string {
	b.t.Helper()
	values := map[string]string{}
	if err := b.View(func(_ int32, m *register) {
		for k, v := range m.values {
			values[k] = v
		}
	}); err != nil {
		b.t.Fatal(err)
	}
	return values
}

func codeOf(t *testing.T, err error) kafka.Code {
	t.Helper()
	var coded *kafka.Error
	if !errors.As(err, &coded) || coded.Message == "" {
		t.Fatalf("error %v has no code or no message", err)
	}
	return coded.Code
}

func TestRepliesWaitForHighWatermark(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.mustPut("a", "k", "1")
		b.mustPut("b", "k", "2")
		b.expect("")
		// What is appended is seen at once by the next step.
		if got := b.values()["k"]; got != "2" {
			t.Errorf("k = %q", got)
		}
		b.p.set(func(p *fakePartition) { p.raiseLocked(1) })
		b.expect("a: 1")
		b.mustPut("c", "k", "3")
		b.p.commit()
		b.expect("b: 2, c: 3")
	})
}

func TestReadsWaitForWhatTheySaw(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		read := func(name string, wait kafka.Offset) {
			err := b.Do(3, func(m *register, _ int64, fx *shard.Effects) {
				if wait >= 0 {
					fx.WaitFor(wait)
				}
				fx.Reply(letter{&b.box, name}, m.values["k"])
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		b.mustPut("w", "k", "1")
		read("soft", -1) // Waits for nothing, not even for those before it.
		b.expect("soft: 1")
		read("durable", 0)
		b.expect("")
		b.p.commit()
		b.expect("w: 1, durable: 1")
		read("later", 0)
		b.expect("later: 1")
	})
}

// TestLateRepliesAreRefused: nobody waits longer than the time-out, whether for a
// write of its own or for one it has seen, and each counts for itself. What was
// written stays, and those who come in time are answered.
func TestLateRepliesAreRefused(t *testing.T) {
	var log strings.Builder
	inBubble(t, func(o *coordinator.Options[*register]) {
		o.WriteTimeout = 5 * time.Second
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}, func(b *bench) {
		b.mustPut("a", "k", "1")
		err := b.Do(3, func(m *register, _ int64, fx *shard.Effects) {
			fx.WaitFor(0)
			fx.Reply(letter{&b.box, "read"}, m.values["k"])
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(3 * time.Second)
		b.mustPut("b", "k", "2")
		<-time.After(1999 * time.Millisecond)
		b.expect("")
		<-time.After(time.Millisecond)
		b.expect("a: COORDINATOR_NOT_AVAILABLE, read: COORDINATOR_NOT_AVAILABLE")
		<-time.After(time.Second)
		b.mustPut("c", "k", "3")
		<-time.After(2 * time.Second)
		b.expect("b: COORDINATOR_NOT_AVAILABLE")
		b.p.commit()
		b.expect("c: 3")
		<-time.After(time.Hour)
		b.expect("")
		b.mustPut("d", "k", "4")
		b.p.commit()
		b.expect("d: 4")
		if got := b.values()["k"]; got != "4" {
			t.Errorf("k is %q", got)
		}
	})
	if n := strings.Count(log.String(), "in time"); n != 1 {
		t.Errorf("one stall was logged %d times:\n%s", n, log.String())
	}
}

func TestSyncedAtOnceIsAnsweredAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.p.set(func(p *fakePartition) { p.sync = true })
		b.mustPut("a", "k", "1")
		b.expect("a: 1")
	})
}

func TestNotCoordinator(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		nothing := func(*register, int64, *shard.Effects) { t.Error("a step ran") }
		for _, partition := range []int32{-1, 0, 4, 1 << 30} {
			if got := codeOf(t, b.Do(partition, nothing)); got != kafka.ErrNotCoordinator {
				t.Errorf("partition %d: %v", partition, got)
			}
		}
		b.mustPut("a", "k", "1")
		if err := b.Do(3, func(m *register, _ int64, _ *shard.Effects) {
			m.parked = append(m.parked, letter{&b.box, "parked"})
		}); err != nil {
			t.Fatal(err)
		}
		b.Resign(3)
		b.expect("a: NOT_COORDINATOR, parked: NOT_COORDINATOR")
		b.Resign(3)
		if got := codeOf(t, b.Do(3, nothing)); got != kafka.ErrNotCoordinator {
			t.Errorf("after Resign: %v", got)
		}
	})
}

func TestStopAnswersEverybody(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.mustPut("a", "k", "1")
		b.stop()
		b.expect("a: NOT_COORDINATOR")
	})
}

func TestLeadershipLostWithoutWord(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.mustPut("a", "k", "1")
		b.p.depose()
		b.expect("a: NOT_COORDINATOR")
		if got := codeOf(t, b.put("b", "k", "2")); got != kafka.ErrNotCoordinator {
			t.Error(got)
		}
		if got := b.values(); len(got) > 0 {
			t.Errorf("a dropped shard shows %v", got)
		}
	})
	// With nobody parked, the next append finds out.
	inBubble(t, nil, func(b *bench) {
		if err := b.Do(3, func(m *register, _ int64, _ *shard.Effects) {
			m.parked = append(m.parked, letter{&b.box, "parked"})
		}); err != nil {
			t.Fatal(err)
		}
		b.p.depose()
		b.mustPut("b", "k", "2")
		b.expect("b: NOT_COORDINATOR, parked: NOT_COORDINATOR")
	})
}

func TestAppendFails(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		b.p.set(func(p *fakePartition) { p.appendErr = errDiskFull })
		b.mustPut("a", "k", "1")
		b.expect("a: COORDINATOR_NOT_AVAILABLE")
		if len(b.values()) > 0 {
			t.Error("what was not appended was replayed")
		}
		b.p.set(func(p *fakePartition) { p.appendErr, p.sync = nil, true })
		b.mustPut("b", "k", "2")
		b.expect("b: 2")
	})
}

func TestQueueIsBounded(t *testing.T) {
	inBubble(t, func(o *coordinator.Options[*register]) { o.MaxParked = 2 }, func(b *bench) {
		b.mustPut("a", "k", "1")
		b.mustPut("b", "k", "2")
		if got := codeOf(t, b.put("c", "k", "3")); got != kafka.ErrCoordinatorLoadInProgress {
			t.Error(got)
		}
		b.p.commit()
		b.expect("a: 1, b: 2")
		b.mustPut("d", "k", "4")
	})
}

func TestTicksAtDeadline(t *testing.T) {
	inBubble(t, nil, func(b *bench) {
		start := time.Now()
		alarm := func(after time.Duration) {
			if err := b.Do(3, func(m *register, nowMs int64, _ *shard.Effects) {
				m.alarmMs = nowMs + after.Milliseconds()
				m.parked = append(m.parked, letter{&b.box, after.String()})
			}); err != nil {
				t.Fatal(err)
			}
		}
		b.p.set(func(p *fakePartition) { p.sync = true })
		alarm(time.Hour)
		alarm(3 * time.Second) // Earlier: the timer moves forward.
		<-time.After(2999 * time.Millisecond)
		b.expect("")
		<-time.After(time.Millisecond)
		b.expect("1h0m0s: alarm, 3s: alarm")
		want := fmt.Sprint(start.Add(3 * time.Second).UnixMilli())
		if got := b.values()["alarm"]; got != want {
			t.Errorf("ticked at %s, want %s", got, want)
		}
		b.Notify(func(m *register) { m.alarmMs = 0 })
		synctest.Wait()
		if got := b.values()["alarm"]; got != want {
			t.Errorf("Notify: ticked at %s, want %s", got, want)
		}
	})
}

func TestManyRecordsMakeSeveralBatches(t *testing.T) {
	inBubble(t, func(o *coordinator.Options[*register]) { o.MaxBatchBytes = 1000 }, func(b *bench) {
		if err := b.Do(3, func(_ *register, _ int64, fx *shard.Effects) {
			for i := range 100 {
				set(fx, fmt.Sprint(i), strings.Repeat("x", 90))
			}
			fx.Reply(letter{&b.box, "a"}, "done")
		}); err != nil {
			t.Fatal(err)
		}
		b.p.commit()
		b.expect("a: done")
		if b.p.appends != 1 || len(b.p.log) < 10 {
			t.Errorf("%d appends of %d batches", b.p.appends, len(b.p.log))
		}
		for _, data := range b.p.log {
			batch, _, err := record.Next(data)
			if err != nil || batch.CheckCRC() != nil || batch.Size() > 1000 {
				t.Errorf("batch of %d bytes: %v", len(data), err)
			}
		}
		if got := len(b.values()); got != 100 {
			t.Errorf("%d values", got)
		}
	})
}

func TestRecordTooLarge(t *testing.T) {
	inBubble(t, func(o *coordinator.Options[*register]) {
		o.MaxBatchBytes = 1000
		o.CodeOf = func(err error) kafka.Code { return codeOf(t, err) }
	}, func(b *bench) {
		if err := b.Do(3, func(_ *register, _ int64, fx *shard.Effects) {
			set(fx, "small", "x")
			set(fx, "large", strings.Repeat("x", 1000))
			fx.Reply(letter{&b.box, "a"}, "done")
		}); err != nil {
			t.Fatal(err)
		}
		b.expect("a: UNKNOWN_SERVER_ERROR")
		// Nothing of it is left behind.
		b.mustPut("b", "k", "1")
		b.p.commit()
		b.expect("b: 1")
		if diff := cmp.Diff(map[string]string{"k": "1"}, b.values()); diff != "" {
			t.Error(diff)
		}
		if b.p.end != 1 {
			t.Errorf("log ends at %d", b.p.end)
		}
	})
}

// TestCodesOfFailedAppends: what a produce would be told becomes what a
// coordinator's client understands.
func TestCodesOfFailedAppends(t *testing.T) {
	for code, want := range map[kafka.Code]kafka.Code{
		kafka.ErrNotEnoughReplicas:       kafka.ErrCoordinatorNotAvailable,
		kafka.ErrNotLeaderOrFollower:     kafka.ErrNotCoordinator,
		kafka.ErrFencedLeaderEpoch:       kafka.ErrNotCoordinator,
		kafka.ErrUnknownLeaderEpoch:      kafka.ErrNotCoordinator,
		kafka.ErrKafkaStorageError:       kafka.ErrNotCoordinator,
		kafka.ErrCorruptMessage:          kafka.ErrNotCoordinator,
		kafka.ErrRecordListTooLarge:      kafka.ErrUnknownServerError,
		kafka.ErrCoordinatorNotAvailable: kafka.ErrCoordinatorNotAvailable,
	} {
		inBubble(t, func(o *coordinator.Options[*register]) {
			o.CodeOf = func(error) kafka.Code { return code }
		}, func(b *bench) {
			b.p.set(func(p *fakePartition) { p.appendErr = errDiskFull })
			b.mustPut("a", "k", "1")
			b.expect("a: " + want.String())
		})
	}
}

func TestPartitionOf(t *testing.T) {
	// Expected: what Java computes for abs(id.hashCode()) % 50.
	got := map[string]int32{}
	want := map[string]int32{
		"": 0, "a": 47, "console-consumer-1": 24, "groupé": 6, "\U0001F600": 49,
		"polygenelubricants": 0, // Its hash code is the least int32.
	}
	for id := range want {
		got[id] = coordinator.PartitionOf(id, 50)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzPartitionOf(f *testing.F) {
	f.Add("group", uint16(50))
	f.Fuzz(func(t *testing.T, id string, n uint16) {
		partitions := int32(n) + 1
		if p := coordinator.PartitionOf(id, partitions); p < 0 || p >= partitions {
			t.Errorf("partition %d of %d", p, partitions)
		}
	})
}
