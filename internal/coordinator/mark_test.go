package coordinator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/coordinator"
	"github.com/strandline/strandline/internal/coordinator/shard"
	"github.com/strandline/strandline/internal/kafka"
)

// ledger is a register whose records may be part of transactions.
type ledger struct {
	*register
	pending map[kafka.ProducerID][]shard.Record
}

func newLedger(n int32) *ledger {
	return &ledger{newRegister(n), map[kafka.ProducerID][]shard.Record{}}
}

func (l *ledger) ReplayPending(r shard.Record, producer kafka.ProducerID) error {
	r.Key, r.Value = append([]byte(nil), r.Key...), append([]byte(nil), r.Value...)
	l.pending[producer] = append(l.pending[producer], r)
	return nil
}

func (l *ledger) EndTransaction(producer kafka.ProducerID, commit bool, marker kafka.Offset) {
	l.offsets = append(l.offsets, marker)
	for _, r := range l.pending[producer] {
		if commit {
			l.values[string(r.Key)] = string(r.Value)
		}
	}
	delete(l.pending, producer)
}

func (l *ledger) Late(fx *shard.Effects, code kafka.Code) {
	for i := range fx.Replies {
		if outcome, ok := fx.Replies[i].Response.(*shard.Outcome); ok {
			outcome.Code = code
			continue
		}
		fx.Replies[i].Response = code.String()
	}
}

func (l *ledger) Unloaded(fx *shard.Effects, code kafka.Code) { l.Late(fx, code) }

// outcomes hears what became of a marker.
type outcomes chan kafka.Code

// Complete implements shard.Caller.
func (o outcomes) Complete(response any) { o <- response.(*shard.Outcome).Code }

// none reports whether nothing was heard.
func (o outcomes) none() bool {
	synctest.Wait()
	return len(o) == 0
}

// TestTransactions: records of a transaction count from its marker on, live and after a
// load, and whoever asked for the marker hears of it when it is committed.
func TestTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordinator.New(coordinator.Options[*ledger]{
			Topic: "topic", New: newLedger, Now: time.Now, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			CodeOf: func(error) kafka.Code { return kafka.ErrInvalidTxnState },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }() // Ended below.
		defer func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		p := &fakePartition{}
		c.Lead(3, p)
		put := func(guard any, producer kafka.ProducerID, key string) {
			t.Helper()
			err := c.Do(3, func(m *ledger, _ int64, fx *shard.Effects) {
				set(fx, key, fmt.Sprint(producer))
				fx.Transaction = &shard.Transaction{ProducerID: producer, Guard: guard}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		mark := func(producer kafka.ProducerID, commit bool) outcomes {
			t.Helper()
			o := make(outcomes, 1)
			if err := c.Mark(3, kafka.NoLeaderEpoch, commitlog.Marker{ProducerID: producer, Commit: commit}, o); err != nil {
				t.Fatal(err)
			}
			return o
		}
		values := func() (got map[string]string) {
			_ = c.View(func(_ int32, m *ledger) { got = m.values })
			return got
		}
		put(p, 1, "a")
		put(p, 2, "b")
		put(nil, 1, "unverified")
		if got := values(); len(got) != 0 {
			t.Errorf("%v before the transactions ended", got)
		}
		first, second := mark(1, true), mark(2, false)
		want := map[string]string{"a": "1"}
		if diff := cmp.Diff(want, values()); diff != "" {
			t.Error(diff)
		}
		if !first.none() || !second.none() {
			t.Error("a marker was reported before it was committed")
		}
		p.commit()
		if one, two := <-first, <-second; one != 0 || two != 0 {
			t.Errorf("the markers are reported with %s and %s", one, two)
		}
		put(p, 3, "open")
		c.Lead(3, p)
		p.commit()
		synctest.Wait()
		if diff := cmp.Diff(want, values()); diff != "" {
			t.Error("after a load: " + diff)
		}
		third := mark(3, true)
		p.depose()
		if code := <-third; code != kafka.ErrNotCoordinator {
			t.Errorf("leadership ended, and the marker is reported with %s", code)
		}
		if err := c.Mark(3, kafka.NoLeaderEpoch, commitlog.Marker{}, third); err == nil {
			t.Error("a marker was taken by a shard that is gone")
		}
	})
}
