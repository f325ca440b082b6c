package partition_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/metadata"
	"github.com/strandline/strandline/internal/partition"
)

// ailing is storage whose logs report damage when they are opened, or later.
type ailing struct {
	partition.Storage
	atOnce bool
	report func(error)
}

func (a *ailing) Log(id kafka.TopicIDPartition, o commitlog.Options) (*commitlog.Log, error) {
	a.report = o.OnDamaged
	if a.atOnce {
		a.report(errors.New("a bit flipped"))
	}
	return a.Storage.Log(id, o)
}

// Who looks for a damaged replica in the table finds it when it is told of it.
func TestDamageIsToldWhenTheTableHasTheReplica(t *testing.T) {
	f := newFixture(t)
	f.Storage = &ailing{Storage: f.dir, atOnce: true}
	found := 0
	f.Troubled = func(p *partition.Partition) {
		if f.Table.GetByID(p.ID().ID, p.ID().Partition) == p {
			found++
		}
	}
	if p := f.topic("orders", 7, 2, 1); !p.Damaged() || found == 0 {
		t.Errorf("damaged %v, found %d times", p.Damaged(), found)
	}
}

// A replica that has fetched under a leader epoch throws nothing away before there is
// another one: until then the leader may count a fetch that is on its way.
func TestDamagedReplicaAwaitsALeaderEpoch(t *testing.T) {
	f := newFixture(t)
	asked := 0
	f.Wants = func(p *partition.Partition) {
		if _, ok := p.WantedISR(); ok {
			asked++
		}
	}
	m := &partition.Mender{Applier: f.Applier, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
	f.Troubled = m.Note
	old := f.topic("orders", 7, 2, 1)
	if _, err := old.Position(3); err != nil {
		t.Fatal(err)
	}
	old.Misfit()
	state := metadata.Partition{Replicas: []kafka.BrokerID{2, 1}, ISR: []kafka.BrokerID{2, 1}, Leader: 2, LeaderEpoch: 3}
	for _, step := range []struct {
		what     string
		change   func()
		replaced bool
	}{
		{"in sync", func() {}, false},
		{"out, under the same leader epoch", func() { state.ISR = []kafka.BrokerID{2} }, false},
		{"under the next leader epoch", func() { state.LeaderEpoch++ }, true},
	} {
		before := asked
		step.change()
		state.PartitionEpoch++
		f.apply(&metadata.PartitionsChanged{ID: kafka.TopicID{7}, Changes: []metadata.PartitionChange{{Partition: state}}})
		if _, err := old.Position(state.LeaderEpoch); !errors.Is(err, partition.ErrDamaged) {
			t.Errorf("%s: it goes on fetching: %v", step.what, err) // The fetcher asks when it likes.
		}
		m.Mend()
		replaced := f.Table.Get("orders", 0) != old
		if replaced != step.replaced {
			t.Errorf("%s: replaced %v", step.what, replaced)
		}
		if !replaced && asked == before {
			t.Errorf("%s: it does not ask to be out", step.what)
		}
	}
}
