package broker_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/broker"
	"github.com/strandline/strandline/internal/logtest"
	"github.com/strandline/strandline/internal/vfs/memfs"
)

// voter is a broker beside voters of which no other than it runs.
type voter struct {
	*broker.Broker
	log   logtest.Log
	stop  context.CancelFunc
	ended chan error
}

func startVoter(t *testing.T, disk *memfs.FS, id int32, voters int) *voter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := []broker.Voter{{ID: 1, Address: l.Addr().String()}, {ID: 2, Address: "127.0.0.1:1"}, {ID: 3, Address: "127.0.0.1:1"}}
	return runVoter(t, disk, id, l, all[:voters])
}

// runVoter starts a broker of a cluster, which listens for the others with l.
func runVoter(t *testing.T, disk *memfs.FS, id int32, l net.Listener, voters []broker.Voter) *voter {
	t.Helper()
	var err error
	v := &voter{ended: make(chan error, 1)}
	v.Broker, err = broker.New(t.Context(), broker.Config{
		FS: disk, Listen: "127.0.0.1:0", NodeID: id, ClusterListener: l, Voters: voters,
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

// TestAStartSaysWhatItWaitsFor: the first of three voters to start waits for the others, and so does who is to join them;
// they do not look as if they hung.
func TestAStartSaysWhatItWaitsFor(t *testing.T) {
	for _, id := range []int32{1, 9} {
		v := startVoter(t, memfs.New(), id, 3)
		for end := time.Now().Add(20 * time.Second); len(v.log.With("waiting for the other voters")) == 0; {
			if time.Now().After(end) {
				t.Error("no line in the log")
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		if told := v.log.With("waiting for the other voters"); len(told) > 0 &&
			!strings.Contains(told[0], "2: broker at 127.0.0.1:1: nobody listens there") {
			t.Errorf("broker %d does not say why: %q", id, told)
		}
		if told := v.log.With("have no vote"); len(told) > 0 {
			t.Errorf("a new broker %d is told of others: %q", id, told)
		}
		v.end(t)
	}
}

// TestVotersOfTheDirectoryCount: who adds voters to the flags of a broker that was alone is told that it takes more.
func TestVotersOfTheDirectoryCount(t *testing.T) {
	disk := memfs.New()
	for _, voters := range []int{1, 3} {
		v := startVoter(t, disk, 1, voters)
		select {
		case <-v.Ready():
		case err := <-v.ended:
			t.Fatal(err)
		}
		if told := v.log.With("have no vote"); len(told) != voters/2 {
			t.Errorf("with %d voters: %q", voters, told)
		} else if len(told) > 0 && (!strings.Contains(told[0], "voters=[1] told=\"[1 2 3]\" without_vote=\"[2 3]\"") ||
			!strings.Contains(told[0], "strandline cluster add")) {
			t.Errorf("it says %q", told[0])
		}
		v.end(t)
	}
}

// TestAClusterOfItsOwnIsTold: who forgets --voters at the first start of a broker, and gives them at the next, is not sent
// looking for votes: the broker and those that it is to join never heard of one another.
func TestAClusterOfItsOwnIsTold(t *testing.T) {
	disk := memfs.New()
	for _, voters := range []int{0, 3} {
		v := startVoter(t, disk, 9, voters)
		select {
		case <-v.Ready():
		case err := <-v.ended:
			t.Fatal(err)
		}
		if told := v.log.With("have no vote"); len(told) > 0 {
			t.Errorf("with %d voters it is told of votes: %q", voters, told)
		}
		if told := v.log.With("a cluster of its own"); len(told) != voters/3 {
			t.Errorf("with %d voters: %q", voters, told)
		} else if len(told) > 0 && (!strings.Contains(told[0], "empty data directory") || !strings.Contains(told[0], `told="[1 2 3]"`)) {
			t.Errorf("it says %q", told[0])
		}
		v.end(t)
	}
}
