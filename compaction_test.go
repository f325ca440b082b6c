package strandline_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/strandline/strandline/strandlinetest"
)

// TestOffsetsAreCompacted: the topic of committed offsets stays small however
// often a group commits, and the last commits stay.
func TestOffsetsAreCompacted(t *testing.T) {
	const partitions, rounds = 200, 120
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	srv := strandlinetest.Start(t, strandlinetest.OnDisk(dir),
		strandlinetest.WithSetting("offsets.topic.num.partitions", "1"),
		strandlinetest.WithSetting("offsets.topic.segment.bytes", "1048576"),
		strandlinetest.WithSetting("log.cleaner.backoff.ms", "50"))
	adm := kadm.NewClient(client(t, srv.Addr()))
	if _, err := adm.CreateTopic(ctx, partitions, 1, nil, "busy"); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		t.Helper()
		dirs, err := adm.DescribeAllLogDirs(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		dirs.Each(func(d kadm.DescribedLogDir) {
			d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
				if p.Topic == "__consumer_offsets" {
					total += p.Size
				}
			})
		})
		return total
	}
	once := int64(0) // Bytes of one round of commits.
	for round := range int64(rounds) {
		offsets := kadm.Offsets{}
		for p := range int32(partitions) {
			offsets.Add(kadm.Offset{Topic: "busy", Partition: p, At: round, LeaderEpoch: -1, Metadata: "a note of some length"})
		}
		if err := adm.CommitAllOffsets(ctx, "g", offsets); err != nil {
			t.Fatal(err)
		}
		if round == 0 {
			once = size()
		}
	}
	for size() > once*rounds*3/5 {
		select {
		case <-ctx.Done():
			t.Fatalf("%d bytes were written and %d are left", once*rounds, size())
		case <-time.After(20 * time.Millisecond):
		}
	}
	committed, err := adm.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(partitions) {
		if o, ok := committed.Lookup("busy", p); !ok || o.At != rounds-1 {
			t.Fatalf("partition %d: committed offset %v", p, o)
		}
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	again := strandlinetest.Start(t, strandlinetest.OnDisk(dir))
	committed, err = kadm.NewClient(client(t, again.Addr())).FetchOffsets(ctx, "g")
	if o, ok := committed.Lookup("busy", partitions-1); err != nil || !ok || o.At != rounds-1 {
		t.Errorf("after a restart: %v, %v", o, err)
	}
}
