package strandline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/strandline/strandline/strandlinetest"
)

// Three brokers are one queue: what was acknowledged is read after one of them has
// stopped, and producers go on.
func TestCluster(t *testing.T) {
	began := time.Now()
	c := strandlinetest.StartCluster(t, 3)
	t.Logf("up in %v", time.Since(began))
	ctx := t.Context()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF(), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 6, 3, map[string]*string{
		"min.insync.replicas": kadm.StringPtr("2"),
	}, "t"); err != nil {
		t.Fatal(err)
	}
	produce := func(n int) {
		t.Helper()
		for i := range n {
			r := &kgo.Record{Value: fmt.Appendf(nil, "record %d", i)}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatalf("produce: %v", err)
			}
		}
	}
	produce(100)
	t.Logf("first hundred after %v", time.Since(began))
	c.Stop(2)
	produce(100)
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs()...), kgo.AlwaysRetryEOF(), kgo.ConsumeTopics("t"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for n := 0; n < 200; {
		fs := reader.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		n += fs.NumRecords()
	}
}
