package strandline_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/strandline/strandline"
	"github.com/strandline/strandline/strandlinetest"
)

// damageMetadata flips a bit in the newest record of a broker's metadata.
func damageMetadata(t *testing.T, dir string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "metadata", "segment-*"))
	if err != nil || len(segments) == 0 {
		t.Fatal("no metadata", err)
	}
	name := slices.Max(segments)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(strings.TrimRight(string(data), "\x00"))-12] ^= 8
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// removeVoter takes a broker out of the voters, asking whoever may decide that.
func removeVoter(t *testing.T, cl *kgo.Client, id int32) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-ticker.C {
		var last error
		for _, b := range cl.DiscoveredBrokers() {
			req := kmsg.NewPtrRemoveRaftVoterRequest()
			req.VoterID = id
			resp, err := b.Request(t.Context(), req)
			if err == nil {
				err = kerr.ErrorForCode(resp.(*kmsg.RemoveRaftVoterResponse).ErrorCode)
			}
			if last = err; err == nil {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatal(last)
		}
	}
}

// A voter whose metadata is damaged is not counted, and harms nobody; once it was
// removed it comes back with all that it had, and its replicas are in sync again.
func TestVoterWithDamagedMetadata(t *testing.T) {
	base, log := t.TempDir(), &sharedLog{}
	dir := func(id int32) string { return filepath.Join(base, fmt.Sprint(id)) }
	var second strandline.Config
	c := startOnLoopback(t, 3, log.option, func(c *strandline.Config) {
		c.DataDir = dir(c.NodeID)
		if c.NodeID == 2 {
			second = *c
		}
	}, strandlinetest.WithSetting("default.replication.factor", "3"), strandlinetest.WithSetting("min.insync.replicas", "2"))
	addrs := c.Addrs()
	roundTrip(t, nil, addrs...)
	c.Stop(2)
	damageMetadata(t, dir(2))
	second.ClusterListen, second.ClusterListener = second.Voters[1].Address, nil
	started := make(chan *strandline.Server, 1)
	go func() { // Ends when it serves, or with the test.
		srv, err := strandline.Start(t.Context(), second)
		if err != nil {
			t.Errorf("start it again: %v", err)
		}
		started <- srv
	}()
	log.await(t, "level=ERROR", "the quorum log is damaged and was given up", "node=2")
	roundTrip(t, nil, addrs...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.ListTopics(t.Context()); err != nil { // It learns of the brokers.
		t.Fatal(err)
	}
	removeVoter(t, cl, 2)
	srv := <-started
	if srv == nil {
		t.FailNow()
	}
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for isr := 0; isr < 3; {
		topics, err := adm.ListTopics(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		isr = len(topics["t"].Partitions[0].ISR)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%d replicas in sync", isr)
		}
	}
	kept, err := filepath.Glob(filepath.Join(dir(2), "metadata", "*.damaged"))
	if err != nil || len(kept) == 0 {
		t.Error("nothing was kept of the damaged log", err)
	}
}
