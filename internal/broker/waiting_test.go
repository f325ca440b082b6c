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

// TestAStartSaysWhatItWaitsFor: the first of three voters to start waits for the others, and does not look as if it hung.
func TestAStartSaysWhatItWaitsFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	b, err := broker.New(t.Context(), broker.Config{
		FS: memfs.New(), Listen: "127.0.0.1:0", NodeID: 1, ClusterListener: l,
		Voters: []broker.Voter{{ID: 1, Address: l.Addr().String()}, {ID: 2, Address: "127.0.0.1:1"}, {ID: 3, Address: "127.0.0.1:1"}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }() // Ends with stop.
	for end := time.Now().Add(20 * time.Second); len(log.with("waiting for the other voters")) == 0; {
		if time.Now().After(end) {
			t.Error("no line in the log")
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestVotersOfTheDirectoryCount: who adds voters to the flags of a broker that was alone is told that it takes more.
func TestVotersOfTheDirectoryCount(t *testing.T) {
	disk := memfs.New()
	for _, voters := range []int{1, 3} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		all := []broker.Voter{{ID: 1, Address: l.Addr().String()}, {ID: 2, Address: "127.0.0.1:1"}, {ID: 3, Address: "127.0.0.1:1"}}
		var log lines
		b, err := broker.New(t.Context(), broker.Config{
			FS: disk, Listen: "127.0.0.1:0", NodeID: 1, ClusterListener: l, Voters: all[:voters],
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }() // Ends with stop.
		select {
		case <-b.Ready():
		case err := <-ended:
			t.Fatal(err)
		}
		if told := log.with("knows other voters"); len(told) != voters/2 {
			t.Errorf("with %d voters: %q", voters, told)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
