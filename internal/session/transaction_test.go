package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/group"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/refusal"
	"github.com/strandline/strandline/internal/session"
)

// TestRewindInTransaction: what is committed is not known while a transaction with offsets
// is open, so a rewind waits for its end, as long as a caller waits for its session.
func TestRewindInTransaction(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		w.createTopic("t", 1, 1)
		w.produce("t", 0, record.CodecNone, "a", "b")
		got, _ := w.consume(session.Consume{})
		want(t, got, "0:0=a", "0:1=b")
		const producer = 9
		commit := func(at kafka.Offset) {
			t.Helper()
			err := w.sessions.Commit(t.Context(), session.Commit{
				Group: "g", Topic: "t", Offsets: []session.Next{{Partition: 0, Offset: at}},
				In: &session.Transaction{
					ID: "x", ProducerID: producer, Enter: func(context.Context) (any, error) { return nil, nil },
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		end := func(committed bool) {
			_ = w.Do("g", func(m *group.Shard, _ int64, _ *shard.Effects) { m.EndTransaction(producer, committed, w.next) })
		}
		commit(1)
		time.AfterFunc(3*time.Second, func() { end(true) })
		got, _ = w.consume(session.Consume{Rewind: true})
		want(t, got, "0:1=b")
		commit(2)
		time.AfterFunc(30*time.Second, func() { end(false) })
		begun := time.Now()
		_, err := w.sessions.Consume(t.Context(), session.Consume{
			Group: "g", Topic: "t", Rewind: true, Wait: 10 * time.Second, MaxBytes: 1,
		}, &page{})
		waited := time.Since(begun)
		if refusal.CodeOf(err) != kafka.ErrUnstableOffsetCommit || waited < 10*time.Second || waited > 11*time.Second {
			t.Errorf("after %v: %v", waited, err)
		}
		got, _ = w.consume(session.Consume{Rewind: true, Wait: time.Minute})
		want(t, got, "0:1=b")
	})
}
