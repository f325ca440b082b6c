package peer_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/kafka"
	"github.com/strandline/strandline/internal/netx"
	"github.com/strandline/strandline/internal/peer"
	"github.com/strandline/strandline/internal/quorum"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// plain is a machine that does nothing.
type plain struct{}

func (plain) Apply(uint64, []byte) error   { return nil }
func (plain) Snapshot() ([]byte, error)    { return nil, nil }
func (plain) Restore(uint64, []byte) error { return nil }

// overTCP runs three voters on the operating system's network and returns one that
// leads.
func overTCP(b *testing.B) *quorum.Quorum {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended []chan error
	var quorums []*quorum.Quorum
	b.Cleanup(func() {
		cancel()
		for _, e := range ended {
			if err := <-e; err != nil {
				b.Error(err)
			}
		}
		for _, q := range quorums {
			_ = q.Close()
		}
	})
	run := func(f func(context.Context) error) {
		e := make(chan error, 1)
		ended = append(ended, e)
		go func() { e <- f(ctx) }()
	}
	voters, ids := map[kafka.BrokerID]string{}, []kafka.BrokerID{0, 1, 2}
	hosts := map[kafka.BrokerID]*host{}
	rafts := map[kafka.BrokerID]*peer.Raft{}
	for _, id := range ids {
		rafts[id] = peer.NewRaft(peer.RaftOptions{
			Self: quorum.Member{ID: id, Directory: [16]byte{byte(id + 1)}}, Voters: voters,
			Conn: peer.Options{Network: netx.TCP{}},
		})
		hosts[id] = listen(b, netx.TCP{}, "127.0.0.1:0", slog.New(slog.DiscardHandler), rafts[id].API())
		voters[id] = hosts[id].address
	}
	active := make(chan *quorum.Quorum, 10)
	for _, id := range ids {
		var q *quorum.Quorum
		q, err := quorum.Open(quorum.Options{
			FS: memfs.New(), Dir: "metadata", NodeID: id, Voters: ids, Machine: plain{}, Transport: rafts[id],
			OnLeader: func(l quorum.Leadership) {
				if l.Active {
					active <- q
				}
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		rafts[id].Attach(q)
		quorums = append(quorums, q)
		run(rafts[id].Run)
		run(q.Run)
	}
	select {
	case q := <-active:
		return q
	case <-time.After(10 * time.Second):
		b.Fatal("no leader")
		return nil
	}
}

// BenchmarkDoOverTCP is one decision after the other, each on two disks in memory.
func BenchmarkDoOverTCP(b *testing.B) {
	q := overTCP(b)
	entry := make([]byte, 100)
	for b.Loop() {
		if err := q.Do(b.Context(), func() ([]byte, error) { return entry, nil }); err != nil {
			b.Fatal(err)
		}
	}
}
