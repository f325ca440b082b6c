package chaos_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readCommitted reads a topic from its start, as those do who read what is committed,
// until more has had enough. Control records are among it: they have offsets too.
func readCommitted(ctx context.Context, t *testing.T, addrs []string, topic string, more func(*kgo.Record) bool) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.MetadataMinAge(50*time.Millisecond), kgo.DialTimeout(time.Second),
		kgo.RequestTimeoutOverhead(2*time.Second), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		for r := range cl.PollFetches(ctx).RecordsAll() {
			if !more(r) {
				return
			}
		}
	}
}

// readAllCommitted reads a topic to its last stable offsets.
func readAllCommitted(t *testing.T, addrs []string, topic string) (all []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(addrs...), kgo.AlwaysRetryEOF())
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatalf("list the last stable offsets: %v %v", err, ends.Error())
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	if len(left) == 0 {
		return nil
	}
	readCommitted(ctx, t, addrs, topic, func(r *kgo.Record) bool {
		if !r.Attrs.IsControl() {
			all = append(all, r)
		}
		if r.Offset+1 >= left[r.Partition] {
			delete(left, r.Partition)
		}
		return len(left) > 0
	})
	if len(left) > 0 {
		t.Fatalf("%s is not read to its end: %v are left", topic, left)
	}
	return all
}
