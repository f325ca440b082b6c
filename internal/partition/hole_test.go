package partition_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/commitlog"
	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/partition"
	"github.com/strandline/strandline/internal/record"
	"github.com/strandline/strandline/internal/vfs"
)

// peers are the other replicas of a partition, with what they answer.
type peers struct {
	ids    []kafka.BrokerID
	answer map[kafka.BrokerID]func(from kafka.Offset) ([]record.Batch, error)
	asked  []kafka.BrokerID
}

func (p *peers) Replicas(*partition.Partition) []kafka.BrokerID { return p.ids }

func (p *peers) ReadFrom(
	_ context.Context, id kafka.BrokerID, _ *partition.Partition, from kafka.Offset,
) ([]record.Batch, error) {
	p.asked = append(p.asked, id)
	return p.answer[id](from)
}

// A follower asks its leader first and whoever else is there, keeps its log where nobody has
// what is damaged, and gives it up only for one that has.
func TestHoles(t *testing.T) {
	unreachable := func(kafka.Offset) ([]record.Batch, error) { return nil, errors.New("it is down") }
	damagedToo := func(kafka.Offset) ([]record.Batch, error) { return nil, &kafka.Error{Code: kafka.ErrCorruptMessage} }
	nothing := func(kafka.Offset) ([]record.Batch, error) { return nil, nil }
	gives := func(p func(from kafka.Offset) []record.Batch) func(kafka.Offset) ([]record.Batch, error) {
		return func(from kafka.Offset) ([]record.Batch, error) { return p(from), nil }
	}
	right := gives(func(from kafka.Offset) []record.Batch { return ordered(t, from, from+1) })
	other := gives(func(from kafka.Offset) []record.Batch { return batchAt(t, from, 2, "of another epoch") })
	breaksOff := func(from kafka.Offset) ([]record.Batch, error) {
		if from > 3 {
			return damagedToo(from)
		}
		return batchAt(t, from, 2, "of another epoch"), nil
	}
	type answers = map[kafka.BrokerID]func(kafka.Offset) ([]record.Batch, error)
	for name, c := range map[string]struct {
		answer         answers
		mended, misfit bool
		asked          []kafka.BrokerID
	}{
		"of the leader":                     {answers{2: right, 3: unreachable}, true, false, []kafka.BrokerID{2, 2}},
		"of another, the leader is down":    {answers{2: unreachable, 3: right}, true, false, []kafka.BrokerID{2, 3, 3}},
		"of another, the leader's is lost":  {answers{2: damagedToo, 3: right}, true, false, []kafka.BrokerID{2, 3, 3}},
		"nobody is there":                   {answers{2: unreachable, 3: unreachable}, false, false, []kafka.BrokerID{2, 3}},
		"all have lost it":                  {answers{2: damagedToo, 3: damagedToo}, false, false, []kafka.BrokerID{2, 3}},
		"nobody has it yet":                 {answers{2: nothing, 3: nothing}, false, false, []kafka.BrokerID{2, 3}},
		"the leader has others":             {answers{2: other, 3: right}, false, true, []kafka.BrokerID{2, 2, 2}},
		"another has others":                {answers{2: damagedToo, 3: other}, false, false, []kafka.BrokerID{2, 3}},
		"the leader has others, not to end": {answers{2: breaksOff, 3: unreachable}, false, false, []kafka.BrokerID{2, 2, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			others := &peers{ids: []kafka.BrokerID{2, 3}, answer: c.answer}
			m := &partition.Mender{Applier: f.Applier, Peers: others, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
			f.Troubled = m.Note
			p := f.topic("orders", 7, 2, 1, 3)
			if _, err := p.AppendAsFollower(3, partition.Fetched{Batches: ordered(t, 0, 9)}); err != nil {
				t.Fatal(err)
			}
			f.ruin(p, 3, 5)
			if !p.Damaged() {
				t.Fatal("nobody has noticed")
			}
			m.Mend()
			if p.Damaged() == c.mended || !slices.Equal(others.asked, c.asked) {
				t.Errorf("damaged %v, asked %v, want %v", p.Damaged(), others.asked, c.asked)
			}
			if _, err := p.Position(3); errors.Is(err, partition.ErrDamaged) != c.misfit {
				t.Errorf("it follows: %v", err)
			}
			var got []byte
			err := p.Log().Batches(0, 9, func(b record.Batch) error {
				got = append(got, b.Bytes()...)
				return nil
			})
			var want []byte
			for _, b := range ordered(t, 0, 9) {
				want = append(want, b.Bytes()...)
			}
			if (err == nil) != c.mended || c.mended && !bytes.Equal(got, want) {
				t.Errorf("%v, %d bytes, want %d", err, len(got), len(want))
			}
		})
	}
}

// ordered returns one batch for each offset, of leader epoch 3.
func ordered(t *testing.T, from, to kafka.Offset) []record.Batch {
	var bs []record.Batch
	for at := from; at < to; at++ {
		bs = append(bs, batchAt(t, at, 3, fmt.Sprint("value-", at))...)
	}
	return bs
}

func batchAt(t *testing.T, at kafka.Offset, epoch kafka.LeaderEpoch, value string) []record.Batch {
	b, _, err := record.Next(bytes.Clone(batch(t, value)[0].Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	b.Stamp(at, epoch)
	return []record.Batch{b}
}

// ruin flips a bit in each batch of some offsets, and has a reader find out.
func (f *fixture) ruin(p *partition.Partition, from, to kafka.Offset) {
	f.t.Helper()
	file, err := f.fs.Open(commitlog.LogDir(p.ID())+"/00000000000000000000.log", vfs.ReadWrite)
	if err != nil {
		f.t.Fatal(err)
	}
	position := int64(0)
	for _, b := range ordered(f.t, 0, to) {
		if b.BaseOffset() >= from {
			bit := []byte{b.Bytes()[65] ^ 1}
			if _, err := file.WriteAt(bit, position+65); err != nil {
				f.t.Fatal(err)
			}
		}
		position += int64(b.Size())
	}
	if err := errors.Join(file.Close(), p.Log().Batches(0, to, func(record.Batch) error { return nil })); err == nil {
		f.t.Fatal("nothing is damaged")
	}
}
