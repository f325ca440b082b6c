package broker_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// voter is broker 1 of some voters, of which no other runs.
type voter struct {
	*broker.Broker
	log   lines
	stop  context.CancelFunc
	ended chan error
}

func startVoter(t *testing.T, disk *memfs.FS, voters int) *voter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := []broker.Voter{{ID: 1, Address: l.Addr().String()}, {ID: 2, Address: "127.0.0.1:1"}, {ID: 3, Address: "127.0.0.1:1"}}
	v := &voter{ended: make(chan error, 1)}
	v.Broker, err = broker.New(t.Context(), broker.Config{
		FS: disk, Listen: "127.0.0.1:0", NodeID: 1, ClusterListener: l, Voters: all[:voters],
		Logger: slog.New(slog.NewTextHandler(&v.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	v.stop = stop
	go func() { v.ended <- v.Run(ctx) }() // Ends with stop.
	return v
}

func (v *voter) end(t *testing.T) {
	t.Helper()
	v.stop()
	if err := <-v.ended; err != nil {
		t.Error(err)
	}
}

// TestAStartSaysWhatItWaitsFor: the first of three voters to start waits for the others, and does not look as if it hung.
func TestAStartSaysWhatItWaitsFor(t *testing.T) {
	v := startVoter(t, memfs.New(), 3)
	for end := time.Now().Add(20 * time.Second); len(v.log.with("waiting for the other voters")) == 0; {
		if time.Now().After(end) {
			t.Error("no line in the log")
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	v.end(t)
}

// TestVotersOfTheDirectoryCount: who adds voters to the flags of a broker that was alone is told that it takes more.
func TestVotersOfTheDirectoryCount(t *testing.T) {
	disk := memfs.New()
	for _, voters := range []int{1, 3} {
		v := startVoter(t, disk, voters)
		select {
		case <-v.Ready():
		case err := <-v.ended:
			t.Fatal(err)
		}
		if told := v.log.with("knows other voters"); len(told) != voters/2 {
			t.Errorf("with %d voters: %q", voters, told)
		}
		v.end(t)
	}
}
